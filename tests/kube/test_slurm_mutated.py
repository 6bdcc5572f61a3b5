"""Whatever stands in the output of Slurm, reading ends in an instance or in an error with its place."""

from __future__ import annotations

import copy
import io
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from effort import examples

from planner.errors import InputError
from planner.read.inputs import load

FOLDER = Path(__file__).parents[2] / "inputs" / "slurm"
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 3.5, 2**31, 2**32 - 2, 2**70, "", "x", "\x1b[2J", "a" * 5000, "[1-", "n[1-999999999]",
    "gpu:h100:-3", "gpu:h100:4(IDX:0-3)", "gpu:h100:99(IDX:0-98)", "a|b&c", "1-5", "N/A", "RUNNING",
    "PENDING", [], [[]], ["DRAIN"], ["RUNNING"], [None], {},
    {"set": True, "number": -4}, {"set": True, "number": "x"},
    {"set": True, "infinite": True, "number": 7}, {"set": True, "infinite": False, "number": 2**63},
)  # fmt: skip


@cache
def original() -> tuple[Any, Any]:
    return tuple(json.loads((FOLDER / f"{name}.json").read_text()) for name in ("nodes", "queue"))  # type: ignore[return-value]


def spoil(tree: Any, draw: random.Random) -> None:  # noqa: ANN401  # any JSON
    """Replace or remove a value somewhere."""
    here, key = tree, None
    while True:
        key = draw.choice(list(here) if isinstance(here, dict) else range(len(here)))
        inner = here[key]
        if not isinstance(inner, dict | list) or not inner or draw.random() < 0.1:
            break
        here = inner
    if draw.random() < 0.2:
        del here[key]
    else:
        here[key] = copy.deepcopy(draw.choice(ODD))


@pytest.mark.parametrize("seed", range(examples(400, 21)))
def test_mutated_output_of_slurm_is_read_or_refused_with_a_place(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)  # a test
    nodes, queue = copy.deepcopy(original())
    parts = (nodes["nodes"], queue["jobs"], queue["jobs"], queue["jobs"])
    for _ in range(draw.randint(1, 60)):
        spoil(draw.choice(parts), draw)
    if seed % 10 == 0:
        spoil(draw.choice((nodes, queue)), draw)
    (tmp_path / "nodes.json").write_text(json.dumps(nodes))
    queued = io.BytesIO(json.dumps(queue).encode())
    try:
        found = load([str(tmp_path), "-", str(FOLDER / "topology.conf")], stdin=queued)
    except InputError as refused:
        faults = refused.faults
    else:
        faults = ()
        assert "\x1b" not in "".join(found.remarks)
        assert found.instance.cluster.nodes
    assert all(fault.hint and (fault.line or fault.file is None) for fault in faults)
    assert "\x1b" not in "".join(fault.what for fault in faults)
