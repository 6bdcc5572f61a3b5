"""Plain trees to typed documents, with every fault worded and placed; the sound part goes on.

Promises: a document with faults is read again without its faulty parts, so that what is wrong
elsewhere is reported in the same run; ``lost`` says which parts are gone, so that nothing is
blamed for their absence. Called by ``planner.reading.dialects``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from models.documents import Complaint
from planner.reading.composing import Path
from planner.reading.findings import Finding, Findings
from planner.reading.sources import Source
from planner.reading.wording import prefixed, worded

_ROUNDS = 8

D = TypeVar("D", bound=BaseModel)


@dataclass(slots=True)
class Entry(Generic[D]):
    """A typed document and where it came from.

    ``lost``: paths that were cut out; an entry that lost something has been reported already.
    """

    source: Source
    path: Path
    document: D
    findings: Findings
    lost: list[Path] = field(default_factory=list)
    kept: dict[Path, list[int]] = field(default_factory=dict)

    def fault(
        self, path: Path, what: str, hint: str | None = None, *, at_key: bool = False
    ) -> None:
        """Report something wrong at a path of this document."""
        origin = original(path, self.kept)
        finding = Finding(self.source, (*self.path, *origin), prefixed(origin, what), hint, at_key)
        self.findings.add(finding)

    def complain(self, complaints: Iterator[Complaint]) -> None:
        """Report contradictions, but none that what was cut out may have caused."""
        for complaint in complaints:
            if self.findings.full:
                return
            if not self._doubtful(original(complaint.path, self.kept)):
                self.fault(complaint.path, complaint.what, complaint.hint, at_key=complaint.at_key)

    def _doubtful(self, path: Path) -> bool:
        """Whether a contradiction there may come from a part that is gone, or gone beside it."""
        return any(
            path[: len(gone)] == gone or gone[:-1] in (path, path[:-1]) for gone in self.lost
        )

    def lacks(self, *path: str | int) -> bool:
        """Whether something at or below a path was cut out."""
        return any(gone[: len(path)] == path for gone in self.lost)


def validate(
    model: type[D], tree: dict[str, Any], source: Source, path: Path, findings: Findings
) -> Entry[D] | None:
    """The typed document, or what is left of it; None where nothing usable is."""
    lost: list[Path] = []
    kept: dict[Path, list[int]] = {}
    current: Any = tree
    for round_ in range(_ROUNDS):
        try:
            document = model.model_validate(current)
        except ValidationError as error:
            errors = error.errors(include_url=False)
        else:
            return Entry(source, path, document, findings, lost, kept)
        cuts = []
        for one in errors:
            real, at_key = real_path(current, one)
            origin = original(real, kept)
            what, hint = worded(model, one, origin)  # type: ignore[arg-type]  # a TypedDict
            # Later rounds fail because of what was cut, which has been reported.
            if round_ == 0:
                findings.add(Finding(source, (*path, *origin), what, hint, at_key))
            cuts.append(real)
            if one["type"] != "extra_forbidden":
                lost.append(origin)
        if () in cuts:
            return None
        current = _without(current, cuts, kept)
    return None


def real_path(tree: Any, error: Any) -> tuple[Path, bool]:  # noqa: ANN401  # plain data
    """The path in the tree that an error is about, and whether its place is the field's name.

    pydantic's own steps (arms of a union, ``[key]``) are left out; a missing field is the fault of
    the object that lacks it.
    """
    path: list[str | int] = []
    here = tree
    for step in error["loc"]:
        if (isinstance(here, dict) and isinstance(step, str) and step in here) or (
            isinstance(here, list) and isinstance(step, int) and step < len(here)
        ):
            path.append(step)
            here = here[step]  # type: ignore[index]  # a name in a dict, a position in a list
    at_key = error["type"] == "extra_forbidden" or error["loc"][-1:] == ("[key]",)
    return tuple(path), at_key


def original(path: Path, kept: dict[Path, list[int]]) -> Path:
    """The path before anything was cut: list positions are those of the text."""
    result: Path = ()
    for step in path:
        if isinstance(step, int) and result in kept and step < len(kept[result]):
            result = (*result, kept[result][step])
        else:
            result = (*result, step)
    return result


def _without(tree: Any, cuts: list[Path], kept: dict[Path, list[int]], at: Path = ()) -> Any:  # noqa: ANN401
    """A copy without the parts at the paths; ``kept`` learns which list positions are left.

    ``at`` and the keys of ``kept`` are paths in the text. Parts that stay whole are shared.
    """
    branches: dict[str | int, list[Path]] = {}
    for cut in cuts:
        branches.setdefault(cut[0], []).append(cut[1:])
    gone = {step for step, below in branches.items() if () in below}
    left: dict[str | int, Any] = {}
    for step in range(len(tree)) if isinstance(tree, list) else list(tree):
        if step in gone:
            continue
        below = branches.get(step)
        origin = original((*at, step), {at: kept[at]} if at in kept else {})
        left[step] = tree[step] if below is None else _without(tree[step], below, kept, origin)
    if not isinstance(tree, list):
        return left
    before = kept.get(at, list(range(len(tree))))
    kept[at] = [before[i] for i in left if isinstance(i, int)]
    return list(left.values())
