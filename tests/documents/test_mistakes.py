"""Mistakes by one change of a good input: what is said, and the hint, to the word.

A file of ``tests/mistakes`` has ``base``, documents or a folder of ``tests/inputs``, and ``refused``: text,
what is in its place, the faults, and the hint of the first.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import yaml

from planner.errors import InputError
from planner.read.inputs import read

TESTS = Path(__file__).parents[1]
FILES = {
    p.stem: yaml.load(p.read_text(), Loader=yaml.CSafeLoader)
    for p in sorted((TESTS / "mistakes").glob("*.yaml"))
}
CASES = [(name, *one) for name, file in FILES.items() for one in file["refused"]]


@cache
def base(name: str) -> str:
    text = str(FILES[name]["base"])
    folder = TESTS / "inputs" / text
    return (
        "---\n".join(p.read_text() for p in sorted(folder.iterdir())) if "\n" not in text else text
    )


@pytest.mark.parametrize("name", FILES)
def test_without_a_mistake_the_input_is_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "in.yaml").write_text(base(name))
    assert read([str(tmp_path)]).gangs


@pytest.mark.parametrize(
    ("name", "old", "new", "what", "hint"),
    CASES,
    ids=[f"{c[0]}-{number}" for number, c in enumerate(CASES)],
)
def test_a_mistake_has_its_words_its_place_and_a_hint(
    name: str, old: str, new: str, what: str | list[str], hint: str, tmp_path: Path
) -> None:
    assert old in base(name)
    (tmp_path / "in.yaml").write_text(base(name).replace(old, new, 1 if "\n" in new else -1))
    with pytest.raises(InputError) as caught:
        read([str(tmp_path)])
    faults = caught.value.faults
    assert [fault.what for fault in faults] == ([what] if isinstance(what, str) else what)
    assert (faults[0].hint, all(fault.hint for fault in faults)) == (hint, True)
    assert faults[0].lines()[1].startswith(f"  --> {tmp_path / 'in.yaml'}:")
