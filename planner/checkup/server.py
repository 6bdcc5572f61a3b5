"""Checks of the API server: its version beside kubectl's, its clock beside ours, who we are to it.

Promises: reads only. Called by ``examining``.
"""

from __future__ import annotations

import re

from planner.checkup.findings import Finding, odd, well
from planner.cluster.paths import grouped
from planner.cluster.refusals import one_line
from planner.cluster.wire import Wire
from planner.reading.kubernetes.looking import text

REVIEW = grouped("authentication.k8s.io", "v1", "selfsubjectreviews")

MAX_SKEW = 1
"""Minor versions that kubectl may be older or newer than the server."""

MAX_DRIFT_S = 30.0
"""Seconds that clocks may differ before times in messages mislead."""

_MINOR = re.compile(r"v(\d{1,3})\.(\d{1,4})")


def skew(ours: str | None, theirs: str | None) -> Finding:
    """``ours``: version of kubectl. ``theirs``: of the server."""
    minors = [found and (int(found[1]), int(found[2])) for found in map(_minor, (ours, theirs))]
    if minors[0] is None or minors[1] is None:
        said = f"kubectl {ours or 'of unknown version'}, server {theirs or 'of unknown version'}"
        return odd("version skew", said, "compare: kubectl version")
    apart = abs(minors[0][1] - minors[1][1])
    said = f"kubectl {ours}, server {theirs}"
    if minors[0][0] == minors[1][0] and apart <= MAX_SKEW:
        return well("version skew", said)
    hint = "use a kubectl within one minor version of the server: KUBECTL=/path/to/kubectl"
    return odd("version skew", said, hint)


def _minor(version: str | None) -> re.Match[str] | None:
    return _MINOR.match(version or "")


def clock(ours: float, theirs: float | None) -> Finding:
    """Both in seconds since the epoch."""
    if theirs is None:
        hint = "the lock needs the server's time: does something between remove the header Date?"
        return odd("clock", "the server does not tell its time", hint)
    drift = ours - theirs
    if abs(drift) <= MAX_DRIFT_S:
        return well("clock", f"within {MAX_DRIFT_S:.0f} s of the server's")
    said = f"{abs(drift):,.0f} s {'ahead of' if drift > 0 else 'behind'} the server's"
    hint = "set it (NTP); the lock goes by the server's clock, times in plans by this one"
    return odd("clock", said, hint)


def account(wire: Wire) -> tuple[Finding, str | None]:
    """Who the server takes us for."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    reply = wire.send("POST", REVIEW, review)
    name = text(reply.body, "status", "userInfo", "username") if reply.ok else None
    if name is None:
        # Served since Kubernetes 1.28; nothing depends on it.
        return well("account", "the server does not tell"), None
    return well("account", one_line(name)), name
