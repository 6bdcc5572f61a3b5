"""Plans, and edits of plans, in the short forms of ``cases/*.yaml``, which cases/README.md explains."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from input_folders import input_folder
from plan_busy import busy_plan
from plan_documents import (
    Doc,
    closed,
    cluster,
    decided,
    dgx,
    entry,
    gang,
    level,
    made,
    mesh,
    node,
    objective,
    off,
    policy,
    proven,
    restated,
    role,
    server,
    stands,
    stopped,
    tier,
    wanted,
)
from plan_goodput import goodput_plan
from plan_queues import queue, queues_plan, spec_of

from models.instance.instance import Instance
from models.results.plan import compose
from models.verify.check import Judge, Verdict
from planner.read.inputs import load
from planner.search.solve import solve

CASES = Path(__file__).parent / "cases"

_ROLE = re.compile(r"(?:([a-z][\w-]*) )?(\d+)(?:-(\d+)(?:/(\d+))?)?x(\d+)")


def read(name: str) -> Any:  # noqa: ANN401  # any YAML
    return yaml.load((CASES / name).read_text(encoding="utf-8"), yaml.CSafeLoader)


# Plans


def pod(of: str, role_name: str, index: int, place: str) -> Doc:
    """``h1``: no GPUs; ``h1 ?``: unknown ones; ``h1 0-3,5``: these; ``r8`` at the end: its rank."""
    where, *rest = place.split()
    found = {"name": f"{of}-{role_name}-{index}", "role": role_name, "index": index, "node": where}
    ranks = [int(one[1:]) for one in rest if one[0] == "r"]
    spans = next((one for one in rest if one[0] != "r"), None)
    gpus: list[int] | None = [] if spans != "?" else None
    for span in (spans or "?").split(",") if spans not in (None, "?") else ():
        first, _, last = span.replace("all", "0-7").partition("-")
        gpus = [*(gpus or []), *range(int(first), int(last or first) + 1)]
    return found | {"gpus": gpus} | ({"rank": ranks[0]} if ranks else {})


def pods(of: str, places: Any) -> list[Doc]:  # noqa: ANN401  # any YAML
    """A list is of workers from 0 on; ``3: h1 0`` says the index; a mapping is by role."""
    found = []
    for name, own in (places if isinstance(places, dict) else {"worker": places}).items():
        at = 0
        for one in own:
            index, colon, place = str(one).partition(": ")
            at = int(index) if colon else at
            found.append(pod(of, name, at, place if colon else one))
            at += 1
    return found


def roles(line: Doc) -> list[Doc]:
    """``2x8``: two workers of eight GPUs; ``launcher 1x0``; ``1-5/2x4``: one to five by twos."""
    found = []
    for one in str(line.pop("roles", "1x1")).split(", "):
        match = _ROLE.fullmatch(one)
        assert match is not None, one
        name, low, high, step, gpus = match.groups()
        count: object = int(low)
        if high:
            count = {"min": int(low), "max": int(high), "step": int(step or 1)}
        found.append(role(name or "worker", count, int(gpus)))
    found[-1].update(line.pop("role", {}))
    for name, more in line.pop("of", {}).items():
        next(one for one in found if one["name"] == name).update(more)
    return found


def gang_of(name: str, given: Doc) -> tuple[Doc, Doc]:
    """Its document, and what the plan says of it."""
    line = copy.deepcopy(given)
    was, at = line.pop("was", None), line.pop("at", None)
    status, own = line.pop("status", {}), line.pop("entry", {})
    by, why = line.pop("by", None), line.pop("why", None)
    says = line.pop("says", "preempt" if by else "keep" if was else "place" if at else "wait")
    if at is None and was and says != "preempt":
        at = was
    if says == "wait":
        why = why or "NoRoom"
    stated = stopped(name, by) if by else decided(name, says, why=why or "")
    stated["pods"] = pods(name, at or [])
    one = gang(name, *roles(line), pods=tuple(pods(name, was or [])), **line)
    one["status"].update(status)
    return one, stated | own


def _models(listed: list[Any]) -> Iterator[Doc]:
    makers: dict[str, Callable[..., Doc]] = {"dgx": dgx, "mesh": mesh}
    for one in listed:
        ((name, more),) = one.items() if isinstance(one, dict) else ((one, {}),)
        yield dgx(**more) if makers[name] is dgx else mesh() | more


def plan_of(given: Doc) -> Doc:
    """``nodes``: names, separated by blanks, with their model, place and more."""
    nodes = []
    for names, spec in given["nodes"].items():
        model, place, *more = [*spec, "", {}][: max(2, len(spec))]
        nodes += [
            node(name, model, place or "", **(more[0] if more else {})) for name in names.split()
        ]
    nodes.sort(key=lambda one: str(one["name"]))
    levels = [level(**({"name": x} if isinstance(x, str) else x)) for x in given.get("levels", ())]
    servers = cluster(list(_models(given.get("models", ["dgx"]))), nodes, levels or None)
    both = [gang_of(name, line or {}) for name, line in sorted(given.get("gangs", {}).items())]
    plan = made(servers, [one for one, _ in both], [stated for _, stated in both], rules(given))
    for name, spec in sorted(given.get("queues", {}).items()):
        plan["instance"].setdefault("queues", []).append(queue(name, **spec))
    plan["status"].update(given.get("status", {}))
    return plan


def rules(given: Doc) -> Doc:
    """Objectives by their names; none of them with a tolerance."""
    spec = dict(given.get("policy", {}))
    if "objectives" in spec:
        spec["objectives"] = [{"name": one, "tolerance": 0} for one in spec["objectives"].split()]
    return policy(**spec)


MADE: dict[str, Callable[[], Doc]] = {
    "busy": busy_plan,
    "queues": queues_plan,
    "goodput": goodput_plan,
}


@cache
def _good(name: str) -> str:
    if name.startswith("input "):
        return json.dumps(planned(load((str(input_folder(name[6:])),)).instance))
    if name.startswith("{"):
        return json.dumps(plan_of(json.loads(name)))
    return json.dumps(MADE[name]() if name in MADE else plan_of(read("plans.yaml")[name]))


def planned(instance: Instance) -> Doc:
    """The plan that the search makes."""
    made_at = {"name": "p", "created_at": "2026-11-21T00:00:00Z", "generator": "g"}
    return compose(instance, solve(instance), **made_at)


def good(plan: str | Doc) -> Doc:
    """A plan by its name, or as a case gives it, fresh."""
    document: Doc = json.loads(_good(plan if isinstance(plan, str) else json.dumps(plan)))
    return document


# Edits

HEADS: dict[str, Callable[[Doc, str], Any]] = {
    "want": lambda plan, name: wanted(plan, name)["spec"],
    "was": lambda plan, name: wanted(plan, name)["status"],
    "says": entry,
    "node": server,
    "tier": objective,
    "queue": spec_of,
    "model": lambda plan, at: plan["instance"]["cluster"]["spec"]["serverModels"][int(at)],
}
WHOLE: dict[str, Callable[[Doc], Any]] = {
    "policy": lambda plan: plan["instance"]["policy"]["spec"],
    "cluster": lambda plan: plan["instance"]["cluster"]["spec"],
}


def step(holder: Any, name: str) -> Any:  # noqa: ANN401  # any JSON
    """The key of a part: of lists by position, by name, or by role and index of a pod."""
    if not isinstance(holder, list):
        return name
    if name.lstrip("-").isdigit():
        return int(name)
    for at, one in enumerate(holder):
        own = one.get("name", one.get("metadata", {}).get("name"))
        if own == name or f"{one.get('role')}/{one.get('index')}" == name:
            return at
    raise KeyError(name)


def found(plan: Doc, path: str) -> tuple[Any, Any]:
    """The holder of what is at a path, and its key there."""
    first, *rest = path.split(".")
    holder: Any = plan
    if first in HEADS:
        holder = HEADS[first](plan, rest.pop(0))
    elif first in WHOLE:
        holder = WHOLE[first](plan)
    else:
        rest = [first, *rest]
    for one in rest[:-1]:
        holder = holder[step(holder, one)]
    return holder, step(holder, rest[-1])


def put(plan: Doc, path: str, value: Any) -> None:  # noqa: ANN401  # any JSON
    holder, key = found(plan, path)
    holder[key] = copy.deepcopy(value)


def _drop(plan: Doc, path: str, _: object) -> None:
    holder, key = found(plan, path)
    del holder[key]


def _add(plan: Doc, path: str, value: object) -> None:
    holder, key = found(plan, path)
    holder.setdefault(key, []) if isinstance(holder, dict) else None
    holder[key].append(copy.deepcopy(value))


def _merge(plan: Doc, path: str, value: Doc) -> None:
    holder, key = found(plan, path)
    holder[key] = (
        {**(holder.get(key) or {}), **value} if isinstance(holder, dict) else holder[key] | value
    )


def _swap(plan: Doc, path: str, places: list[int]) -> None:
    holder, key = found(plan, path)
    a, b = places
    holder[key][a], holder[key][b] = holder[key][b], holder[key][a]


def _twice(plan: Doc, path: str, _: object) -> None:
    holder, key = found(plan, path)
    holder[key].insert(0, copy.deepcopy(holder[key][0]))


def _move(plan: Doc, which: str, place: str | None) -> None:
    """``NAME 1`` or ``NAME role/1``; without a place the pod is taken away; a new one is added."""
    name, own = which.split()
    role_name, _, index = own.rpartition("/")
    one = pod(name, role_name or "worker", int(index), place or "none")
    stated, names = entry(plan, name), [one["name"] for one in wanted(plan, name)["spec"]["roles"]]
    key = (one["role"], one["index"])
    old = next((p for p in stated["pods"] if (p["role"], p["index"]) == key), {})
    kept = [p for p in stated["pods"] if p is not old]
    new = (
        [] if place is None else [{**one, **{k: v for k, v in old.items() if k in ("name", "uid")}}]
    )
    stated["pods"] = sorted([*kept, *new], key=lambda p: (names.index(p["role"]), p["index"]))


def _pods(plan: Doc, name: str, places: Any) -> None:  # noqa: ANN401  # any YAML
    """The pods of the named roles, or the workers, are there and nowhere else."""
    mine = pods(name, places)
    given = set(places) if isinstance(places, dict) else {"worker"}
    stated, names = entry(plan, name), [one["name"] for one in wanted(plan, name)["spec"]["roles"]]
    stated["pods"] = [p for p in stated["pods"] if p["role"] not in given] + mine
    stated["pods"].sort(key=lambda p: (names.index(p["role"]), p["index"]))


def _gang(plan: Doc, name: str, line: Doc | None) -> None:
    """One more gang."""
    one, stated = gang_of(name, line or {})
    plan["instance"]["gangs"].append(one)
    plan["spec"]["gangs"].append(stated)
    plan["instance"]["gangs"].sort(key=lambda g: g["metadata"]["name"])
    plan["spec"]["gangs"].sort(key=lambda g: g["name"])


def _leave(plan: Doc, name: str, _: object) -> None:
    """The gang is in no document any more."""
    plan["instance"]["gangs"].remove(wanted(plan, name))
    plan["spec"]["gangs"].remove(entry(plan, name))


def _queue(plan: Doc, name: str, spec: Doc) -> None:
    plan["instance"]["queues"].append(queue(name, **spec))
    plan["instance"]["queues"].sort(key=lambda one: one["metadata"]["name"])


def _reason(plan: Doc, name: str, given: Doc) -> None:
    """Its code, and its fields."""
    ((code, fields),) = given.items()
    reason = {"code": code, "message": "words"}
    entry(plan, name)["reason"] = reason if fields is None else reason | {"fields": fields}


DO: dict[str, Callable[[Doc, str, Any], object]] = {
    "drop": _drop,
    "add": _add,
    "merge": _merge,
    "swap": _swap,
    "twice": _twice,
    "move": _move,
    "pods": _pods,
    "gang": _gang,
    "leave": _leave,
    "queue": _queue,
    "reason": _reason,
    "wait": lambda plan, name, why: entry(plan, name).update(
        decided(name, "wait", why=why or "NoRoom")
    ),
    "stop": lambda plan, name, by: entry(plan, name).update(stopped(name, by)),
    "stand": lambda plan, name, _: stands(name)(plan),
    "off": off,
    "restate": lambda plan, _, __: redecided(plan),
    "close": lambda plan, _, __: closed(plan),
    "proven": lambda plan, name, value: objective(plan, name).update(proven(name, value)),
    "tier": lambda plan, name, value: plan["status"]["objectives"].append(tier(name, *value)),
}


def edited(plan: Doc, edits: Any) -> Doc:  # noqa: ANN401  # any YAML
    """``edits``: by path or ``DO`` and what it is done to; a list of such mappings, one after another."""
    for one in edits if isinstance(edits, list) else [edits or {}]:
        for key, value in one.items():
            word, _, what = key.partition(" ")
            if word in DO:
                DO[word](plan, what, value)
            else:
                put(plan, key, value)
    return plan


def redecided(plan: Doc) -> Verdict:
    """Restates it with decisions that fit the pods, so that only the rule itself is broken; the verdict."""
    judge = Judge()
    verdict = judge.check(restated(plan, judge))
    wrong = [one for one in verdict.violations if one.rule == "decision"]
    for violation in wrong:
        stated = entry(plan, str(violation.gang).split("/")[1])
        stated["decision"] = violation.message.rsplit(" ", 1)[1]
        if stated["decision"] not in ("wait", "preempt", "keep"):
            stated["reason"] = None
    return judge.check(restated(plan, judge)) if wrong else verdict
