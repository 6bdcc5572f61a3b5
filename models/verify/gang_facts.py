"""Node affinity as the judge reads it: any term, all expressions of one, as in Kubernetes.

Promises: a hostile document gives faults, never an exception. Read by ``groups``, asked by ``rules.nodes``.

The roles of a gang: how many pods, what each asks for, where they must be together.

Promises: a hostile document gives faults, never an exception. Called by ``groups``.

The Gangs of a plan document: rules, times, the pods that exist and those an earlier plan wanted.

Promises: gangs sorted by (namespace, name); pods that run point at nodes and GPUs that exist, once.
Called by ``documents``.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from models.hardware import slug
from models.verify.cluster_facts import amounts, gpu_indices
from models.verify.facts import Expression, Gang, Node, Pod, PodKey, Role, Toleration
from models.verify.form import MAX_INTEGER, Form, Object, shown
from models.verify.policy_facts import METADATA_FIELDS, kind, labels, time

_EXPRESSION = frozenset(("key", "operator", "values", "field"))
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_ON_NAMES = ("In", "NotIn")
_MOST_DIGITS = 64


def affinity(form: Form, value: object, where: str) -> tuple[tuple[Expression, ...], ...]:
    """Terms of a role's ``nodeAffinity``."""
    return tuple(
        tuple(
            _expression(form, one, f"{where}[{t}][{e}]")
            for e, one in enumerate(form.items(term, f"{where}[{t}]"))
        )
        for t, term in enumerate(form.optional_items(value, where))
    )


def _expression(form: Form, value: object, where: str) -> Expression:
    doc = form.mapping(value, where, _EXPRESSION, required=("key", "operator"))
    key: str | None = form.text(doc.get("key"), f"{where}.key")
    operator = form.choice(doc.get("operator"), f"{where}.operator", _OPERATORS)
    values = [
        form.string(item, f"{where}.values[{i}]")
        for i, item in enumerate(form.optional_items(doc.get("values"), f"{where}.values"))
    ]
    if form.flag(doc.get("field"), f"{where}.field"):
        if key != "metadata.name" or operator not in _ON_NAMES:
            form.fault(where, "the only field is metadata.name, with In or NotIn")
        key = None
    limit = None
    if operator in ("Gt", "Lt"):
        limit = _integer(values[0]) if len(values) == 1 else None
        if limit is None:
            form.fault(where, f"{operator} needs one integer")
    return Expression(key, operator, frozenset(values), limit)


def _integer(text: str | None) -> int | None:
    """A signed 64-bit decimal."""
    digits = (text or "").removeprefix("-") if (text or "")[:1] != "+" else (text or "")[1:]
    if text is None or not (digits.isascii() and digits.isdigit()) or len(digits) > _MOST_DIGITS:
        return None
    number = -int(digits) if text[0] == "-" else int(digits)
    return number if -(1 << 63) <= number < 1 << 63 else None


def suits(node: Node, terms: tuple[tuple[Expression, ...], ...]) -> bool:
    """Whether one of the terms holds on the node; an empty term never does."""
    return any(term and all(_met(node, one) for one in term) for term in terms)


def _met(node: Node, one: Expression) -> bool:
    has = node.name if one.key is None else node.labels.get(one.key)
    if one.operator in ("NotIn", "DoesNotExist"):
        return has is None or (one.operator == "NotIn" and has not in one.values)
    if has is None:
        return False
    if one.operator in ("Gt", "Lt"):
        own = _integer(has)
        if own is None or one.limit is None:
            return False
        return own > one.limit if one.operator == "Gt" else own < one.limit
    return one.operator == "Exists" or has in one.values


MAX_ROLE_GPUS = 10**9
"""No pod asks for more GPUs than this."""

_ROLE = frozenset(
    [
        "name",
        "replicas",
        "firstIndex",
        "gpus",
        "requests",
        "topology",
        "slice",
        "outerSlices",
        "nodeSelector",
        "nodeAffinity",
        "tolerations",
        "model",
        "mixModels",
    ]
)
_TOLERATION = frozenset(["key", "operator", "value", "effect", "tolerationSeconds"])


def level(form: Form, levels: Mapping[str, int], doc: Object, key: str, where: str) -> int | None:
    """Index of the level that a field names, None where it names none."""
    name = form.optional_text(doc.get(key), f"{where}.{key}")
    if name is not None and name not in levels:
        form.fault(f"{where}.{key}", f"no level {shown(name)}", rule="reference")
    return levels.get(name) if name else None


