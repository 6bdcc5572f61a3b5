"""Nodes of a Slurm cluster: states, GPUs, what is left of them, in every form Slurm writes them in."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm_output import Tree, answer, job, node, read, running

from models.instance.cluster import Node
from planner.errors import InputError
from planner.read.inputs import load
from planner.read.slurm.fields import Gres, gres, number

MIB = 2**20


def only(folder: Path, tree: Tree, *jobs: Tree) -> Node:
    (found,) = read(folder, [tree], list(jobs)).instance.cluster.nodes
    return found


@pytest.mark.parametrize(
    ("states", "ready", "closed"),
    [
        (["IDLE"], True, False),
        (["MIXED"], True, False),
        (["ALLOCATED"], True, False),
        (["MIXED", "PLANNED"], True, False),
        (["IDLE", "DRAIN"], True, True),
        (["MIXED", "DRAIN"], True, True),  # draining
        (["IDLE", "MAINTENANCE"], True, True),
        (["DOWN"], False, False),
        (["DOWN", "DRAIN", "NOT_RESPONDING"], False, True),
        (["IDLE", "NOT_RESPONDING"], False, False),
        (["IDLE", "FAIL"], False, False),
        (["IDLE", "INVALID_REG"], False, False),
        (["IDLE", "CLOUD", "POWERED_DOWN"], True, False),  # Slurm starts it
        (["IDLE", "CLOUD", "POWERING_UP", "NOT_RESPONDING"], True, False),
        (["IDLE", "CLOUD", "POWERING_DOWN"], True, True),
        (["DOWN", "CLOUD", "POWERED_DOWN"], False, False),
        (["IDLE", "REBOOT_ISSUED"], True, True),
        (["IDLE", "RESERVED"], True, True),  # the reservation has no name here
        (["SOMETHING_NEW"], True, False),
        ("idle*", False, False),  # sinfo, and versions before 21.08
        ("mixed-", True, False),
        ("drained*", False, True),
        ("idle~", True, False),
        ("maint", True, True),
        ("IDLE+DRAIN", True, True),
    ],
)
def test_states_say_whether_a_node_is_ready_and_takes_jobs(
    states: object, ready: bool, closed: bool, tmp_path: Path
) -> None:
    found = only(tmp_path, node("n1", state=states))
    assert (found.ready, found.unschedulable) == (ready, closed)


def test_states_of_version_21_08_are_one_word_and_flags(tmp_path: Path) -> None:
    tree = {
        "name": "n1",
        "state": "down",
        "state_flags": ["DRAIN", "NOT_RESPONDING"],
        "cpus": 64,
        "real_memory": 500_000,
        "features": "a100,ib",
        "active_features": "a100,ib",
        "gres": "gpu:a100:4",
        "gres_used": "gpu:a100:0(IDX:N/A)",
        "partitions": ["gpu", "long"],
        "alloc_cpus": 0,
        "alloc_memory": 0,
        "free_memory": -2,
        "cpu_load": 4294967294,
        "tres_used": None,
    }
    found = only(tmp_path, tree)
    assert (found.ready, found.unschedulable, found.gpus) == (False, True, 4)
    assert dict(found.labels) == {
        "slurm/feature.a100": "true",
        "slurm/feature.ib": "true",
        "slurm/gpu": "a100",
        "slurm/partition.gpu": "true",
        "slurm/partition.long": "true",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu:h100:8(S:0-1)", [Gres("gpu", "h100", 8)]),
        ("gpu:8", [Gres("gpu", None, 8)]),
        ("gres:gpu:8", [Gres("gpu", None, 8)]),  # tres_per_node up to 23.11
        ("gres/gpu:h100:4", [Gres("gpu", "h100", 4)]),
        ("gres/gpu=2", [Gres("gpu", None, 2)]),
        ("gpu:h100:4(IDX:0-1,6-7)", [Gres("gpu", "h100", 4, (0, 1, 6, 7))]),
        ("gpu:h100:0(IDX:N/A)", [Gres("gpu", "h100", 0, ())]),
        ("gpu(IDX:0-3)", [Gres("gpu", None, 4, (0, 1, 2, 3))]),
        ("gpu:a100:4(S:0),gpu:v100:2(S:1)", [Gres("gpu", "a100", 4), Gres("gpu", "v100", 2)]),
        ("shard:a100:8(4/4,4/4,0/4)", [Gres("shard", "a100", 8, None, (4, 4, 0))]),
        ("cpu=4,gres/gpu=1", [Gres("gpu", None, 1)]),
        ("gpu:a100", [Gres("gpu", "a100", 1)]),
        ("gpu:a100:-4", []),
        ("gpu:a100:4(IDX:0-99999)", [Gres("gpu", "a100", 4)]),
        ("(null)", []),
        ("", []),
    ],
)
def test_generic_resources_are_read_in_every_form(text: str, expected: list[Gres]) -> None:
    assert list(gres(text)) == expected


def test_generic_resources_end() -> None:
    assert len(gres(",".join(f"r{i}:1" for i in range(101)))) == 100
    assert len(gres(",".join(f"r{i}:1" for i in range(99)))) == 99


def test_numbers_are_plain_or_have_a_flag_and_old_ones_mark_what_is_not_set() -> None:
    tree = {
        "plain": 8, "text": "8", "set": {"set": True, "infinite": False, "number": 8},
        "unset": {"set": False, "infinite": False, "number": 0},
        "infinite": {"set": True, "infinite": True, "number": 0},
        "no_val": 4294967294, "unlimited": 4294967295, "no_val64": 18446744073709551614,
    }  # fmt: skip
    assert [number(tree, name) for name in tree] == [8, 8, 8, None, None, None, None, None]


def test_what_jobs_of_the_input_hold_is_theirs_and_what_others_use_is_not_offered(
    tmp_path: Path,
) -> None:
    # 6 GPUs, 100 cpus and 500,000 MiB are in use; job 7 has 4 of those GPUs, 32 cpus and 200,000 MiB.
    tree = node(
        "n1", used="gpu:h100:6(IDX:0-5)", state=["MIXED"], alloc_cpus=100, alloc_memory=500_000
    )
    found = read(tmp_path, [tree], [running(7, "n1", ["gpu:h100:4(IDX:2-5)"])])
    (one,), (gang,) = found.instance.cluster.nodes, found.instance.gangs
    assert gang.pods[0].gpus == 0b111100
    assert one.unhealthy == 0b11  # GPUs 0 and 1
    # 128 - (100 - 32) cpus and 1,000,000 - (500,000 - 200,000) MiB are left for gangs, job 7 among them
    assert dict(one.allocatable) == {"cpu": 60_000, "memory": 700_000 * MIB}
    assert any("in use by jobs that are not in the input" in line for line in found.remarks)


def test_a_job_whose_gpus_are_not_stated_holds_as_many_of_unknown_index(tmp_path: Path) -> None:
    tree = running(7, "n[1-2]", [], node_count={"set": True, "infinite": False, "number": 2})
    tree["tres_per_node"] = ""
    tree["tres_alloc_str"] = "cpu=64,mem=400000M,node=2,billing=64,gres/gpu=8"
    found = read(tmp_path, [node("n1"), node("n2")], [tree])
    (gang,) = found.instance.gangs
    assert [(role.min, role.gpus) for role in gang.roles] == [(2, 4)]
    assert [pod.gpus for pod in gang.pods] == [None, None]


def test_shares_of_gpus_in_use_make_those_gpus_unusable(tmp_path: Path) -> None:
    tree = node("n1", "gpu:a100:4,shard:a100:16", "gpu:a100:1(IDX:0),shard:a100:5(0/4,4/4,1/4,0/4)")
    found = read(tmp_path, [tree], [running(7, "n1", ["gpu:a100:1(IDX:0)"])])
    (one,) = found.instance.cluster.nodes
    assert one.unhealthy == 0b110
    assert any("only whole GPUs are planned" in line for line in found.remarks)


def test_of_several_gpu_types_the_most_numerous_is_planned(tmp_path: Path) -> None:
    # Slurm counts devices of all types on: indices 0-1 are A40s, 2-5 A100s.
    found = read(tmp_path, [node("n1", "gpu:a40:2(S:0),gpu:a100:4(S:1)")], [])
    (one,) = found.instance.cluster.nodes
    assert (one.gpus, one.unhealthy, dict(one.labels)["slurm/gpu"]) == (6, 0b11, "a100")
    assert one.model is not None
    assert one.model.gpu == "A100"


@pytest.mark.parametrize(
    ("gres_", "features", "instance", "model"),
    [
        ("gpu:h100:8", "ib", "", "DGX H100"),
        ("gpu:nvidia_h100_80gb_hbm3:8(S:0-1)", "ib", "", "DGX H100"),  # AutoDetect=nvml
        ("gpu:nvidia_a100-sxm4-80gb:8", "ib", "", "DGX A100"),
        ("gpu:tesla_v100-sxm2-32gb:4", "ib", "", "V100 4-GPU full mesh (NV2)"),
        ("gpu:8", "ib,h100", "", "DGX H100"),  # by the feature
        ("gpu:8", "ib", "", "unknown 8x GPU"),
        ("gpu:gpu48:2", "l40s", "", "unknown 2x L40S"),
        ("gpu:a100-pcie-40gb:2", "ib", "", "unknown 2x A100"),
        ("gpu:h100:8", "ib", "a3-highgpu-8g", "GCP a3-highgpu-8g"),  # a cloud node names its type
    ],
)
def test_the_server_model_is_that_of_the_gpu_type_and_count(
    gres_: str, features: str, instance: str, model: str, tmp_path: Path
) -> None:
    tree = node("n1", gres_, active_features=features.split(","), instance_type=instance)
    found = only(tmp_path, tree)
    assert found.model is not None
    assert found.model.name == model


def test_a_type_that_does_not_say_its_board_is_a_warning_that_names_the_policy(
    tmp_path: Path,
) -> None:
    (line,) = [one for one in read(tmp_path, [node("n1")], []).remarks if "assumed" in one]
    assert "though h100 may be another board" in line
    assert "kubernetes: {serverModels: [{nodeSelector: {slurm/gpu: h100}, model: NAME}]}" in line


def test_a_policy_names_the_server_model_by_the_labels_that_slurm_implies(tmp_path: Path) -> None:
    policy = (
        "apiVersion: gangplan.dev/v1alpha1\nkind: Policy\nspec: {kubernetes: {serverModels: "
        "[{nodeSelector: {slurm/feature.hgx: 'true'}, model: HGX H800 8-GPU}, "
        "{nodeSelector: {kubernetes.io/hostname: n2}, model: DGX H200}]}}\n"
    )
    nodes = [node("n1", active_features=["hgx"]), node("n2"), node("n3")]
    found = read(tmp_path, nodes, [], policy_yaml=policy).instance.cluster.nodes
    assert [one.model.name for one in found if one.model is not None] == [
        "HGX H800 8-GPU", "DGX H200", "DGX H100",
    ]  # fmt: skip


TEXT = """NodeName=gpu-01 Arch=x86_64 CoresPerSocket=56
   CPUAlloc=36 CPUEfctv=104 CPUTot=112 CPULoad=37.41
   AvailableFeatures=h100,ib
   ActiveFeatures=h100,ib
   Gres=gpu:H100:8(S:0-1)
   NodeAddr=gpu-01 NodeHostName=gpu-01 Version=23.11.11
   OS=Linux 4.18.0-553.el8_10.x86_64 #1 SMP Mon Jul 13 11:33:25 EDT 2026
   RealMemory=1900000 AllocMem=327680 FreeMem=1107433 Sockets=2 Boards=1
   CoreSpecCount=8 CPUSpecList=52-55,108-111 MemSpecLimit=100000
   State=MIXED+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=dev,gpu
   BootTime=2026-07-31T12:05:24 SlurmdStartTime=2026-07-31T12:41:41
   CfgTRES=cpu=104,mem=1900000M,billing=104,gres/gpu=8
   AllocTRES=cpu=36,mem=320G,gres/gpu=3
   CurrentWatts=0 AveWatts=0
   Reason=ECC Gres=gpu:H100:99 State=IDLE [root@2026-08-12T13:06:41]

