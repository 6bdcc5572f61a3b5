"""One odd object never refuses the input: it loses what passes a bound, with one remark, and no GPU."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kube import node, pod

from planner.errors import InputError
from planner.read import json_items, sources
from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput
from planner.read.kube import object_bounds

Tree = dict[str, Any]

EVIL = "default/evil"
RAW = "@raw@"
"""Stands for a text that no encoder writes."""


def kubectl(trees: list[Tree]) -> str:
    """As ``kubectl get -o json`` prints a list: the kind comes last."""
    tree = {"apiVersion": "v1", "items": trees, "kind": "List", "metadata": {"resourceVersion": ""}}
    return json.dumps(tree, indent=4)


def yaml_list(trees: list[Tree]) -> str:
    tree = {"apiVersion": "v1", "items": trees, "kind": "List", "metadata": {"resourceVersion": ""}}
    return yaml.dump(tree, Dumper=yaml.CSafeDumper, width=10**9)


def documents(trees: list[Tree]) -> str:
    return "---\n".join(yaml.dump(tree, Dumper=yaml.CSafeDumper, width=10**9) for tree in trees)


FORMS = {"kubectl": kubectl, "yaml": yaml_list, "documents": documents}


@pytest.fixture(params=["whole", "in pieces"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether texts are long ones, which are read a piece at a time."""
    if request.param == "in pieces":
        monkeypatch.setattr(sources, "WHOLE_BYTES", 300)
        monkeypatch.setattr(sources, "_PIECE_BYTES", 1_000)
        monkeypatch.setattr(json_items, "MAX_BLANK", 2_000)
    return str(request.param)


def read(text: str) -> LoadedInput:
    return load(["-"], stdin=io.BytesIO(text.encode("utf-8", "surrogatepass")))


def facts(found: LoadedInput) -> dict[str, Any]:
    """Every gang with its pods and where they are, and what the nodes have left."""
    return {
        "gangs": {
            gang.name: [(role.gpus, role.min, role.max) for role in gang.roles]
            for gang in found.instance.gangs
        },
        "nodes": found.instance.cluster.nodes,
    }


def remarks_on(found: LoadedInput, name: str) -> list[str]:
    return [line for line in found.remarks if name in line]


CLUSTER = [node("n1"), node("n2"), pod("victim", gpus=2, on="n1")]


def evil(**changes: Any) -> Tree:  # noqa: ANN401  # any part of a pod
    """A pod that holds three GPUs of n1."""
    tree = pod("evil", gpus=3, on="n1")
    for part, fields in changes.items():
        tree[part] = {**tree[part], **fields}
    return tree