class RoleReader:
    """Reads roles against the levels of the cluster; ``levels``: index by name, ``node`` included."""

    def __init__(self, form: Form, levels: Mapping[str, int]) -> None:
        self.form = form
        self.levels = levels

    def read_all(self, value: object, where: str) -> tuple[Role, ...]:
        roles = tuple(
            self._role(item, f"{where}[{i}]")
            for i, item in enumerate(self.form.items(value, where))
        )
        names = [role.name for role in roles]
        if len(set(names)) < len(names):
            self.form.fault(where, "two roles have one name", rule="reference")
        if not roles:
            self.form.fault(where, "a gang needs a role")
        return roles

    def _role(self, value: object, where: str) -> Role:
        form = self.form
        doc = form.mapping(value, where, _ROLE, required=("name", "replicas"))
        low, high, step, elastic = self._replicas(doc.get("replicas"), f"{where}.replicas")
        gpus = doc.get("gpus")
        topology = form.mapping(
            doc.get("topology") or {}, f"{where}.topology", frozenset(("required", "preferred"))
        )
        wanted = form.optional_text(doc.get("model"), f"{where}.model")
        return Role(
            name=form.text(doc.get("name"), f"{where}.name"),
            min=low,
            max=high,
            step=step,
            elastic=elastic,
            gpus=0 if gpus is None else form.integer(gpus, f"{where}.gpus", 0, MAX_ROLE_GPUS),
            requests=amounts(form, doc.get("requests"), f"{where}.requests"),
            required=level(form, self.levels, topology, "required", f"{where}.topology"),
            preferred=level(form, self.levels, topology, "preferred", f"{where}.topology"),
            slices=self._slices(doc, where),
            selector=labels(form, doc.get("nodeSelector"), f"{where}.nodeSelector"),
            tolerations=tuple(
                self._toleration(item, f"{where}.tolerations[{i}]")
                for i, item in enumerate(
                    form.optional_items(doc.get("tolerations"), f"{where}.tolerations")
                )
            ),
            model=None if wanted is None else slug(wanted),
            mix_models=form.flag(doc.get("mixModels"), f"{where}.mixModels"),
            affinity=affinity(form, doc.get("nodeAffinity"), f"{where}.nodeAffinity"),
            first=form.optional_integer(doc.get("firstIndex"), f"{where}.firstIndex", 0) or 0,
        )

    def _slices(self, doc: Object, where: str) -> tuple[tuple[int, int], ...]:
        """Size and level of every layer of slices."""
        form, fields = self.form, ("size", "required")
        inner = [] if doc.get("slice") is None else [(doc["slice"], f"{where}.slice")]
        outer = form.optional_items(doc.get("outerSlices"), f"{where}.outerSlices")
        found = []
        for value, place in (*inner, *((o, f"{where}.outerSlices") for o in outer)):
            layer = form.mapping(value, place, frozenset(fields), fields)
            size = form.integer(layer.get("size"), f"{place}.size", 1)
            narrowest = level(form, self.levels, layer, "required", place)
            if narrowest is None:
                form.fault(place, "needs a level")
            else:
                found.append((size, narrowest))
        return tuple(found)

    def _replicas(self, value: object, where: str) -> tuple[int, int, int, bool]:
        """(min, max, step, elastic)."""
        form = self.form
        if not isinstance(value, dict):
            count = form.integer(value, where, 1)
            return count, count, 1, False
        doc = form.mapping(value, where, frozenset(("min", "max", "step")), required=("min", "max"))
        low = form.integer(doc.get("min"), f"{where}.min", 1)
        high = form.integer(doc.get("max"), f"{where}.max", 1)
        if high < low:
            form.fault(where, "max is below min")
        step = doc.get("step")
        return (
            low,
            max(low, high),
            1 if step is None else form.integer(step, f"{where}.step", 1),
            True,
        )

    def _toleration(self, value: object, where: str) -> Toleration:
        form = self.form
        doc = form.mapping(value, where, _TOLERATION)
        operator = doc.get("operator")
        return Toleration(
            key=form.string(doc.get("key"), f"{where}.key"),
            operator="Equal"
            if operator is None
            else form.choice(operator, f"{where}.operator", ("Equal", "Exists")),
            value=form.string(doc.get("value"), f"{where}.value"),
            effect=form.string(doc.get("effect"), f"{where}.effect"),
        )


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
