"""docs/limits.md states bounds as they are; tests of bounds that have no better place."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import kube
import kube_levels as trees
import plan_documents as docs
import pytest
from conftest import RunCli
from plan_busy import busy_plan
from pydantic import ValidationError

from models.documents.base import MAX_ITEMS
from models.documents.gang import MAX_GPUS_A_POD, MAX_PODS, GangDocument
from models.units import MAX_DIGITS
from models.verify.adaptor import MAX_BITS
from models.verify.check import check
from planner.cluster import pages
from planner.cluster.transport import Reply
from planner.errors import UnavailableError
from planner.read import findings
from planner.read.findings import Finding, Findings, Remarks
from planner.read.kube.devices import claims
from planner.read.kube.dialects import base as dialects
from planner.read.kube.dialects import kueue
from planner.read.kube.levels import hypernodes
from planner.read.kube.pods import pods, requests
from planner.read.kube.records import MAX_GPUS as MAX_NODE_GPUS
from planner.read.parser import MAX_ALIASED, parse
from planner.read.slurm import levels as slurm_levels
from planner.read.sources import Source

ROOT = Path(__file__).resolve().parents[1]
LIMITS = {
    "models.documents.base.MAX_ITEMS": "200,000 entries a list",
    "models.documents.cluster.MAX_LEVELS": "| 10 |",
    "models.documents.gang.MAX_GPUS_A_POD": "| 1,000,000; 100,000 |",
    "models.documents.server.MAX_GPUS": "| 1,024 |",
    "models.host_ranges.MAX_NAMES": "| 200,000 | refused, before",
    "models.instance.policy.QUEUE_LIMIT": "| 5,000, or",
    "planner.cli.verbs.plan.MAX_BUDGET": "| 1,000,000 | usage error",
    "planner.cluster.proxy.MAX_BYTES": "| 256 MiB | a list",
    "planner.read.findings.MAX_FAULTS": "| 20 | the first by place",
    "planner.read.json_items.MAX_OBJECT": "32 MiB of text",
    "planner.read.kube.dialects.base.MAX_ANNOTATION": "65,536",
    "planner.read.kube.gangs.roles.MAX_SIZE": "| 1,000,000; 20,000 if",
    "planner.read.kube.object_bounds.MAX_TEXT": "| 1,000; 4,096",
    "planner.read.kube.pods.pod_rules.MAX_RULES": "| 20 | the gang",
    "planner.read.kube.pods.pods.MAX_PRIORITY": "2,000,000,000",
    "planner.read.kube.pods.requests.MAX_POD_GPUS": "| 100,000; 10^15",
    "planner.read.kube.templates.waiting.MAX_PODS": "| 10,000; 50,000",
    "planner.read.parser.MAX_ALIASED": "stand for | 100,000",
    "planner.read.plan_files.MAX_PLAN_BYTES": "512 MiB",
    "planner.read.slurm.jobs.MAX_TASKS": "| 1,000; 20,000 |",
    "planner.read.sources.MAX_BYTES": "| 256 MiB, 64 levels",
    "planner.search.promises.forecast.MAX_GANGS": "| 1,000 | those later",
}
"""Constants, and what docs/limits.md says of them."""


@pytest.mark.parametrize("constant", LIMITS)
def test_the_page_states_the_bound_of_the_program(constant: str) -> None:
    said = LIMITS[constant]
    assert said in (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    units = {"KiB": 2**10, "MiB": 2**20}
    meant = {
        int(number.replace(",", "")) * units.get(unit, 1)
        for number, unit in re.findall(r"([\d,]*\d) ?(KiB|MiB)?", said)
    }
    module, _, name = constant.rpartition(".")
    assert getattr(importlib.import_module(module), name) in meant


def test_a_long_quantity_is_none() -> None:
    longest = "1".rjust(requests._MAX_QUANTITY, " ")
    assert requests._nano("0.5") == 5 * 10**8
    assert requests._nano(f"{longest}1") is None
    amounts = requests.effective_requests(
        {"spec": {"containers": [{"resources": {"requests": {"cpu": "1" + "0" * 10**6}}}]}}
    )
    assert (amounts.amounts, amounts.unreadable) == ({}, ("cpu",))


def test_gpus_of_a_pod_are_capped() -> None:
    asked = requests.gpu_request({"nvidia.com/gpu": 10**15}, {}, ("nvidia.com/gpu",), {})
    assert asked.gpus == requests.MAX_POD_GPUS


@pytest.mark.parametrize("sign", [1, -1])
def test_priorities_are_capped(sign: int) -> None:
    assert pods.bounded_priority(sign * 10**30) == sign * pods.MAX_PRIORITY
    assert pods.bounded_priority(sign * 5) == sign * 5


def test_a_long_annotation_is_not_parsed() -> None:
    room = dialects.MAX_ANNOTATION - 2
    assert dialects.json_value("[" + " " * room + "]") == []
    assert dialects.json_value("[" + " " * (room + 1) + "]") is None
    assert dialects.comma_list("1" + "," * dialects.MAX_ANNOTATION) == ()


def test_an_absurd_number_of_devices_is_a_problem() -> None:
    for count, problems in ((claims._MAX_DEVICES, 0), (claims._MAX_DEVICES + 1, 1)):
        result = claims.ClaimedGpus()
        claims._count({"count": count}, result)
        assert len(result.problems) == problems


def test_a_long_expression_is_not_searched() -> None:
    short = "device.attributes['gpu.nvidia.com'].type == 'mig'"
    padded = short.ljust(claims._MAX_EXPRESSION)
    assert claims.means_part(padded)
    assert not claims.means_part(padded + " ")


def test_slices_in_slices_end() -> None:
    layers = [{"topology": f"example.com/l{number}", "size": 8 >> number} for number in range(4)]
    asks, problem = kueue._layered(json.dumps(layers[:3]))
    assert (len(asks), problem) == (kueue._MAX_LAYERS, None)
    assert kueue._layered(json.dumps(layers)) == ((), kueue.DEEP_SLICES)


def test_the_lowest_tiers_of_hypernodes_count(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [trees.node(f"n{number}", {}) for number in range(8)]
    tiers = [
        trees.hypernode(
            f"t{tier}-{first}", tier, *(trees.exact(f"n{first + i}") for i in range(size))
        )
        for tier, size in ((1, 2), (2, 4))
        for first in range(0, 8, size)
    ]
    assert trees.names(trees.found([*nodes, *tiers])[0]) == ["hypernode-tier-2", "hypernode-tier-1"]
    monkeypatch.setattr(hypernodes, "MAX_TIERS", 1)
    assert trees.names(trees.found([*nodes, *tiers])[0]) == ["hypernode-tier-1"]


def test_a_long_pattern_is_not_compiled() -> None:
    assert hypernodes._compiled("n" * hypernodes._MAX_PATTERN) is not None
    assert hypernodes._compiled("n" * (hypernodes._MAX_PATTERN + 1)) is None


@pytest.mark.parametrize(("count", "implausible"), [(MAX_NODE_GPUS, False), (1025, True)])
def test_a_node_has_few_gpus(cli: RunCli, count: int, implausible: bool) -> None:
    one = kube.node("n1", gpus=count)
    said = cli("validate", "-", stdin=json.dumps(one).encode()).err
    assert ("claims more than 1,024 GPUs, which is implausible" in said) == implausible


@pytest.mark.parametrize(
    ("replicas", "gpus", "found"),
    [
        (MAX_PODS, MAX_GPUS_A_POD, []),
        (MAX_PODS + 1, 1, ["count"]),
        (1, MAX_GPUS_A_POD + 1, ["gpus"]),
    ],
)
def test_a_gang_of_a_document_ends(replicas: int, gpus: int, found: list[str]) -> None:
    tree = docs.gang("g", docs.role(replicas=replicas, gpus=gpus))
    try:
        GangDocument.model_validate(tree)
        refused = []
    except ValidationError as error:
        refused = [str(one["loc"][-1]) for one in error.errors()]
    assert refused == found


def test_remarks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "MAX_REMARKS", 3)
    remarks = Remarks()
    for number in range(15):
        remarks.add(f"Pod p-{number}", f"odd {number}")
    assert len(remarks.all) == 3
    assert remarks.lines()[-1] == "and 12 more remarks"


def test_aliases_stand_for_few_values() -> None:
    text = "a: &a [" + ", ".join("x" * 1_000) + "]\nb: [" + ", ".join(["*a"] * 101) + "]\n"
    (fault,) = parse(Source("x.yaml", text, "yaml")).faults
    assert fault.what == f"aliases of more than {MAX_ALIASED:,} values"


def test_a_list_of_a_document_ends(cli: RunCli) -> None:
    text = '{"apiVersion": "gangplan.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "c"},'
    text += '"spec": {"levels": [' + "0," * MAX_ITEMS + "0]}}"
    found = cli("validate", "-", stdin=text.encode())
    assert found.code == 65
    assert f"a list of {MAX_ITEMS + 1:,} entries" in found.err


def test_lists_in_lists_end(cli: RunCli) -> None:
    def nested(depth: int) -> bytes:
        opened = '{"apiVersion": "v1", "kind": "List", "items": ['
        return (opened * depth + "]}" * depth).encode()

    assert "Lists in one another" not in cli("validate", "-", stdin=nested(8)).err
    found = cli("validate", "-", stdin=nested(10))
    assert (found.code, "more than 8 Lists in one another" in found.err) == (65, True)


def test_a_decimal_has_few_digits(cli: RunCli) -> None:
    policy = "apiVersion: gangplan.dev/v1alpha1\nkind: Policy\nmetadata: {name: p}\n"
    for digits, code in ((MAX_DIGITS, 0), (MAX_DIGITS + 1, 65)):
        text = f"{policy}spec: {{minBandwidthShare: 0.{'1' * digits}}}\n"
        found = cli(
            "validate",
            str(ROOT / "inputs" / "quickstart" / "cluster.yaml"),
            "-",
            stdin=text.encode(),
        )
        assert found.code == code, found.err


def test_faults_are_gathered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "MAX_GATHERED", 30)
    found = Findings()
    for number in range(100):
        assert found.full == (number >= 30)
        found.add(Finding(Source("x.yaml", "a: 1\n", "yaml"), (0,), f"fault {number}"))
    assert len(found.unplaced) == 30


def test_links_between_switches_end(cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_levels, "MAX_LINKS", 4)
    leaves = [f"SwitchName=s{number} Nodes=n{number}" for number in range(5)]
    for last, code in ((3, 0), (4, 65)):
        text = "\n".join([*leaves, f"SwitchName=top Switches=s[0-{last}]"])
        found = cli("validate", "-", stdin=text.encode())
        assert found.code == code, found.err
    assert "more than 4 links between switches" in found.err


def test_a_value_of_a_tier_has_an_end() -> None:
    plan = busy_plan()
    for bits, found in ((MAX_BITS, False), (MAX_BITS + 1, True)):
        plan["status"]["objectives"][0]["bound"] = 1 << (bits - 1)
        said = [str(one) for one in check(plan)]
        assert any("is too large" in line for line in said) == found


def test_pages_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that always names one page more."""

    class Endless:
        asked = 0

        def send(self, method: str, path: str) -> Reply:
            self.asked += 1
            body = {"kind": "PodList", "metadata": {"continue": f"page {self.asked}"}, "items": []}
            return Reply(200, body)

    monkeypatch.setattr(pages, "MAX_PAGES", 7)
    server = Endless()
    with pytest.raises(UnavailableError):
        list(pages.ListPages(server, "/api/v1/pods"))  # type: ignore[arg-type]  # what it uses of one
    assert server.asked == 7


def test_a_budget_ends(cli: RunCli) -> None:
    found = cli("plan", str(ROOT / "inputs" / "quickstart"), "--budget", "1000001")
    assert (found.code, "1000000" in found.err) == (64, True), found.err
