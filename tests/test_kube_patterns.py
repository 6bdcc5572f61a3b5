"""Patterns of untrusted objects: what Go's regexp means by them, in bounded work."""

from __future__ import annotations

import re

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from models.units import InvalidValueError
from planner.read.kube.levels.patterns import compiled

ATOMS = [
    "a",
    "b",
    "-",
    "0",
    "1",
    ".",
    "[ab]",
    "[^a]",
    "[0-9]",
    r"\d",
    r"\w",
    r"\D",
    r"\-",
    "^",
    "$",
]
patterns = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("({0[0]}|{0[1]})".format),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,}", "*?"])).map(
            "(?:{0[0]}){0[1]}".format
        ),
    ),
    max_leaves=8,
)


@given(patterns, st.lists(st.text("ab-01", max_size=8), max_size=5))
@settings(max_examples=examples(300, 60), deadline=None)
def test_a_pattern_finds_what_python_finds(pattern: str, texts: list[str]) -> None:
    # Python's $ also matches before a last line break; Go's does not
    known = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    own = compiled(pattern)
    assert [own.search(text) for text in texts] == [bool(known.search(text)) for text in texts]


@pytest.mark.parametrize(
    ("pattern", "found", "missed"),
    [
        ("^gpu-0[1-3]$", ["gpu-01", "gpu-03"], ["gpu-04", "xgpu-01", "gpu-01x"]),
        ("rack", ["rack", "a-rack-b"], ["rac"]),
        (r"\Anode\.\d{2,3}\z", ["node.12", "node.123"], ["node.1", "node.1234", "nodex12"]),
        ("^(?:a|bc)+$", ["abc", "bca"], ["b", ""]),
        ("(?P<rack>r[[:digit:]]+)-", ["r12-"], ["r-"]),
        ("[]a-]x", ["]x", "-x", "ax"], ["bx"]),
        ("a{,2}", ["a{,2}"], ["aa"]),  # no repetition in Go: the text itself
        ("", ["", "a"], []),
        ("^$", [""], ["a"]),
        ("ü|é", ["ü", "xé"], ["u"]),
    ],
)
def test_patterns_mean_what_go_means(pattern: str, found: list[str], missed: list[str]) -> None:
    own = compiled(pattern)
    assert [text for text in (*found, *missed) if own.search(text)] == found


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a)", "[a", "[b-a]", "*", "a**", "a{2,1}", "a{1001}", "\\", r"\b", r"\pL", r"\x41",
     r"\Qa\E", "(?i)a", "(?P<>a)", "[[:nope:]]", "a" * 501, "(" * 60, "(a?){900}a{900}",
     "((((){1000}){1000}){1000}){1000}"],
)  # fmt: skip
def test_what_is_not_understood_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidValueError):
        compiled(pattern)


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a|aa)+$", ".*.*.*.*.*x", "(.*)*x$"])
def test_patterns_that_make_others_explode_take_a_step_a_character(pattern: str) -> None:
    own = compiled(pattern)
    assert not own.search("a" * 253 + "!")
    # a few sets of a few dozen states are met once; then a character is one step
    assert own.spent < 253 + 1_000


@given(st.text(max_size=40), st.text(max_size=20))
@settings(max_examples=examples(300, 60), deadline=None)
def test_any_text_is_a_pattern_or_refused(pattern: str, text: str) -> None:
    try:
        own = compiled(pattern)
    except InvalidValueError:
        return
    assert isinstance(own.search(text), bool)
