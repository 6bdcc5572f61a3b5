"""The Gangs of a plan document: rules, times, the pods that exist and those an earlier plan wanted.

Promises: gangs sorted by (namespace, name); pods that run point at nodes and GPUs that exist, once.
Called by ``documents``.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from models.checking.facts import Gang, Node, Pod, PodKey, Role
from models.checking.form import MAX_INTEGER, Form, Object, shown
from models.checking.hardware import gpu_indices
from models.checking.policies import METADATA_FIELDS, kind, time
from models.checking.roles import RoleReader, level

_GANG = frozenset(
    [
        "queue",
        "priority",
        "submittedAt",
        "expectedDuration",
        "preemptible",
        "movable",
        "topology",
        "roles",
        "communication",
        "resizeAfter",
    ]
)
_TOPOLOGY = frozenset(("required", "preferred", "minBandwidthShare"))
_STATUS = frozenset(["pods", "hold", "startedAt", "lastCheckpoint", "planned"])
_HOLDS = ("Unsupported", "Incomplete")
_POD = frozenset(["name", "uid", "role", "index", "node", "gpus", "mode"])
_PLANNED = frozenset(["role", "index", "node"])


class GangReader:
    """Reads gangs one after another against the levels and nodes of the cluster."""

    def __init__(
        self,
        form: Form,
        level_names: tuple[str, ...],
        nodes: tuple[Node, ...],
        default_share: Fraction,
    ) -> None:
        self.form = form
        self.levels = {name: i for i, name in enumerate((*level_names, "node"))}
        self.nodes = nodes
        self.node_index = {node.name: i for i, node in enumerate(nodes)}
        self.default_share = default_share
        self.roles = RoleReader(form, self.levels)
        self.last_roles: tuple[Role, ...] = ()
        self.role_numbers: dict[str, int] = {}

    def read_all(self, value: object, where: str) -> tuple[Gang, ...]:
        gangs = tuple(
            self.read(item, f"{where}[{i}]") for i, item in enumerate(self.form.items(value, where))
        )
        for before, after in zip(gangs, gangs[1:], strict=False):
            name = shown("/".join(after.key))
            if before.key == after.key:
                self.form.fault(where, f"gang {name} is listed twice", rule="reference")
            elif before.key > after.key:
                self.form.fault(where, f"gang {name} is out of order", rule="order")
        return gangs

    def read(self, value: object, where: str) -> Gang:
        form = self.form
        doc = kind(form, value, where, "Gang")
        metadata = form.mapping(
            doc.get("metadata", {}), f"{where}.metadata", METADATA_FIELDS, required=("name",)
        )
        spec = form.mapping(doc.get("spec", {}), f"{where}.spec", _GANG, required=("roles",))
        topology = form.mapping(spec.get("topology") or {}, f"{where}.spec.topology", _TOPOLOGY)
        talk = form.mapping(
            spec.get("communication") or {},
            f"{where}.spec.communication",
            frozenset(("pattern", "weight", "nvlinkAcrossNodes")),
        )
        for field in ("queue", "expectedDuration"):
            form.optional_text(spec.get(field), f"{where}.spec.{field}")
        share = topology.get("minBandwidthShare")
        roles = self.roles.read_all(spec.get("roles"), f"{where}.spec.roles")
        status = form.mapping(doc.get("status") or {}, f"{where}.status", _STATUS)
        existing, standing = self._pods(status, f"{where}.status", roles)
        weight = talk.get("weight")
        return Gang(
            namespace=form.text(
                metadata.get("namespace", "default"), f"{where}.metadata.namespace"
            ),
            name=form.text(metadata.get("name"), f"{where}.metadata.name"),
            priority=form.optional_integer(spec.get("priority"), f"{where}.spec.priority") or 0,
            submitted=time(form, spec.get("submittedAt"), f"{where}.spec.submittedAt"),
            preemptible=form.flag(spec.get("preemptible"), f"{where}.spec.preemptible"),
            movable=form.flag(spec.get("movable"), f"{where}.spec.movable"),
            required=level(form, self.levels, topology, "required", f"{where}.spec.topology"),
            preferred=level(form, self.levels, topology, "preferred", f"{where}.spec.topology"),
            min_share=self.default_share
            if share is None
            else form.number(share, f"{where}.spec.topology.minBandwidthShare", 0, 1),
            pattern=form.optional_text(talk.get("pattern"), f"{where}.spec.communication.pattern")
            or "all-reduce",
            weight=1
            if weight is None
            else form.integer(weight, f"{where}.spec.communication.weight", 0),
            joined=form.flag(
                talk.get("nvlinkAcrossNodes"),
                f"{where}.spec.communication.nvlinkAcrossNodes",
                default=True,
            ),
            roles=roles,
            existing=existing,
            standing=standing,
            hold=self._hold(status.get("hold"), f"{where}.status.hold"),
            started=time(form, status.get("startedAt"), f"{where}.status.startedAt"),
            checkpoint=time(form, status.get("lastCheckpoint"), f"{where}.status.lastCheckpoint"),
            resize_after=time(form, spec.get("resizeAfter"), f"{where}.spec.resizeAfter"),
            planned=self._planned(status.get("planned"), f"{where}.status.planned", roles),
        )

    def _hold(self, value: object, where: str) -> str | None:
        """Code of what holds the gang back."""
        if value is None:
            return None
        fields = ("code", "message")
        doc = self.form.mapping(value, where, frozenset(fields), required=fields)
        self.form.text(doc.get("message"), f"{where}.message")
        return self.form.choice(doc.get("code"), f"{where}.code", _HOLDS)

    def _pods(
        self, status: Object, where: str, roles: tuple[Role, ...]
    ) -> tuple[Mapping[PodKey, tuple[str, str | None]], Mapping[PodKey, Pod]]:
        """Names and uids of the pods that exist, and the places of those that run."""
        form = self.form
        existing: dict[PodKey, tuple[str, str | None]] = {}
        standing: dict[PodKey, Pod] = {}
        for i, item in enumerate(form.optional_items(status.get("pods"), f"{where}.pods")):
            place = f"{where}.pods[{i}]"
            pod = form.mapping(item, place, _POD, required=("name", "role", "index"))
            number = self.role_index(pod.get("role"), roles, f"{place}.role")
            index = form.integer(pod.get("index"), f"{place}.index", 0, MAX_INTEGER)
            if number is None:
                continue
            if (number, index) in existing:
                form.fault(place, "the pod is listed twice", rule="reference")
            if pod.get("mode") is not None:
                form.choice(pod["mode"], f"{place}.mode", ("gate", "binding"))
            uid = form.optional_text(pod.get("uid"), f"{place}.uid")
            existing[number, index] = (form.text(pod.get("name"), f"{place}.name"), uid)
            if pod.get("node") is not None:
                found = self.placed(pod, place, number, index, roles[number])
                if found is not None:
                    standing[number, index] = found
        return existing, standing

    def _planned(self, value: object, where: str, roles: tuple[Role, ...]) -> Mapping[PodKey, int]:
        """Node of every pod that an earlier plan placed; the pods need not exist."""
        form = self.form
        found: dict[PodKey, int] = {}
        for i, item in enumerate(form.optional_items(value, where)):
            place = f"{where}[{i}]"
            doc = form.mapping(item, place, _PLANNED, required=("role", "index", "node"))
            number = self.role_index(doc.get("role"), roles, f"{place}.role")
            index = form.integer(doc.get("index"), f"{place}.index", 0)
            node = self._node(doc.get("node"), f"{place}.node")
            if number is None or node is None:
                continue
            if (number, index) in found:
                form.fault(place, "the pod is listed twice", rule="reference")
            found[number, index] = node
        return found

    def role_index(self, value: object, roles: tuple[Role, ...], where: str) -> int | None:
        """Which role a pod names."""
        name = self.form.text(value, where)
        if roles is not self.last_roles:
            self.last_roles = roles
            self.role_numbers = {role.name: number for number, role in enumerate(roles)}
        number = self.role_numbers.get(name)
        if number is None and name:
            self.form.fault(where, f"the gang has no role {shown(name)}", rule="reference")
        return number

    def placed(self, pod: Object, where: str, number: int, index: int, role: Role) -> Pod | None:
        """The place of a pod that names a node.

        ``gpus`` null: it holds as many as its role asks for, be they more than the node has; a pod
        that stands may, and one that is placed so breaks a rule.
        """
        node = self._node(pod.get("node"), f"{where}.node")
        if node is None:
            return None
        gpus = pod.get("gpus")
        if gpus is None:
            return Pod(number, index, node, None if role.gpus else 0)
        mask = 0
        for gpu in gpu_indices(self.form, gpus, f"{where}.gpus", self.nodes[node].gpus):
            mask |= 1 << gpu
        return Pod(number, index, node, mask)

    def _node(self, value: object, where: str) -> int | None:
        name = self.form.text(value, where)
        node = self.node_index.get(name)
        if node is None and name:
            self.form.fault(where, f"no node {shown(name)}", rule="reference")
        return node
