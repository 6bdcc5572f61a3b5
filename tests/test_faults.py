"""The faults of ``make mutants`` can be planted: each text stands in its file once, and its net exists."""

from __future__ import annotations

import pytest
from mutants import ROOT, Fault, faults


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: f"{fault.file}: {fault.why}")
def test_a_fault_can_be_planted(fault: Fault) -> None:
    assert (ROOT / fault.file).read_text(encoding="utf-8").count(fault.old) == 1
    assert fault.new != fault.old
    nets = fault.net.split()
    assert nets
    assert all((ROOT / path.partition("::")[0]).exists() for path in nets)
