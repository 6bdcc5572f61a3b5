"""Instances and plans as cases state them in YAML: short text for nodes, queues, gangs and decisions.

Promises: data only, no search. Called by the runner of ``tests/rule_cases``, where the form is described.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any, cast

import yaml
from building import LEVELS, build, gang, level, mask, node, role
from building_servers import nvl, pairs4, pcie, ring4, switched, v100
from exhaustive_rates import bits

from models.documents.cluster import DisruptionBudget, Taint
from models.documents.gang import NodeExpression, Operator, Toleration
from models.documents.policy import Disruption, Reservations, SolveLimits
from models.hardware import Nic, ServerModel
from models.instance.cluster import Node
from models.instance.gang import Gang, Near, NextTo, PlannedPod, Role, Spread, Together
from models.instance.instance import Instance
from models.instance.policy import Moves
from models.instance.queue import AMOUNTS, Amount, Cell, Pin, Queue
from models.queues.bands import banded

Case = dict[str, Any]

NOW = 1_800_000_000
"""What ``-1h`` is counted from: 2027-01-15T08:00:00Z."""

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
TIMES = {
    "submitted": "submitted_at",
    "started": "started_at",
    "checkpoint": "last_checkpoint",
    "evicted": "evicted_at",
}
DURATIONS = {"lasts": "expected_duration_s", "left": "expected_left_s"}
LEVELLED = ("balance", "exclusive")
OF_BUILD = ("mix", "oversubscription", "nvlink", "binding", "min_share", "selector", "objectives")
SERVERS: dict[str, Callable[[], ServerModel]] = {
    "mesh": v100,
    "ring4": ring4,
    "pairs4": pairs4,
    "pcie4": pcie,
    "tray": lambda: nvl(4, 2),
    "tray2": lambda: nvl(2, 2, nics=()),
    "alone": lambda: switched(nics=tuple(Nic(f"nic{i}", 400_000, (i,)) for i in range(8))),
}
ROLE_KEYS = {one.name for one in fields(Role)} | {"pods", "gpus_per_pod", "most", "same", "prefer"}
ROLE_KEYS |= {"slices", "selector", "first", "outer", "apart", "join", "even"}


def parsed(text: str | Mapping[Any, Any] | None) -> Case:
    """``1x8 a=3 b`` as fields: what has no ``=`` is true, ``&`` is a space. YAML reads ``on`` as true."""
    if not isinstance(text, str):
        return {"on" if key is True else key: value for key, value in (text or {}).items()}
    found: Case = {}
    for word in text.split():
        key, is_, value = word.partition("=")
        if not is_ and "x" in word and word.replace("x", "").isdigit():
            found["pods"], found["gpus_per_pod"] = map(int, word.split("x"))
        elif is_:
            value = value.replace("&", " ")
            found[key] = yaml.load(
                value.replace(":", ": ") if "{" in value else value, Loader=yaml.CSafeLoader
            )
        else:
            found[key] = True
    return found


def seconds(text: str | int) -> int:
    """``90m`` or ``-1.5h``."""
    return text if isinstance(text, int) else int(float(text[:-1]) * UNITS[text[-1]])


def when(text: str | int) -> int:
    """Seconds since the epoch, or text that is counted from NOW."""
    return text if isinstance(text, int) else NOW + seconds(text)


def at_level(name: str) -> int:
    return LEVELS.index(name)


# nodes


def server(gpus: int | str | Case) -> ServerModel | None:
    """``8``: with a switch; ``2 H100``: of this model; a word: one of SERVERS; 0: none."""
    if isinstance(gpus, dict):
        return switched(**gpus)
    if gpus in SERVERS:
        return SERVERS[str(gpus)]()
    count, _, name = str(gpus).partition(" ")
    return switched(int(count), gpu=name or "H100") if int(count) else None


def nodes_of(stated: int | str | Case) -> list[Node]:
    """``2``: so many servers of 8 GPUs in a rack; ``2x2x4``: racks, servers, GPUs; a tree; or by name."""
    if not isinstance(stated, dict):
        racks, each, gpus = [*map(int, str(stated).split("x")), 8, 8][:3]
        if "x" not in str(stated):
            racks, each = 1, racks
        first = 0 if racks > 1 else 1
        places = [f"r{r + first}" for r in range(racks) for _ in range(each)]
        return [node(f"n{i + 1:02}", switched(gpus), "b1", r) for i, r in enumerate(places)]
    if "tree" in stated:
        return list(_tree(stated["tree"], cpu=stated.get("cpu", False)))
    return [_node(name, one) for name, one in stated.items()]


def _tree(blocks: Case, *, cpu: bool) -> Iterator[Node]:
    """Blocks of racks of GPUs of each server, or so many cpu in their place; names tell the path."""
    for block, racks in blocks.items():
        for rack, sizes in racks.items():
            for i, size in enumerate(map(int, str(sizes).split())):
                cores = {"cpu": 1000 * size} if cpu else None
                model = None if cpu else switched(size)
                yield node(f"{block}-{rack}-{i}", model, block, rack, allocatable=cores)


def _node(name: str, stated: int | str | Case) -> Node:
    if not isinstance(stated, dict):
        return node(name, server(stated))
    more = dict(stated)
    failed = more.pop("failed", None)
    if "nic" in more:
        more["nics"] = (Nic("eth0", more.pop("nic")),)
    more["taints"] = [taint(one) for one in more.get("taints", ())]
    found = node(name, server(more.pop("gpus")), **more)
    return found if failed is None else replace(found, last_failure=when(failed))


def taint(text: str) -> Taint:
    """``key=value:effect``."""
    key, _, effect = text.rpartition(":")
    key, _, value = key.partition("=")
    return Taint(key, value, effect)


# gangs


def role_of(stated: str | Case) -> Role:
    """A role of ``building.role``, with rules about its pods: ``apart``, ``join`` and ``even``."""
    more = parsed(stated)
    if "slices" in more:
        more["slices"] = tuple(more["slices"])
    more["affinity"] = tuple(tuple(map(expression, term)) for term in more.get("affinity", ()))
    more["tolerations"] = [Toleration(**one) for one in more.get("tolerations", ())]
    sets, apart, join, even = (more.pop(key, None) for key in ("pod_sets", "apart", "join", "even"))
    rules: Case = {
        "pod_sets": tuple(sets or ()),
        "anti_affinity": _next(apart),
        "affinity": _next(join),
    }
    if even is not None:
        own = {"level": even} if isinstance(even, str) else dict(even)
        rules["spread"] = (Spread(at_level(own.pop("level")), **own),)
    return replace(role(**more), **rules)


def _next(stated: str | list[str] | None) -> tuple[NextTo, ...]:
    """``rack`` or ``[rack, set]``."""
    if stated is None:
        return ()
    at, *pod_set = [stated] if isinstance(stated, str) else stated
    return (NextTo(at_level(at), *pod_set),)


def expression(text: str) -> NodeExpression:
    """``zone In a b``; ``@metadata.name In n1``: of the field."""
    key, operator, *values = text.split(" ")
    return NodeExpression(
        key.removeprefix("@"), cast("Operator", operator), tuple(values), key.startswith("@")
    )


def gang_of(name: str, stated: str | Case | None, nodes: list[Node]) -> Gang:
    """``1x8 priority=9 on=n01``: as ``building.gang`` has it; other words are fields of role or gang."""
    more = parsed(stated)
    own = {key: more.pop(key) for key in [*more] if key in ROLE_KEYS - {"requests", "priority"}}
    gang_keys = ("same", "prefer", "slices") if "roles" in more else ("same", "prefer")
    about = {key: own.pop(key) for key in gang_keys if key in own}
    if "roles" in more:
        roles = [role_of(one) for one in more.pop("roles")]
    else:
        roles = [role_of({**own, "requests": more.pop("requests", None)})]
    about["stands"] = [
        *(
            (r, i, n, None if gpus is None else mask(*gpus))
            for r, i, n, gpus in more.pop("stands", ())
        ),
        *standing(str(more.pop("on", "")), roles, nodes),
    ]
    for key in (
        "priority",
        "weight",
        "pattern",
        "min_share",
        "preemptible",
        "movable",
        "held",
        "joined",
    ):
        if key in more:
            about[key] = more.pop(key)
    if isinstance(about.get("min_share"), float):
        about["min_share"] = str(about["min_share"])
    found = gang(name.rpartition("/")[2], roles=roles, **about)
    if "/" in name:
        found = replace(found, namespace=name.partition("/")[0])
    return _more(found, more, nodes)


def standing(
    text: str, roles: Sequence[Role], nodes: list[Node]
) -> Iterator[tuple[int, int, int, int | None]]:
    """``n01:0-3,n02``: pods 0 and 1; ``head.0@n01``: of another role; ``2@n01:?``: on unknown GPUs."""
    names = [one.name for one in nodes]
    for number, word in enumerate(filter(None, text.split(","))):
        pod, at, place = word.rpartition("@")
        r, _, index = pod.rpartition(".")
        where, _, gpus = place.partition(":")
        n, which = names.index(where), [one.name for one in roles].index(r) if r else 0
        every = range(nodes[n].gpus) if roles[which].gpus else ()
        yield which, int(index) if at else number, n, _mask(gpus, every)


def _mask(text: str, every: Any) -> int | None:  # noqa: ANN401  # a range or nothing
    """``0-3+7``; nothing: all; ``?``: not known."""
    if text == "?":
        return None
    found = list(every) if not text else []
    for part in filter(None, text.split("+")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return mask(*found)


def _more(found: Gang, more: Case, nodes: list[Node]) -> Gang:
    """Fields of the gang, in the words of cases."""
    for key in [*more]:
        value = more.pop(key)
        if key in TIMES:
            more[TIMES[key]] = when(value)
        elif key in DURATIONS:
            more[DURATIONS[key]] = seconds(value)
        elif key in LEVELLED:
            more[key] = level(value)
        elif key == "near":
            at, *others = str(value).split(":")
            more[key] = Near(tuple(others), at_level(at))
        elif key == "together":
            own = [r for r, one in enumerate(found.roles) if one.name in value]
            more[key] = (Together("group", tuple(own), at_level("rack")),)
        elif key == "budgets":
            each = [tuple(str(one).split("+")) for one in value] * len(found.pods)
            more["pods"] = tuple(
                replace(pod, budgets=own) for pod, own in zip(found.pods, each, strict=False)
            )
        elif key == "planned":
            names = [one.name for one in nodes]
            more[key] = tuple(PlannedPod(0, i, names.index(n)) for i, n in enumerate(value))
        else:
            more[key] = Fraction(str(value)) if key == "fraction" else value
    return replace(found, **more)


# queues and the policy


def queues_of(stated: Case) -> tuple[Queue, ...]:
    names = sorted(stated)
    return tuple(_queue(name, parsed(stated[name]), names) for name in names)


def _queue(name: str, own: Case, names: list[str]) -> Queue:
    """``guarantee=8 limit={gpus: 8, h100: 4} parent=q strict``; cells ``1 rack`` or ``2 4 a100``."""
    for key in AMOUNTS:
        if key in own:
            models = dict(own[key]) if isinstance(own[key], dict) else {"gpus": own[key]}
            own[key] = Amount(models.pop("gpus", None), tuple(sorted(models.items())))
    if "parent" in own:
        own["parent"] = names.index(own["parent"])
    own["cells"] = tuple(_cell(*str(one).split()) for one in own.get("cells", ()))
    own["pins"] = tuple(_pin(*str(one).split()) for one in own.get("pins", ()))
    return Queue(name, **own)


def _cell(count: str, size: str, model: str | None = None) -> Cell:
    if size.isdigit():
        return Cell(int(count), gpus=int(size), model=model)
    return Cell(int(count), level(size), model=model)


def _pin(*words: str) -> Pin:
    """Nodes, or ``rack b1/r1``."""
    return Pin(level(words[0]), words[1]) if words[0] in ("block", "rack") else Pin(nodes=words)


def instance_of(case: Case) -> Instance:
    """The instance of a case."""
    nodes = sorted(nodes_of(case["nodes"]), key=lambda one: one.name)
    gangs = [gang_of(name, one, nodes) for name, one in case["gangs"].items()]
    policy = dict(case.get("policy", {}))
    built = {key: policy.pop(key) for key in OF_BUILD if key in policy}
    instance = build(nodes=nodes, gangs=gangs, **built)
    allowed = {**policy.pop("budgets", {})}
    budgets = tuple(DisruptionBudget("default", name, n) for name, n in sorted(allowed.items()))
    instance = replace(
        instance,
        cluster=replace(instance.cluster, budgets=budgets),
        queues=queues_of(case.get("queues", {})),
        policy=replace(instance.policy, **dict(_policy(policy))),
    )
    return banded(instance) if instance.policy.order == "shortest" else instance


OF_POLICY: dict[str, Callable[[Any], tuple[str, Any]]] = {
    "now": lambda value: ("now", when(value)),
    "starvation": lambda value: ("starvation_after_s", seconds(value)),
    "moves": lambda value: ("moves", _moves(value)),
    "spares": lambda value: ("spares", tuple(sorted(value.items()))),
    "reservations": lambda value: ("reservations", None if value is None else _reservations(value)),
    "disruption": lambda value: ("disruption", Disruption(*value)),
    "budget": lambda value: ("solve", SolveLimits(budget=value, workers=1)),
}
"""Fields of the policy in the words of cases."""


def _policy(stated: Case) -> Iterator[tuple[str, Any]]:
    for key, value in stated.items():
        yield OF_POLICY[key](value) if key in OF_POLICY else (key, value)


def _moves(stated: Case) -> Moves:
    own = dict(stated)
    own["min_gain"] = Fraction(str(own.get("min_gain", 0)))
    return Moves(**own)


def _reservations(stated: Case) -> Reservations:
    own = dict(stated)
    own["priorities"] = tuple((sign, n) for sign, n in own.get("priorities", ()))
    return Reservations(**own)


def indices(gpus: int | None) -> list[int] | None:
    return None if gpus is None else list(bits(gpus))
