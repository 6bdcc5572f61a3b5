"""Slurm topology files: what each sample means, and what is refused where."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import texts

from models.documents.cluster import Level
from models.instance.cluster import Cluster, Node
from planner.errors import InputError
from planner.read.findings import Remarks
from planner.read.inputs import load
from planner.read.slurm import levels as slurm
from planner.read.slurm.assembly import cluster_document
from planner.read.slurm.levels import SlurmTopology
from planner.read.sources import Source, is_topology_conf

SAMPLES = Path(__file__).parents[1] / "data" / "slurm"
FILES = sorted(path.name for path in SAMPLES.iterdir())


def sample(name: str) -> SlurmTopology:
    return slurm.read_topology(Source(name, (SAMPLES / name).read_text(encoding="utf-8"), "either"))


def read(text: str, name: str = "topology.conf") -> SlurmTopology:
    return slurm.read_topology(Source(name, text, "either"))


def faults(text: str, name: str = "topology.conf") -> list[list[str]]:
    with pytest.raises(InputError) as caught:
        read(text, name)
    return [fault.lines() for fault in caught.value.faults]


def names(topology: SlurmTopology) -> list[str]:
    return [level.name for level in topology.levels]


def numbered(form: str, first: int, last: int) -> list[str]:
    return [form.format(number) for number in range(first, last + 1)]


def test_a_tree_of_three_leaf_switches_has_two_levels() -> None:
    topology = sample("tree-two-layers.topology.conf")
    assert names(topology) == ["switch-2", "leaf"]
    # rackA: gpu1-6, rackB: gpu7-12, rackC: gpu13-18, all below the spine
    assert dict(topology.domains) == {
        **dict.fromkeys(numbered("gpu{}", 1, 6), ("spine", "rackA")),
        **dict.fromkeys(numbered("gpu{}", 7, 12), ("spine", "rackB")),
        **dict.fromkeys(numbered("gpu{}", 13, 18), ("spine", "rackC")),
    }
    assert topology.remarks == ()


def test_in_an_unbalanced_tree_a_short_branch_is_its_own_domain_where_it_has_no_switch() -> None:
    topology = sample("tree-unbalanced.topology.conf")
    # core > east1 > pod01-06 > edge1-60, but core > pod07-12 > edge61-120; 32 nodes an edge
    assert names(topology) == ["switch-4", "switch-3", "switch-2", "leaf"]
    assert topology.domain("n0000") == ("core", "east1", "pod01", "edge1")
    assert topology.domain("n1919") == ("core", "east1", "pod06", "edge60")
    assert topology.domain("n1920") == ("core", "pod07", "pod07", "edge61")
    assert topology.domain("n3839") == ("core", "pod12", "pod12", "edge120")
    paths = topology.domains.values()
    # east1 and the 6 other pods; 12 pods; 120 edges
    assert [len({path[: i + 1] for path in paths}) for i in range(4)] == [1, 7, 12, 120]
    assert len(topology.domains) == 3_840


def test_a_tree_with_what_a_provider_calls_its_switches_in_comments_is_read() -> None:
    topology = sample("tree-provider-comments.topology.conf")
    assert names(topology) == ["switch-3", "switch-2", "leaf"]
    assert dict(topology.domains) == {
        "vm-31": ("sw.l3.a", "sw.l2.1", "sw.l1.1"),
        "vm-87": ("sw.l3.a", "sw.l2.2", "sw.l1.2"),
    }


def test_block_sizes_join_consecutive_blocks_until_all_are_one() -> None:
    topology = sample("block-8x3.topology.conf")
    # base 3: two blocks are 6 nodes, four 12, all eight 24; 48 divides nothing more
    assert names(topology) == ["block-24", "block-12", "block-6", "block"]
    assert topology.domain("a01") == ("cell1-cell8", "cell1-cell4", "cell1-cell2", "cell1")
    assert topology.domain("a09") == ("cell1-cell8", "cell1-cell4", "cell3-cell4", "cell3")
    assert topology.domain("a10") == ("cell1-cell8", "cell1-cell4", "cell3-cell4", "cell4")
    assert topology.domain("a13") == ("cell1-cell8", "cell5-cell8", "cell5-cell6", "cell5")
    assert topology.domain("a24") == ("cell1-cell8", "cell5-cell8", "cell7-cell8", "cell8")
    assert len(topology.domains) == 24
    assert not any(level.nvlink for level in topology.levels)


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nkind: ConfigMap\ndata:\n  topology.conf: |\n    SwitchName=s0 Nodes=a\n",
        "kind: Policy\n",
        '{"kind": "List", "items": []}',
        "- name: a\n",
        "topology: a\n",
        "",
        "# SwitchName=s0\n",
    ],
)
def test_other_texts_are_no_topology(text: str) -> None:
    assert not is_topology_conf("some.yaml", text)
    assert is_topology_conf("/etc/slurm/topology.conf", text)


def test_comments_continued_lines_quotes_and_any_case_are_read() -> None:
    topology = read(
        "# a comment \\\n"
        "switchname = s0 \\\r\n"
        '   NODES="alpha[0-1,3],rack[1-2]n[08-09]" # LinkSpeed=1\r\n'
        "\n"
        "SWITCHNAME=s1 Nodes=a,\\\nb LinkSpeed=900\n"
        "SwitchName=top Switches=s[0-1]\n"
    )
    assert dict(topology.domains) == {
        **dict.fromkeys(["alpha0", "alpha1", "alpha3"], ("top", "s0")),
        **dict.fromkeys(["rack1n08", "rack1n09", "rack2n08", "rack2n09"], ("top", "s0")),
        **dict.fromkeys(["a", "b"], ("top", "s1")),
    }


@pytest.mark.parametrize(
    ("text", "line", "column", "what", "hint"),
    [
        ("SwitchName=s0 Nodez=a\n", 1, 21, "unknown keyword 'Nodez'", "did you mean 'Nodes'?"),
        ("#\n  SwitchNam=s Nodes=a", 2, 3, "unknown keyword 'SwitchNam'", "did you mean"),
        ("SwitchName=s Nodes=n[0-3", 1, 20, "an unmatched bracket", "gpu-[01-16,20]"),
        ("SwitchName=s Nodes=n[0-]", 1, 20, "'0-' in 'n[0-]' is not a number", "gpu-[01-16,20]"),
        ("SwitchName=s Nodes=n[4-3]", 1, 20, "runs backwards", "gpu-[01-16,20]"),
        ("SwitchName=s Nodes=a,,b", 1, 20, "nothing between two commas", "tux[0-3,7]"),
        ("SwitchName=s Nodes=a\nSwitchName=t Switches=s,s9", 2, 23, "'s9' is not defined", "did"),
        ("SwitchName=s Switches=t\nSwitchName=t Switches=s", 1, 12, "is below itself", "tree"),
        ("SwitchName=s Nodes=n[1-2]\nSwitchName=t Nodes=n2", 2, 20, "node 'n2' is below", "one leaf"),
        ("SwitchName=s Nodes=a Switches=t\nSwitchName=t", 1, 12, "both nodes and switches", "of their own"),
        ("SwitchName=s Nodes=a\nSwitchName=s Nodes=b", 2, 12, "defined twice", "one line"),
        ("BlockName=b Nodes=a\nBlockName=c Nodes=a", 2, 19, "node 'a' is in 'b' and 'c'", "one"),
        ("BlockName=b Nodes=a\nBlockSizes=8,4", 2, 12, "positive and ascending", "18,36,72"),
        ("BlockName=b Nodes=a\nBlockSizes=x", 2, 12, "no list of block sizes", "18,36,72"),
        ("SwitchName=s Nodes=a\nBlockName=c Nodes=b", 2, 11, "switches and blocks", "keep one"),
        ("SwitchName=s \\\n  \\\n Nodes=n[1", 3, 8, "an unmatched bracket", "gpu-"),
        ("SwitchName=s Nodes=a\n what is this", 2, 2, "expected Key=Value, not 'what'", "Nodes="),
        ("SwitchName= Nodes=a", 1, 1, "SwitchName= without a value", "give one"),
        ("SwitchName=-s Nodes=a", 1, 12, "cannot be the name of a domain", "letters"),
        ("SwitchName=s Nodes=a_", 1, 20, "'a_' cannot be a name", "letters"),
        ("SwitchName=s Nodes=a nodes=b", 1, 22, "appears twice", "remove one"),
        ("SwitchName=s Nodes=n[0-199999],m", 1, 20, "more than 200,000 nodes", "narrow"),
        ("SwitchName=s Nodes=n[0-99999999]m[0-99999999]", 1, 20, "more than 200,000", "narrow"),
        ("Include /etc/hosts", 1, 1, "expected Key=Value, not 'Include'", "Nodes="),
        ("# nothing\n", 1, 1, "no switch or block in this file", "SwitchName"),
        ("BlockName=b\n", 1, 1, "no node in this topology file", "SwitchName"),
    ],
)  # fmt: skip
def test_a_bad_line_is_told_with_its_place(
    text: str, line: int, column: int, what: str, hint: str
) -> None:
    reported = faults(text)
    assert what in reported[0][0]
    assert reported[0][1] == f"  --> topology.conf:{line}:{column}"
    assert hint in reported[0][2]


def test_a_tower_of_switches_is_refused_soon() -> None:
    tower = [f"SwitchName=s{number} Switches=s{number + 1}" for number in range(64)]
    (fault,) = faults("\n".join([*tower, "SwitchName=s64 Nodes=a"]))
    # s0 to s64 are 65 levels
    assert fault[0] == "error: switch 's0' heads more than 64 levels of switches"
    assert fault[1] == "  --> topology.conf:1:12"
    lower = "\n".join([*tower[1:], "SwitchName=s64 Nodes=a"])
    assert names(read(lower))[-1] == "leaf"


def test_a_line_continued_for_ever_is_refused() -> None:
    text = "SwitchName=s Nodes=a \\\n" + ("x" * 99 + "\\\n") * 11_000
    assert faults(text)[0][0] == "error: a line of more than 1,000,000 characters"


def test_the_nodes_of_a_file_make_a_cluster_of_their_own(tmp_path: Path) -> None:
    text = "SwitchName=s Nodes=n[1-2]\nSwitchName=t Nodes=m\nSwitchName=r Switches=s,t"
    (tmp_path / "topology.conf").write_text(text)
    nodes = ("{kubernetes.io/hostname: n1}", "{kubernetes.io/hostname: n2}")
    models = (f"{{nodeSelector: {one}, model: DGX H100}}" for one in nodes)
    (tmp_path / "policy.yaml").write_text(
        "apiVersion: gangplan.dev/v1alpha1\nkind: Policy\n"
        f"spec: {{kubernetes: {{serverModels: [{', '.join(models)}]}}}}\n"
    )
    cluster = load([str(tmp_path)]).instance.cluster
    assert cluster.levels == (Level("switch-2"), Level("leaf"))
    assert [(node.name, node.gpus, node.domains) for node in cluster.nodes] == [
        ("m", 0, ("r", "t")), ("n1", 8, ("r", "s")), ("n2", 8, ("r", "s")),
    ]  # fmt: skip


def test_the_levels_of_a_file_go_before_those_of_a_cluster() -> None:
    topology = read("SwitchName=s Nodes=n1\nSwitchName=t Nodes=n2")
    before = Cluster(
        "c",
        (Level("rack", "example.com/rack", Fraction(2)),),
        (Node("n1", None, ("r1",), labels=(("a", "b"),)), Node("n3", None, (None,))),
    )
    remarks = Remarks()
    after = slurm.with_slurm_levels(before, topology, remarks)
    assert after.levels == topology.levels
    assert [node.domains for node in after.nodes] == [("s",), (None,)]
    # the old level's label stays on its nodes: selectors may ask for it
    assert after.nodes[0].labels == (("a", "b"), ("example.com/rack", "r1"))
    assert "before those of the Cluster (rack)" in remarks.lines()[0]


def test_a_file_without_any_node_of_the_cluster_is_not_used() -> None:
    remarks = Remarks()
    cluster = Cluster("c", (Level("rack"),), (Node("x", None, ("r1",)),))
    assert slurm.with_slurm_levels(cluster, read("SwitchName=s Nodes=n1"), remarks) is cluster
    assert "names no node of the cluster" in remarks.lines()[0]


@given(st.data())
@settings(max_examples=examples(150, 20), deadline=None)
def test_a_mutated_file_is_read_or_refused(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([n for n in FILES if "unbalanced" not in n]))
    text = (SAMPLES / name).read_text(encoding="utf-8")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 12))
        junk = data.draw(
            st.one_of(
                texts(6),
                st.sampled_from(
                    ["[", "]", "[0-99999999]", "=", "\\\n", "#", ",", '"', "\x00",
                     "SwitchName=", "Switches=", "Nodes=", "- ", ": ", "{", "\t", "&a *a"]
                ),
            )
        )  # fmt: skip
        text = text[:at] + junk + text[at + gone :]
    is_topology_conf(name, text)
    topology, reported = outcome(text, name)
    assert len(reported) <= 20
    assert all(len(lines) <= 3 and lines[0].isprintable() for lines in reported)
    if topology is not None:
        assert {len(path) for path in topology.domains.values()} <= {len(topology.levels)}
        cluster_document("slurm", topology.levels, named(topology))


def named(topology: SlurmTopology) -> list[dict[str, object]]:
    return [{"name": name, "domains": topology.named_domains(name)} for name in topology.domains]


def outcome(text: str, name: str) -> tuple[SlurmTopology | None, list[list[str]]]:
    """What was read, or why it was refused: never both, never neither."""
    try:
        return read(text, name), []
    except InputError as error:
        reported = [fault.lines() for fault in error.faults]
    return None, reported or [["refused without a reason"] * 4]