NodeName=gpu-02 Arch=x86_64 CoresPerSocket=56
   CPUAlloc=0 CPUEfctv=104 CPUTot=112 CPULoad=0.01
   ActiveFeatures=(null)
   Gres=gpu:H100:8(S:0-1)
   RealMemory=1900000 AllocMem=0 FreeMem=N/A Sockets=2 Boards=1
   State=IDLE*+CLOUD ThreadsPerCore=1
   Partitions=dev

"""


def checked(nodes: tuple[Node, ...]) -> None:
    one, two = nodes
    assert (one.name, one.gpus, one.unschedulable, one.ready) == ("gpu-01", 8, True, True)
    assert (one.unhealthy, one.unknown_unhealthy) == (0, 3)  # AllocTRES counts, without indices
    # 104 usable cpus, 36 in use; 1,900,000 MiB less 100,000 for the system, 327,680 in use
    assert dict(one.allocatable) == {"cpu": 68_000, "memory": 1_472_320 * MIB}
    assert (two.name, two.ready) == ("gpu-02", False)


def test_the_text_of_scontrol_is_read_with_one_line_or_several_a_node(tmp_path: Path) -> None:
    several = tmp_path / "nodes.txt"
    several.write_text(TEXT)
    checked(load([str(several)]).instance.cluster.nodes)
    single = tmp_path / "oneliner.txt"  # scontrol show nodes -o
    records = TEXT.strip().split("\n\n")
    single.write_text("".join(" ".join(one.split()) + "\n" for one in records))
    checked(load([str(single)]).instance.cluster.nodes)


def entry(
    partition: str, names: list[str], used: str = "gpu:h100:0(IDX:N/A)", cpus: int = 0
) -> Tree:
    """An entry of ``sinfo --json`` of Slurm 24.11."""
    return {
        "port": 6818,
        "node": {"state": ["MIXED"] if cpus else ["IDLE"]},
        "nodes": {"allocated": 0, "idle": 1, "other": 0, "total": len(names), "nodes": names},
        "cpus": {"allocated": cpus, "idle": 128, "total": 128, "minimum": 128, "maximum": 128},
        "memory": {"minimum": 1_000_000, "maximum": 1_000_000, "allocated": 0},
        "gres": {"total": "gpu:h100:8(S:0-1)", "used": used},
        "features": {"total": "ib", "active": "ib"},
        "reservation": "",
        "partition": {"name": partition, "priority": {"tier": 1, "job_factor": 1}},
    }


def test_sinfo_lists_a_node_once_for_each_of_its_partitions(tmp_path: Path) -> None:
    entries = [
        entry("gpu", ["n1"], "gpu:h100:2(IDX:0-1)", cpus=16), entry("gpu", ["n2", "n3"]),
        entry("long", ["n1"], "gpu:h100:2(IDX:0-1)", cpus=16),
    ]  # fmt: skip
    path = tmp_path / "sinfo.json"
    path.write_text(answer(sinfo=entries))
    one, two, three = load([str(path)]).instance.cluster.nodes
    assert [name for name, _ in one.labels if "partition" in name] == [
        "slurm/partition.gpu", "slurm/partition.long",
    ]  # fmt: skip
    assert (one.unhealthy, two.unhealthy, three.name) == (0b11, 0, "n3")
    assert dict(one.allocatable)["cpu"] == 112_000


def test_a_group_of_nodes_of_sinfo_that_are_in_use_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sinfo.json"
    path.write_text(answer(sinfo=[entry("gpu", ["n1", "n2"], "gpu:h100:3(IDX:0-2)", cpus=16)]))
    with pytest.raises(InputError) as caught:
        load([str(path)])
    (fault,) = caught.value.faults
    assert fault.what == "2 nodes in one entry: which of them holds what is not said"
    assert "scontrol show nodes --json" in str(fault.hint)


@pytest.mark.parametrize(
    ("tree", "what", "place"),
    [
        (node("n1", cpus=-4, effective_cpus=None), "cpus: -4 cannot be negative", "cpus"),
        (node("n1", real_memory=-1), "real_memory: -1 cannot be negative", "real_memory"),
        (node("n1", "gpu:h100:-8"), "gres: 'gpu:h100:-8' are no GPUs that can be read", "gres"),
        (node("n1", "gpu:h100:5000"), "gres: 5,000 GPUs in one node", "gres"),
        (node("gpu-[1-1000000000]"), "'gpu-[1-1000000000]' are several nodes", "name"),
        (node("a\x1b[31mb"), "cannot be the name of a node", "name"),
        ({"state": ["IDLE"], "real_memory": 1}, "a node without a name", ""),
    ],
)
def test_a_node_that_slurm_cannot_have_written_is_refused_at_its_place(
    tree: Tree, what: str, place: str, tmp_path: Path
) -> None:
    lines = answer(nodes=[node("ok"), tree]).replace("}, {", "},\n{").replace(', "', ',\n"')
    (tmp_path / "nodes.json").write_text(lines)
    with pytest.raises(InputError) as caught:
        load([str(tmp_path)])
    fault = caught.value.faults[0]
    assert what in fault.what
    assert fault.hint
    assert "\x1b" not in fault.what
    assert fault.line is not None
    if place:
        assert lines.split("\n")[fault.line - 1].startswith(f'"{place}"') or place == "name"


def test_jobs_without_any_node_are_refused_with_the_command_that_lists_nodes(
    tmp_path: Path,
) -> None:
    (tmp_path / "queue.json").write_text(answer(jobs=[job(1)]))
    with pytest.raises(InputError) as caught:
        load([str(tmp_path)])
    assert caught.value.faults[0].what == "jobs of Slurm, but none of its nodes"
    assert "scontrol show nodes --json" in str(caught.value.faults[0].hint)


def test_jobs_of_sacct_are_refused(tmp_path: Path) -> None:
    ended = {"job_id": 1, "state": {"current": ["COMPLETED"]}, "time": {"elapsed": 4}}
    (tmp_path / "nodes.json").write_text(answer(nodes=[node("n1")]))
    (tmp_path / "queue.json").write_text(answer(jobs=[ended]))
    with pytest.raises(InputError) as caught:
        load([str(tmp_path)])
    assert "a job of sacct" in caught.value.faults[0].what
