"""``python -m benchmarks.openb online|batch|documents``: see docs/openb.md."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.openb.batch import place_batch
from benchmarks.openb.bounds import bound_of
from benchmarks.openb.documents import write_documents
from benchmarks.openb.judge import Result, judged
from benchmarks.openb.online import Rule, place_each
from benchmarks.openb.room import LeastRoom
from benchmarks.openb.rules import BestFit, Chance, DotProduct, Fgd, GpuPacking
from benchmarks.openb.trace import LISTS, SEEDS, WHOLE, Arrivals, arrivals, read_cluster, read_list

Make = Callable[[Arrivals, int], Rule]

RULES: dict[str, Make] = {
    "least-room": lambda listed, _: LeastRoom(listed, read_cluster()),
    "fgd": lambda listed, _: Fgd(listed),
    "best-fit": lambda *_: BestFit(),
    "gpu-packing": lambda *_: GpuPacking(),
    "dot-product": lambda *_: DotProduct(),
    "chance": lambda _, seed: Chance(seed),
}


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.openb", description=__doc__)
    parser.add_argument("what", choices=["online", "batch", "documents"])
    parser.add_argument("--lists", nargs="+", default=LISTS, choices=LISTS)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=list(RULES))
    parser.add_argument("--cpu-seconds", type=float, default=120)
    parser.add_argument("--nodes-step", type=int, default=1, help="documents of each N-th node")
    parser.add_argument("--out", type=Path, default=Path("openb"))
    given = parser.parse_args()
    if given.what == "documents":
        _documents(given.lists[0], given.seeds[0], given.nodes_step, given.out)
    elif given.what == "batch":
        _batch(given.lists, given.seeds, given.cpu_seconds)
    else:
        _online(given.lists, given.seeds, given.rules)


def _batches(name: str, seeds: Sequence[int]) -> Iterator[tuple[int, Arrivals]]:
    """Pods that arrive until they request the cluster's GPUs."""
    gpus = read_cluster().gpus
    for seed in seeds:
        yield seed, arrivals(read_list(name), gpus, seed).until(gpus * WHOLE)


def _online(lists: Sequence[str], seeds: Sequence[int], rules: Sequence[str]) -> None:
    print("| list | rule | room kept | allocated % | sd | without GPUs dropped | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for name in lists:
        for rule in rules:
            for keeps in (True, False) if rule in {"least-room", "fgd"} else (False,):
                results = [
                    _run(name, rule, seed, pods, keeps=keeps)
                    for seed, pods in _batches(name, seeds)
                ]
                _row(f"{name} | {rule} | {'yes' if keeps else 'no'}", results)


def _run(name: str, rule: str, seed: int, pods: Arrivals, *, keeps: bool) -> tuple[Result, float]:
    cluster, listed, start = read_cluster(), read_list(name), time.process_time()
    placed = place_each(cluster, pods, RULES[rule](listed, seed), listed if keeps else None)
    seconds = time.process_time() - start
    return judged(cluster, pods, placed), seconds


def _row(title: str, results: Sequence[tuple[Result, float]], *more: str) -> None:
    percent = np.array([result.percent for result, _ in results])
    lost = np.mean([result.dropped_without_gpus for result, _ in results])
    seconds = np.mean([seconds for _, seconds in results])
    rest = "".join(f" {one} |" for one in more)
    print(
        f"| {title} | {percent.mean():.2f} | {percent.std():.2f} | {lost:.1f} | {seconds:.1f} |{rest}",
        flush=True,
    )


def _batch(lists: Sequence[str], seeds: Sequence[int], cpu_seconds: float) -> None:
    print("| list | seed | allocated % | sd | without GPUs dropped | CPU s | bound % | gap % |")
    print("|---|---|---|---|---|---|---|---|")
    cluster = read_cluster()
    for name in lists:
        for seed, pods in _batches(name, seeds):
            start = time.process_time()
            bound = bound_of(cluster, pods)
            left = cpu_seconds - (time.process_time() - start)
            result = judged(cluster, pods, place_batch(cluster, pods, bound, seed, left))
            seconds = time.process_time() - start
            gap = 100 * (bound.gpu_milli - result.allocated) / result.allocated
            _row(
                f"{name} | {seed}", [(result, seconds)],
                f"{100 * bound.gpu_milli / result.whole:.2f}", f"{gap:.2f}",
            )  # fmt: skip


def _documents(name: str, seed: int, step: int, out: Path) -> None:
    cluster = read_cluster().every(step)
    pods = arrivals(read_list(name), cluster.gpus, seed).until(cluster.gpus * WHOLE)
    write_documents(out, cluster, pods)
    print(f"{len(pods.order)} pods for {cluster.gpus} GPUs in {out}")


if __name__ == "__main__":
    main()
