"""The way to a live cluster for verbs that need no plan to know what they may ask for.

Promises: the proxy lets through what the verb can ask for and nothing else. Called by
``planner.live.running`` and ``planner.verbs.status``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from models.policy import KubernetesPolicy
    from planner.cluster.proxy import ProxyWire
    from planner.live.applying import Way


@dataclass(frozen=True, slots=True)
class Reach:
    """Which cluster. ``timeout_s``: of one request."""

    environ: Mapping[str, str]
    context: str | None = None
    kubeconfig: str | None = None
    timeout_s: float = 30.0


def for_writing(
    reach: Reach, way: Way, settings: KubernetesPolicy
) -> AbstractContextManager[ProxyWire]:
    """To look, lock, ask for rights, and start whatever pods a plan may come to."""
    from planner.cluster import reaching, rights
    from planner.cluster.backends import backend_of
    from planner.cluster.served import GROUPS

    return _opened(
        reach,
        *reaching.look_paths(),
        *reaching.pod_paths(evictions=way.evicts),
        *_lease(way.lock_namespace),
        *reaching.scale_paths(),
        rights.ACCEPT,
        *reaching.exactly(GROUPS),
        *backend_of(settings.gpu_backend).accept,
    )


def for_looking(reach: Reach, lock_namespace: str) -> AbstractContextManager[ProxyWire]:
    """To look, and to see who holds the lock."""
    from planner.cluster import reaching

    return _opened(reach, *reaching.look_paths(), *_lease(lock_namespace))


def _lease(namespace: str) -> tuple[str, ...]:
    from planner.cluster import locking, reaching

    locking.path(namespace)  # says what is wrong with a name that is none
    return reaching.lease_paths(namespace)


def _opened(reach: Reach, *accept: str) -> AbstractContextManager[ProxyWire]:
    from planner.cluster import proxy

    return proxy.opened(
        reach.environ,
        context=reach.context,
        kubeconfig=reach.kubeconfig,
        timeout_s=reach.timeout_s,
        accept=accept,
    )
