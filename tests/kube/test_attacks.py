"""What one tenant writes against another: the victim is decided as the case says, and as without it.

The cases stand in ``data/attacks``. ``decisions``: of gangs of the others, with mallory's objects; ``alone``:
without them, where it is not the same, which ``why`` explains.
"""

from __future__ import annotations

import pytest
from attack_cases import NOW, Json, cases, objects
from bundles import load_all
from effort import examples
from short_forms import decisions

CASES = cases()


@pytest.mark.parametrize("attack", CASES)
def test_a_tenant_harms_no_other_beyond_what_the_documents_say(attack: str) -> None:
    case: Json = CASES[attack]
    expected = case["decisions"]
    attacked = decisions(load_all(objects(case), now=NOW))
    assert {key: attacked[key] for key in expected} == expected
    if "alone" not in case and not examples(1, 0):
        return  # what it is without mallory is the same, and is asked with --thorough
    left = case.get("alone", expected)
    alone = decisions(load_all(objects(case, without="mallory"), now=NOW))
    assert {key: alone[key] for key in left} == left
