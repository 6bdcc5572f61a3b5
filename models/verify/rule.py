"""A rule as the judge knows it: its check, and what else of a plan is checked by knowing the rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from models.documents.gang import GangDocument, RoleDocument
from models.documents.policy import PolicySpec
from models.verify.facts import Gang
from models.verify.outcome import Outcome
from models.verify.violation import Violation

Binds = Callable[[GangDocument, PolicySpec], bool]


@dataclass(frozen=True, slots=True)
class Judged:
    """``guards``: names of violations, and what each guards.

    ``on_empty``: whether a placement on the empty cluster has to keep it. ``codes``: by code of the reason of
    gangs that would fit but for it, whether it may be about a gang that gives this reason. ``binds``: by
    word of ``--relax``, whether it binds a gang, which it must not where a what-if says that it is relaxed.
    """

    check: Callable[[Outcome], Iterable[Violation]]
    guards: Mapping[str, str]
    on_empty: bool = False
    codes: Mapping[str, Callable[[Outcome, Gang], bool]] = field(default_factory=dict)
    binds: Mapping[str, Binds] = field(default_factory=dict)


def role_binds(binds: Callable[[RoleDocument], object]) -> Binds:
    """Whether it binds a role of the gang."""
    return lambda gang, _: any(binds(role) for role in gang.spec.roles)
