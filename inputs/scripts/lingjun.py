"""Make the input `lingjun`: real hosts and their network tree, real jobs replayed onto them.

Promises: reads the two CSV files named on the command line, writes only into --out, uses no
random number and no clock: the same files and options give the same bytes.
Run by hand; inputs/lingjun/README.md holds the command and where the files come from.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import heapq
import io
import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

GPUS = 8
"""GPUs a host: an assumption, the host list does not say."""
START = datetime(2020, 4, 1, tzinfo=UTC)
"""Second 0 of the job list on a calendar: an assumption, the list has no dates."""


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    psw: str
    asw: str


@dataclass(frozen=True, slots=True)
class Job:
    """``duration_s`` is that of the list times the stretch."""

    name: str
    user: str
    submit_s: int
    duration_s: int
    gpus: int

    @property
    def pods(self) -> int:
        return 1 if self.gpus <= GPUS else -(-self.gpus // GPUS)

    @property
    def gpus_a_pod(self) -> int:
        return min(self.gpus, GPUS)


@dataclass
class Replay:
    """First fit over the hosts in order, first come first served, smaller jobs may pass.

    ``free[h]`` is a bit mask of host h; ``running`` maps a job to (host, mask) of each pod.
    """

    hosts: int
    free: list[int] = field(init=False)
    running: dict[Job, list[tuple[int, int]]] = field(default_factory=dict)
    waiting: deque[Job] = field(default_factory=deque)
    ends: list[tuple[int, str, Job]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = [(1 << GPUS) - 1] * self.hosts

    def until(self, jobs: Iterable[Job], stop: int, pause: int) -> None:
        """Replay up to second ``stop``; in the last ``pause`` seconds jobs end but none starts."""
        for job in jobs:
            if job.submit_s > stop:
                break
            self._finish(job.submit_s, start=job.submit_s <= stop - pause)
            self.waiting.append(job)
            if job.submit_s <= stop - pause:
                self._start(job.submit_s)
        self._finish(stop, start=False)

    def _finish(self, now: int, *, start: bool) -> None:
        while self.ends and self.ends[0][0] <= now:
            end, _, job = heapq.heappop(self.ends)
            for host, mask in self.running.pop(job):
                self.free[host] |= mask
            if start:
                self._start(end)

    def _start(self, now: int) -> None:
        """Start every waiting job that fits, in order of arrival."""
        refused: set[tuple[int, int]] = set()
        still: deque[Job] = deque()
        for job in self.waiting:
            shape = (job.pods, job.gpus_a_pod)
            places = None if shape in refused else self._places(*shape)
            if places is None:
                refused.add(shape)
                still.append(job)
                continue
            for host, mask in places:
                self.free[host] &= ~mask
            self.running[job] = places
            heapq.heappush(self.ends, (now + job.duration_s, job.name, job))
        self.waiting = still

    def _places(self, pods: int, gpus: int) -> list[tuple[int, int]] | None:
        """(host, mask) a pod on the first hosts with room, lowest GPUs first; None if too few."""
        found: list[tuple[int, int]] = []
        for host, mask in enumerate(self.free):
            if mask.bit_count() >= gpus:
                lowest = [gpu for gpu in range(GPUS) if mask >> gpu & 1][:gpus]
                found.append((host, sum(1 << gpu for gpu in lowest)))
                if len(found) == pods:
                    return found
        return None


def open_text(path: Path) -> io.TextIOBase:
    """The text of a file, gzipped or not."""
    if path.suffix == ".gz":
        return io.TextIOWrapper(gzip.open(path, "rb"), encoding="utf-8")
    return path.open(encoding="utf-8")


def read_hosts(path: Path) -> list[Host]:
    with open_text(path) as file:
        return [Host(row["host"], row["psw"], row["asw"]) for row in csv.DictReader(file)]


def read_jobs(path: Path, stretch: int) -> list[Job]:
    """Jobs with GPUs, by submission then name."""
    with open_text(path) as file:
        jobs = [
            Job(
                row["job_id"],
                row["user"],
                int(row["submit_s"]),
                int(row["duration_s"]) * stretch,
                int(row["num_gpus"]),
            )
            for row in csv.DictReader(file)
            if int(row["num_gpus"]) > 0
        ]
    return sorted(jobs, key=lambda job: (job.submit_s, job.name))


def host_range(names: list[str]) -> str:
    """One host range for names that share a letter and have numbers of one width."""
    numbers = sorted(int(name[1:]) for name in names)
    width = len(names[0]) - 1
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    texts = [
        f"{part[0]:0{width}d}" + (f"-{part[-1]:0{width}d}" if len(part) > 1 else "")
        for part in parts
    ]
    if texts == [f"{numbers[0]:0{width}d}"]:
        return names[0]
    return f"{names[0][0]}[{','.join(texts)}]"


def cluster_text(hosts: list[Host]) -> Iterator[str]:
    """The Cluster document, one line a ToR group."""
    yield CLUSTER_HEAD
    groups: dict[tuple[str, str], list[str]] = {}
    for host in hosts:
        groups.setdefault((host.psw, host.asw), []).append(host.name)
    for (psw, asw), names in groups.items():
        domains = f"{{dsw: G6, psw: {psw}, asw: {asw}}}"
        yield f'  - {{name: "{host_range(names)}", model: lingjun-host, domains: {domains}}}\n'


def gang_text(job: Job, places: list[tuple[int, int]], hosts: list[Host]) -> str:
    """One Gang document. ``places`` is empty for a job that waits."""
    submitted = (START + timedelta(seconds=job.submit_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
    lines = [
        "---",
        "apiVersion: gangplan.dev/v1alpha1",
        "kind: Gang",
        f"metadata: {{name: {job.name}, namespace: {job.user}}}",
        "spec:",
        f"  submittedAt: {submitted}",
        f"  expectedDuration: {job.duration_s}s",
    ]
    if job.pods > 1:
        # One ToR group where the job is small enough for one, otherwise one aggregation switch.
        level = "asw" if job.pods <= 8 else "psw"
        lines.append(f"  topology: {{preferred: {level}}}")
    lines.append(f"  roles: [{{name: worker, replicas: {job.pods}, gpus: {job.gpus_a_pod}}}]")
    if places:
        lines += ["status:", "  pods:"]
    for index, (host, mask) in enumerate(places):
        gpus = json.dumps([gpu for gpu in range(GPUS) if mask >> gpu & 1])
        lines.append(
            f"  - {{name: {job.name}-worker-{index}, role: worker, index: {index},"
            f" node: {hosts[host].name}, gpus: {gpus}}}"
        )
    return "\n".join(lines) + "\n"


def write_source(directory: Path, hosts: Path, jobs: Path, stop: int) -> None:
    """Keep what the replay needs: the host list, and the jobs with GPUs up to ``stop``."""
    directory.mkdir(parents=True, exist_ok=True)
    with open_text(hosts) as file:
        (directory / "hosts.csv").write_text(file.read(), encoding="utf-8")
    columns = ["job_id", "user", "submit_s", "duration_s", "num_gpus"]
    with open_text(jobs) as file:
        kept = [
            [row[column] for column in columns]
            for row in csv.DictReader(file)
            if int(row["num_gpus"]) > 0 and int(row["submit_s"]) <= stop
        ]
    with (directory / "jobs.csv").open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(kept)


CLUSTER_HEAD = """\
# Made by inputs/scripts/lingjun.py; see README.md for the source, the licence and what is assumed.
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: lingjun}
spec:
  levels:
  - {name: dsw}                           # core
  - {name: psw, oversubscription: 2}      # aggregation; the factor is an assumption
  - {name: asw}                           # top of rack
  serverModels:                           # an assumption: the host list does not say what a host is
  - name: lingjun-host
    gpu: A100
    gpus: 8
    fabric: nvswitch
    linkMBps: 20000
    linksPerGpu: 12
    pcieMBps: 20000
    nics:
    - {name: bond0, gbps: 200, gpus: [0, 1]}
    - {name: bond1, gbps: 200, gpus: [2, 3]}
    - {name: bond2, gbps: 200, gpus: [4, 5]}
    - {name: bond3, gbps: 200, gpus: [6, 7]}
  nodes:
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hosts", type=Path, help="CSV: host, dsw, psw, asw")
    parser.add_argument("jobs", type=Path, help="CSV: job_id, user, submit_s, duration_s, num_gpus")
    parser.add_argument("--at", type=int, required=True, help="second of the job list to stop at")
    parser.add_argument(
        "--pause", type=int, default=0, help="seconds before it in which none starts"
    )
    parser.add_argument("--stretch", type=int, default=1, help="durations are multiplied by this")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the input to")
    options = parser.parse_args()

    hosts = read_hosts(options.hosts)
    replay = Replay(len(hosts))
    replay.until(read_jobs(options.jobs, options.stretch), options.at, options.pause)
    made = "# Made by inputs/scripts/lingjun.py; see README.md for the source and the licence.\n"
    running = "".join(gang_text(job, places, hosts) for job, places in sorted_by_name(replay))
    queue = "".join(gang_text(job, [], hosts) for job in replay.waiting)
    options.out.mkdir(parents=True, exist_ok=True)
    write_source(options.out / "source", options.hosts, options.jobs, options.at)
    for name, text in (
        ("cluster.yaml", "".join(cluster_text(hosts))),
        ("running.yaml", made + running),
        ("queue.yaml", made + queue),
    ):
        (options.out / name).write_text(text, encoding="utf-8")
    free = sum(mask.bit_count() for mask in replay.free)
    asked = sum(job.gpus for job in replay.waiting)
    print(
        f"{len(replay.running)} jobs run, {free} of {GPUS * len(hosts)} GPUs are free,"
        f" {len(replay.waiting)} jobs wait and ask for {asked}"
    )


def sorted_by_name(replay: Replay) -> list[tuple[Job, list[tuple[int, int]]]]:
    return sorted(replay.running.items(), key=lambda item: item[0].name)


if __name__ == "__main__":
    main()
