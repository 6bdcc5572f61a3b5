"""The cases of ``cases.yaml``: what is measured, and what is asked of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from benchmarks.generator import busy
from benchmarks.no_room import no_room
from benchmarks.shared import shared
from benchmarks.traps import traps
from models.instance.instance import Instance
from planner.read.inputs import load

HERE = Path(__file__).parent

Case = dict[str, Any]

CASES: dict[str, Case] = yaml.safe_load((HERE / "cases.yaml").read_text(encoding="utf-8"))
"""By name."""


def instance_of(case: Case) -> Instance:
    """What the case says."""
    if "read" in case:
        return load([str(HERE.parent / "inputs" / case["read"])]).instance
    if "traps" in case:
        return traps(case["traps"], 1).instance
    if "noRoom" in case:
        return no_room(case["noRoom"])
    drawn = busy(**case["draw"])
    return shared(drawn, *case["shared"]) if "shared" in case else drawn


def describe(instance: Instance) -> str:
    """One line: servers, GPUs that are free, gangs that wait."""
    running = [gang for gang in instance.gangs if gang.running]
    held = sum(gang.roles[pod.role].gpus for gang in running for pod in gang.running_pods)
    installed = sum(node.healthy.bit_count() for node in instance.cluster.nodes)
    return (
        f"{len(instance.cluster.nodes):,} servers, {installed - held:,} of {installed:,} GPUs free,"
        f" {len(instance.gangs) - len(running):,} gangs wait"
    )
