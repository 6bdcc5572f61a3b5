"""The roles of a gang: how many pods, what each asks for, where they must be together.

Promises: a hostile document gives faults, never an exception. Called by ``groups``.
"""

from __future__ import annotations

from collections.abc import Mapping

from models.checking.affinity import affinity
from models.checking.clusters import amounts
from models.checking.facts import Role, Toleration
from models.checking.form import Form, Object, shown
from models.checking.policies import labels
from models.hardware import slug

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
