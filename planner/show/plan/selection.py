"""Which gangs of a plan are shown: ``--gang``, ``--namespace``, ``--decision``, ``--all``."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from models.instance.solution import Decision
from planner.errors import Fault, UsageError
from planner.show.text import Format

if TYPE_CHECKING:
    from models.documents.plan import GangKey, PlanGang

DECISIONS: tuple[str, ...] = get_args(Decision)


@dataclass(frozen=True, slots=True)
class Selection:
    """The gangs that every given filter takes; without filters all of them.

    ``gangs``: ``[NAMESPACE/]NAME``. ``everything``: one row for each gang, whatever its decision.
    """

    gangs: tuple[str, ...] = ()
    namespace: str | None = None
    decisions: tuple[str, ...] = ()
    everything: bool = False

    @property
    def filters(self) -> bool:
        return bool(self.gangs or self.namespace is not None or self.decisions)

    def check_options(self, output: Format) -> None:
        """Raises UsageError for an unknown decision, and for filters of a whole document."""
        for decision in self.decisions:
            _check("--decision", decision, DECISIONS, "decision")
        if self.filters and output in (Format.json, Format.yaml):
            what = (
                f"--gang, --namespace and --decision do not cut the document of -o {output.value}"
            )
            hint = "use -o table, wide or name with them, or explain PLAN GANG -o json"
            raise UsageError(Fault(what, hint))

    def check(self, known: Collection[GangKey]) -> None:
        """Raises UsageError for a gang or a namespace that is not among ``known``."""
        if self.namespace is not None:
            _check("--namespace", self.namespace, {one for one, _ in known}, "namespace")
        for name in self.gangs:
            matching(name, self.namespace, known, "--gang")

    def takes(self, gang: PlanGang) -> bool:
        """Whether the gang is shown."""
        return (
            (not self.decisions or gang.decision in self.decisions)
            and self.namespace in (None, gang.namespace)
            and (not self.gangs or any(_is(name, gang.key) for name in self.gangs))
        )


def _check(option: str, given: str, known: Collection[str], what: str) -> None:
    """Raises UsageError, with the name that may be meant."""
    if given not in known:
        from models.documents.base import suggestion

        said = "no gang in this namespace" if what == "namespace" else f"no such {what}"
        raise UsageError(Fault(f"{option} {given}: {said}", suggestion(given, known, f"{what}s")))


EVERY_GANG = Selection()


def matching(
    name: str, namespace: str | None, known: Iterable[GangKey], option: str
) -> list[GangKey]:
    """The gangs that ``[NAMESPACE/]NAME`` means, in ``namespace`` if given.

    Raises UsageError if there is none; ``option`` is what was given.
    """
    keys = sorted(key for key in known if namespace in (None, key[0]))
    found = [key for key in keys if _is(name, key)]
    if found:
        return found
    bare = name.rpartition("/")[2]
    alike = difflib.get_close_matches(bare, {one for _, one in keys}, n=1)
    close = ["/".join(key) if "/" in name else key[1] for key in keys if key[1] in alike]
    where = "" if namespace is None else f" in namespace {namespace}"
    hint = f"did you mean {close[0]}?" if close else "show PLAN --all lists the gangs of a plan"
    raise UsageError(Fault(f"{option} {name}: no such gang{where}", hint))


_KIND = "gang/"
"""Begins what ``-o name`` prints."""


def _is(name: str, key: GangKey) -> bool:
    namespace, slash, bare = name.rpartition("/")
    return bare == key[1] and (not slash or namespace in (key[0], _KIND + key[0]))
