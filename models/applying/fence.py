"""The fence: which intents on pods were written by runs, and not by whoever may write to a pod.

Promises: pure. A seal holds for one pod, by uid, and one intent; nobody makes one without the key, which
only those know who may read the lock. Called by ``planner.cluster``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from models.applying.intents import Intent
from models.applying.seen import PodSeen


@dataclass(frozen=True, slots=True)
class Fence:
    """``key``: secret of this cluster's runs. ``since``: when it was made, seconds since the epoch.

    Pods that are older than the key may carry intents of runs that knew another one: those are
    believed without a seal. A pod's age is the server's word, and nobody can change it.
    """

    key: str = field(repr=False)
    since: int

    def seal(self, namespace: str, name: str, uid: str, intent: Intent) -> str:
        """What is written beside the intent on that very pod."""
        said = [namespace, name, uid, sorted(intent.annotations().items())]
        text = json.dumps(said, separators=(",", ":"))
        return hmac.new(self.key.encode(), text.encode(), hashlib.sha256).hexdigest()[:32]

    def holds(
        self,
        namespace: str,
        name: str,
        uid: str,
        intent: Intent,
        seal: str,
        created: int | None,
    ) -> bool:
        """Whether a run wrote this intent on this pod. ``created``: None if nobody knows."""
        if created is not None and created <= self.since:
            return True
        own = self.seal(namespace, name, uid, intent)
        return hmac.compare_digest(own.encode(), seal.encode("utf-8", "replace"))


def forged(pods: Iterable[PodSeen]) -> list[PodSeen]:
    """Pods whose intent no run of ours has written: it counts for nothing. By (namespace, name)."""
    return sorted(
        (pod for pod in pods if pod.intent is not None and not pod.intent_is_ours),
        key=lambda pod: pod.key,
    )
