"""Hostile input: whatever comes in, only InputError or MissingPathError comes out, and soon."""

from __future__ import annotations

import io
import json
import random
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
from building import instance_document
from bundles import read_all
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refused_cases import REFUSED
from strategies import inputs

from planner.errors import Fault, InputError, MissingPathError
from planner.read.inputs import instance_from_document, read

ROOT = Path(__file__).parents[2]
HEAD = "apiVersion: gangplan.dev/v1alpha1\n"
CLUSTER = (
    HEAD + "kind: Cluster\nmetadata: {name: c}\nspec:\n  nodes:\n  - {name: n, model: DGX H100}\n"
)
SEEDS = [path.read_bytes() for path in sorted((ROOT / "inputs" / "quickstart").glob("*.yaml"))]
SEEDS += [
    content if isinstance(content, bytes) else content.encode()
    for files in REFUSED.values()
    for name, content in files.items()
    if name != "expected" and content is not None
]
PIECES = [b"{", b"]", b'"', b": ", b"\n", b"- ", b"\x00", b"\xff", b"&a ", b"*a"]
WORDS = [
    None, True, 0, -1, 1.5, 10**30, float("nan"), "", "x", "node", "n", "gpu-[1-", "\x1b[31m", "\ud800",
    [], [[]], {}, {"": {}}, {"name": {"name": []}}, ["a"] * 3, {"min": 1, "max": 2},
]  # fmt: skip

slow_ok = settings(
    max_examples=examples(150, 30),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def faults_of(raw: bytes, suffix: str = "") -> tuple[Fault, ...]:
    """What reading reports; any other exception than the two errors comes through."""
    try:
        if suffix:
            with NamedTemporaryFile(suffix=suffix) as file:
                file.write(raw)
                file.flush()
                read([file.name])
        else:
            read(["-"], stdin=io.BytesIO(raw))
    except (InputError, MissingPathError) as error:
        return error.faults
    return ()


def survives(raw: bytes, suffix: str = "") -> None:
    """Reading raises nothing but the two errors, and every fault is fit to be printed."""
    faults = faults_of(raw, suffix)
    assert len(faults) <= 20
    for fault in faults:
        assert len(fault.lines()) <= 3
        assert all(line.isprintable() and len(line) < 1000 for line in fault.lines())
        assert (fault.line is None) == (fault.file is None)


@slow_ok
@given(st.binary(max_size=200))
def test_random_bytes_are_survived(raw: bytes) -> None:
    survives(raw)


@slow_ok
@given(st.text(alphabet="{}[]\":,-#&*!|>'%@`\n\t aé1.e\\\u2028\ufeff\x85?~<=", max_size=60))
def test_random_punctuation_is_survived_in_every_format(text: str) -> None:
    for suffix in ("", ".json", ".yaml"):
        survives(text.encode(), suffix)


@slow_ok
@given(st.sampled_from(SEEDS), st.randoms(use_true_random=False))
def test_documents_with_damaged_text_are_survived(seed: bytes, chance: random.Random) -> None:
    raw = bytearray(seed[:20_000])
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(raw) + 1)
        action = chance.randrange(3)
        if action == 0:
            del raw[at : at + chance.randint(1, 30)]
        elif action == 1:
            raw[at:at] = chance.choice(PIECES)
        else:
            raw[at:at] = raw[: chance.randint(0, 300)]
    survives(bytes(raw))


@slow_ok
@given(inputs(), st.randoms(use_true_random=False))
def test_documents_with_damaged_values_are_survived(
    documents: list[dict[str, Any]], chance: random.Random
) -> None:
    bundle: Any = {"apiVersion": "v1", "kind": "List", "items": documents}
    for _ in range(chance.randint(1, 5)):
        bundle = damaged(bundle, chance)
    survives(json.dumps(bundle).encode())


@settings(slow_ok, max_examples=examples(50))
@given(inputs(), st.randoms(use_true_random=False))
def test_damaged_plan_instances_are_survived(
    documents: list[dict[str, Any]], chance: random.Random
) -> None:
    document: Any = instance_document(read_all(documents))
    for _ in range(chance.randint(1, 5)):
        document = damaged(document, chance)
    with suppress(InputError):
        instance_from_document(document)


def damaged(tree: object, chance: random.Random) -> Any:  # noqa: ANN401
    """A copy with one value, field or entry replaced, removed or doubled, anywhere in it."""
    action = chance.randrange(8)
    if isinstance(tree, dict) and tree and chance.random() < 0.85:
        key = chance.choice(sorted(tree, key=str))
        new = {**tree, key: damaged(tree[key], chance)}
        if action == 0:
            del new[key]
        elif action == 1:
            new[chance.choice(["nme", "\x07", "kind", "x" * 300])] = tree[key]
        return new
    if isinstance(tree, list) and tree and chance.random() < 0.85:
        at = chance.randrange(len(tree))
        middle = [tree[at]] * (2 * action) if action < 2 else [damaged(tree[at], chance)]
        return [*tree[:at], *middle, *tree[at + 1 :]]
    return chance.choice(WORDS)


def test_an_unreadable_file_is_66(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:  # a mode of 0 would not stop root
        raise PermissionError(13, "Permission denied")

    (tmp_path / "c.yaml").write_text(CLUSTER)
    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(MissingPathError, match=r"cannot read .*permission denied"):
        read([str(tmp_path)])
