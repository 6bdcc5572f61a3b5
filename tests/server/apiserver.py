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

from apiserver_controllers import Controllers
from apiserver_discovery import discovered
from apiserver_errors import ApiError, no_such_path, not_allowed
from apiserver_kinds import (
    ACCESS,
    ALWAYS,
    BINDING,
    GROUPED,
    POD,
    RULES,
    Json,
    Kind,
    Kinds,
    Place,
    RequestInfo,
    Tree,
)
from apiserver_objects import Admission, Objects
from apiserver_rbac import Rights, User, denied, user_named
from apiserver_scheduler import Scheduler
from apiserver_setup import ClusterSetup
from apiserver_store import Clock, Store
from apiserver_subresources import bound, evicted, scaled
from apiserver_workloads import Workloads

Answer = tuple[int, Tree, dict[str, str]]
"""(status, body, headers). Status 0: no answer arrives."""

LOST: Answer = (0, {}, {})

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


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
        self.admission = Admission()
        self.objects = Objects(self.store, self.admission, groups=groups)
        self.rights = Rights(self.store)
        self.objects.allowed = self.rights.may_asking
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
        self._started: set[str] = set()
        for name in ("kube-system", "default"):
            self.add_namespace(name)

    # ---- info

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
            call.answer = self._answered(call, agent)
            if method != "GET":
                self.settle()
            for hook in self.after:
                if (found := hook(call)) is not None:
                    return found
            return call.answer

    def settle(self) -> None:
        """Let the controllers, kube-scheduler and kubelets do what is due."""
        for _ in range(50):
            before = self.store.revision
            if self.controllers.on:
                self.controllers.run()
            if self.workloads.on:
                self.workloads.run()
            if self.scheduler.on:
                self.scheduler.run()
            if self.kubelets:
                self._run_pods()
            if self.store.revision == before:
                return

    def _answered(self, call: Call, agent: str) -> Answer:
        try:
            code, tree = self._done(call, agent)
        except ApiError as error:
            headers = {"Date": _date(int(self.clock()))}
            if error.retry_after_s is not None:
                headers["Retry-After"] = str(error.retry_after_s)
            return error.code, error.tree(), headers
        return code, tree, {"Date": _date(int(self.clock()))}

    def _done(self, call: Call, agent: str) -> tuple[int, Tree]:
        """Raises ApiError."""
        user = None if call.user is None else self.user(call.user)
        place = call.place
        if place is None:
            return self._other(call, user)
        verb = self._verb(call, place)
        if user is not None:
            self.rights.check(user, verb, place)
        if verb not in place.kind.verbs and not place.sub:
            raise no_such_path() if place.name else not_allowed()
        if verb in ("get", "list", "watch") and place.sub != "scale":
            return 200, self._read(place, call.query)
        return self._written(call, place, verb, self._request_info(call, user, agent))

    def _written(self, call: Call, place: Place, verb: str, info: RequestInfo) -> tuple[int, Tree]:
        """Raises ApiError."""
        if place.sub in ("binding", "eviction", "scale") or place.kind in (BINDING, ACCESS, RULES):
            return self._special(call, place, info)
        match verb:
            case "create":
                return 201, self.objects.create(place, call.body, info)
            case "update":
                made = self.store.get(place.kind, place.namespace, place.name) is None
                return (201 if made else 200), self.objects.update(place, call.body, info)
            case "patch":
                return 200, self.objects.patch(place, call.body, call.content_type, info)
            case "delete":
                return 200, self.objects.delete(place, call.body, info)
        return 200, self._delete_all(place, call, info)

    def _other(self, call: Call, user: User | None) -> tuple[int, Tree]:
        if user is not None and not self.rights.may_get(user, call.path):
            said = f'forbidden: User "{user.name}" cannot get path "{call.path}"'
            raise ApiError(403, said, details={})
        tree = discovered(self.kinds, call.path) if call.method == "GET" else None
        if tree is None:
            raise no_such_path()
        return 200, tree

    def _verb(self, call: Call, place: Place) -> str:
        if call.method == "GET":
            if place.name:
                return "get"
            return "watch" if call.query.get("watch") in ("1", "true") else "list"
        if call.method == "DELETE":
            return "delete" if place.name else "deletecollection"
        named = bool(place.name)
        posts_to_name = place.sub in ("binding", "eviction")
        if call.method not in _VERBS or named != (call.method != "POST" or posts_to_name):
            raise not_allowed()
        return _VERBS[call.method]

    def _request_info(self, call: Call, user: User | None, agent: str) -> RequestInfo:
        query = call.query
        dry = query.get("dryRun")
        if dry not in (None, "All"):
            said = f'dryRun: Unsupported value: "{dry}": supported values: "All"'
            raise ApiError(400, said)
        return RequestInfo(
            user=user.name if user else None,
            groups=user.groups if user else ("system:masters",),
            manager=query.get("fieldManager") or agent.partition("/")[0] or "unknown",
            dry_run=dry == "All",
            strict=query.get("fieldValidation") == "Strict",
            query=query,
        )

    def _read(self, place: Place, query: dict[str, str]) -> Tree:
        if place.name:
            return self.objects.get(place.kind, place.namespace, place.name)
        return self.objects.listed(place.kind, place.namespace, query)

    def _special(self, call: Call, place: Place, info: RequestInfo) -> tuple[int, Tree]:
        user = None if info.user is None else self.user(info.user)
        if place.sub == "eviction":
            return 201, evicted(self.objects, place, call.body, info)
        if place.sub == "scale":
            tree = scaled(self.objects, place, call.method, call.body, call.content_type, info)
            return 200, tree
        if place.kind == ACCESS:
            return 201, self.rights.reviewed(user, call.body)
        if place.kind == RULES:
            return 201, self.rights.listed(user, call.body)
        return 201, bound(self.objects, place, call.body, info)

    def _delete_all(self, place: Place, call: Call, info: RequestInfo) -> Tree:
        found = self.objects.listed(place.kind, place.namespace, call.query)
        for item in found["items"]:
            metadata = item["metadata"]
            one = Place(place.kind, metadata.get("namespace", ""), metadata["name"], "")
            self.objects.delete(one, call.body, info)
        return found

    def _run_pods(self) -> None:
        """What kubelets do: start bound pods, end those that are being deleted."""
        for pod in list(self.store.all(POD)):
            if not pod["spec"].get("nodeName"):
                continue
            if "deletionTimestamp" in pod["metadata"] and not pod["metadata"].get("finalizers"):
                self.store.drop(POD, pod)
            elif (
                pod["status"].get("phase") == "Pending"
                and "deletionTimestamp" not in pod["metadata"]
            ):
                self.run_pod(pod["metadata"]["namespace"], pod["metadata"]["name"])

    # ---- what else tests ask

    def deny(
        self, verb: str, kind: Kind, namespace: str = "", name: str = "", sub: str = ""
    ) -> Answer:
        """The 403 that a request would get, for hooks."""
        error = denied("tester", verb, kind, namespace, name, sub)
        return error.code, error.tree(), {}

    def user(self, name: str) -> User:
        """Who goes by that name, with the groups that its token gives it."""
        for one in self.tokens.values():
            if one.name == name:
                return one
        return user_named(name)

    @property
    def writes(self) -> list[Call]:
        """Requests that were sent to change something, without reviews and dry runs."""
        return [
            call
            for call in self.calls
            if call.writes and (call.place is None or call.place.kind not in (ACCESS, RULES))
        ]


@lru_cache(maxsize=65536)
def _split(target: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    path, _, query = target.partition("?")
    return path, tuple(parse_qsl(query, keep_blank_values=True)) if query else ()


@lru_cache(maxsize=1024)
def _date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)
