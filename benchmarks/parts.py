"""``python -m benchmarks.parts``: how many GPUs parts need, placed by other rules and by ``gangplan``.

30,000 requests for instances of five boards (MIG), or for fractions of one; every rule takes them in turn,
and opens another GPU where none has room. Rules of others are restated from their documentation; no code of
theirs runs here. The bound is what no placement has fewer of.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from models.documents.policy import SolveLimits
from models.instance.reshaping import partitions, parts
from models.mig import Board, board_named
from models.program.linear_program import Linear, Program
from planner.read.inputs import load
from planner.search.budget import Budget
from planner.search.engines.highs import solve_by_branching
from planner.search.engines.interface import Goal
from planner.search.solve import solve

API = "gangplan.dev/v1alpha1"
BOARDS = {"A100-80": "A100", "H100 NVL": "H100 NVL", "H200": "H200", "B200": "B200", "B300": "B300"}
"""Boards whose profiles have names of their own, and a GPU model of each."""

SERVER = 8
"""GPUs of a server: HAMi scores servers before GPUs."""

SPLIT = 10
"""Pods on a GPU that is shared, as HAMi and gangplan have by default."""

SIZES = {
    '{"fraction": 0.1}': (100, 100),
    '{"fraction": 0.2}': (200, 200),
    '{"fraction": 0.25}': (250, 250),
    '{"fraction": 0.3}': (300, 300),
    '{"fraction": 0.5}': (500, 500),
    '{"fraction": 0.7}': (700, 700),
    '{"memory": "20Gi", "cores": 30}': (250, 300),
}
"""Memory and cores of each part, in 1/1000 of a GPU of 80 GiB."""

RULES = ("first fit", "best fit", "hami binpack", "hami spread")


State = tuple[int, ...]
"""What is on a GPU."""


STEPS = 20
"""Thousandths of the fewest GPUs by which there are more of them, until a plan places everything."""


@dataclass(frozen=True)
class Kind:
    """A kind of GPU, with every state that it can be in; state 0: idle.

    ``after[r][s]``: the state next to one more request r, -1 if there is no room. ``left[s]``: what best
    fit compares. ``use[s]``: what HAMi's score counts, of one GPU.
    """

    after: np.ndarray
    left: np.ndarray
    use: np.ndarray


def mig_kind(board: Board, names: Sequence[str]) -> Kind:
    """A GPU that gets instances as they are asked for, which may be moved in it: the best any rule can do."""
    most = [board.profile(name) for name in names]
    weights = [0 if one is None else one.size for one in most]
    return _explored(
        [tuple(int(k == r) for k in range(len(names))) for r in range(len(names))],
        lambda s: board.can_have(n for n, c in zip(names, s, strict=True) for _ in range(c)),
        lambda s: -sum(w * c for w, c in zip(weights, s, strict=True)),
        lambda s: sum(w * c for w, c in zip(weights, s, strict=True)),
    )


def share_kind() -> Kind:
    """A GPU that is shared: (memory, cores, pods) in use."""
    return _explored(
        [(*size, 1) for size in SIZES.values()],
        lambda s: max(s[:2]) <= 1000 and s[2] <= SPLIT,
        lambda s: 2000 - s[0] - s[1],
        lambda s: s[0] / 1000 + s[1] / 1000 + s[2] / SPLIT,
    )


def hami_kind(board: Board, names: Sequence[str]) -> Kind:
    """A GPU with templates: the first one with a large enough instance, then instances that are free.

    HAMi has (``knownMigGeometries``) four templates for a board of seven slices; memory decides,
    and the first free instance of the list is taken (``dynamic-mig-support.md``).
    """
    small, _, middle, large = names
    whole = max(board.profiles, key=lambda one: one.size).names[0]
    templates = [[(small, 7)], [(middle, 3), (small, 1)], [(large, 2)], [(whole, 1)]]
    lists = [[_memory(n) for n, count in own for _ in range(count)] for own in templates]
    states: dict[tuple[int, int], int] = {(-1, 0): 0}
    order, after = [(-1, 0)], [list[int]() for _ in names]
    for template, taken in order:
        for r, name in enumerate(names):
            found = -1
            for t in range(len(lists)) if template < 0 else (template,):
                free = [
                    k for k, has in enumerate(lists[t])
                    if has >= _memory(name) and not taken >> k & 1
                ]  # fmt: skip
                if free:
                    key = t, taken | 1 << free[0]
                    if key not in states:
                        states[key] = len(order)
                        order.append(key)
                    found = states[key]
                    break
            after[r].append(found)
    use = [
        sum(has for k, has in enumerate(lists[t]) if taken >> k & 1) / _memory(whole)
        + taken.bit_count() / SPLIT for t, taken in order
    ]  # fmt: skip
    return Kind(np.array(after), -np.array(use), np.array(use))


def _memory(name: str) -> int:
    """GB of a profile, from its name."""
    return int(name.partition(".")[2].removesuffix("gb"))


def _explored(
    steps: Sequence[State],
    fits: Callable[[State], bool],
    left: Callable[[State], float],
    use: Callable[[State], float],
) -> Kind:
    """The kind of GPU whose states are sums of steps."""
    start = tuple(0 for _ in steps[0])
    states, order, after = {start: 0}, [start], [list[int]() for _ in steps]
    for state in order:
        for r, step in enumerate(steps):
            more = tuple(a + b for a, b in zip(state, step, strict=True))
            if more not in states and fits(more):
                states[more] = len(order)
                order.append(more)
            after[r].append(states.get(more, -1))
    return Kind(
        np.array(after), np.array([left(s) for s in order]), np.array([use(s) for s in order])
    )


def needed(kind: Kind, requests: Sequence[int], rule: str) -> int:
    """GPUs that the requests take, one after the other, by a rule."""
    size = -(-(len(requests) + 1) // SERVER) * SERVER
    states, total = np.zeros(size, dtype=np.int64), np.zeros(size // SERVER)
    opened = 0
    for r in requests:
        reach = min(size, (opened // SERVER + 1) * SERVER) if rule.startswith("hami") else opened
        fits = np.flatnonzero(kind.after[r][states[:reach]] >= 0)
        if rule.startswith("hami"):
            gpu = _hami(kind, states, total, fits, spread=rule.endswith("spread"))
        elif not len(fits):
            gpu = -1
        elif rule == "best fit":
            gpu = int(fits[kind.left[kind.after[r][states[fits]]].argmin()])
        else:
            gpu = int(fits[0])
        if gpu < 0:
            gpu = reach
        total[gpu // SERVER] -= kind.use[states[gpu]]
        states[gpu] = kind.after[r][states[gpu]]
        total[gpu // SERVER] += kind.use[states[gpu]]
        opened = max(opened, gpu + 1)
    return int((states > 0).sum())


def _hami(
    kind: Kind, states: np.ndarray, total: np.ndarray, fits: np.ndarray, *, spread: bool
) -> int:
    """Of the servers with room the fullest, of its GPUs the fullest, or the emptiest; -1 for none."""
    if not len(fits):
        return -1
    servers = fits // SERVER
    inside = fits[servers == servers[total[servers].argmax()]]
    use = kind.use[states[inside]]
    return int(inside[use.argmin() if spread else use.argmax()])


def bound_mig(board: Board, names: Sequence[str], asked: Sequence[int]) -> tuple[int, int]:
    """(fewest GPUs that are proven to be needed, fewest that are found) for so many of each instance."""
    program, total = Program(), Linear()
    rows = [Linear() for _ in names]
    for geometry in board.geometries(tuple(names)):
        gpus = program.integer(0, sum(asked))
        total.add(gpus)
        for row, count in zip(rows, geometry, strict=True):
            row.add(gpus, count)
    for row, count in zip(rows, asked, strict=True):
        program.at_least(row, count)
    goal = Goal(total, maximize=False)
    found = solve_by_branching(program, goal, Budget(SolveLimits()), nodes=1000, seconds=20)
    return found.bound, total.value(found.values)


def bound_shares(asked: Sequence[int]) -> int:
    """GPUs that memory, cores, pods, or parts of more than half need at least."""
    sums = [sum(size[k] * n for size, n in zip(SIZES.values(), asked, strict=True)) for k in (0, 1)]
    large = sum(n for size, n in zip(SIZES.values(), asked, strict=True) if max(size) > 500)
    return max(*(-(-one // 1000) for one in sums), large, -(-sum(asked) // SPLIT))


Gang = tuple[str, int, str]
"""Board ("" for parts of shared GPUs), pods, and what each asks for: a profile or a part."""


def drawn(seed: int, count: int, *, mig: bool) -> list[Gang]:
    """Gangs of 1 to 32 pods, of one profile of one board each, or of one fraction."""
    random, found, left = Random(seed), list[Gang](), count
    while left > 0:
        pods = min(left, random.choice([1, 1, 2, 4, 8, 16, 32]))
        board = random.choice(list(BOARDS)) if mig else ""
        found.append((board, pods, random.choice(profiles(board) if mig else list(SIZES))))
        left -= pods
    return found


def profiles(board: str) -> list[str]:
    """Those of one, two and three compute slices, the smallest first."""
    own = board_named(board)
    assert own is not None, board
    return [p.names[0] for p in own.profiles if p.names[0][0] in "123" and "+" not in p.names[0]]


def planned(gangs: Sequence[Gang], gpus: dict[str, int], seconds: int) -> tuple[int, int]:
    """(pods that ``gangplan plan`` places, GPUs that it takes) on so many GPUs of each board."""
    nodes, servers = list[dict[str, Any]](), dict[str, dict[str, Any]]()
    for board, count in gpus.items():
        for first in range(0, count, SERVER):
            server = _server(BOARDS[board] if board else "H200", min(SERVER, count - first))
            servers[server["name"]] = server
            more = (
                {"dynamicMig": board} if board else {"sharing": {"memory": "80Gi", "pods": SPLIT}}
            )
            name = f"{server['gpu']}-{first}".lower().replace(" ", "-")
            nodes.append({"name": name, "model": server["name"], **more})
    spec = {"objectives": [{"name": "admission"}], "queueLimit": len(gangs)}
    cluster = {"serverModels": list(servers.values()), "nodes": nodes}
    documents: list[dict[str, Any]] = [
        {"kind": "Cluster", "metadata": {"name": "c"}, "spec": cluster},
        {"kind": "Policy", "metadata": {"name": "p"}, "spec": spec},
    ]
    for k, (board, pods, what) in enumerate(gangs):
        asks = {"profile": what} if board else json.loads(what)
        role = {"name": "r", "replicas": pods, "gpu": asks}
        own = {"kind": "Gang", "metadata": {"name": f"g{k:05}"}, "spec": {"roles": [role]}}
        documents.append(own)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "input.yaml"
        text = "---\n".join(json.dumps({"apiVersion": API, **one}) + "\n" for one in documents)
        path.write_text(text, encoding="utf-8")
        instance = load((str(path),)).instance
    limits = replace(instance.policy.solve, time_limit_s=seconds, budget=10 * seconds)
    instance = replace(instance, policy=replace(instance.policy, solve=limits))
    placed = [
        (gang.roles[pod.role], pod)
        for gang, decision in zip(instance.gangs, solve(instance).decisions, strict=True)
        for pod in decision.pods
    ]
    return len(placed), len(partitions(instance, placed)) + len(parts(instance, placed))


def _server(model: str, gpus: int) -> dict[str, Any]:
    matrix = [["X" if a == b else "SYS" for b in range(gpus)] for a in range(gpus)]
    own = {"name": f"{gpus} x {model}", "gpu": model, "gpus": gpus, "fabric": "pcie", "nics": []}
    return {
        **own,
        "matrix": matrix,
        "numa": [0] * gpus,
        "relativeSpeed": 1,
        "confidence": "assumed",
    }


def measured(seed: int, count: int, seconds: int, *, mig: bool) -> dict[str, int]:
    """GPUs by rule, the bound, and how many a plan needs; and the pods that it places on the fewest."""
    gangs = drawn(seed, count, mig=mig)
    found, fewest = Counter[str](), dict[str, int]()
    for board in BOARDS if mig else [""]:
        names = profiles(board) if mig else list(SIZES)
        requests = [names.index(w) for b, pods, w in gangs if b == board for _ in range(pods)]
        asked = [requests.count(r) for r in range(len(names))]
        own = board_named(board)
        for rule in RULES:
            kind = share_kind()
            if own is not None:
                kind = hami_kind(own, names) if rule.startswith("hami") else mig_kind(own, names)
            found[rule] += needed(kind, requests, rule)
        least, fewest[board] = (
            (bound_shares(asked),) * 2 if own is None else bound_mig(own, names, asked)
        )
        found["bound"] += least
    for more in range(STEPS):
        gpus = {board: n + -(-n * more // 1000) for board, n in fewest.items()}
        pods, used = planned(gangs, gpus, seconds)
        if not more:
            found["placed on the fewest"] = pods
        if pods == count:
            found["gangplan"] = used
            break
    return dict(found)


def main() -> None:
    """Print mean and standard deviation over seeds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parts", description=__doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(1, 11)))
    parser.add_argument("--parts", type=int, default=30_000)
    parser.add_argument("--seconds", type=int, default=60, help="for a plan")
    given = parser.parse_args()
    print("| parts | rule | GPUs | sd | more than the bound |\n|---|---|---|---|---|")
    for mig in (True, False):
        runs = [measured(seed, given.parts, given.seconds, mig=mig) for seed in given.seeds]
        bounds = np.array([run["bound"] for run in runs])
        for rule in runs[0]:
            own = np.array([run[rule] for run in runs])
            more = (
                f"{100 * (own / bounds - 1).mean():.1f} %" if rule != "placed on the fewest" else ""
            )
            title = "instances" if mig else "fractions"
            print(f"| {title} | {rule} | {own.mean():.1f} | {own.std():.1f} | {more} |", flush=True)


if __name__ == "__main__":
    main()