MANY = {f"k{i}": "v" for i in range(10_001)}
OURS = {f"gangplan.dev/{key}": value for key, value in MANY.items()}
TOLERATIONS = [{"key": f"k{i}", "operator": "Exists"} for i in range(5_000)]
CONTAINER = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m"}}}
BEYOND = {
    "labels": evil(metadata={"labels": MANY}),
    "annotations of ours": evil(metadata={"annotations": OURS}),
    "long annotation of ours": evil(metadata={"annotations": {"gangplan.dev/x": "x" * 100_000}}),
    "node selector": evil(spec={"nodeSelector": MANY}),
    "tolerations": evil(spec={"tolerations": TOLERATIONS}),
    "containers": evil(spec={"containers": [*[CONTAINER] * 3_000, *evil()["spec"]["containers"]]}),
    "scheduler name": evil(spec={"schedulerName": "s" * 100_000}),
    "label value": evil(metadata={"labels": {"app": "l" * 100_000}}),
    "label key": evil(metadata={"labels": {"k" * 100_000: "v"}}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("field", BEYOND)
def test_a_pod_past_a_bound_keeps_its_gpus_and_loses_the_rest_of_a_field(
    field: str, form: str
) -> None:
    before = facts(read(FORMS[form]([*CLUSTER, evil()])))
    found = read(FORMS[form]([*CLUSTER, BEYOND[field]]))
    assert before["gangs"]["evil"] == [(3, 1, 1)]
    assert facts(found)["gangs"] == before["gangs"]
    (remark,) = remarks_on(found, EVIL)
    assert "what is past the bound is left out" in remark


ODD_JSON = {
    "a million digits": "1" * 1_000_000,
    "digits that Python reads": "1" * 3_000,
    "an exponent beyond Decimal": "1e99999999999999999999",
    "1e400": "1e400",
    "NaN": "NaN",
    "a control character": '"\x01"',
    "a lone surrogate": '"\\ud800"',
}


@pytest.mark.parametrize("odd", ODD_JSON)
@pytest.mark.usefixtures("size")
def test_an_odd_value_in_json_costs_its_own_object_only(odd: str) -> None:
    text = kubectl([*CLUSTER, evil(spec={"priority": RAW})])
    found = read(text.replace(f'"{RAW}"', ODD_JSON[odd]))
    gangs = facts(found)["gangs"]
    assert gangs["victim"] == [(2, 1, 1)]
    assert gangs["evil"] == [(3, 1, 1)]
    assert remarks_on(found, EVIL)


@pytest.mark.parametrize(
    "nested", ["[" * 100_000 + "]" * 100_000, '{"a\\"[":' * 50_000 + "0" + "}" * 50_000]
)
@pytest.mark.parametrize("listed", ["List", "PodList"])
@pytest.mark.usefixtures("size")
def test_an_item_that_is_nested_too_deep_is_left_out_alone(nested: str, listed: str) -> None:
    trees = CLUSTER if listed == "List" else CLUSTER[2:]
    text = kubectl([evil(spec={"priority": RAW}), *trees]).replace(f'"{RAW}"', nested)
    if listed == "PodList":
        head = '"kind": "List"'
        assert text.count(head) == 1
        text = text.replace(head, '"kind": "PodList"')
        with pytest.raises(InputError, match="but no Node among the objects"):
            read(text)
        return
    found = read(text)
    assert facts(found)["gangs"] == {"victim": [(2, 1, 1)]}
    assert any("nested too deep to be read; it is left out" in line for line in found.remarks)


ODD_YAML = {
    "a million digits": "1" * 1_000_000,
    "an exponent beyond Decimal": "1.0e99999999999999999999",
    "a field twice": "1\n    priority: 2",
    "an unknown alias": "*nobody",
    "a tag": "!!python/object:os.system {}",
    "nesting": "[" * 500 + "]" * 500,
    "a field name that is none": "{[a]: b}",
}


@pytest.mark.parametrize("odd", ODD_YAML)
@pytest.mark.usefixtures("size")
def test_an_odd_value_in_yaml_costs_its_own_object_only(odd: str) -> None:
    text = yaml_list([*CLUSTER, evil(spec={"priority": RAW})])
    found = read(text.replace(f"'{RAW}'", ODD_YAML[odd]))
    assert facts(found)["gangs"] == {"victim": [(2, 1, 1)], "evil": [(3, 1, 1)]}
    assert any("no API server writes" in line for line in remarks_on(found, EVIL))


def test_an_object_that_is_too_large_to_be_read_is_refused_with_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_items, "MAX_OBJECT", 10_000)
    monkeypatch.setattr(sources, "WHOLE_BYTES", 300)
    monkeypatch.setattr(sources, "_PIECE_BYTES", 1_000)
    large = evil(metadata={"annotations": {'a\\"b': '\\"' * 20_000}, "labels": MANY})
    text = kubectl([large, *CLUSTER])
    with pytest.raises(InputError, match="an item of more than") as caught:
        read(text)
    assert [text.split("\n")[(one.line or 0) - 1].strip() for one in caught.value.faults] == ["{"]


def test_lists_of_one_kind_are_read_from_files_in_pieces(
    tmp_path: Any,  # noqa: ANN401
    size: str,
) -> None:
    for kind, items in (("Node", CLUSTER[:2]), ("Pod", CLUSTER[2:])):
        bare = [{n: v for n, v in one.items() if n not in ("kind", "apiVersion")} for one in items]
        for name, head, tail in (
            ("first", f'{{"kind":"{kind}List","apiVersion":"v1","items":', "}"),
            ("last", '{"items":', f',"kind":"{kind}List","apiVersion":"v1"}}'),
        ):
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            text = head + json.dumps(bare) + tail
            (folder / f"{kind}.json.gz").write_bytes(gzip.compress(text.encode()))
    alone = read(kubectl(CLUSTER))
    for name in ("first", "last"):
        found = load([str(tmp_path / name)])
        assert (found.instance, found.remarks) == (alone.instance, alone.remarks), size


@pytest.mark.parametrize(
    ("broken", "what"),
    [
        ('{"a": }', "expecting value"),
        ('{"a": 1} {', "expecting ',' delimiter"),
        ('{"a": "\\x"}', "invalid \\\\escape"),
        ("{a: 1}", "expecting property name enclosed in double quotes"),
    ],
)
@pytest.mark.usefixtures("size")
def test_a_text_that_is_not_json_is_refused_with_its_place(broken: str, what: str) -> None:
    text = kubectl([*CLUSTER, {"x": RAW}]).replace(
        f'{{\n            "x": "{RAW}"\n        }}', broken
    )
    with pytest.raises(InputError, match=what) as caught:
        read(text)
    (fault,) = caught.value.faults
    line = text[: text.index(broken)].count("\n") + 1
    assert fault.line == line


@pytest.mark.usefixtures("size")
def test_documents_of_ours_in_a_long_list_have_their_places() -> None:
    gang = {"apiVersion": "gangplan.dev/v1alpha1", "kind": "Gang", "metadata": {"name": "g"}}
    text = kubectl([*CLUSTER, {**gang, "spec": {"rolls": []}}, {**gang, "kind": "Gnag"}])
    with pytest.raises(InputError) as caught:
        read(text)
    lines = text.split("\n")
    places = {fault.what: (fault.line, fault.column) for fault in caught.value.faults}
    line, column = places["unknown field 'rolls' in spec"]
    assert lines[(line or 0) - 1][(column or 0) - 1 :].startswith('"rolls"')
    line, column = places["unknown kind 'Gnag'"]
    assert lines[(line or 0) - 1][(column or 0) - 1 :].startswith('"Gnag"')


def endless(piece: bytes) -> Iterator[bytes]:
    yield b'{"apiVersion":"v1","kind":"List","items":['
    while True:
        yield piece


class Endless(io.BytesIO):
    """A stream that never ends."""

    def __init__(self, piece: bytes) -> None:
        self._pieces = endless(piece)

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401
        piece = next(self._pieces)[: len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)


@pytest.mark.parametrize("piece", [b" " * 1_000, b'"' + b"x" * 998])
def test_a_stream_without_objects_ends(
    piece: bytes, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    monkeypatch.setattr(json_items, "MAX_OBJECT", 10_000)
    monkeypatch.setattr(json_items, "MAX_BYTES", 2**21)
    monkeypatch.setattr(sources, "WHOLE_BYTES", 5_000)
    with pytest.raises(InputError):
        load(["-"], stdin=Endless(piece))
    assert size


def test_an_object_of_an_unknown_kind_is_kept_while_it_is_small() -> None:
    reducer = object_bounds.ObjectReducer()
    small = {"kind": "Crew", "metadata": {"name": "c", "managedFields": []}, "spec": {"hands": 3}}
    assert reducer.reduce(small, "example.com", "Crew") == {
        "kind": "Crew",
        "metadata": {"name": "c"},
        "spec": {"hands": 3},
    }
    large = {**small, "spec": {"hands": "x" * object_bounds.MAX_LONG_TEXT}}
    assert "spec" not in reducer.reduce(large, "example.com", "Crew")
    assert reducer.lost


PIECES = [
    *(b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\n", b"\x01", b"\xff", b"---\n", b"- "),
    *(
        b"1e400",
        b"NaN",
        b"null",
        b'"items"',
        b'"kind"',
        b"[[[[",
        b'"\\ud800"',
        b"&a ",
        b"*a",
        b"<<: ",
    ),
]


@settings(max_examples=examples(400, 30), deadline=None)
@given(st.sampled_from(sorted(FORMS)), st.randoms(use_true_random=False))
def test_a_damaged_text_reads_the_same_whole_and_in_pieces(
    form: str, chance: random.Random
) -> None:
    raw = bytearray(FORMS[form]([*CLUSTER, evil()]).encode())
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(raw))
        match chance.randrange(3):
            case 0:
                del raw[at : at + chance.randint(1, 40)]
            case 1:
                raw[at:at] = chance.choice(PIECES)
            case _:
                raw[at:at] = raw[at : at + chance.randint(1, 300)]

    def outcome() -> object:
        try:
            found = load(["-"], stdin=io.BytesIO(bytes(raw)))
        except InputError:
            return "refused"
        return found.instance, found.remarks

    whole = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "WHOLE_BYTES", chance.randint(1, 2_000))
        patch.setattr(sources, "_PIECE_BYTES", chance.randint(1, 500))
        patch.setattr(json_items, "MAX_BLANK", 100)
        assert outcome() == whole
