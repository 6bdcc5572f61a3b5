"""Admission policies: hooks that may refuse a write that RBAC allows.

Promises: a policy sees the object before and after, and who asks; a refusal is worded as that of a
ValidatingAdmissionPolicy. Called by ``fake_objects``; tests plug policies in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fake_kinds import Kind
from fake_statuses import ApiError, details
from fake_trees import Tree


@dataclass(frozen=True, slots=True)
class Review:
    """One write. ``operation``: CREATE, UPDATE, DELETE or CONNECT. ``sub``: subresource, or empty.

    ``new``: the object as it would be stored (for pods/binding and pods/eviction: what was posted);
    ``old``: as it is stored; None where there is none.
    """

    operation: str
    kind: Kind
    sub: str
    namespace: str
    name: str
    old: Tree | None
    new: Tree | None
    user: str
    groups: tuple[str, ...] = ()
    dry_run: bool = False
    options: Tree = field(default_factory=dict)


Policy = Callable[[Review], str | None]
"""Why it refuses; None: it does not. The text follows ``ValidatingAdmissionPolicy ... denied request: ``
where the policy is given as ``(name, binding, policy)``."""


class Admission:
    """All policies, in order."""

    def __init__(self) -> None:
        self.policies: list[tuple[str, str, Policy]] = []

    def add(self, policy: Policy, *, name: str = "policy", binding: str = "binding") -> None:
        self.policies.append((name, binding, policy))

    def admit(self, review: Review) -> None:
        """Raises ApiError 422, as a denial is recorded by default."""
        for name, binding, policy in self.policies:
            why = policy(review)
            if why is not None:
                kind = review.kind
                cause = (
                    f"ValidatingAdmissionPolicy '{name}' with binding '{binding}' "
                    f"denied request: {why}"
                )
                said = f'{kind.resource} "{review.name}" is forbidden: {cause}'
                # kubectl shows the causes of a 422, not its message.
                told = details(kind, review.name) | {"causes": [{"message": cause}]}
                raise ApiError(422, said, details=told)
