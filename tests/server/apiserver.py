"""A Kubernetes cluster in memory for tests: answers requests as a recorded API server does.

Every answer follows from the requests before it and the cluster's clock. Controllers and the scheduler run
after each write. Helpers fill the cluster, and change it behind a client's back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

import apiserver_kinds as api
from apiserver_controllers import Controllers, Scheduler
from apiserver_kinds import POD, Answer, ApiError, Call, Json, Kind, Kinds, Place, Tree
from apiserver_objects import Objects
from cluster_contents import Contents

LOST: Answer = (0, {}, {})
START = 1_795_161_600.0
"""2026-11-20T08:00:00Z: where a cluster's own clock starts."""

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(slots=True)
class Clock:
    """A clock that stands still until a test moves it."""

    now: float = START

    def __call__(self) -> float:
        return self.now


Hook = Callable[[Call], Answer | None]
"""What to answer instead; None: nothing. It may raise, to end the asker."""


class FakeCluster(Contents):
    """``clock``: seconds since the epoch; by default it stands still until ``advance``.

    ``kubelets``: bound pods run at once. ``writers``: they act after every write. ``calls``: every request.
    ``before``: hooks that see a request first; ``after``: that see it answered, carried out. ``tokens``: who
    comes with which. ``unread``: so many questions for rights are still denied, as just after a start.
    """

    def __init__(self, *, clock: Callable[[], float] | None = None, kubelets: bool = False) -> None:
        self.clock, self.kinds = clock or Clock(), Kinds()
        self.objects = Objects(self.kinds, self.clock)
        self.controllers, self.scheduler = Controllers(self.objects), Scheduler(self.objects)
        self.writers: list[Any] = [self.controllers, self.scheduler]
        self.kubelets, self.unread = kubelets, 0
        self.before: list[Hook] = []
        self.after: list[Hook] = []
        self.calls: list[Call] = []
        self.tokens: dict[str, str] = {}
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
    ) -> Answer:
        """Answer one request. ``user``: name, or None for an administrator; ``target``: with query."""
        with self.lock:
            path, query = _split(target)
            place = self.kinds.place(path)
            call = Call(len(self.calls), method, path, dict(query), body, content_type, user, place)
            self.calls.append(call)
            for hook in self.before:
                if (found := hook(call)) is not None:
                    call.answer = found
                    return found
            headers, before = {"Date": _date(int(self.clock()))}, self.objects.revision
            try:
                call.answer = (*self._done(call), headers)
            except ApiError as error:
                call.answer = error.code, error.tree(), headers
            if self.objects.revision != before:
                self.settle()
            for hook in self.after:
                if (found := hook(call)) is not None:
                    return found
            return call.answer

    def settle(self) -> None:
        """Let the controllers, kube-scheduler and kubelets do what is due."""
        for _ in range(50):
            before = self.objects.revision
            for one in self.writers:
                if one.on:
                    one.run()
            for pod in self.objects.all(POD) if self.kubelets else ():
                if pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending":
                    self.report(pod, "Running")
            if self.objects.revision == before:
                return

    def _done(self, call: Call) -> tuple[int, Tree]:
        """Raises ApiError."""
        objects, place, body = self.objects, call.place, call.body
        if place is None:
            tree = self.kinds.discovered(call.path) if call.method == "GET" else None
            if tree is None:
                raise ApiError(404, "the server could not find the requested resource")
            return 200, tree
        if place.kind == api.ACCESS:
            return 201, {**body, "status": {"allowed": self._reviewed(call)}}
        reads = "get" if place.name else "watch" if "watch" in call.query else "list"
        verb = reads if call.method == "GET" else _VERBS[call.method]
        verb += "" if place.name or verb != "delete" else "collection"
        if not self._may(call.user, verb, place):
            raise api.denied(call.user or "", verb, place)
        if verb == "deletecollection":
            for metadata in [one["metadata"] for one in self._read(call)["items"]]:
                where = metadata.get("namespace", "")
                objects.delete(Place(place.kind, where, metadata["name"]), body, call)
            return 200, {}
        acts = {"create": objects.create, "update": objects.update, "delete": objects.delete}
        acts |= {"patch": objects.patch}
        act = {"scale": objects.scaled, "eviction": objects.evicted}.get(place.sub, acts.get(verb))
        return 201 if verb == "create" else 200, act(place, body, call) if act else self._read(call)

    def _read(self, call: Call) -> Tree:
        assert call.place is not None
        place = call.place
        if place.name:
            return self.objects.get(place.kind, place.namespace, place.name)
        return self.objects.selected(place.kind, place.namespace, call.query)

    def _reviewed(self, call: Call) -> bool:
        asked = call.body["spec"]["resourceAttributes"]
        kind = Kind("", asked.get("resource", ""), asked.get("group", ""))
        where = (asked.get(key, "") for key in ("namespace", "name", "subresource"))
        return self._may(call.user, asked["verb"], Place(kind, *where))

    @property
    def writes(self) -> list[Call]:
        """Requests that were sent to change something, without reviews and dry runs."""
        return [
            c for c in self.calls if c.writes and (c.place is None or c.place.kind != api.ACCESS)
        ]

    # ---- rights, by roles

    def _may(self, user: str | None, verb: str, place: Place) -> bool:
        """Whether somebody may do something; an administrator (None) may do everything."""
        if user is None:
            return True
        if self.unread:
            self.unread -= 1
            return False
        kind, sub = place.kind, place.sub
        asked = {"verbs": verb, "apiGroups": kind.group}
        asked["resources"] = f"{kind.plural}/{sub}" if sub else kind.plural
        return any(
            all({"*", wanted} & set(rule.get(key, ())) for key, wanted in asked.items())
            and place.name in (rule.get("resourceNames") or [place.name])
            for rule in self._rules(user, place.namespace)
        )

    def _rules(self, user: str, namespace: str) -> Iterator[Tree]:
        """Rules in a namespace, cluster-wide ones included."""
        find, named = self.objects.find, self.kinds.named
        for kind, inside in (("ClusterRoleBinding", ""), ("RoleBinding", namespace)):
            for binding in (
                self.objects.all(named(kind), inside) if inside or kind[0] == "C" else ()
            ):
                names = {one["name"] for one in binding.get("subjects") or []}
                names |= {
                    f"system:serviceaccount:{one.get('namespace') or inside}:{one['name']}"
                    for one in binding.get("subjects") or []
                    if one["kind"] == "ServiceAccount"
                }
                if not names.isdisjoint((user, *groups_of(user))):
                    role = binding["roleRef"]
                    where = inside if role["kind"] == "Role" else ""
                    yield from (find(named(role["kind"]), where, role["name"]) or {}).get(
                        "rules", ()
                    )

    # ---- making

    def put(self, tree: Tree) -> Tree:
        """Store an object as it is: nothing is checked or filled in but uid and time."""
        kind = self.kinds.of(tree)
        metadata = self.objects.made() | ({"namespace": "default"} if kind.namespaced else {})
        metadata |= tree["metadata"]
        if kind == POD:
            tree = {"spec": {}, "status": {"phase": "Pending"}} | tree
        if kind.namespaced:
            self.add_namespace(metadata["namespace"])
        kept = self.objects.keep(kind, tree | {"metadata": metadata})
        self.settle()
        return kept

    def create(self, tree: Tree) -> Tree:
        """Create an object as an administrator. Raises ApiError."""
        kind = self.kinds.of(tree)
        namespace = tree["metadata"].get("namespace", "default") if kind.namespaced else ""
        made = self.objects.create(Place(kind, namespace), tree)
        self.settle()
        return made

    def add_namespace(self, name: str) -> Tree:
        """The namespace; made where it is not there."""
        found = self.objects.find(api.NAMESPACE, "", name)
        return found or self.objects.create(Place(api.NAMESPACE), {"metadata": {"name": name}})

    # ---- looking, and what happens behind a client's back

    def pod(self, name: str, namespace: str = "default") -> Tree:
        """Raises ApiError where there is none."""
        return self.objects.get(POD, namespace, name)

    def pods(self, namespace: str = "") -> list[Tree]:
        return list(self.objects.all(POD, namespace))

    def change(
        self, kind: str, name: str, change: Callable[[Tree], Tree], namespace: str = "default"
    ) -> Tree:
        """Store what ``change`` makes of an object (it gets a copy of the top two levels)."""
        of = self.kinds.named(kind)
        old = self.objects.get(of, namespace if of.namespaced else "", name)
        copy = {key: dict(part) if isinstance(part, dict) else part for key, part in old.items()}
        kept = self.objects.keep(of, change(copy))
        self.settle()
        return kept

    def remove(self, kind: str, name: str, namespace: str = "default") -> None:
        """It goes at once, whatever it has of grace and finalizers."""
        of = self.kinds.named(kind)
        self.objects.drop(of, self.objects.get(of, namespace if of.namespaced else "", name))
        self.settle()

    def run_pod(self, namespace: str, name: str, phase: str = "Running") -> Tree:
        """What a kubelet reports of a bound pod."""
        made = self.report(self.objects.get(POD, namespace, name), phase)
        self.settle()
        return made

    def advance(self, seconds: float) -> None:
        """Move the cluster's own clock."""
        assert isinstance(self.clock, Clock)
        self.clock.now += seconds

    def report(self, pod: Tree, phase: str) -> Tree:
        """The pod with a status as kubelets write it."""
        now, before = self.objects.now(), pod["status"].get("conditions") or []
        words = {"PodScheduled": "True", "Ready": str(phase == "Running")}
        conditions = [one for one in before if one["type"] not in words]
        conditions += [
            {"type": kind, "status": word, "lastTransitionTime": now}
            for kind, word in words.items()
        ]
        status = pod["status"] | {"phase": phase, "startTime": now, "conditions": conditions}
        return self.objects.keep(POD, pod | {"status": status})


def groups_of(user: str) -> tuple[str, ...]:
    parts, accounts = user.split(":"), "system:serviceaccounts"
    own = (accounts, f"{accounts}:{parts[2]}") if parts[1:2] == ["serviceaccount"] else ()
    return (*own, "system:masters" if user == "system:admin" else "system:authenticated")


@lru_cache(maxsize=65536)
def _split(target: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    path, _, query = target.partition("?")
    return path, tuple(parse_qsl(query, keep_blank_values=True)) if query else ()


@lru_cache(maxsize=1024)
def _date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)
