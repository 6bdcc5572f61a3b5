"""Building a program ends whenever its caller asks that it end, and asks no more once it is built."""

from __future__ import annotations

import pytest
from building import build, gang

from models.instance.instance import Instance
from models.program.formulation import Formulation, formulate
from models.program.linear_program import Interrupted, Question
from models.program.slots.slot_program import SlotModel


def _instance() -> Instance:
    gangs = [gang(f"g{i:03}", 1 + i % 7, 1 + i % 5, prefer="rack") for i in range(200)]
    return build(racks=4, nodes_per_rack=5, gangs=gangs)


def _build(name: str, interrupted: Question) -> Formulation | SlotModel:
    if name == "full":
        return formulate(_instance(), interrupted=interrupted)
    return SlotModel(_instance(), interrupted=interrupted)


class _Caller:
    """Wants the building to end from the n-th question on."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.asked >= self.n


@pytest.mark.parametrize("name", ["full", "slots"])
def test_building_ends_at_whichever_question_is_answered_with_yes(name: str) -> None:
    patient = _Caller(1 << 30)
    _build(name, patient)
    # one question every 64 gangs, which are 200: 4
    assert patient.asked >= 4
    for n in {1, 2, patient.asked // 2, patient.asked}:
        caller = _Caller(n)
        with pytest.raises(Interrupted):
            _build(name, caller)
        assert caller.asked == n
