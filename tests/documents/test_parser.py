"""Texts to values, and paths back to the line and column of their values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from models.documents.base import Path
from planner.read.parser import parse, places
from planner.read.sources import Source

NAMES = st.text(alphabet='abcxyz"\\[]{}:,é\n', max_size=6)
TREES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-999, 999), NAMES),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)
DOCUMENTS = st.one_of(st.lists(TREES, max_size=4), st.dictionaries(NAMES, TREES, max_size=4))


def values(tree: Any, path: Path) -> Iterator[tuple[Path, Any]]:  # noqa: ANN401
    """Every value of the tree with its path."""
    yield path, tree
    if isinstance(tree, dict | list):
        for step, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from values(value, (*path, step))


@settings(deadline=None, max_examples=examples(200, 30))
@given(DOCUMENTS, st.sampled_from([None, 0, 2]))
def test_every_value_and_name_of_a_json_text_is_found(tree: Any, indent: int | None) -> None:  # noqa: ANN401
    text = json.dumps(tree, indent=indent)
    source = Source("x.json", text, "json")
    assert parse(source).documents == [tree]
    wanted = [(path, value) for path, value in values(tree, (0,))]
    found = places(source, [(path, at_key) for path, _ in wanted for at_key in (False, True)])
    lines = text.split("\n")
    for path, value in wanted:
        line, column = found[path, False]
        start = {dict: "{", list: "["}.get(type(value)) or json.dumps(value)
        assert lines[line - 1][column - 1 :].startswith(start)
        if isinstance(path[-1], str):
            line, column = found[path, True]
            assert lines[line - 1][column - 1 :].startswith(json.dumps(path[-1]))


@settings(deadline=None, max_examples=examples(200, 30))
@given(DOCUMENTS, st.sampled_from([True, False, None]))
def test_yaml_has_the_values_of_json(tree: Any, flow: bool | None) -> None:  # noqa: ANN401
    text = yaml.dump(tree, Dumper=yaml.SafeDumper, default_flow_style=flow)
    source = Source("x.yaml", text, "yaml")
    assert parse(source).documents == [tree]
    wanted = [(path, False) for path, value in values(tree, (0,)) if type(value) is int]
    lines = text.split("\n")
    for (path, _), (line, column) in places(source, wanted).items():
        value: Any = [tree]
        for step in path:
            value = value[step]
        assert lines[line - 1][column - 1 :].startswith(str(value))
