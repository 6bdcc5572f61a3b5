"""What Slurm's commands write, as several versions of their data_parser write it.

Fields and their forms are those of outputs of Slurm 21.08 to 24.11; tests change what they are about.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput

Tree = dict[str, Any]

SUBMITTED = 1_795_440_000  # 2026-11-23T13:20:00Z


def number(value: int | None, *, infinite: bool = False) -> Tree:
    """A number since Slurm 23.02."""
    return {"set": value is not None and not infinite, "infinite": infinite, "number": value or 0}


def node(name: str, gres: str = "gpu:h100:8(S:0-1)", used: str = "", **more: object) -> Tree:
    """A node of ``scontrol show nodes --json`` of Slurm 24.11 (data_parser v0.0.42)."""
    return {
        "architecture": "x86_64",
        "boot_time": number(SUBMITTED),
        "cpu_load": 163,
        "free_mem": number(508),
        "cpus": 128,
        "effective_cpus": 128,
        "features": ["ib"],
        "active_features": ["ib"],
        "gres": gres,
        "gres_drained": "N/A",
        "gres_used": used,
        "instance_type": "",
        "specialized_memory": 0,
        "name": name,
        "state": ["IDLE"],
        "partitions": ["gpu"],
        "real_memory": 1_000_000,
        "reservation": "",
        "alloc_memory": 0,
        "alloc_cpus": 0,
        "tres_used": "",
        "sockets": 2,
        "threads": 1,
        **more,
    }


def job(number_: int, state: str = "PENDING", **more: object) -> Tree:
    """A job of ``squeue --json`` of Slurm 24.11: one node with 8 GPUs of any type."""
    return {
        "account": "nlp",
        "array_job_id": number(0),
        "array_task_id": number(None),
        "array_max_tasks": number(0),
        "array_task_string": "",
        "batch_features": "",
        "contiguous": False,
        "dependency": "",
        "excluded_nodes": "",
        "features": "",
        "gres_detail": [],
        "het_job_id": number(0),
        "het_job_id_set": "",
        "het_job_offset": number(0),
        "hold": False,
        "job_id": number_,
        "job_resources": {},
        "job_state": [state],
        "max_nodes": number(0),
        "maximum_switch_wait_time": 0,
        "name": "train",
        "nodes": "",
        "node_count": number(1),
        "cpus": number(32),
        "tasks": number(1),
        "tasks_per_node": number(0),
        "partition": "gpu",
        "priority": number(100),
        "required_nodes": "",
        "required_switches": 0,
        "resv_name": "",
        "segment_size": 0,
        "shared": [],
        "exclusive": [],
        "oversubscribe": True,
        "sockets_per_node": number(None),
        "start_time": number(0),
        "state_reason": "Priority",
        "submit_time": number(SUBMITTED),
        "time_limit": number(720),
        "tres_per_job": "",
        "tres_per_node": "gres/gpu:8",
        "tres_per_socket": "",
        "tres_per_task": "",
        "tres_req_str": "cpu=32,mem=200000M,node=1,billing=32,gres/gpu=8",
        "tres_alloc_str": "",
        "user_name": "mchen",
        **more,
    }


def running(number_: int, nodes: str, detail: list[str], **more: object) -> Tree:
    """A job that runs on these nodes with these GPUs of each."""
    asked = "cpu=32,mem=200000M,node=1,billing=32,gres/gpu=8"
    fields: Tree = {
        "nodes": nodes,
        "gres_detail": detail,
        "node_count": number(len(detail)),
        "start_time": number(SUBMITTED + 600),
        "state_reason": "None",
        "tres_alloc_str": asked,
        "tres_per_node": "gres/gpu:8",
    }
    return job(number_, "RUNNING", **{**fields, **more})


def answer(**lists: list[Any]) -> str:
    """The output of a command with ``--json``."""
    meta = {"slurm": {"release": "24.11.5", "cluster": "atlas"}}
    return json.dumps(
        {**lists, "last_update": number(SUBMITTED + 3600), "meta": meta, "errors": []}
    )


def read(folder: Path, nodes: list[Tree], jobs: list[Tree], **files: str) -> LoadedInput:
    """The instance of these nodes and jobs, and of further files by name (``policy_yaml``)."""
    (folder / "nodes.json").write_text(answer(nodes=nodes))
    (folder / "queue.json").write_text(answer(jobs=jobs))
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return load([str(folder)])
