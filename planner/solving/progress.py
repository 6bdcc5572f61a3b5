"""What a search tells while it runs.

Promises: one small protocol, so that the search never knows a terminal; calls are cheap and rare.
Implemented by ``planner.console``; called by ``planner.solving``.
"""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives improvements. ``value`` and ``bound`` None: none yet."""

    def update(self, tier: str, value: int | None, bound: int | None) -> None: ...


class Silent:
    """Tells nobody."""

    def update(self, tier: str, value: int | None, bound: int | None) -> None:
        del tier, value, bound
