"""Which API groups a cluster serves: what is not served needs no right.

Promises: one request; nobody's word is taken for a group that is not named. Called by
``planner.live.running`` and ``planner.checkup``.
"""

from __future__ import annotations

from planner.cluster.wire import Wire
from planner.reading.kubernetes.looking import objects, text

GROUPS = "/apis"


def groups(wire: Wire) -> frozenset[str] | None:
    """API groups that are served; None where the server does not say."""
    reply = wire.send("GET", GROUPS)
    if not reply.ok:
        return None
    return frozenset(name for one in objects(reply.body, "groups") if (name := text(one, "name")))
