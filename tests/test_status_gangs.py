"""The state of plans and gangs, from intents on pods alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from models.apply.intents import Intent
from models.apply.live_state import ClusterView, LiveNode, LivePod, PodClassifier
from planner.cluster.plan_status import (
    GangPhase,
    GangStatus,
    PlanStatus,
    gang_statuses,
    namespaces_to_recover,
    plan_statuses,
)

GATE = "gangplan.dev/placement"
WAYS = PodClassifier(GATE)
ONE, TWO = "gp-" + "1" * 20, "gp-" + "2" * 20


def pod(index: int, *, plan: str = ONE, size: int = 2, gang: str = "g") -> LivePod:
    """A gated pod that carries an intent of ours."""
    return LivePod(
        namespace="team",
        name=f"{gang}-{index}",
        uid=f"uid-{gang}-{index}",
        version="1",
        gates=(GATE,),
        intent=Intent(plan, gang, size, f"n{index}", None),
        intent_is_ours=True,
    )


def ungated(one: LivePod) -> LivePod:
    return replace(one, gates=())


def bound(one: LivePod) -> LivePod:
    return replace(one, gates=(), node=f"n{one.name[-1]}")


def view(*pods: LivePod, without: str = "") -> ClusterView:
    """Nodes n0 to n3 but for ``without``, which is gone."""
    nodes = {name: LiveNode(name, gpus=8) for name in ("n0", "n1", "n2", "n3") if name != without}
    return ClusterView("cluster", nodes, {one.key: one for one in pods})


def only(*pods: LivePod) -> GangStatus:
    (stand,) = gang_statuses(view(*pods), WAYS)
    return stand


@pytest.mark.parametrize(
    ("pods", "state"),
    [
        ((pod(0),), GangPhase.begun),
        ((pod(0), pod(1)), GangPhase.intended),
        ((ungated(pod(0)), pod(1)), GangPhase.partial),
        ((bound(pod(0)), pod(1)), GangPhase.partial),
        ((bound(pod(0)),), GangPhase.partial),
        ((bound(pod(0)), ungated(pod(1))), GangPhase.pending),
        ((bound(pod(0)), bound(pod(1))), GangPhase.whole),
        ((bound(pod(0)), replace(bound(pod(1)), finished=True)), GangPhase.whole),
    ],
)
def test_a_gang_is_as_far_as_its_pods_are(pods: tuple[LivePod, ...], state: GangPhase) -> None:
    assert only(*pods).state is state


def test_a_gang_that_a_later_plan_completed_is_whole() -> None:
    """Plan one started three; one of them was lost and plan two placed it anew: size 1."""
    first = [bound(pod(i, size=3)) for i in (0, 1)]
    second = bound(pod(2, plan=TWO, size=1))
    stands = gang_statuses(view(*first, second), WAYS)
    assert [(one.plan, one.state) for one in stands] == [
        (ONE, GangPhase.whole),
        (TWO, GangPhase.whole),
    ]
    assert [one.state for one in gang_statuses(view(*first), WAYS)] == [GangPhase.partial]


def test_a_gang_that_was_whole_once_and_lost_a_pod_is_not_partial() -> None:
    """Its pod failed or was deleted long after: the next plan places another, nothing is to undo."""
    first, second = (bound(pod(i, size=3)) for i in (0, 1))
    assert first.intent is not None
    marked = replace(first, intent=replace(first.intent, whole=True))
    assert only(first, second).state is GangPhase.partial
    assert only(marked, second).state is GangPhase.whole


def marked_whole(one: LivePod) -> LivePod:
    assert one.intent is not None
    return replace(one, intent=replace(one.intent, whole=True))


def test_a_gang_whose_pins_cannot_hold_is_stuck_and_is_undone_as_a_whole() -> None:
    stands = [bound(pod(0)), ungated(pod(1))]
    (stand,) = gang_statuses(view(*stands, without="n1"), WAYS)
    assert (stand.state, stand.why, stand.unsure) == (GangPhase.stuck, "node n1 is gone", False)
    assert stand.left == (("team", "g-0", "uid-g-0"), ("team", "g-1", "uid-g-1"))
    whole = [marked_whole(bound(pod(i))) for i in (0, 1)]
    (stand,) = gang_statuses(view(*whole, without="n1"), WAYS)
    assert stand.state is GangPhase.whole  # what befalls it later is its own affair


def test_a_gang_that_lost_as_many_pods_as_are_marked_may_have_been_whole() -> None:
    """Three of a gang are marked: with three gone and no mark left, it is unknown whether it was whole."""
    for size, unsure in ((2, False), (3, False), (4, True), (9, True)):
        stand = only(*(bound(pod(i, size=size)) for i in range(1)))
        assert (stand.state, stand.unsure) == (GangPhase.partial, unsure), size
    assert not only(bound(pod(0, size=9)), ungated(pod(1, size=9))).unsure
    assert not only(bound(pod(0, size=9)), pod(1, size=9)).unsure


def test_only_pods_of_gangs_that_recovering_may_write_to_are_worth_a_question() -> None:
    first, second = bound(pod(0)), bound(pod(1))
    assert first.intent is not None
    marked = [marked_whole(first), marked_whole(second)]
    assert namespaces_to_recover(view(first, second), WAYS) == ("team",)  # to be marked
    assert namespaces_to_recover(view(marked[0], second), WAYS) == ("team",)  # the other, too
    assert namespaces_to_recover(view(*marked), WAYS) == ()
    assert namespaces_to_recover(view(first, ungated(pod(1))), WAYS) == ()  # pending
    assert namespaces_to_recover(view(first, ungated(pod(1)), without="n1"), WAYS) == (
        "team",
    )  # to be told
    assert namespaces_to_recover(view(pod(0)), WAYS) == ("team",)
    assert namespaces_to_recover(view(replace(pod(0), intent_is_ours=False)), WAYS) == ()


def test_only_started_pods_that_still_run_are_named_for_undoing() -> None:
    dying = replace(bound(pod(1, size=4)), terminating=True)
    over = replace(bound(pod(2, size=4)), finished=True)
    stand = only(bound(pod(0, size=4)), dying, over, pod(3, size=4))
    assert stand.left == (("team", "g-0", "uid-g-0"),)
    # g-1 is being deleted and counts no more; g-2 has run to its end on the node it had
    assert (stand.size, stand.seen, stand.started, stand.bound) == (4, 4, 2, 2)


def test_an_intent_that_somebody_else_wrote_is_no_plan_of_ours() -> None:
    assert gang_statuses(view(replace(pod(0), intent_is_ours=False)), WAYS) == ()
    forged = replace(bound(pod(1)), intent_is_ours=False)
    assert only(bound(pod(0)), forged).state is GangPhase.partial


def test_plans_count_their_gangs_by_how_far_they_are() -> None:
    pods = [bound(pod(0)), bound(pod(1)), pod(0, gang="h"), pod(0, gang="k", plan=TWO, size=1)]
    stands = gang_statuses(view(*pods), WAYS)
    assert plan_statuses(stands) == (
        PlanStatus(ONE, 3, ((GangPhase.begun, 1), (GangPhase.whole, 1))),
        PlanStatus(TWO, 1, ((GangPhase.intended, 1),)),
    )
