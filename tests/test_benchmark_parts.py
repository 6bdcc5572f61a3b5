"""How many GPUs parts need: rules of others by hand, and a plan that has no more than the bound."""

from __future__ import annotations

from benchmarks.parts import hami_kind, measured, mig_kind, needed, profiles, share_kind
from models.mig import board_named


def test_gpus_of_each_rule_by_hand() -> None:
    board, names = board_named("A100-80"), profiles("A100-80")
    assert board is not None
    assert names == ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb"]
    # a small and a large instance fit on a GPU; HAMi's templates have seven small, or two large ones
    assert needed(mig_kind(board, names), [0, 3], "first fit") == 1
    assert needed(hami_kind(board, names), [0, 3], "hami binpack") == 2
    # 0.5, 0.7, 0.3, 0.5: the third pod goes to the first GPU with room, or to the one with least left
    assert needed(share_kind(), [4, 5, 3, 4], "first fit") == 3
    assert needed(share_kind(), [4, 5, 3, 4], "best fit") == 2


def test_a_plan_places_all_on_the_fewest_gpus() -> None:
    for mig in (True, False):
        found = measured(1, 100, 20, mig=mig)
        assert found["bound"] <= found["gangplan"] <= found["first fit"]
        assert found["bound"] <= found["hami binpack"]
