"""Causes and remedies of a gang that waits in words: one table for each, by type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from models.documents.explanation import WhyCause, WhyRemedy
from models.gpu_shares import part_of
from models.rules.registry import named
from models.units import first_of, plural, time_text
from planner.show.text import lasting, listed, request_text

NAMED = 3
"""Names in one phrase; the rest are counted."""

STARTING = ("place", "complete")

FAULTS = {
    "NotReady": "not ready",
    "Cordoned": "cordoned",
    "Tainted": "tainted for its condition",
    "UnhealthyGpus": "with GPUs that are not healthy",
}

_Words = Callable[[WhyCause], str] | str
"""Words of a cause; in a text stands its name for {}."""


def _said(words: _Words, one: WhyCause) -> str:
    return words.format(one.name) if isinstance(words, str) else words(one)


def _share(one: WhyCause) -> str:
    return f"{one.fields['share']:.0%}".replace("%", " %")


def _gang(one: WhyCause) -> str:
    nodes = plural(one.fields.get("nodes", 0), "node")
    what = f"{plural(one.gpus, 'GPU')} on {nodes}" if one.gpus else f"pods on {nodes}"
    return f"this plan starts it: {what}" if _starts(one) else f"holds {what}"


def _starts(one: WhyCause) -> bool:
    return one.fields.get("decision") in STARTING


def _slices(one: WhyCause) -> str:
    each = [f"each {plural(s['pods'], 'pod')} in one {s['level']}" for s in one.fields["slices"]]
    return " and ".join(each)


WHAT: Mapping[str, _Words] = {
    "gang": _gang,
    "node": lambda one: f"is {listed([FAULTS[code] for code in one.fields['faults']], 'and')}",
    "reservation": lambda one: (
        f"has {plural(one.fields['nodes'], 'node')} reserved from {one.fields['from']}"
    ),
    "hold": lambda one: str(one.fields["message"]),
    "minBandwidthShare": lambda one: f"it must get {_share(one)} of its best bandwidth",
    "request": lambda one: (
        f"a pod requests {request_text(str(one.fields['asked']), str(one.name))}"
    ),
    "slice": _slices,
    "size": (
        "its pods fit nowhere, even if every node were empty and in order, and without its other requirements"
    ),
}
"""What a cause does; any other asks for what its requirement says."""

UNTIL: Mapping[str, _Words] = {
    "gang": lambda one: "is not started" if _starts(one) else "ends, is stopped or moves away",
    "node": "is in order",
    "policyNodeSelector": "the Policy's nodeSelector is dropped",
    "spares": "the Policy's spares are dropped",
    "queueOrder": "the queue's order is bestEffort, or that gang starts or is gone",
    "reservation": "that gang is gone, or this gang states an expectedDuration that ends before",
    "cells": "the cells of queues are dropped, or this gang is preemptible",
    "queue": "leave it more",
    "hold": "the hold is removed",
    "required": "it requires a wider level than {}, or none",
    "minBandwidthShare": "minBandwidthShare is lower or dropped",
    "request": lambda one: f"its pods request less {_less_of(str(one.name), 'of a GPU')}",
    "slice": "the slices are dropped or wider",
    "nodeSelector": "the nodeSelector is dropped",
    "nodeAffinity": "the node affinity is dropped",
    "model": "another model is accepted",
    "taints": "it tolerates them",
    "oneModel": "mixModels is allowed",
    "podAntiAffinity": "the anti-affinity is dropped",
    "podAffinity": "the affinity to pods is dropped",
    "topologySpread": "the spread is dropped",
    "size": "it has fewer or smaller pods, or the cluster more or larger nodes",
}
"""When it no longer keeps the gang waiting; of those in ``_PRONOUN`` without the subject.

