"""``gangplan doctor`` as the shipped account: a cluster, and the program asked about it.

Promises: the program is the real one from its command line on; what it says is read
as it was printed. Used by ``doctor_fixtures`` and test_doctor_*.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apiserver import FakeCluster
from apiserver_http import FakeWire
from apply_runs import OWN, TOLERATE
from conftest import Result, RunCli
from deploying import TENANT, install

from planner.cluster.transport import Right

Tree = dict[str, Any]


@dataclass(slots=True)
class Doctor:
    """A cluster and the program. ``environ``: leads there as the shipped account.

    ``admin``: whether the next runs are an administrator's.
    """

    cluster: FakeCluster
    folder: Path
    cli: RunCli
    environ: dict[str, str]
    admin: bool = False

    def run(self, *words: str) -> Result:
        return self.cli("doctor", *words, environ=self.environ)

    def checks(self, *words: str) -> dict[str, list[Tree]]:
        """What was found, by check."""
        found: dict[str, list[Tree]] = {}
        for one in json.loads(self.run("-o", "json", *words).out)["checks"]:
            found.setdefault(one["check"], []).append(one)
        return found


def a_cluster(*, without: Right | None = None) -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_node("n1", taints=[OWN])
    cluster.gang_of_pods("a", 1, namespace=TENANT, tolerations=TOLERATE)
    install(cluster, without=without)
    return cluster


class VersionedWire(FakeWire):
    """A wire as the proxy gives it."""

    version = "v1.36.2"

    @property
    def date(self) -> float:
        return self.cluster.clock()
