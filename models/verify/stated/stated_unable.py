"""Gangs that a plan promises nothing since they are not known to be able to start on the empty cluster.

Whoever is in line or within a guarantee must not be refuted by counting; of those that the plan lists as
unable none may be found a place. Where neither is found the plan is believed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice

from models.verify import judged_rules as table
from models.verify.adaptor import Case
from models.verify.changes import Change
from models.verify.empty_cluster import EmptyCluster
from models.verify.facts import Facts, Gang
from models.verify.outcome import Outcome, Variant
from models.verify.room import Grounds, Room, Work, placements
from models.verify.rules.gpus import lacking
from models.verify.rules.queue_order import in_line
from models.verify.standing import Standing
from models.verify.violation import Violation, printable

RULE = "could-start"

UNLIMITED = 1 << 60
"""Visits: each gang is counted, and roles alike are counted once."""

WORK = 2_000_000
"""Visits of nodes in which places are looked for."""

COULD = "but on the empty cluster it could"
COULD_NOW = "but with nodes as they are it could if nothing ran"

WAYS = 4
"""Placements of one gang that are checked."""


def breaks(outcome: Outcome) -> bool:
    """Whether something breaks a rule that a placement on the empty cluster has to keep."""
    found = (rule.check(outcome) for rule in table.RULES if rule.on_empty)
    return any(True for _ in chain(*found, lacking(outcome)))


def check(outcome: Outcome) -> Iterator[Violation]:
    yield from _form(outcome)
    judged, today = _Empty(outcome), _Empty(outcome, in_order=False)
    stated = {one.gang: one for one in outcome.case.status.unable}
    for i, change in enumerate(outcome.changes):
        one = stated.get(change.label)
        if one is None:
            continue
        if change.gang.running or change.kind == "place":
            does = "runs" if change.gang.running else "starts"
            yield change.violation(RULE, f"is said not to be able to start, but it {does}")
        elif one.proven and one.now and today.placed(i):
            yield change.violation(RULE, f"is said to find no place, {COULD_NOW}")
        elif one.proven and not one.now and judged.placed(i):
            yield change.violation(RULE, f"is said never to be able to start, {COULD}")
    held = {change.gang.key for change in in_line(outcome)}
    for (
        change
    ) in outcome.changes:  # that wait before the plan and are in line, or use up a guarantee
        uses = _uses_up(outcome, change)
        if change.gang.running or not (change.gang.key in held or uses):
            continue
        why = judged.refutes(change.gang)
        if why is not None:
            yield change.violation(RULE, f"is promised room, but could never start: {why}")
        elif uses and not today.counts.fits(change.gang):
            yield change.violation(RULE, "uses up a guarantee, but finds no place as nodes are")


def _form(outcome: Outcome) -> Iterator[Violation]:
    """Whether the lists are sorted, of gangs that there are, and those without a claim start."""
    kinds = {change.label: change.kind for change in outcome.changes}
    status = outcome.case.status
    unable = [one.gang for one in status.unable]
    for name, listed in (("unable", unable), ("unclaiming", status.unclaiming)):
        keys = [tuple(label.split("/")) for label in listed]
        if keys != sorted(set(keys)):
            what = f"status.{name}: its gangs are not sorted, or twice the same"
            yield Violation(RULE, None, what)
        for label in listed:
            if label not in kinds:
                what = f"status.{name}: there is no gang {printable(label)}"
                yield Violation(RULE, None, what)
            elif name == "unclaiming" and kinds[label] != "place":
                what = f"status.unclaiming: the plan does not start {printable(label)}"
                yield Violation(RULE, None, what)


def overlooked(outcome: Outcome) -> Iterator[str]:
    """Remarks on gangs for which the plan found no place on the empty cluster, where there is one."""
    unknown = {one.gang: one.now for one in outcome.case.status.unable if not one.proven}
    judged, today = _Empty(outcome), _Empty(outcome, in_order=False)
    for i, change in enumerate(outcome.changes if unknown else ()):
        now = unknown.get(change.label)
        if now is False and judged.placed(i):
            what = "so it could use up a guarantee"
            yield f"{printable(change.label)} is not known to be able to start, {COULD}, {what}"
        elif now and today.placed(i):
            what = f"so it could use up a guarantee: it is not known to find a place, {COULD_NOW}"
            yield f"{printable(change.label)}: {what}"


def _uses_up(outcome: Outcome, change: Change) -> bool:
    """Whether it is within the guarantee of a queue, or takes the rest of one since it is aged."""
    gang, queues = change.gang, outcome.facts.queues
    if not queues or gang.key in outcome.queues.within:
        return bool(queues)
    held = gang.hold is not None or change.label in outcome.no_turn
    return gang.queue in queues and gang.gpus_at_min > 0 and outcome.facts.aged(gang) and not held


class _Empty:
    """The empty cluster: what cannot be there, and what can. ``in_order``: else with nodes as they are."""

    def __init__(self, outcome: Outcome, *, in_order: bool = True) -> None:
        self.outcome = outcome
        self.in_order = in_order
        self.facts: Facts = outcome.facts
        self._work = Work(WORK)
        self._room: Room | None = None

    @cached_property
    def counts(self) -> EmptyCluster:
        return EmptyCluster(self.facts, Work(UNLIMITED), in_order=self.in_order)

    def refutes(self, gang: Gang) -> str | None:
        """Why the gang could never start, as far as counting shows."""
        if not self.counts.fits(gang):
            return "too little of what it needs, or a queue may not hold so much"
        if self._beyond_promises(gang):
            return "all is promised to queues that it is not in"
        return next(self._by_rules(gang), None)

    def _beyond_promises(self, gang: Gang) -> bool:
        queues = self.outcome.queues if self.facts.queues else None
        if queues is None or not gang.counts_against_promises or not queues.guaranteed:
            return False
        installed = sum(node.gpus for node in self.facts.nodes if node.selected)
        there = self.facts.gpu_unit * installed
        alone = queues.promised_with(replace(gang, queue=None, roles=()))
        return queues.promised_with(gang) > max(there, alone)

    def _by_rules(self, gang: Gang) -> Iterator[str]:
        """Rules about pods that no placement keeps."""
        for role in gang.roles:
            for rule in role.pod_rules if role.min else ():
                nodes = [self.facts.nodes[n] for n in self.counts.of(role)]
                domains = len({node.domain[rule.level] for node in nodes})
                inside = rule.pod_set is None or rule.pod_set in role.pod_sets
                if rule.rule == "anti-affinity" and inside and role.min > domains:
                    yield f"role {role.name} has {role.min} pods that are apart, in {domains} domains"
                elif inside and rule.rule == "spread" and role.min > rule.max_skew * domains:
                    named = (node for node in self.facts.nodes if node.has(rule.level))
                    if len({node.domain[rule.level] for node in named}) >= rule.min_domains:
                        continue
                    yield f"role {role.name} is spread over at least {rule.min_domains} domains"

    def placed(self, i: int) -> bool:
        """Whether a placement that keeps every rule is found."""
        facts = self._emptied.facts
        gang = facts.gangs[i]
        if not self.counts.fits(gang) or self._work.left <= 0:
            return False
        if self._room is None:
            self._room = Room(self._emptied, Grounds(facts, self._work))
        ways = islice(placements(self._room, gang), WAYS)
        return any(not breaks(Variant(self._emptied, {i: pods})) for pods in ways)

    @cached_property
    def _emptied(self) -> Outcome:
        facts, case = self.facts, self.outcome.case
        gangs = tuple(
            replace(gang, existing={}, running_pods={}, planned={}, budgets={}, ranks={}, hold=None)
            for gang in facts.gangs
        )
        stated = tuple(
            replace(
                one,
                pods={},
                labels={},
                ranks={},
                reserved={},
                reserved_labels={},
                reserved_ranks={},
            )
            for one in case.gangs
        )
        empty = replace(facts, nodes=tuple(self.counts.nodes_in_order()), gangs=gangs)
        return Outcome(Case(empty, stated, case.status, Standing(empty)))
