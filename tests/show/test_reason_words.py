"""The one table of reasons: what docs say of it, and that every code and field has words."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from models.documents.reason import CODES, HELD, PLACE, ROOM, ReasonFields, unlisted
from models.instance.solution import Reason
from planner.show.reason_words import words

INPUTS = Path(__file__).parents[2] / "inputs"
PAGE = Path(__file__).parents[2] / "docs" / "plan.md"


def alias(name: str) -> str:
    return str(ReasonFields.model_fields[name].alias)


GROUPS = {"room": ROOM, "place": PLACE, "gangs": HELD}
"""Fields that many codes have, by the word that stands for them in the table."""


def listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{alias(name)}`" for name in names)


def tables() -> tuple[list[str], list[str]]:
    """Lines of docs/plan.md: a group of fields each, and a code each."""
    groups = [f"- *{word}*: {listed(names)}" for word, names in GROUPS.items()]
    codes = []
    for name, code in CODES.items():
        every = len(code.fields) == len(ReasonFields.model_fields)
        whole = [word for word in GROUPS if set(GROUPS[word]) <= set(code.fields)]
        rest = set(code.fields).difference(*(GROUPS[word] for word in whole))
        own = listed(field for field in code.fields if field in rest)
        cell = ", ".join([*(f"*{word}*" for word in whole), *([own] if own else [])])
        cell = "all fields" if every else cell
        codes.append(f"- `{name}`: {code.meaning}{f'. {cell}' if cell else ''}")
    return groups, codes


def test_the_page_has_every_code_with_its_fields(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text(encoding="utf-8")
    groups, codes = ("\n".join(lines) for lines in tables())
    if request.config.getoption("--refresh-golden"):
        first, before = page.partition("- *room*: ")[::2]
        rest = before.partition("\n\n`Never` is counted")[2]
        told = [groups, "", "Codes, and the fields of each:", "", codes, "", "`Never` is counted"]
        PAGE.write_text(first + "\n".join(told) + rest, encoding="utf-8")
    else:
        assert groups in page
        assert codes in page


def test_a_field_of_another_code_is_found_and_of_an_unknown_code_nothing_is_known() -> None:
    fields = ReasonFields.with_values(queue="a", room_pods=3)
    assert unlisted("NoRoom", fields) == ["queue"]
    assert unlisted("Selector", fields) == ["roomPods", "queue"]
    assert unlisted("NewerThanThis", fields) == []


BY = [{"gang": "ml/a", "priority": 5, "gpus": 16}, {"gang": "ml/b", "priority": 0, "gpus": 1}]


WRITTEN = (Path(__file__).parent / "reason_words.yaml").read_text(encoding="utf-8")
SAID = yaml.load(WRITTEN, Loader=yaml.CSafeLoader)


@pytest.mark.parametrize("case", SAID, ids=[f"{one['code']}-{n}" for n, one in enumerate(SAID)])
def test_a_reason_is_said_in_one_sentence(case: dict[str, Any]) -> None:
    reason = Reason.of(case["code"], **case["fields"])
    assert words(reason) == case["says"]
    assert unlisted(reason.code, reason.fields) == []


@pytest.mark.parametrize("code", CODES)
def test_no_field_of_a_code_ends_in_an_error(code: str) -> None:
    """Stated alone, and with nothing stated: hostile plans may leave out whatever they like."""
    values: dict[str, object] = {
        "by": BY,
        "until": "2026-11-23T08:00:00Z",
        "offered": "2Gi",
        "cause": "Incomplete",
    }
    assert words(Reason(code))
    for name in CODES[code].fields:
        kind = str(ReasonFields.model_fields[name].annotation)
        value: object = values.get(name)
        if value is None:
            value = (
                True if "bool" in kind else 3 if "int" in kind else 0.5 if "float" in kind else None
            )
        if value is None:
            value = ["x"] if "tuple" in kind else "x"
        assert words(Reason.of(code, **{name: value})), name


def test_a_long_domain_is_named_by_its_innermost_names() -> None:
    # As Volcano's discovery names HyperNodes: 33 characters each; the last two of the second path are 13.
    fields = {"pods": 4, "gpus": 32, "room_pods": 1, "room_gpus": 12, "level": "hypernode-tier-1"}
    leaf = "hypernode-ib-tier1-x2kzm-6f7d9c8b"
    long = words(Reason.of("RequiredTopology", **fields, domain=f"site/spine-0123456789/{leaf}"))
    assert f"the hypernode-tier-1 with the most room, {leaf} (12" in long
    mixed = words(Reason.of("RequiredTopology", **fields, domain=f"{leaf}/block-1/rack1"))
    assert "with the most room, block-1/rack1 (12" in mixed
    short = words(Reason.of("RequiredTopology", **fields, domain="block-1/rack1"))
    assert "with the most room, block-1/rack1 (12" in short
