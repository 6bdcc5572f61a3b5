"""What came of giving pods back, in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from models.units import first_of, plural
from planner.show.text import lasting
from planner.untrusted_text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from models.apply.plan_actions import Key
    from planner.show.console import Console

_MANY = 5


@dataclass(slots=True)
class GivenBack:
    """``quiet_s``: seconds without a plan; None if there never was one, and no pod waits.

    ``pods``: given back. ``left``: of gangs of which a part runs. ``failed``: with the server's words.
    ``closed``: namespaces where pods wait that the account may not patch.
    """

    quiet_s: int | None = None
    pods: list[Key] = field(default_factory=list)
    left: list[Key] = field(default_factory=list)
    failed: list[tuple[Key, str]] = field(default_factory=list)
    closed: tuple[str, ...] = ()


def show_given_back(console: Console, found: GivenBack, after_s: int) -> None:
    """One line about the last plan and the pods; warnings about pods that wait on."""
    if found.quiet_s is None:
        console.say("no pod waits at the gate, and no plan was ever made: nothing was given back")
        return
    if found.quiet_s < after_s:
        ago, least = lasting(found.quiet_s), lasting(after_s)
        console.say(f"the last plan is {ago} old, less than {least}: nothing was given back")
        return
    given = f"{plural(len(found.pods), 'pod')} given back" if found.pods else "no pod to give back"
    console.say(f"no plan for {lasting(found.quiet_s)}: {given}{_named(found.pods)}")
    if found.left:
        what = f"{plural(len(found.left), 'pod')} of gangs that have started in part"
        console.warn(f"left to run: {what}{_named(found.left)}")
        console.next(f"{console.program} status")
    if found.closed:
        names = first_of(found.closed, _MANY)
        console.warn(f"not permitted to give back pods in {names}: bind gangplan-starting there")
    for (namespace, name), message in found.failed[:_MANY]:
        console.warn(f"not given back: pod {one_line(f'{namespace}/{name}: {message}')}")
    if len(found.failed) > _MANY:
        console.warn(f"not given back: {len(found.failed) - _MANY:,} pods more")


def _named(pods: Sequence[Key]) -> str:
    return f": {first_of([one_line('/'.join(pod)) for pod in pods], _MANY)}" if pods else ""
