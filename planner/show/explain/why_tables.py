"""Why a gang waits, what makes it start, and why its place is its place, as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from models.documents.explanation import OtherPlace, PlaceReasons, Why, WhyPod, WhyRemedy, WhyTier
from models.gpu_shares import part_of
from models.instance.gang import Gang
from models.instance.policy import SLURM
from models.rules.registry import named
from models.units import first_of, plural, time_text
from planner.show.table import Cell, Column, Table, columns_of, pairs, row_of
from planner.show.text import domain_text, listed, nodes_and_gpus, number, ranges

NAMED = 3
"""Names in one phrase; the rest are counted."""


def headline(gang: Gang, reason: str, why: Why) -> Table:
    """Why it waits, and what to do about it first; of a held gang what lets it go on."""
    do = holds(gang) or _first_step(why)
    said = Cell(reason or "no reason is stated", "bad")
    rows = [("gang", Cell("/".join(gang.key), "head")), ("why", said), ("do", Cell(do, "good"))]
    return pairs(row for row in rows if row[1].text)


def _first_step(why: Why) -> str:
    if why.fits:
        return _of_one_that_fits(why.tier)
    if ways := [one for one in why.remedies if not one.first]:
        first, *others = map(do, ways)
        more = f" ({plural(len(others), 'other way')} below)" if others else ""
        return f"{first}, or {others[0]}" if len(others) == 1 else f"{first}{more}"
    if not why.complete:
        return f"ask with more time, such as --time-limit {10 * max(1, why.limit_seconds)}s"
    return "no single change that was tried makes it start"


def _of_one_that_fits(tier: WhyTier | None) -> str:
    if tier is None:
        return "plan again with more time: no tier would be worse with it"
    there = f"the tier {tier.name} ({tier.there:,} instead of {tier.here:,})"
    if tier.better:
        return f"plan again with more time: {there} would be better with it"
    return f"change the order of the tiers, if it should start: with it, {there} would be worse"


def remedies(why: Why) -> Table:
    """The ways to make it start."""
    rows = tuple(
        row_of(who(one), _where(one.pods, one.change.get("count")), do(one)) for one in why.remedies
    )
    below = {
        r: Cell(f"but {first_of(one.first, NAMED, 'other gang')} would start there first")
        for r, one in enumerate(why.remedies)
        if one.first
    }
    planned = [one.replanned for one in why.remedies]
    beside = "a place for all its pods was found, without a new plan"
    notes = [
        "each was tried: a new plan with that change starts it"
        if all(planned)
        else f"each was tried: {beside}"
    ]
    if any(planned) and not all(planned):
        below |= {r: Cell(beside) for r, new in enumerate(planned) if not new and r not in below}
        notes = [
            "each was tried: where nothing else is said, a new plan with that change starts it"
        ]
    if not why.complete:
        notes.append(f"more may help: the time limit of {why.limit_seconds} s ended the search")
    return Table(columns_of("WHO?|ON?|WHAT MAKES IT START~"), rows, tuple(notes), below=below)


def document(why: Why) -> dict[str, Any]:
    """The same as one JSON object, with the words of each remedy."""
    found = why.to_json()
    for stated, remedy in zip(found["remedies"], why.remedies, strict=True):
        stated |= {"do": do(remedy), "who": who(remedy)}
    return found


def _where(pods: Sequence[WhyPod], added: int | None) -> str:
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
    alike: dict[tuple[object, ...], list[OtherPlace]] = {}
    for one in reasons.others:
        alike.setdefault((one.why,) if not one.possible else (one.why, one.domain), []).append(one)
    rows = tuple(
        row_of(first_of([domain_text(one.domain) for one in ones], 1, "other"), *_compared(ones[0]))
        for ones in alike.values()
    )
    columns = (
        Column(f"OTHER {reasons.level.upper()}"),
        *columns_of("WOULD BE|>HERE?|>THERE?|TIER, OR WHY NOT~"),
    )
    return Table(columns, rows, tuple(_notes(reasons)))


def _notes(reasons: PlaceReasons) -> Iterator[str]:
    if reasons.tried > len(reasons.others):
        what = f"the best {len(reasons.others)} of {reasons.tried:,} that were tried"
        yield f"{what}, with everything else as planned"
    elif reasons.others:
        yield "with everything else as planned, the best place that was found in each"


def _compared(one: OtherPlace) -> tuple[Cell, ...]:
    blank = Cell("-")
    if not one.possible:
        return (Cell("not possible", "dim"), blank, blank, Cell(one.why))
    if one.tier is None:
        return (Cell("as good"), blank, blank, blank)
    better = one.tier.better
    word = Cell("better", "warn") if better else Cell("worse", "good")
    return (word, Cell(number(one.tier.here)), Cell(number(one.tier.there)), Cell(one.tier.name))


def summary(reasons: PlaceReasons) -> str:
    """Why it is there, in a sentence."""
    where = f"{reasons.level} {domain_text(reasons.domain)}"
    if not reasons.others:
        return f"no other {reasons.level} was tried" if not reasons.tried else where
    best = reasons.others[0]
    if not best.possible:
        return f"no other {reasons.level} of those tried has a place for it"
    other = domain_text(best.domain)
    if best.tier is None:
        return f"{other} would be as good in every tier: one of equals"
    if best.tier.better:
        return f"{other} would be better in the tier {best.tier.name}: the search did not find it"
    return f"the next best, {other}, would be worse in the tier {best.tier.name}"


FAULTS = {
    "NotReady": "not ready",
    "Cordoned": "cordoned",
    "Tainted": "tainted for its condition",
    "UnhealthyGpus": "GPUs not healthy",
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


def _request(one: WhyRemedy) -> str:
    change = one.change
    resource = change["request"] if part_of(change["request"]) is None else "part of a GPU"
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
    "required": lambda one: (
        f"require {one.change['required'] or 'no level'} instead of {one.change['from']}"
        + (f" for role {one.change['role']}" if "role" in one.change else "")
    ),
    "minBandwidthShare": lambda one: (
        f"accept {one.change['minBandwidthShare'] * 100:.1f} % of its best bandwidth"
        f" (minBandwidthShare: {one.change['minBandwidthShare']:g})"
    ),
    "request": _request,
    "queue": _limits,
    "node": _nodes,
    "addNode": _more_nodes,
    "smaller": lambda one: (
        f"ask for {plural(one.change['pods'], 'pod')} of role {one.change['role']}"
        f" instead of {one.change['from']:,}"
    ),
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


def holds(gang: Gang) -> str:
    """What lets a held gang go on; empty if it is not held."""
    known = SLURM_HOLDS if gang.scheduler == SLURM else HOLDS
    return "" if gang.hold is None else known.get(gang.hold.code, "")
