"""Who makes a request of the fake API server, and how."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks, and how. ``user`` None: everything is allowed. ``manager``: field manager."""

    user: str | None = None
    groups: tuple[str, ...] = ()
    manager: str = "unknown"
    dry_run: bool = False
    strict: bool = False
    query: dict[str, str] = field(default_factory=dict)
