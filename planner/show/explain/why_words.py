"""Causes and remedies of a gang that waits in words: one table for each, by type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from models.documents.explanation import WhyRemedy
from models.gpu_shares import part_of
from models.rules.registry import named
from models.units import first_of, plural, time_text
from planner.show.text import listed

NAMED = 3
"""Names in one phrase; the rest are counted."""

FAULTS = {
    "NotReady": "not ready",
    "Cordoned": "cordoned",
    "Tainted": "tainted for its condition",
    "UnhealthyGpus": "with GPUs that are not healthy",
}

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
    "service": "take it out of service {}",
    "balance": "drop balance over {}",
    "topologySpread": "drop the topology spread over {}",
    "podAffinity": "drop the pod affinity to {}",
    "podAntiAffinity": "drop the pod anti-affinity over {}",
    "request": "request no {}",
    "taints": "tolerate {}",
    "nodeAffinity": "drop the node affinity ({})",
    "nodeSelector": "drop the nodeSelector {}",
    "slice": "drop the slices in one {}",
}


def _dropped(change: Mapping[str, Any]) -> str:
    role = f" of role {change['role']}" if "role" in change else ""
    words = DROP.get(change["drop"], f"drop {change['drop']} {{}}")
    if str(change["name"]).startswith("--"):  # an option of Slurm, not what it is read as
        words = "drop {}"
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
    return f"ask for {plural(change['pods'], 'pod')} of role {change['role']} instead of {change['from']:,}"


def _move(one: WhyRemedy) -> str:
    name, gpus = one.gangs[0], plural(one.change["gpus"], "GPU")
    to = first_of(sorted({pod.node for pod in one.moved}), NAMED, "other node")
    if not one.change["running"]:
        return f"start {name} ({gpus}) on {to} instead"
    by_hand = "" if one.change["movable"] else ": not movable, by hand"
    return f"move {name} ({gpus}) to {to}{by_hand}"


def _stop(one: WhyRemedy) -> str:
    change, names = one.change, first_of(one.gangs, NAMED, "other gang")
    gpus, count = plural(change["gpus"], "GPU"), len(one.gangs)
    if change["notRunning"] == count:
        return f"do not start {names} ({gpus}), which this plan starts"
    kinds = (
        ("not preemptible", change["notPreemptible"]),
        ("not of lower priority", change["notLower"]),
        ("started by this plan", change["notRunning"]),
    )
    counted = [word if count == 1 else f"{some} {word}" for word, some in kinds if some]
    return f"stop {names} ({gpus})" + (f": {', '.join(counted)}, by hand" if counted else "")


def _wait(one: WhyRemedy) -> str:
    at = "?" if one.at is None else time_text(one.at)
    if one.change.get("reserved"):
        return f"wait until {at}: nodes are reserved for it from then"
    names = first_of(one.gangs[::-1], NAMED, "other gang")
    return f"wait until {at}, when {names} should have ended"


DO: Mapping[str, Callable[[WhyRemedy], str]] = {
    "required": _required,
    "minBandwidthShare": _bandwidth,
    "request": _request,
    "queue": _limits,
    "node": _nodes,
    "addNode": _more_nodes,
    "smaller": _smaller,
    "move": _move,
    "stop": _stop,
    "wait": _wait,
    "preemptible": lambda _: (
        "make it preemptible: gangs that are promised the GPUs may then stop it"
    ),
}
"""What is to be done; any other type drops what it is named after."""

OPERATOR = ("node", "addNode", "move", "stop")
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


HOLDS = {
    "Incomplete": "its controller must create the pods that it lacks, unless they have finished",
    "Gated": "the controller that holds its pods must remove its scheduling gate, or let its queue go on",
    "Unsupported": "the constraint that is not modelled must be removed from its pods",
    "Backoff": "nothing: it may start again when its pause after evictions is over (evictionBackoff)",
    "QueueLimit": "gangs before it in its namespace must start or go, or the Policy's queueLimit be raised",
}
"""What lets a held gang go on, by the code of its hold."""

SLURM_HOLDS = HOLDS | {
    "Incomplete": "the input must have all parts of the job: squeue --json without a filter",
    "Gated": "Slurm must release the job: scontrol show job says what it waits for",
    "Unsupported": "the option that is not modelled must be removed from the job",
}
