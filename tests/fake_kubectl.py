"""Recorded rows of kubectl, done again with the kubectl that is here.

Promises: exit code and words, or the requests sent, compared with the recording; rows that other
versions of kubectl do or word otherwise are named. Called by ``fake_replaying``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from functools import lru_cache

from fake_cluster import FakeCluster
from fake_comparing import plain
from fake_http import Endpoint
from fake_trees import Json, Tree


@lru_cache(maxsize=1)
def minor() -> int:
    """The minor version of the kubectl that is used: 32 of v1.32.4."""
    done = subprocess.run(
        [os.environ.get("KUBECTL", "kubectl"), "version", "--client", "-o", "json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return int(re.sub(r"\D.*$", "", json.loads(done.stdout)["clientVersion"]["minor"]))


def comparable(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """The rows that this kubectl should do and say as the one that was recorded (1.32) did."""
    return tuple(one for one in numbers if minor() in WORDED.get(one, range(20, 100)))


_NEWER = range(27, 100)
"""kubectl before 1.27 asks discovery for other things, and says some things otherwise."""

WORDED = {83: range(27, 33)} | dict.fromkeys(
    [
        *(19, 24, 29, 34, 39, 50, 55, 60, 73, 79, 80, 81, 82, 127, 130, 188, 282, 304, 306, 309),
        *(316, 317, 318, 319, 336, 398, 423, 424, 426, 427, 428, 429, 430, 431, 432),
    ],
    _NEWER,
)
"""Rows whose kubectl does or says something else in other versions."""


def carried(row: Tree, file: Json, endpoint: Endpoint) -> list[str]:
    """Run the kubectl of a row; how its exit code and its words differ."""
    done = _run(row, row.get("stdin") if file is None else file, endpoint)
    found = []
    if done.returncode != row["exit"]:
        found.append(f"exit {done.returncode}, recorded {row['exit']}: {done.stderr}")
    found += _talk(done.stdout, row["stdout"], "stdout")
    return found + _talk(done.stderr, row["stderr"], "stderr")


def sent(cluster: FakeCluster, row: Tree, body: Json, endpoint: Endpoint) -> list[str]:
    """Run the kubectl of a row; how the requests it sends differ, discovery left out."""
    start = len(cluster.calls)
    done = _run(row, body, endpoint)
    made = []
    for call in cluster.calls[start:]:
        if call.place is None:
            continue
        query = "&".join(f"{key}={value}" for key, value in sorted(call.query.items()))
        assert call.answer is not None
        made.append(f"{call.method} {call.path}{'?' if query else ''}{query} {call.answer[0]}")
    wanted = [re.sub(r" [A-Z][A-Za-z ]*$", "", line) for line in row["requests"]]
    found = [] if done.returncode == row["exit"] else [f"exit {done.returncode}: {done.stderr}"]
    return found + ([] if made == wanted else [f"sent {made}, recorded {wanted}"])


def _run(row: Tree, body: Json, endpoint: Endpoint) -> subprocess.CompletedProcess[str]:
    account = "[as the planner service account]" in row["note"]
    kubeconfig = endpoint.as_user("planner") if account else endpoint.kubeconfig
    path = endpoint.folder / "body.json"
    path.write_text(json.dumps(body), encoding="utf-8")
    arguments = [
        str(path) if one in ("b.json", "d.json") else one for one in _arguments(row["kubectl"])
    ]
    return subprocess.run(
        [os.environ.get("KUBECTL", "kubectl"), f"--kubeconfig={kubeconfig}", *arguments],
        input=body if isinstance(body, str) else json.dumps(body),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=endpoint.environ(os.environ),
    )


def patched_status(cluster: FakeCluster, row: Tree) -> list[str]:
    """What ``kubectl patch resourceclaim NAME --subresource=status --type=merge`` sends."""
    name, payload = row["kubectl"].split()[2], row["kubectl"].split(" -p ", 1)[1]
    path = f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}/status"
    kind = "application/merge-patch+json"
    user = cluster.tokens["planner"].name if "service account" in row["note"] else None
    code, _, _ = cluster.handle("PATCH", path, json.loads(payload), kind, user)
    return [] if (code < 300) is (row["exit"] == 0) else [f"status {code}"]


def _arguments(command: str) -> list[str]:
    head, dash, payload = command.partition(" -p ")
    return [*head.split(), *(["-p", payload] if dash else [])]


def _talk(ours: str, recorded: str, where: str) -> list[str]:
    a, b = _words(ours), _words(recorded)
    if a == b:
        return []
    return [f"{where}: {a!r}, recorded {b!r}"]


def _words(text: str) -> Json:
    """What kubectl says, less what a server makes up; documents as trees."""
    text = text.strip()
    if text.startswith("{"):
        try:
            return plain(json.loads(text))
        except ValueError:
            pass
    lines = [line.rstrip() for line in text.splitlines() if not line.startswith("Warning: ")]
    return re.sub(r"\n(?:@@|[-+] \w+: )[\s\S]*$", "", "\n".join(lines))
