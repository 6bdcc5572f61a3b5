"""Kueue's priority: the same for a workload that waits and for one that runs, whatever its pods say."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import RunCli


@pytest.mark.parametrize(("priority", "said"), [(0, True), (5, False)])
def test_a_plan_says_that_an_admitted_gang_waits_for_one_that_kueue_suspends(
    cli: RunCli, tmp_path: Path, priority: int, said: bool
) -> None:
    file = tmp_path / "input.yaml"
    file.write_text(
        f"""\
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {{name: c}}
spec: {{nodes: [{{name: "n[1-3]", model: dgx-h100}}]}}
---
apiVersion: gangplan.dev/v1alpha1
kind: Queue
metadata: {{name: team}}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {{name: admitted}}
spec: {{queue: team, roles: [{{name: worker, replicas: 2, gpus: 8}}]}}
status:
  scheduler: default-scheduler
  pods:
  - {{name: admitted-worker-0, role: worker, index: 0}}
  - {{name: admitted-worker-1, role: worker, index: 1}}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {{name: suspended}}
spec: {{queue: team, priority: {priority}, roles: [{{name: worker, replicas: 3, gpus: 8}}]}}
status: {{scheduler: kueue}}
"""
    )
    # 24 GPUs start rather than 16; one of higher priority would go first in Kueue, too
    shown = " ".join(cli("plan", str(file), "--budget", "1").out.split())
    assert ("default/admitted waits while default/suspended starts, which Kueue" in shown) == said
