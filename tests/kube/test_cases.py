"""Kubernetes objects in, and all that is read of them: nodes, queues, gangs, levels, remarks, decisions.

The cases are those of ``cases/*.yaml`` in the forms of ``short_forms``, by the sentence that they show.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from short_forms import Tree, brief, cases, decisions, hint, read

FOLDER = Path(__file__).parent / "cases"


def loaded(path: Path) -> Any:  # noqa: ANN401  # any YAML
    return yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


@cache
def hints() -> frozenset[str]:
    return frozenset(loaded(FOLDER / "hints.yaml"))


GROUPS = [
    pytest.param(group, id=f"{path.stem}: {sentence}")
    for path in sorted(FOLDER.glob("*.yaml"))
    if path.stem != "hints"
    for sentence, group in loaded(path).items()
]


@pytest.mark.parametrize("group", GROUPS)
def test_objects_are_read_as_the_cases_say(group: Tree) -> None:
    for number, (objects, expected) in enumerate(cases(group), 1):
        found = read(objects)
        plan = {"plan": decisions(found)} if "plan" in expected else {}
        assert brief(found) | plan == expected, f"case {number}"
        assert {hint(line) for line in found.remarks} <= hints()
