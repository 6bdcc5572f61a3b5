"""A Kubernetes cluster in memory for tests: answers requests as a recorded API server does.

Every answer follows from the requests before it and the cluster's clock. Controllers and the scheduler run
after each write.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from urllib.parse import parse_qsl

from apiserver_controllers import Controllers, Workloads
from apiserver_errors import ApiError, no_such_path, not_allowed
from apiserver_kinds import (
    ACCESS,
    ALWAYS,
    CLAIM,
    GROUPED,
    POD,
    Json,
    Kinds,
    Place,
    RequestInfo,
    Tree,
    discovered,
)
from apiserver_objects import Objects
from apiserver_rbac import Rights, User, user_named
from apiserver_scheduler import Scheduler
from apiserver_setup import ClusterSetup
from apiserver_store import Clock, Store, selected

Answer = tuple[int, Tree, dict[str, str]]
"""(status, body, headers). Status 0: no answer arrives."""

LOST: Answer = (0, {}, {})

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(slots=True)
class Call:
    """One request, for hooks. ``path``: without its query; ``answer``: None before it is made.

    ``place``: the object it is about, None where the path leads to none.
    """

    number: int
    method: str
    path: str
    query: dict[str, str]
    body: Json
    content_type: str
    user: str | None
    place: Place | None
    answer: Answer | None = None

    @property
    def writes(self) -> bool:
        return self.method != "GET" and "dryRun" not in self.query


Hook = Callable[[Call], Answer | None]
"""What to answer instead; None: nothing. It may raise, to end the asker."""


class FakeCluster(ClusterSetup):
    """``clock``: seconds since the epoch; by default it stands still until ``advance``.

    ``groups``: whether the alpha API of pod groups is on. ``kubelets``: bound pods run at once.
    ``workloads``: whether Deployments, ReplicaSets and StatefulSets make pods of their templates.
    ``before``: hooks that see a request first; ``after``: hooks that see it answered, carried out.
    ``calls``: every request, in order.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] | None = None,
        groups: bool = False,
        kubelets: bool = False,
        workloads: bool = False,
    ) -> None:
        self.clock = clock or Clock()
        self.kinds = Kinds(ALWAYS + (GROUPED if groups else ()))
        self.store = Store(self.kinds, self.clock)
        self.objects = Objects(self.store, groups=groups)
        self.rights = Rights(self.store)
        self.objects.may_allocate = self._may_allocate
        self.controllers = Controllers(self.objects)
        self.scheduler = Scheduler(self.objects)
        self.workloads = Workloads(self.objects)
        self.workloads.on = workloads
        self.kubelets = kubelets
        self.before: list[Hook] = []
        self.after: list[Hook] = []
        self.calls: list[Call] = []
        self.tokens: dict[str, User] = {}
        self.lock = threading.RLock()
        for name in ("kube-system", "default"):
            self.add_namespace(name)

    def handle(
        self,
        method: str,
        target: str,
        body: Json = None,
        content_type: str = "application/json",
        user: str | None = None,
        agent: str = "",
    ) -> Answer:
        """Answer one request. ``user``: name, or None for an administrator; ``target``: with query.

        ``agent``: of the header User-Agent: the field manager where the query names none.
        """
        with self.lock:
            path, query = _split(target)
            place = self.kinds.place(path)
            call = Call(len(self.calls), method, path, dict(query), body, content_type, user, place)
            self.calls.append(call)
            for hook in self.before:
                if (found := hook(call)) is not None:
                    call.answer = found
                    return found
            headers, before = {"Date": _date(int(self.clock()))}, self.store.revision
            try:
                call.answer = (*self._done(call, agent), headers)
            except ApiError as error:
                call.answer = error.code, error.tree(), headers
            if self.store.revision != before:
                self.settle()
            for hook in self.after:
                if (found := hook(call)) is not None:
                    return found
            return call.answer

    def settle(self) -> None:
        """Let the controllers, kube-scheduler and kubelets do what is due."""
        for _ in range(50):
            before = self.store.revision
            for one in (self.controllers, self.workloads, self.scheduler):
                if one.on:
                    one.run()
            if self.kubelets:
                self._run_pods()
            if self.store.revision == before:
                return

    def _done(self, call: Call, agent: str) -> tuple[int, Tree]:
        """Raises ApiError."""
        place, query = call.place, call.query
        user = None if call.user is None else self.user(call.user)
        if place is None:
            tree = discovered(self.kinds, call.path) if call.method == "GET" else None
            if tree is None:
                raise no_such_path()
            return 200, tree
        reads = "get" if place.name else "watch" if "watch" in query else "list"
        verb = reads if call.method == "GET" else _VERBS[call.method]
        if verb == "delete" and not place.name:
            verb = "deletecollection"
        if user is not None:
            self.rights.check(user, verb, place)
        if verb not in place.kind.verbs:
            raise not_allowed()
        info = RequestInfo(
            user=user.name if user else None,
            groups=user.groups if user else ("system:masters",),
            manager=query.get("fieldManager") or agent.partition("/")[0] or "unknown",
            dry_run=query.get("dryRun") == "All",
            query=query,
        )
        if verb in ("get", "list", "watch") and place.sub != "scale":
            return 200, self._read(place, query)
        return self._written(call, place, verb, info)

    def _read(self, place: Place, query: dict[str, str]) -> Tree:
        if place.name:
            return self.objects.get(place.kind, place.namespace, place.name)
        return selected(self.store, place.kind, place.namespace, query)

    def _written(self, call: Call, place: Place, verb: str, info: RequestInfo) -> tuple[int, Tree]:
        """Raises ApiError."""
        objects, body = self.objects, call.body
        if place.kind == ACCESS:
            user = None if call.user is None else self.user(call.user)
            return 201, self.rights.reviewed(user, body)
        if place.sub == "scale":
            return 200, objects.scaled(place, call.method, body, call.content_type, info)
        if verb == "patch":
            return 200, objects.patch(place, body, call.content_type, info)
        if verb == "deletecollection":
            found = self._read(place, call.query)
            for metadata in [item["metadata"] for item in found["items"]]:
                one = Place(place.kind, metadata.get("namespace", ""), metadata["name"])
                objects.delete(one, body, info)
            return 200, found
        done = {
            "eviction": objects.evicted,
            "create": objects.create,
            "update": objects.update,
            "delete": objects.delete,
        }[verb if place.sub in ("", "status") else place.sub]
        return 201 if verb == "create" else 200, done(place, body, info)

    def _run_pods(self) -> None:
        """What kubelets do: start bound pods, end those that are being deleted."""
        for pod in [pod for pod in self.store.all(POD) if pod["spec"].get("nodeName")]:
            if "deletionTimestamp" in pod["metadata"]:
                self.store.drop(POD, pod)
            elif pod["status"].get("phase") == "Pending":
                self.run_pod(pod["metadata"]["namespace"], pod["metadata"]["name"])

    # ---- what else tests ask

    def user(self, name: str) -> User:
        """Who goes by that name, with the groups that its token gives it."""
        return next((one for one in self.tokens.values() if one.name == name), user_named(name))

    def _may_allocate(self, info: RequestInfo) -> bool:
        """The right to change the allocation of claims, wherever they are."""
        place = Place(CLAIM, sub="binding")
        return info.user is None or self.rights.may(User(info.user, info.groups), "patch", place)

    @property
    def writes(self) -> list[Call]:
        """Requests that were sent to change something, without reviews and dry runs."""
        return [
            call
            for call in self.calls
            if call.writes and (call.place is None or call.place.kind != ACCESS)
        ]


@lru_cache(maxsize=65536)
def _split(target: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    path, _, query = target.partition("?")
    return path, tuple(parse_qsl(query, keep_blank_values=True)) if query else ()


@lru_cache(maxsize=1024)
def _date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)