Of others: once it is dropped.
"""

_PRONOUN = {"gang": "it", "node": "it", "queue": "they"}

DROP = {
    "required": "require no {}",
    "minBandwidthShare": "drop minBandwidthShare {}",
    "reservation": "drop the reservation for {}",
    "spares": "drop the Policy's spares",
    "cells": "drop the cells of queues",
    "queue": "drop the limits and guarantees of queues",
    "queueOrder": "set the queue's order to bestEffort: {} is before it and waits",
    "policyNodeSelector": "drop the Policy's nodeSelector {}",
    "oneModel": "allow mixModels",
    "balance": "drop balance over {}",
    "topologySpread": "drop the topology spread over {}",
    "podAffinity": "drop the pod affinity to {}",
    "podAntiAffinity": "drop the pod anti-affinity over {}",
    "request": "request no {}",
    "taints": "tolerate the taints {}",
    "nodeAffinity": "drop the node affinity ({})",
    "nodeSelector": "drop the nodeSelector {}",
    "slice": "drop the slices in one {}",
}


def what(one: WhyCause) -> str:
    """What a cause does."""
    asked = named(one.type)
    return _said(WHAT.get(one.type, one.type if asked is None else asked.asks), one)


def until(one: WhyCause) -> str:
    """When it no longer does."""
    words = _until(one)
    return f"{_PRONOUN[one.type]} {words}" if one.type in _PRONOUN else words


def _until(one: WhyCause) -> str:
    return _said(UNTIL.get(one.type, f"{one.type} is dropped"), one)


def label(one: WhyCause) -> str:
    """What a cause is called in a table."""
    if one.type in ("gang", "node"):
        return one.name
    named = f"{one.type} {one.name}" if one.name and one.name != one.type else one.type
    return f"{named} of role {one.role}" if one.role is not None else named


def _dropped(change: Mapping[str, Any]) -> str:
    role = f" of role {change['role']}" if "role" in change else ""
    words = DROP.get(change["drop"], f"drop {change['drop']} {{}}")
    return words.format(change["name"]) + role


def _required(one: WhyRemedy) -> str:
    change = one.change
    level = change["required"] or "no level"
    role = f" for role {change['role']}" if "role" in change else ""
    return f"require {level} instead of {change['from']}{role}"


def _bandwidth(one: WhyRemedy) -> str:
    share = one.change["minBandwidthShare"]
    percent = f"{share:.1%}".replace("%", " %")
    return f"accept {percent} of its best bandwidth (minBandwidthShare: {share:g})"


def _less_of(resource: str, of_part: str) -> str:
    return of_part if part_of(resource) is not None else resource


def _request(one: WhyRemedy) -> str:
    change = one.change
    resource = _less_of(change["request"], "part of a GPU")
    if change["most"] == "0":
        return f"request no {resource}"
    return f"request at most {change['most']} {resource} a pod instead of {change['from']}"


def _limits(one: WhyRemedy) -> str:
    if "limits" not in one.change:
        return _dropped(one.change)
    each = [
        f"queue {limit['queue']} to {plural(limit['gpus'], 'GPU')}"
        + (f" of {limit['model']}" if limit["model"] else "")
        for limit in one.change["limits"]
    ]
    return f"raise the limit of {listed(each, 'and')}"


def _nodes(one: WhyRemedy) -> str:
    names = first_of(one.change["nodes"], NAMED, "other node")
    if list(one.change["faults"]) == ["Cordoned"]:
        return f"uncordon {names}"
    return f"put {names} back in order ({listed([FAULTS[code] for code in one.change['faults']], 'and')})"


def _more_nodes(one: WhyRemedy) -> str:
    count, change = one.change["count"], one.change
    gpus = f", {plural(change['gpus'], 'GPU')}" if change["gpus"] else ""
    if "partitioned" in change:
        gpus += f", {change['partitioned']:,} of them partitioned as on {change['like']}"
    where = f" in {change['level']} {change['domain']}" if "domain" in change else ""
    model = change["model"] or "server without GPUs"
    return f"add {plural(count, 'node')} ({model}{gpus}){where}"


def _smaller(one: WhyRemedy) -> str:
    change = one.change
    fewer = (
        f"{plural(change['gpus'], 'GPU')} a pod"
        if "gpus" in change
        else plural(change["pods"], "pod")
    )
    return f"ask for {fewer} of role {change['role']} instead of {change['from']:,}"


def _move(one: WhyRemedy) -> str:
    name, gpus = one.gangs[0], plural(one.change["gpus"], "GPU")
    to = first_of(sorted({pod.node for pod in one.moved}), NAMED, "other node")
    if not one.change["running"]:
        return f"start {name} ({gpus}) on {to} instead"
    notes = ["not movable"] * (not one.change["movable"])
    return f"move {name} ({_held(one, gpus)}) to {to}{_by_hand(one, notes)}"


def _by_hand(one: WhyRemedy, notes: Sequence[str]) -> str:
    """Why no plan does it; of a GPU with parts others get more in the plan after the one that frees it."""
    later = ["then plan again"] * ("again" in one.change)
    return f": {', '.join([*notes, 'by hand', *later])}" if notes or later else ""


def _held(one: WhyRemedy, gpus: str) -> str:
    """What gangs that leave hold: ``1g.10gb on n1``, or GPUs."""
    parts = one.change.get("parts", ())
    whole = [gpus] if one.change["gpus"] or not parts else []
    return ", ".join([*whole, first_of(parts, NAMED, "other part")] if parts else whole)


def _stop(one: WhyRemedy) -> str:
    change, names = one.change, first_of(one.gangs, NAMED, "other gang")
    gpus = plural(change["gpus"], "GPU")
    count = len(one.gangs)
    if change["notRunning"] == count:
        return f"do not start {names} ({gpus}), which this plan starts"
    kinds = (
        ("not preemptible", change["notPreemptible"]),
        ("not of lower priority", change["notLower"]),
        ("started by this plan", change["notRunning"]),
    )
    counted = [word if count == 1 else f"{some} {word}" for word, some in kinds if some]
    return f"stop {names} ({_held(one, gpus)}){_by_hand(one, counted)}"


def _wait(one: WhyRemedy) -> str:
    at = "?" if one.at is None else time_text(one.at)
    late = one.change.get("overdue", ())
    names = first_of(one.gangs[::-1], NAMED, "other gang")
    if one.change.get("reserved"):
        said = f"wait until {at}: nodes are reserved for it from then"
    elif len(one.gangs) > 1:
        said = (
            f"wait until {at}: by then all of {len(one.gangs):,} gangs should have ended: {names}"
        )
    elif late:
        return f"wait for {_late(late[0])}"
    else:
        said = f"wait until {at}, when {names} is expected to end"
    said += "".join(f"; {_late(gang)}" for gang in late[:NAMED])
    rest = len(late) - NAMED
    return said + (f"; {plural(rest, 'more gang')} overdue" if rest > 0 else "")


def _late(gang: Mapping[str, Any]) -> str:
    return (
        f"{gang['gang']}: expected to end at {gang['expectedEnd']}, overdue by"
        f" {lasting(gang['overdueSeconds'])}, assumed to end at {gang['assumedEnd']} (as late again as now)"
    )


DO: Mapping[str, Callable[[WhyRemedy], str]] = {
    "required": _required,
    "minBandwidthShare": _bandwidth,
    "request": _request,
    "queue": _limits,
    "node": _nodes,
    "addNode": _more_nodes,
    "addMany": _more_nodes,
    "smaller": _smaller,
    "smallest": _smaller,
    "fewerGpus": _smaller,
    "fewestGpus": _smaller,
    "move": _move,
    "stop": _stop,
    "wait": _wait,
    "several": lambda one: listed([_dropped(change) for change in one.change["drop"]], "and"),
}
"""What is to be done; any other type drops what it is named after."""

OPERATOR = ("node", "addNode", "addMany", "move", "stop", "several")
"""What an operator does, besides dropping what the policy and queues ask for."""


def do(one: WhyRemedy) -> str:
    """What is to be done."""
    words = DO.get(one.type)
    return _dropped(one.change) if words is None else words(one)


def who(one: WhyRemedy) -> str:
    """Who can do that."""
    if one.type == "wait":
        return "-"
    asked = named(one.type)
    by_operator = one.type in OPERATOR or (asked is not None and asked.operator)
    return "operator" if by_operator else "owner"


def summary(standing: str, causes: Sequence[WhyCause], seconds: int) -> tuple[str, str]:
    """What is known besides the reason: a word, and a sentence that goes on from it."""
    if standing == "fits":
        return "but", "it fits next to what this plan starts and keeps: a place was found"
    if standing == "unknown":
        return (
            "note",
            f"no more was found out in {seconds} s: no place, and no proof that there is none",
        )
    if standing == "size":
        return "proven", what(causes[0])
    return "until", _changes(standing, causes)


def _changes(standing: str, causes: Sequence[WhyCause]) -> str:
    if len(causes) == 1:
        return _clause(causes[0])
    if all(one.type == "gang" for one in causes):
        return _gangs(standing, causes)
    if standing == "each":
        more = f"; {len(causes) - 2:,} more below" if causes[2:] else ""
        return f"{_clause(causes[0])}, or {_clause(causes[1])}{more}"
    if len(causes) == 2:
        return f"{_clause(causes[0])}, and {_clause(causes[1])}"
    names = first_of([label(one) for one in causes], NAMED)
    return f"{_every(len(causes))} change: {names}"


def _gangs(standing: str, gangs: Sequence[WhyCause]) -> str:
    names = first_of([_gpus(one) for one in gangs], NAMED, "other gang")
    started = sum(map(_starts, gangs))
    some = "not started" if started == len(gangs) else "gone or not started"
    gone = some if started else "gone"
    if standing == "each":
        return f"any one of {len(gangs):,} gangs is {gone}: {names}"
    return f"{_every(len(gangs))} gangs are {gone}: {names}"


def _every(count: int) -> str:
    return "both of these" if count == 2 else f"all of these {count:,}"


def _gpus(one: WhyCause) -> str:
    return f"{one.name} ({plural(one.gpus, 'GPU')})" if one.gpus else one.name


def _clause(one: WhyCause) -> str:
    """``default/a (8 GPUs) ends, is stopped or moves away``."""
    words = _until(one)
    if one.type not in _PRONOUN:
        return words
    subjects = {"gang": _gpus(one), "queue": "limits and guarantees of queues"}
    return f"{subjects.get(one.type, one.name)} {words}"
