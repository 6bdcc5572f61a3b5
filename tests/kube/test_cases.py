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


CASES = [
    pytest.param(objects, expected, id=f"{path.stem}: {sentence} {number}")
    for path in sorted(FOLDER.glob("*.yaml"))
    if path.stem != "hints"
    for sentence, group in loaded(path).items()
    for number, (objects, expected) in enumerate(cases(group), 1)
]


@pytest.mark.parametrize(("objects", "expected"), CASES)
def test_objects_are_read_as_the_case_says(objects: list[str | Tree], expected: Tree) -> None:
    found = read(objects)
    assert brief(found) | ({"plan": decisions(found)} if "plan" in expected else {}) == expected
    assert {hint(line) for line in found.remarks} <= hints()
