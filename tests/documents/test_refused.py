"""Bad input is refused with exactly the text that its case in tests/refused expects.

A case is its files by name, and `expected`; without a `cluster.yaml` of its own it has that of SMALL.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from refused_cases import REFUSED

from planner.errors import InputError
from planner.read.inputs import read


def write_case(case: str, folder: Path) -> None:
    """The files of a case."""
    for name, content in REFUSED[case].items():
        if name != "expected" and content is not None:
            raw = content if isinstance(content, bytes) else content.encode()
            (folder / name).write_bytes(raw)


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_with_its_place_and_a_hint(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_case(case, tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        read(["."])
    lines = [line for fault in caught.value.faults for line in fault.lines()]
    assert lines == REFUSED[case]["expected"].splitlines()
    assert len(caught.value.faults) <= 20
    assert all(fault.hint for fault in caught.value.faults)
    assert caught.value.exit_code == 65
