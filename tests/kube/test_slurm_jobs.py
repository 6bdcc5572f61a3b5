"""Jobs of Slurm as gangs: what they ask for, what they hold, and why Slurm holds them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import RunCli
from slurm_output import SUBMITTED, Tree, answer, job, node, number, read, running

from models.instance.gang import Gang
from planner.errors import InputError
from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput
from planner.read.slurm import gang_documents

MIB = 2**20
TREE = "SwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=n[3-4]\nSwitchName=top Switches=leaf[1-2]\n"
BLOCKS = "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockSizes=2\n"
NODES = [node(f"n{i}") for i in range(1, 5)]


def gangs(folder: Path, *jobs: Tree, nodes: list[Tree] = NODES, **files: str) -> dict[str, Gang]:
    found = read(folder, nodes, list(jobs), **files)
    return {gang.name: gang for gang in found.instance.gangs}


def only(folder: Path, tree: Tree, nodes: list[Tree] = NODES) -> Gang:
    (gang,) = gangs(folder, tree, nodes=nodes).values()
    return gang


def held(gang: Gang) -> tuple[str, str] | None:
    return None if gang.hold is None else (gang.hold.code, gang.hold.message)


def test_a_job_that_waits_is_a_gang_of_a_pod_for_each_node(tmp_path: Path) -> None:
    tree = job(
        42, node_count=number(3), tres_per_node="gres/gpu:h100:8", priority=number(7),
        tres_req_str="cpu=96,mem=600000M,node=3,billing=96,gres/gpu=24",
    )  # fmt: skip
    gang = only(tmp_path, tree)
    assert (gang.namespace, gang.name, gang.queue, gang.scheduler) == (
        "mchen", "42-train", "nlp", "slurm",
    )  # fmt: skip
    assert (gang.priority, gang.preemptible, gang.movable, gang.hold) == (7, False, False, None)
    assert (gang.submitted_at, gang.expected_duration_s) == (SUBMITTED, 12 * 3600)
    (role,) = gang.roles
    assert (role.min, role.max, role.gpus) == (3, 3, 8)
    # 96 cpus and 600,000 MiB are those of three nodes
    assert dict(role.requests) == {"cpu": 32_000, "memory": 200_000 * MIB}
    assert dict(role.node_selector) == {"slurm/gpu": "h100", "slurm/partition.gpu": "true"}


def test_a_job_that_runs_holds_its_gpus_by_index_in_the_order_of_its_nodes(tmp_path: Path) -> None:
    tree = running(
        41, "n[1,3-4]", ["gpu:h100:2(IDX:0-1)", "gpu:h100:2(IDX:5,7)", "gpu:h100:4(IDX:0-3)"],
        array_job_id=number(40), array_task_id=number(9), name="",
    )  # fmt: skip
    gang = only(tmp_path, tree)
    assert gang.name == "40_9"
    assert gang.started_at == SUBMITTED + 600
    # the node with four GPUs is a role of its own
    assert [(role.name, role.min, role.gpus) for role in gang.roles] == [
        ("node", 1, 4), ("node-2", 2, 2),
    ]  # fmt: skip
    held_ = sorted((pod.node, pod.gpus) for pod in gang.pods if pod.node is not None)
    assert held_ == [(0, 0b11), (2, 0b10100000), (3, 0b1111)]


def test_jobs_of_version_23_02_and_21_08_are_read_too(tmp_path: Path) -> None:
    old = running(1, "n1", ["gpu:4(IDX:0-3)"])
    old |= {  # 23.02: states and times are plain
        "job_state": "RUNNING", "submit_time": SUBMITTED, "start_time": SUBMITTED + 5,
        "required_switches": None, "minimum_switches": 0, "tres_per_node": "gres:gpu:4",
    }  # fmt: skip
    oldest = job(2)
    oldest |= {  # 21.08
        "job_state": "PENDING", "array_job_id": 0, "array_task_id": None, "het_job_id": 0,
        "node_count": 2, "priority": 4294901700, "time_limit": 4294967295, "shared": "none",
        "submit_time": SUBMITTED, "cpus": 64, "tasks": 4294967294, "max_nodes": 0,
        "tres_per_node": "gpu:8", "exclusive": None, "tres_req_str": "cpu=64,mem=2G,node=2",
    }  # fmt: skip
    found = gangs(tmp_path, old, oldest)
    assert found["1-train"].roles[0].gpus == 4
    two = found["2-train"]
    # shared=none is --exclusive: all 128 cpus of a node; unlimited time has no end
    assert (two.roles[0].min, two.roles[0].gpus, dict(two.roles[0].requests)["cpu"]) == (
        2,
        8,
        128_000,
    )
    assert two.expected_duration_s is None
    assert two.priority == 4294901700 // 3  # priorities of gangs end at two thousand million


@pytest.mark.parametrize(
    ("fields", "pods", "gpus"),
    [
        ({"tres_per_node": "gres/gpu:4"}, 1, 4),
        ({"tres_per_node": "gres/gpu:4", "node_count": number(2)}, 2, 4),
        ({"tres_per_job": "gres/gpu:12"}, 12, 1),  # on any nodes
        ({"tres_per_job": "gres/gpu:4", "max_nodes": number(1)}, 1, 4),
        ({"tres_per_job": "gres/gpu:16", "node_count": number(2)}, 2, 8),
        ({"tres_per_task": "gres/gpu:1", "tasks": number(6)}, 6, 1),
        ({"tres_per_task": "gres/gpu:2", "tasks": number(8), "tasks_per_node": number(4)}, 2, 8),
        ({"tres_per_socket": "gres/gpu:2", "sockets_per_node": number(2)}, 1, 4),
        ({"tres_req_str": "cpu=8,mem=1G,node=1,billing=8,gres/gpu=3"}, 3, 1),
    ],
)
def test_gpus_are_asked_for_by_node_task_socket_or_job(
    fields: Tree, pods: int, gpus: int, tmp_path: Path
) -> None:
    (role,) = only(tmp_path, job(1, **{"tres_per_node": "", **fields})).roles
    assert (role.min, role.gpus) == (pods, gpus)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (
            {"features": "[rack1|rack2]", "node_count": number(2)},
            "its constraint '[rack1|rack2]' is not",
        ),
        ({"features": "a&b|c"}, "its constraint 'a&b|c' is not planned"),
        ({"features": "rack1*2&rack2*2"}, "its constraint"),
        ({"contiguous": True}, "it asks for contiguous nodes"),
        ({"shared": ["user"]}, "it asks for nodes with --exclusive=user"),
        ({"tres_per_node": "gres/shard:2"}, "it asks for shard:2, parts of GPUs"),
        ({"tres_per_node": "gres/gpu:1g.10gb:1"}, "it asks for MIG slices (1g.10gb)"),
        (
            {"tres_per_node": "gres/gpu:a100:2,gres/gpu:v100:2"},
            "it asks for GPUs of the types a100 and",
        ),
        ({"required_nodes": "n1", "node_count": number(2)}, "names 1 of its 2 nodes"),
        ({"required_nodes": "n[1-1000000000]"}, "it names nodes that cannot be read, or too many"),
        ({"excluded_nodes": "n[1-"}, "it names nodes that cannot be read, or too many"),
        ({"node_count": number(1_000_000_000)}, "it asks for 1,000,000,000 nodes"),
        ({"node_count": number(-3)}, "its node_count is negative (-3)"),
        ({"partition": "gpu,long", "node_count": number(2)}, "any one of the partitions gpu, long"),
    ],
)
def test_what_cannot_be_expressed_holds_the_job_with_the_reason(
    fields: Tree, why: str, tmp_path: Path
) -> None:
    # gpu and long share n2, and neither has all nodes of the other
    nodes = [
        node("n1", partitions=["gpu"]), node("n2", partitions=["gpu", "long"]),
        node("n3", partitions=["long"]),
    ]  # fmt: skip
    gang = only(tmp_path, job(1, **fields), nodes)
    assert gang.hold is not None
    assert gang.hold.code == "Unsupported"
    assert why in gang.hold.message


@pytest.mark.parametrize(
    ("features", "eligible"),
    [
        ("h100", "abc"),
        ("h100&ib", "ab"),
        ("ib|eth", "abc"),
        ("(ib|eth)&rack1", "ac"),
        ("[rack1|rack2]", "ab c".replace(" ", "")),  # of one node: one of the two
        ("none", ""),
    ],
)
def test_constraints_on_features_are_labels(features: str, eligible: str, tmp_path: Path) -> None:
    nodes = [
        node("a", active_features=["h100", "ib", "rack1"]),
        node("b", active_features=["h100", "ib", "rack2"]),
        node("c", active_features=["h100", "eth", "rack1"]),
        node("d", active_features=["a100"]),
    ]
    found = read(tmp_path, nodes, [job(1, features=features)])
    assert nodes_for(found) == list(eligible)


def nodes_for(found: LoadedInput) -> list[str]:
    """Names of the nodes that the labels of the one gang allow."""
    from models.instance.gang import matches

    (gang,) = found.instance.gangs
    (role,) = gang.roles
    assert gang.hold is None
    return [
        node_.name
        for node_ in found.instance.cluster.nodes
        if all(dict(node_.labels).get(key) == value for key, value in role.node_selector)
        and matches(role.node_affinity, dict(node_.labels), node_.name)
    ]


@pytest.mark.parametrize(
    ("fields", "eligible"),
    [
        ({"partition": "long"}, ["n2", "n3"]),
        ({"partition": "gpu,long"}, ["n1", "n2", "n3"]),
        ({"partition": "gpu,all", "node_count": number(2)}, ["n1", "n2", "n3", "n4"]),
        ({"partition": "all", "excluded_nodes": "n[2-3]"}, ["n1", "n4"]),
        ({"partition": "all", "required_nodes": "n[2-3]", "node_count": number(2)}, ["n2", "n3"]),
        ({"partition": "gpu,long", "excluded_nodes": "n2"}, ["n1", "n3"]),
    ],
)
def test_partitions_and_lists_of_nodes_limit_a_job(
    fields: Tree, eligible: list[str], tmp_path: Path
) -> None:
    nodes = [
        node("n1", partitions=["gpu", "all"]), node("n2", partitions=["gpu", "long", "all"]),
        node("n3", partitions=["long", "all"]), node("n4", partitions=["all"]),
    ]  # fmt: skip
    assert nodes_for(read(tmp_path, nodes, [job(1, **fields)])) == eligible


@pytest.mark.parametrize(
    ("reason", "more", "message"),
    [
        ("JobHeldUser", {}, "JobHeldUser"),
        ("JobHeldAdmin", {}, "JobHeldAdmin"),
        ("BeginTime", {}, "BeginTime"),
        ("QOSMaxGRESPerUser", {}, "QOSMaxGRESPerUser"),
        ("AssocGrpGRES", {}, "AssocGrpGRES"),
        (
            "Dependency",
            {"dependency": "afterok:7(unfulfilled)"},
            "Dependency afterok:7(unfulfilled)",
        ),
        ("DependencyNeverSatisfied", {}, "DependencyNeverSatisfied"),
        ("Licenses", {}, "Licenses"),
        ("PartitionDown", {}, "PartitionDown"),
        ("None", {"priority": number(0)}, "JobHeldUser"),
        ("Reservation", {}, "Reservation"),
    ],
)
def test_a_job_that_slurm_holds_does_not_start(
    reason: str, more: Tree, message: str, tmp_path: Path
) -> None:
    gang = only(tmp_path, job(1, state_reason=reason, **more))
    assert held(gang) == ("Gated", f"Slurm holds it: {message}")


@pytest.mark.parametrize(
    "reason",
    ["None", "Priority", "Resources", "ReqNodeNotAvail, UnavailableNodes:n7",
     "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions"],
)  # fmt: skip
def test_a_job_that_waits_for_room_may_start(reason: str, tmp_path: Path) -> None:
    assert only(tmp_path, job(1, state_reason=reason)).hold is None


def test_waiting_tasks_of_an_array_are_gangs_up_to_the_number_that_may_run(tmp_path: Path) -> None:
    # Of tasks 0-7 one runs and two may run at a time: the first that waits may start.
    array = {
        "array_job_id": number(50),
        "array_max_tasks": number(2),
        "tres_per_node": "gres/gpu:1",
    }
    runs = running(51, "n1", ["gpu:h100:1(IDX:0)"], array_task_id=number(0), **array)
    waits = job(50, array_task_string="1-5:2,7%2", **array)
    found = gangs(tmp_path, runs, waits)
    assert sorted(found) == ["50_0-train", "50_1-train", "50_3-train", "50_5-train", "50_7-train"]
    assert [held(found[f"50_{task}-train"]) for task in (1, 3, 5, 7)] == [
        None, *[("Gated", "Slurm holds it: JobArrayTaskLimit")] * 3,
    ]  # fmt: skip


def test_an_array_is_expanded_up_to_a_bound_which_is_a_remark(tmp_path: Path) -> None:
    tree = job(50, array_job_id=number(50), array_task_string="0-999999999")
    found = read(tmp_path, NODES, [tree])
    assert len(found.instance.gangs) == 1_000
    assert any(
        "more tasks that wait than the 1,000 that are planned" in one for one in found.remarks
    )


def test_nodes_that_jobs_name_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_documents, "MAX_NAMED", 3)
    monkeypatch.setattr(gang_documents, "MAX_ALL_NAMED", 5)
    lists = ("n[1-3]", "n[1-4]", "n[1-2]", "n1")
    found = gangs(tmp_path, *(job(i, excluded_nodes=text) for i, text in enumerate(lists)))
    codes = [(held(found[f"{i}-train"]) or ("-", ""))[0] for i in range(4)]
    assert codes == ["-", "Unsupported", "-", "Unsupported"]  # 3, too many, 3 + 2, one more


def test_parts_of_a_heterogeneous_job_are_one_gang(tmp_path: Path) -> None:
    het = {"het_job_id": number(60), "het_job_id_set": "60-61"}
    head = job(60, tres_per_node="", tres_req_str="cpu=16,mem=1G,node=1", partition="cpu", **het)
    rest = job(61, node_count=number(2), **{**het, "het_job_offset": number(1)})
    nodes = [*NODES, node("c1", "", partitions=["cpu"])]
    gang = gangs(tmp_path, rest, head, nodes=nodes)["60-train"]
    assert [(role.name, role.min, role.gpus) for role in gang.roles] == [
        ("het-0", 1, 0), ("het-1", 2, 8),
    ]  # fmt: skip
    assert gang.hold is None
    only_one = only(tmp_path, rest)
    assert held(only_one) == ("Incomplete", "1 of its 2 parts are in the input")


def test_one_switch_is_required_until_its_time_is_over(tmp_path: Path) -> None:
    asks = {"node_count": number(2), "required_switches": 1}
    waits = job(1, maximum_switch_wait_time=86400, **asks)
    over = job(2, maximum_switch_wait_time=300, **asks)  # the answer is an hour younger
    two = job(3, node_count=number(2), required_switches=2)
    found = gangs(tmp_path, waits, over, two, topology_conf=TREE)
    # levels: switch-2, leaf
    assert [(found[f"{i}-train"].required, found[f"{i}-train"].preferred) for i in (1, 2, 3)] == [
        (1, None), (None, 1), (None, 1),
    ]  # fmt: skip
    remarks = load([str(tmp_path)]).remarks
    assert any(one.startswith("job 2: asks for --switches=1, but has waited") for one in remarks)
    assert any(one.startswith("job 3: asks for --switches=2") for one in remarks)


def test_a_policy_states_levels_by_nodes_and_by_labels_of_slurm(tmp_path: Path) -> None:
    policy = (
        "apiVersion: gangplan.dev/v1alpha1\nkind: Policy\nspec: {kubernetes: {levels: ["
        "{name: kind, label: slurm/gpu}, {name: rack, domains: {r1: ['n[1-2]'], r2: ['n3']}}]}}\n"
    )
    nodes = [node("n1"), node("n2", "gpu:a100:8"), node("n3"), node("n4")]
    asks = job(1, node_count=number(2), required_switches=1)
    found = read(tmp_path, nodes, [asks], policy_yaml=policy).instance
    assert [one.domains for one in found.cluster.nodes] == [
        ("h100", "r1"), ("a100", "r1"), ("h100", "r2"), ("h100", None),
    ]  # fmt: skip
    assert found.gangs[0].required == 1  # the innermost level


def test_segments_are_slices_of_blocks(tmp_path: Path) -> None:
    tree = job(1, node_count=number(4), segment_size=2)
    nodes = [node(f"n{i}", "gpu:gb200:4") for i in range(1, 5)]
    found = read(tmp_path, nodes, [tree], topology_conf=BLOCKS)
    (gang,) = found.instance.gangs
    assert gang.roles[0].slice_layers == ((2, 0),)
    # GB200 trays share NVLink in racks, which topology.conf does not say of its blocks
    assert any("levels: [{name: block, nvlink: true}]" in line for line in found.remarks)
    policy = (
        "apiVersion: gangplan.dev/v1alpha1\nkind: Policy\n"
        "spec: {kubernetes: {levels: [{name: block, nvlink: true}]}}\n"
    )
    again = read(tmp_path, nodes, [tree], policy_yaml=policy)
    assert [level.nvlink for level in again.instance.cluster.levels] == [True]
    assert not any("NVLink" in line for line in again.remarks)


def test_nodes_of_a_reservation_are_for_its_jobs(tmp_path: Path) -> None:
    nodes = [node("n1", state=["IDLE", "RESERVED"], reservation="demo"), node("n2")]
    found = read(tmp_path, nodes, [job(1), job(2, resv_name="demo")])
    one, two = found.instance.cluster.nodes
    assert [(taint.key, taint.value) for taint in one.taints] == [("slurm/reservation", "demo")]
    assert two.taints == ()
    with_it = next(gang for gang in found.instance.gangs if gang.name == "2-train")
    assert dict(with_it.roles[0].node_selector)["slurm/reservation"] == "demo"
    assert [t.value for t in with_it.roles[0].tolerations] == ["demo"]


@pytest.mark.parametrize(
    ("nodes", "gpus", "cpus", "alone"),
    [
        # equal nodes: all GPUs and cpus of one leave nothing for others
        ([node("n1"), node("n2")], 8, 128_000, False),
        # nodes that differ: the four GPUs, and no gang with GPUs beside it; the fewest cpus of a node
        ([node("n1"), node("n2", "gpu:h100:4", cpus=64, effective_cpus=64)], 4, 64_000, True),
        # the node with two GPUs is too small to count
        ([node("n1"), node("n2", "gpu:h100:2", cpus=64, effective_cpus=64)], 8, 128_000, False),
    ],
)
def test_an_exclusive_job_takes_whole_nodes(
    nodes: list[Tree], gpus: int, cpus: int, alone: bool, tmp_path: Path
) -> None:
    asks = {"tres_per_node": "gres/gpu:4", "shared": ["none"], "exclusive": ["true"]}
    gang = only(tmp_path, job(1, **asks), nodes)
    (role,) = gang.roles
    assert (role.gpus, dict(role.requests)["cpu"], gang.exclusive is not None) == (
        gpus,
        cpus,
        alone,
    )


def test_jobs_without_gpus_are_left_out_and_counted(tmp_path: Path) -> None:
    none = {
        "tres_per_node": "",
        "tres_req_str": "cpu=8,mem=1G,node=1",
        "tres_alloc_str": "cpu=8,node=1",
    }
    found = read(tmp_path, NODES, [job(1, **none), running(2, "n1", [], **none), job(3)])
    assert [gang.name for gang in found.instance.gangs] == ["3-train"]
    said = "Slurm queue: 1 running job and 1 waiting job without whole GPUs are left out"
    assert any(line.startswith(said) for line in found.remarks)


def test_jobs_that_have_ended_are_left_out_and_those_that_complete_hold_their_gpus(
    tmp_path: Path,
) -> None:
    completing = running(2, "n1", ["gpu:h100:8(IDX:0-7)"])
    completing["job_state"] = ["CANCELLED", "COMPLETING"]
    found = gangs(tmp_path, job(1, "COMPLETED"), completing, job(3, "CANCELLED"))
    assert [(name, gang.running) for name, gang in found.items()] == [("2-train", True)]


def test_priorities_are_cut_at_their_widest_gaps(tmp_path: Path) -> None:
    waiting = [1000, 990, 985, 400, 390, 10]
    jobs = [job(i, priority=number(one)) for i, one in enumerate(waiting)]
    jobs += [running(9, "n1", ["gpu:h100:8(IDX:0-7)"], priority=number(405))]
    policy = "apiVersion: gangplan.dev/v1alpha1\nkind: Policy\nspec: {slurmPriorities: %d}\n"
    found = [
        {
            gang.name: gang.priority
            for gang in gangs(tmp_path, *jobs, policy_yaml=policy % n).values()
        }
        for n in (1, 3, 100)
    ]
    names = [f"{i}-train" for i in range(6)]
    assert [found[0][name] for name in names] == [1000] * 6
    # the two widest gaps: 985 to 400, and 390 to 10
    assert [found[1][name] for name in names] == [1000, 1000, 1000, 400, 400, 10]
    assert found[1]["9-train"] == 400  # a running job has the nearest
    assert [found[2][name] for name in names] == waiting


def test_names_with_escape_codes_and_of_any_length_are_made_harmless(tmp_path: Path) -> None:
    tree = job(
        1, name="\x1b[31m" + "x" * 5000, user_name="a\x1b]0;b", account="../etc", features="\x1b[2J",
        state_reason="Licen\x1b[1mses",
    )  # fmt: skip
    found = read(tmp_path, NODES, [tree])
    (gang,) = found.instance.gangs
    assert len(gang.name) <= 60
    assert "\x1b" not in f"{gang.namespace}{gang.name}{gang.queue}{gang.hold}{found.remarks}"


def test_one_unreadable_job_does_not_end_the_work_for_others(tmp_path: Path) -> None:
    odd = job(1, nodes=7, tres_per_node=[], features={}, time_limit="x", node_count=[], cpus=-1)
    found = gangs(tmp_path, odd, job(2))
    assert found["2-train"].hold is None


def test_a_job_without_a_number_is_refused_at_its_place(tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text(answer(nodes=NODES))
    (tmp_path / "queue.json").write_text('{"jobs": [\n{"job_id": 1},\n{"job_id": "x"}]}')
    with pytest.raises(InputError) as caught:
        load([str(tmp_path)])
    (fault,) = caught.value.faults
    assert (fault.what, fault.line, fault.column) == ("a job whose job_id is the text 'x'", 3, 12)


def test_nodes_of_a_job_may_be_those_of_a_cluster_document(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(
        "apiVersion: gangplan.dev/v1alpha1\nkind: Cluster\nmetadata: {name: c}\n"
        "spec: {nodes: [{name: 'n[1-4]', model: DGX H100}]}\n"
    )
    jobs = [running(1, "n2", ["gpu:h100:8(IDX:0-7)"]), job(2)]
    (tmp_path / "queue.json").write_text(answer(jobs=jobs))
    found = load([str(tmp_path)])
    one, two = found.instance.gangs
    assert (one.pods[0].node, one.pods[0].gpus, two.hold) == (1, 255, None)
    assert two.roles[0].node_selector == ()  # this Cluster has no partitions
    assert any("which nodes are in which partition" in line for line in found.remarks)


def test_kubernetes_objects_and_slurm_are_two_clusters(tmp_path: Path) -> None:
    kube = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "k1"}, "status": {}}
    (tmp_path / "k.json").write_text(json.dumps(kube))
    with pytest.raises(InputError) as caught:
        read(tmp_path, NODES, [job(1)])
    assert caught.value.faults[0].hint == "plan one cluster at a time"


def test_a_job_is_counted_once_however_many_files_list_it(tmp_path: Path) -> None:
    (tmp_path / "again.json").write_text(answer(jobs=[job(1), job(2)]))
    assert sorted(gangs(tmp_path, job(1))) == ["1-train", "2-train"]


def test_priorities_are_shown_as_squeue_shows_them_and_the_first_of_each_class_reserves(
    cli: RunCli, tmp_path: Path
) -> None:
    jobs = [running(1, "n1", ["gpu:h100:8(IDX:0-7)"], priority=number(41))]
    jobs += [job(2 + i, priority=number(1000 + i), name="w") for i in range(10)]
    read(tmp_path, [node("n1", used="gpu:h100:8(IDX:0-7)")], jobs)
    shown = cli("plan", str(tmp_path), "--budget", "1").out
    assert "priority 41" in shown  # of the running job, which holds the node of all others
    assert "1000" in shown  # 10 priorities count as 8: this one as 1002
    assert "reserved: n1" in shown
    (tmp_path / "p.yaml").write_text(
        "apiVersion: gangplan.dev/v1alpha1\nkind: Policy\nspec: {reservations: null}\n"
    )
    assert "reserved" not in cli("plan", str(tmp_path), "--budget", "1").out


def test_validate_names_the_option_that_no_node_has(cli: RunCli, tmp_path: Path) -> None:
    read(tmp_path, [node("n1")], [job(2, features="ibb"), job(3, partition="gpus")])
    said = cli("validate", str(tmp_path)).err
    assert "no node has --constraint=ibb (hint: did you mean '--constraint=ib'?)" in said
    assert "no node has --partition=gpus (hint: did you mean '--partition=gpu'?)" in said
