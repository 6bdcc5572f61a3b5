"""The report as a file: what it says, what it escapes, how large it gets."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import handmade
import pytest
import report_plans
from conftest import RunCli
from hypothesis import given
from hypothesis import strategies as st
from plan_documents import V100_LINKS, sealed
from report_plans import large_page, page_of, plan_of

from models.documents.server import ServerModelDocument
from planner.show.cluster_map import MapNode, cluster_map
from planner.show.report.page import embedded
from planner.show.text import short_names

ROOT = Path(__file__).parents[2]
MAX_BYTES = 5_000_000


def nodes_of(document: dict[str, Any]) -> dict[str, MapNode]:
    return {node.name: node for node in cluster_map(plan_of(document)).cluster.nodes}


class Elements(HTMLParser):
    """Every tag with its attributes, and the text outside of style and script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.inside: list[str] = []
        self.contents: dict[str, list[str]] = {"style": [], "script": []}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in self.contents:
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.inside[-1:] == [tag]:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        (self.contents[self.inside[-1]] if self.inside else self.text).append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture
def written(tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.chdir(tmp_path)

    def write(document: dict[str, Any]) -> str:
        Path("plan.json").write_text(json.dumps(document), encoding="utf-8")
        result = cli("report", "plan.json", "--out", "report.html")
        assert (result.code, result.out) == (0, "")
        assert re.fullmatch(r"saved report.html \([0-9.]+ MB\): open it in a browser\n", result.err)
        return Path("report.html").read_text(encoding="utf-8")

    return write


def test_the_page_says_what_the_plan_decides(written: Callable[..., str]) -> None:
    said = " ".join(" ".join(Elements(written(handmade.plan())).text).split())
    assert "2 start, 1 waits, 1 stays as it is." in said
    # old holds 2 GPUs; pair gets 4 and whole 16; 32 are installed, one is unhealthy
    assert "GPUs held 2 → 22 of 31 healthy, 9 free" in said
    assert "Gangs that start 2 on 20 GPUs" in said
    assert "Gangs that wait 1 for 72 GPUs" in said
    assert "NoRoom: 72 GPUs asked, 32 installed" in said
    assert "bandwidth max 21,680 21,680 22,000 1.48 % exact" in said
    assert "4 of 5 tiers proven" in said


def test_no_text_of_a_plan_becomes_markup(written: Callable[..., str]) -> None:
    page = Elements(written(report_plans.hostile()))
    assert [one for one, _ in page.tags].count("script") == 2
    assert not page.named("img")
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    said = " ".join(page.text)
    for text in (report_plans.SCRIPT, report_plans.ATTRIBUTE, "{{ 7 * 7 }}"):
        assert text in said
    assert not set("\x1b\u202e\u2028\u2029") & set("".join(page.text))


def test_the_policy_names_the_style_and_the_script_by_their_hashes() -> None:
    page = Elements(page_of(report_plans.hostile()))
    (policy,) = (m["content"] for m in page.named("meta") if "content" in m and "http-equiv" in m)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    data, script = page.contents["script"]
    for kind, text in (("style", "".join(page.contents["style"])), ("script", script)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[f"{kind}-src"] == f"'sha256-{digest}'"
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert json.loads(data)[0].startswith("research/big · waits · 72 GPUs · ")


def test_what_is_embedded_stays_inside_its_element() -> None:
    text = "</script><!--<script>&\u2028\u2029\U0001f600"
    found = embedded({"name": text})
    assert re.fullmatch(r"[ -~]+", found)
    assert not set("<>&") & set(found)
    assert json.loads(found) == {"name": text}


def test_a_plan_that_was_edited_says_so_first(written: Callable[..., str]) -> None:
    document = handmade.plan()
    assert "does not match" not in written(document)
    document["spec"]["gangs"][1]["decision"] = "preempt"
    assert "does not match" in written(document)


@pytest.mark.slow
def test_a_large_cluster_stays_below_five_megabytes() -> None:
    text = large_page()
    assert len(text.encode()) < MAX_BYTES
    nodes = [one for one in Elements(text).named("li") if "data-n" in one]
    assert len(nodes) == 12_500
    # gpu-00000 keeps job-0000; gpu-00003 is of job-0001, which starts
    assert nodes[0]["title"] == "gpu-00000, DGX-1 V100, cordoned. research/job-0000 0-7"
    held = "Before: free 0-7. After: research/job-0001 0-7"
    assert nodes[3]["title"] == f"gpu-00003, DGX-1 V100. {held}"


def test_tables_and_names_of_very_many_gangs_end(monkeypatch: pytest.MonkeyPatch) -> None:
    document = report_plans.large(1500)  # 400 gangs, 200 of which start
    for gang in document["spec"]["gangs"]:
        gang["name"] += "-" + "x" * 200
    monkeypatch.setattr("planner.show.report.page.MAX_ROWS", 150)
    monkeypatch.setattr("planner.show.report.map_view.MAX_SAID", 400 * 50)
    page = Elements(page_of(document))
    nodes = [one for one in page.named("li") if "data-n" in one]
    assert len(nodes) == 1500
    assert str(nodes[0]["title"]).startswith("gpu-00000, DGX-1 V100, cordoned. ")
    assert "After: research/job-0000-x" in str(nodes[0]["title"])
    assert "and 50 more rows" in " ".join(page.text)
    gangs = json.loads(page.contents["script"][0])
    assert {len(gang) for gang in gangs} == {50}
    assert gangs[0].startswith("research/job-0000-x")


def test_a_gang_waits_for_the_reason_that_plan_states_and_no_other(
    written: Callable[..., str], cli: RunCli
) -> None:
    """The page, the table of the plan, and what is said of the gang on the map."""
    page = Elements(written(handmade.plan()))
    (reason,) = re.findall(r"NoRoom: .*", cli("show", "plan.json").out)
    assert " ".join(page.text).count("NoRoom") == " ".join(page.text).count(reason) == 1
    big = json.loads(page.contents["script"][0])[0]
    assert big == f"research/big · waits · 72 GPUs · {reason}"


def test_the_map_has_every_gpu_before_and_after() -> None:
    nodes = nodes_of(handmade.plan())
    big, old, pair, whole = range(4)
    assert nodes["v100-1"].before == ("free",) * 8
    assert nodes["v100-1"].after == (whole,) * 8
    assert nodes["v100-3"].after == (pair,) * 4 + ("free",) * 4
    assert nodes["v100-4"].after == (old, old, *("free",) * 5, "unhealthy")
    assert not nodes["v100-4"].changes
    assert not any(big in node.after for node in nodes.values())


@given(st.sets(st.text(alphabet="ab0-._", min_size=1, max_size=24), min_size=1, max_size=12))
def test_no_two_short_names_are_alike(names: set[str]) -> None:
    found = short_names(names, 12)
    assert set(found) == names
    assert len(set(found.values())) == len(names)
    assert all(found.values())


@pytest.mark.parametrize(
    ("changed", "islands", "kind"),
    [
        ({"fabric": "direct", "matrix": V100_LINKS}, ((0, 1, 2, 3), (4, 5, 6, 7)), "NVLink"),
        ({"fabric": "nvswitch", "linksPerGpu": 6}, ((0, 1, 2, 3, 4, 5, 6, 7),), ""),
        ({"fabric": "direct"}, ((0, 1, 2, 3, 4, 5, 6, 7),), ""),  # no matrix: not a valid model
        (
            {
                "fabric": "pcie",
                "matrix": [["X" if a == b else "PHB" for b in range(8)] for a in range(8)],
                "pcieSwitch": [0, 0, 0, 0, 1, 1, 1, 1],
            },
            ((0, 1, 2, 3), (4, 5, 6, 7)),
            "PCIe switch",
        ),
    ],
)
def test_gpus_that_are_linked_stand_together(
    changed: dict[str, Any], islands: tuple[tuple[int, ...], ...], kind: str
) -> None:
    document = handmade.plan()
    model = {"name": "DGX-1 V100", "gpu": "V100", "gpus": 8, **changed}
    ServerModelDocument.model_validate(model, strict=False)
    document["instance"]["cluster"]["spec"]["serverModels"] = [model]
    node = nodes_of(sealed(document))["v100-1"]
    assert (node.islands, node.kind) == (islands, kind)


def test_a_plan_says_what_else_could_start(written: Callable[..., str], cli: RunCli) -> None:
    planned = cli("plan", str(ROOT / "inputs/quickstart"), "--out", "quick.json")
    (reason,) = re.findall(r"RequiredTopology: .*", planned.out)
    page = Elements(written(json.loads(Path("quick.json").read_text())))
    names = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(names) == len(set(names))
    said = " ".join(" ".join(page.text).split())
    # 6 of 16 GPUs are held before the plan, 14 after it
    assert "2 usable nodes with 16 GPUs; 10 free now, 2 after the plan." in said
    assert "The largest gang that could start" in said
    assert said.count(reason) == said.count("RequiredTopology") == 1  # what `plan` says, no other
