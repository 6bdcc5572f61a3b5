"""What a gang was started under holds until it ends: its tenant cannot take back what others count on.

The terms are in the record of its start. Of these and what the gang says now the worse for it counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.apply.terms import strictest
from models.instance.disruption_budgets import DisruptionBudgets
from models.instance.policy import Policy
from models.units import MAX_SECONDS, duration_text, time_text
from planner.read.findings import Remarks
from planner.read.kube.gangs.membership import Membership
from planner.read.kube.lookup import is_object_name
from planner.read.kube.pods.placement import LONGEST_GRACE_S, grace_s
from planner.read.kube.pods.pods import bounded_priority
from planner.read.kube.records import KubeGang, KubePod

HOLDS = "was started {}; that holds until it ends, whatever it says now"

GUARDED = "is not taken for preemptible: it could not be evicted once it runs, for the disruption budget {}"
GUARDED_HINT = "correct the budget (minAvailable: 0), or guard its pods by one budget alone"

SLOW = "is not taken for preemptible: its pods may take {} to end after an eviction"
SLOW_HINT = f"terminationGracePeriodSeconds of at most {LONGEST_GRACE_S}"

MAX_NAMED_PODS = 20
"""Most pods that a command names."""


def hold_to_terms(gang: KubeGang, members: Membership, remarks: Remarks) -> None:
    """Replace what its tenant took back since the start; ``ends_by`` is a command that ends it."""
    there = [pod for pod in members.pods if pod.holds_room]
    if not there:
        return
    gang.ends_by = _command(gang, members, there)
    starts = (pod.start for pod in there)
    kept = strictest(one.terms for one in starts if one is not None and one.terms is not None)
    if kept is None:
        return
    gang.borrows = kept.preemptible
    if kept.since is not None and gang.runs_since is not None:
        gang.runs_since = min(gang.runs_since, max(0, kept.since))
    taken_back = []
    if kept.preemptible and not gang.preemptible:
        gang.preemptible = True
        taken_back.append("as preemptible")
    if kept.movable and not gang.movable:
        gang.movable = True
        taken_back.append("as movable")
    if kept.priority < gang.priority:
        gang.priority = bounded_priority(kept.priority)
        taken_back.append(f"with priority {kept.priority}")
    if kept.until is not None and _end_by(gang, kept.until):
        taken_back.append(f"to end by {time_text(kept.until)}")
    gang.started_in = (kept.queue,)
    if taken_back:
        remarks.add(gang.subject, HOLDS.format(", ".join(taken_back)))


_SLACK_S = 600
"""Its last pod may start that much later than the plan was made, with the same deadline."""


def _end_by(gang: KubeGang, until: int) -> bool:
    """Let it end by a time at the latest; whether it says later."""
    if gang.started_at is None:
        return False
    stated, left = gang.deadline_s, min(max(1, until - gang.started_at), MAX_SECONDS)
    gang.deadline_s = left if stated is None else min(stated, left)
    return stated is None or stated > left + _SLACK_S


def report_overdue(gangs: Sequence[KubeGang], policy: Policy, remarks: Remarks) -> None:
    """Report what runs past its expected end; nothing without the time that it is."""
    for gang in gangs:
        if policy.now is None or gang.deadline_s is None or gang.started_at is None:
            continue
        late = policy.now - gang.started_at - gang.deadline_s
        if late > 0:
            ended = time_text(gang.started_at + gang.deadline_s)
            what = f"runs past its end, {ended}, by {duration_text(late)}"
            hint = None if gang.ends_by is None else f"to end it: {gang.ends_by}"
            remarks.add(gang.subject, what, hint)


def obey_budgets(gangs: Sequence[KubeGang], budgets: DisruptionBudgets, remarks: Remarks) -> None:
    """Take no gang for preemptible that could not be evicted once it runs; report those that run so."""
    for gang in gangs:
        there = [pod for pod in gang.pods() if pod.holds_room]
        names = next((budgets.forbids[p.key] for p in gang.pods() if p.key in budgets.forbids), ())
        if gang.preemptible and names and not there:
            gang.preemptible = False
            named = " and ".join(f"{gang.namespace}/{name}" for name in names)
            remarks.add(gang.subject, GUARDED.format(named), GUARDED_HINT)
        elif gang.borrows and (refusal := budgets.refusal(pod.key for pod in there)) is not None:
            hint = None if gang.ends_by is None else f"to end it: {gang.ends_by}"
            what = f"was started as preemptible, but cannot be evicted: {refusal}"
            remarks.add(gang.subject, what, hint)


def distrust_slow_ends(gangs: Sequence[KubeGang], remarks: Remarks) -> None:
    """Take no gang that waits for preemptible whose pods may run on for long after an eviction."""
    for gang in gangs:
        longest = max((grace_s(pod) for pod in gang.pods()), default=0)
        waits = not any(pod.holds_room for pod in gang.pods())
        if gang.preemptible and waits and longest > LONGEST_GRACE_S:
            gang.preemptible = False
            remarks.add(gang.subject, SLOW.format(duration_text(longest)), SLOW_HINT)


def _command(gang: KubeGang, members: Membership, pods: Sequence[KubePod]) -> str | None:
    """The command that ends a running gang; None if names are not to be trusted, or there is no short one."""
    objects = members.controller_objects()
    if len(objects) == len(members.controllers) == 1:
        (one,) = objects
        kind = one.kind.lower() + (f".{one.group}" if one.group else "")
        names = [one.name]
    else:
        kind, names = "pod", [pod.name for pod in pods]
    if len(names) > MAX_NAMED_PODS or not all(map(is_object_name, (gang.namespace, kind, *names))):
        return None
    return f"kubectl delete {kind} -n {gang.namespace} {' '.join(names)}"
