"""Why a gang waits, what makes it start, and why its place is its place, as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from models.documents.answers import OtherPlace, PlaceReasons, Why, WhyPod, WhyRemedy
from models.gpu_shares import part_of
from models.instance.gang import Gang
from models.instance.policy import SLURM
from models.rules.registry import named
from models.units import first_of, plural, time_text
from planner.show.reason_words import sentence
from planner.show.table import Cell, Table, columns_of, row_of
from planner.show.text import domain_text, listed, nodes_and_gpus, number, ranges

PLACE_FOUND = "a place for all its pods was found, without a new plan"

NAMED = 3
"""Names in one phrase; the rest are counted."""


def remedies(gang: Gang, why: Why) -> Table:
    """The ways to make it start; below them what else is known of its start."""
    rows = tuple(
        row_of(who(one), _where(one.pods, one.change.get("count")), do(one)) for one in why.remedies
    )
    planned = any(one.replanned for one in why.remedies)
    below = {
        r: Cell(
            f"but {first_of(one.first, NAMED, 'other gang')} would start there first"
            if one.first
            else PLACE_FOUND
        )
        for r, one in enumerate(why.remedies)
        if one.first or one.replanned != planned
    }
    columns = columns_of("WHO?|ON?|WHAT MAKES IT START~") if rows else ()
    return Table(columns, rows, tuple(_about_remedies(gang, why)), below=below)


def _about_remedies(gang: Gang, why: Why) -> Iterator[str]:
    if gang.hold is not None:
        known = SLURM_HOLDS if gang.scheduler == SLURM else HOLDS
        yield known.get(gang.hold.code, "nothing was tried, for it is held")
    elif why.fits:
        tier = why.tier
        how, again = "as good in every tier", ": plan again with more time"
        if tier is not None:
            values = f"{tier.name} ({tier.there:,} instead of {tier.here:,})"
            how = f"{'better' if tier.better else 'worse'} in the tier {values}"
            again *= tier.better
        yield f"it has a place beside this plan, {_where(why.fits)}; the plan would be {how}{again}"
    elif not why.complete:
        limit = why.limit_seconds
        longer = f"--time-limit {10 * max(1, limit)}s asks with more time"
        yield f"the time limit of {limit} s ended the search for what makes it start: {longer}"
    elif not why.remedies:
        yield "no single change that was tried makes it start"
    if why.remedies:
        planned = any(one.replanned for one in why.remedies)
        found = "a new plan with that change starts it" if planned else PLACE_FOUND
        yield f"each was tried: where nothing else is said, {found}"


def document(why: Why) -> dict[str, Any]:
    """The same as one JSON object, with the words of each remedy."""
    found = why.to_json()
    for stated, remedy in zip(found["remedies"], why.remedies, strict=True):
        stated |= {"do": do(remedy), "who": who(remedy)}
    return found


def _where(pods: Sequence[WhyPod], added: int | None = None) -> str:
    """The nodes; new ones are not named. ``added``: how many of them there are."""
    there: dict[str, list[int]] = {}
    for pod in pods:
        there.setdefault(pod.node, []).extend(pod.gpus or ())
    old = {node: ranges(gpus) for node, gpus in there.items() if not node.startswith("~new-")}
    new = len(there) - len(old)
    of_new = plural(new, "new node") if new == added else f"{new} of {added} new nodes"
    return ", ".join([nodes_and_gpus(old)] * bool(old) + [of_new] * bool(new))


def place(reasons: PlaceReasons) -> Table:
    """The other domains, the best first; those that are not possible for one reason share a row."""
    alike: dict[tuple[str, ...], list[OtherPlace]] = {}
    for one in reasons.others:
        alike.setdefault((_why_not(one),) if not one.possible else ("", one.domain), []).append(one)
    rows = tuple(
        row_of(first_of([domain_text(one.domain) for one in ones], 1, "other"), *_compared(ones[0]))
        for ones in alike.values()
    )
    columns = columns_of("ELSEWHERE|WOULD BE|>HERE?|>THERE?|TIER, OR WHY NOT~")
    note = f"no other {reasons.level} was tried"
    if rows:
        shown = f"shown: {len(reasons.others)} of {reasons.tried:,} that were tried"
        note = f"{shown}, with everything else as planned"
    return Table(columns if rows else (), rows, (note,))


def _why_not(one: OtherPlace) -> str:
    if one.code is None:
        return "no place was found under its rules"
    return sentence(one.code, one.fields)


def _compared(one: OtherPlace) -> tuple[Cell, ...]:
    if not one.possible:
        return row_of(Cell("not possible", "dim"), "-", "-", _why_not(one))
    if one.tier is None:
        return row_of("as good", "-", "-", "-")
    word = Cell("better", "warn") if one.tier.better else Cell("worse", "good")
    return row_of(word, number(one.tier.here), number(one.tier.there), one.tier.name)


FAULTS = {
    "NotReady": "not ready",
    "Cordoned": "cordoned",
    "Tainted": "tainted for its condition",
    "UnhealthyGpus": "GPUs not healthy",
}


def _request(one: WhyRemedy) -> str:
    change = one.change
    resource = change["request"] if part_of(change["request"]) is None else "part of a GPU"
    return f"request at most {change['most']} {resource} a pod instead of {change['from']}"


def _limits(one: WhyRemedy) -> str:
    if "limits" not in one.change:
        return "drop the limits and guarantees of queues"
    each = [
        f"queue {limit['queue']} to {plural(limit['gpus'], 'GPU')}"
        + (f" of {limit['model']}" if limit["model"] else "")
        for limit in one.change["limits"]
    ]
    return f"raise the limit of {listed(each, 'and')}"


def _nodes(one: WhyRemedy) -> str:
    names, faults = first_of(one.change["nodes"], NAMED, "other node"), list(one.change["faults"])
    if faults == ["Cordoned"]:
        return f"uncordon {names}"
    return f"put {names} back in order: now {listed([FAULTS[code] for code in faults], 'and')}"


def _more_nodes(one: WhyRemedy) -> str:
    count, change = one.change["count"], one.change
    gpus = f", {plural(change['gpus'], 'GPU')}" if change["gpus"] else ""
    if "partitioned" in change:
        gpus += f", {change['partitioned']:,} of them partitioned as on {change['like']}"
    where = f" in {change['level']} {change['domain']}" if "domain" in change else ""
    model = change["model"] or "server without GPUs"
    return f"add {plural(count, 'node')} ({model}{gpus}){where}"


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
    "request": _request,
    "queue": _limits,
    "node": _nodes,
    "addNode": _more_nodes,
    "move": _move,
    "stop": _stop,
    "wait": _wait,
}

WORDS = {
    "required": "require {required} instead of {from}",
    "minBandwidthShare": "accept minBandwidthShare {minBandwidthShare:g}",
    "smaller": "ask for fewer pods: {pods} instead of {from}",
    "preemptible": "make it preemptible: gangs that are promised the GPUs may then stop it",
    "reservation": "drop the reservation for {name}",
    "spares": "drop the Policy's spares",
    "cells": "drop the cells of queues",
    "queueOrder": "set the queue's order to bestEffort: {name} is before it and waits",
    "policyNodeSelector": "drop the Policy's nodeSelector {name}",
    "oneModel": "allow mixModels",
    "taints": "tolerate {name}",
}
"""What is to be done by a remedy of other types, of its change; of a type without words it is dropped."""


def do(one: WhyRemedy) -> str:
    """What is to be done."""
    if one.type in DO:
        return DO[one.type](one)
    words, change = WORDS.get(one.type, "drop {drop}: {name}"), dict(one.change)
    if one.type == "taints" and change["name"] == "slurm/reservation":
        words = "end the Slurm reservation of these nodes"
    if str(change.get("name")).startswith("--"):  # an option of Slurm, not what it is read as
        words = "drop {name}"
    if one.type == "required":
        change["required"] = change["required"] or "no level"
    return words.format(**change) + (f" (role {change['role']})" if "role" in change else "")


OPERATOR = ("node", "addNode", "move", "stop")
"""What an operator does, besides dropping what the policy and queues ask for."""


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
    "Backoff": "it may start again when its pause after evictions is over (evictionBackoff)",
    "QueueLimit": "gangs before it in its namespace must start or go, or the Policy's queueLimit be raised",
}
"""What lets a held gang go on, by the code of its hold."""

SLURM_HOLDS = HOLDS | {
    "Incomplete": "the input must have all parts of the job: squeue --json without a filter",
    "Gated": "Slurm must release the job: scontrol show job says what it waits for",
    "Unsupported": "the option that is not modelled must be removed from the job",
}
