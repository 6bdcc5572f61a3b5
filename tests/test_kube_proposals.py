"""Labels that may be topology levels are proposed with the lines for the Policy; others are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from bundles import load_all
from conftest import RunCli
from kube_levels import Tree, found, node, topology

from models.instance.policy import KubernetesPolicy

RACK, SUPERPOD = "topology.example.com/rack", "example.com/superpod"
Value = Callable[[int], str]


def cluster(count: int, **labels: Value) -> list[Tree]:
    """Nodes with these labels, each a function of the node's number."""
    return [
        node(f"n{i:02}", {key: value(i) for key, value in labels.items()}) for i in range(count)
    ]


def proposed(trees: list[Tree], policy: KubernetesPolicy | None = None) -> list[str | None]:
    """Labels of the levels that the remark's lines state, widest first."""
    levels, _, said = found(trees, policy=policy)
    if not levels.proposed:
        assert said == []
        return []
    (line,) = said
    document = yaml.safe_load(
        line.partition("add a file with this to the paths: ")[2].removesuffix(")")
    )
    stated = document["spec"]["kubernetes"]["levels"]
    assert [one["label"] for one in stated] == [one.label for one in levels.proposed]
    return [one["label"] for one in stated]


def test_a_rack_label_is_proposed_with_the_lines_of_the_policy() -> None:
    trees = cluster(8, **{RACK: lambda i: f"r{i // 4}"})
    levels, _, (line,) = found(trees)
    assert levels.levels == ()
    said, _, hint = line.partition(
        " (hint: if that is topology, add a file with this to the paths: "
    )
    assert said == (
        f"Label {RACK} (2 values): divides the nodes evenly, but is no known level; tiers do not count it"
    )
    assert hint == (
        "{kind: Policy, apiVersion: gangplan.dev/v1alpha1, spec: {kubernetes:"
        f" {{levels: [{{name: rack, label: {RACK}}}]}}}}}})"
    )
    stated = load_all([yaml.safe_load(hint[:-1]), *trees])
    assert stated.levels_source == "levels from the Policy: rack (2 domains)"
    assert not any("no known level" in line for line in stated.remarks)


def test_nested_labels_are_proposed_widest_first_inside_the_levels_found() -> None:
    zone = "topology.kubernetes.io/zone"
    labels: dict[str, Value] = {
        RACK: lambda i: f"r{i // 4}",
        SUPERPOD: lambda i: f"s{i // 8}",
        zone: lambda i: f"z{i // 16}",
        "topology.ebs.csi.aws.com/zone": lambda i: f"z{i // 16}",  # the same as the zone
        "example.com/rack-name": lambda i: f"name-{i // 4}",  # the same as the rack
        "example.com/row": lambda i: f"row-{i % 2}",  # cuts the racks
    }
    trees = cluster(32, **labels)
    assert proposed(trees) == [zone, SUPERPOD, "example.com/rack-name"]
    assert proposed(trees[::-1]) == proposed(trees)


OTHERS: dict[str, tuple[str, Value]] = {
    "one value": ("example.com/rack", lambda _: "r1"),
    "one a node": ("example.com/rack", lambda i: f"r{i}"),
    "uneven": ("example.com/rack", lambda i: "r1" if i < 14 else "r2"),
    "flags": ("example.com/rack", lambda i: "true" if i % 2 else "false"),
    "versions": ("example.com/switch", lambda i: f"v1.{i // 4}.0"),
    "version in its name": ("example.com/switch-version", lambda i: f"v{i // 4}"),
    "a value that is no name": ("example.com/rack", lambda i: f"r{i // 4} \x1b[31m"),
    "a key that is no name": ("\x1b[31m/rack", lambda i: f"r{i // 4}"),
    "serial numbers": ("example.com/serial", lambda i: f"s{i}"),
    "other flags": ("example.com/spot", lambda i: "true" if i % 2 else "false"),
    "teams": ("team", lambda i: f"t{i // 4}"),
    "node groups": ("eks.amazonaws.com/nodegroup", lambda i: f"g{i // 4}"),
    "node pools": ("cloud.google.com/gke-nodepool", lambda i: f"pool-{i // 4}"),
    "instance types": ("node.kubernetes.io/instance-type", lambda i: f"p{i // 4}"),
    "hardware": ("nvidia.com/gpu.family", lambda i: f"f{i // 4}"),
    "subnets": ("kubernetes.azure.com/network-subnet", lambda i: f"n{i // 4}"),
    "fault domains": ("oci.oraclecloud.com/fault-domain", lambda i: f"FAULT-DOMAIN-{i // 4}"),
    "reservations": ("topology.k8s.aws/capacity-block-id", lambda i: f"cb{i // 4}"),
    "features": ("feature.node.kubernetes.io/cpu-1", lambda i: f"{i // 4}"),
}


@pytest.mark.parametrize(("key", "value"), OTHERS.values(), ids=OTHERS)
def test_other_labels_are_not_proposed(key: str, value: Value) -> None:
    assert proposed(cluster(16, **{key: value})) == []


def test_nothing_is_proposed_where_levels_are_stated() -> None:
    trees = cluster(8, **{RACK: lambda i: f"r{i // 4}", SUPERPOD: lambda i: f"s{i // 2}"})
    assert proposed([*trees, topology("one", SUPERPOD)]) == []
    assert proposed(trees, KubernetesPolicy(levels=())) == []


def test_the_proposed_lines_are_a_policy_that_plans_with_these_levels(
    cli: RunCli, tmp_path: Path
) -> None:
    nodes, saved = tmp_path / "nodes.json", tmp_path / "policy.yaml"
    trees = cluster(16, **{RACK: lambda i: f"r{i // 4}", SUPERPOD: lambda i: f"s{i // 8}"})
    nodes.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": trees}))
    result = cli("validate", str(nodes), "--save-policy", str(saved))
    assert f"warning: Label {SUPERPOD} (2 values), {RACK} (4 values): " in result.err
    text = saved.read_text()
    assert yaml.safe_load(text)["spec"]["kubernetes"] == {"levels": []}
    head, _, lines = text.partition("  kubernetes: {levels: []}\n")
    uncommented = "".join(f"{line[1:]}\n" for line in lines.splitlines() if "`" not in line)
    saved.write_text(head + uncommented)
    result = cli("validate", str(nodes), "--policy", str(saved))
    assert result.err.startswith("levels from the Policy: superpod (2 domains), rack (4)\n")
    assert "no known level" not in result.err
