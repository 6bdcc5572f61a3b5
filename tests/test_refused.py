"""Every folder of inputs/refused: its input is refused with exactly the text it expects."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.read.inputs import read

REFUSED = Path(__file__).parent.parent / "inputs" / "refused"
CASES = sorted(folder.name for folder in REFUSED.iterdir() if folder.is_dir())


def test_there_are_cases_to_run() -> None:
    assert len(CASES) > 80


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused_with_its_place_and_a_hint(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = REFUSED / case
    monkeypatch.chdir(folder)
    with pytest.raises(InputError) as caught:
        read(["."])
    lines = [line for fault in caught.value.faults for line in fault.lines()]
    expected = (folder / "expected.txt").read_text(encoding="utf-8").splitlines()
    assert lines == expected
    assert len(caught.value.faults) <= 20
    assert all(fault.hint for fault in caught.value.faults)
    assert caught.value.exit_code == 65
