"""Finding gangs that a run left half-way, from the intents on their pods alone, and finishing them.

Promises: only intents that our account wrote count; what cannot be finished is taken back where nothing
was started, else told as partial, and evicted only where that is allowed. Called by ``machine``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Generator, Iterable, Iterator
from dataclasses import dataclass, replace

from models.apply.gang_state import obstacle, stuck, undo_of, wasted
from models.apply.intents import Intent
from models.apply.live_state import ClusterView, LivePod
from models.apply.orders import Key, PodOrder
from models.apply.outcomes import GangVerdict
from models.apply.pod_state import LIVE, READY, STARTED, PodClassifier, PodState
from models.apply.requests import Done, Event, Rejected, Request, WriteIntent
from models.apply.session import ApplySession, Failure, PodBatch
from models.apply.starts import start, withdraw

MARKS = 3
"""So many pods of a gang are marked whole, on as many nodes: pods are lost one by one, or with a node."""


@dataclass(frozen=True, slots=True)
class Group:
    """What one plan wanted of one gang, as its pods tell. ``elsewhere``: pods other plans started.

    ``marks``: pods that say that it was whole.
    """

    batch: PodBatch
    states: tuple[tuple[PodOrder, PodState], ...]
    marks: frozenset[Key]
    elsewhere: int

    @property
    def marked(self) -> bool:
        return bool(self.marks)

    def among(self, states: Collection[PodState]) -> tuple[PodOrder, ...]:
        return tuple(order for order, state in self.states if state in states)

    @property
    def waiting(self) -> tuple[PodOrder, ...]:
        return self.among(READY)

    @property
    def live(self) -> tuple[PodOrder, ...]:
        return self.among((*LIVE, PodState.astray))

    @property
    def missing(self) -> int:
        """Pods that can no longer be started or have never run to an end."""
        counted = len(self.among((*LIVE, *READY, PodState.ended, PodState.astray)))
        return max(0, self.batch.size - counted - self.elsewhere)

    @property
    def half(self) -> bool:
        """Whether some pods are started and run while others were not, and the gang never was whole."""
        if self.marked and not self.waiting:
            return False
        return bool(self.live) and bool(self.waiting or self.missing)

    @property
    def unsure(self) -> bool:
        """Whether it is half there, or was whole and has lost the very pods that were marked."""
        doubtful = self.half and not self.among((*READY, PodState.ungated, PodState.astray))
        return doubtful and self.missing >= min(MARKS, self.batch.size)

    @property
    def to_mark(self) -> tuple[PodOrder, ...]:
        """Pods to be marked, so that enough are: of a gang that is whole, or is known to have been."""
        if self.batch.size < 2 or self.half or not self.live or self.among((PodState.ungated,)):
            return ()
        if not self.marked and len(self.states) < self.batch.size:
            return ()
        running = _spread(self.among((PodState.bound, PodState.ended)))
        enough = sorted(running, key=lambda order: order.key not in self.marks)[:MARKS]
        return tuple(order for order in enough if order.key not in self.marks)


def order_of(pod: LivePod, intent: Intent) -> PodOrder:
    """The order a pod's intent speaks of."""
    return PodOrder(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        role="",
        index=0,
        node=intent.node,
        gpus=intent.gpus,
        gpu_count=pod.gpus,
        requests=pod.requests,
    )


def groups(view: ClusterView, classifier: PodClassifier) -> Iterator[Group]:
    """Every gang that a plan of ours touched, by gang, then plan."""
    members: dict[tuple[Key, str], list[tuple[LivePod, Intent]]] = {}
    for key in sorted(view.pods):
        pod = view.pods[key]
        if pod.intent is not None and pod.intent_is_ours:
            of = ((pod.namespace, pod.intent.gang), pod.intent.plan)
            members.setdefault(of, []).append((pod, pod.intent))
    found: list[Group] = []
    alike: dict[Key, list[Group]] = defaultdict(list)
    for (gang, plan), pods in sorted(members.items()):
        states = tuple(
            (order_of(pod, intent), classifier.state(pod, pod.uid, intent.node))
            for pod, intent in pods
        )
        size = max(intent.size for _, intent in pods)
        batch = PodBatch(gang, plan, size, tuple(order for order, _ in states))
        marks = frozenset(pod.key for pod, intent in pods if intent.whole)
        found.append(Group(batch, states, marks, 0))
        alike[gang].append(found[-1])
    for group in found:
        yield replace(group, elsewhere=_replaced(group, alike[group.batch.gang]))


def _replaced(group: Group, same: Iterable[Group]) -> int:
    """Pods that later plans started in the place of lost ones: never more at once than are missing."""
    return sum(
        len(one.among(LIVE))
        for one in same
        if one.batch.plan != group.batch.plan and one.batch.size <= group.missing
    )


def recover(
    session: ApplySession,
    *,
    own: str | None = None,
    ordered: Collection[Key] = (),
    ending: Collection[Key] = (),
) -> Generator[Request, Event, None]:
    """Finish, take back or report every gang that is neither untouched nor whole.

    ``own``, ``ordered``: a plan and gangs of it that the caller starts itself, if nothing of them is
    started yet. ``ending``: gangs that it stops: pods that are missing there are its own doing.
    """
    for group in list(groups(session.view, session.classifier)):
        batch = group.batch
        if not group.waiting:
            if not group.half:
                yield from _watched(session, group)
            elif batch.plan == own or batch.gang not in ending:
                session.record(_partial(session, group, _why_missing(group)))
            continue
        if not group.live and batch.plan == own and batch.gang in ordered:
            continue
        yield from session.hold(batch.called, begun=bool(group.live))
        yield from _recover(session, group)


def _watched(session: ApplySession, group: Group) -> Generator[Request, Event, None]:
    """A gang that is all started: its marks may be missing, and its pins may have come to nothing."""
    wrong = spoiled(session, group)
    if wrong:
        session.record(_partial(session, group, wrong))
    else:
        yield from mark(session, group.batch, group.to_mark)


def spoiled(session: ApplySession, group: Group) -> str:
    """Why a gang that is all started will not run as it is; empty if nothing says so.

    What befalls nodes and rooms after it was whole and bound is its own affair, and a later plan's.
    """
    if group.waiting or not group.live:
        return ""
    if group.marked and not group.among((PodState.ungated,)):
        return ""
    return wasted(session, group.batch)


def _recover(session: ApplySession, group: Group) -> Generator[Request, Event, None]:
    # Pods of other plans may have taken the place of those that are gone.
    batch = replace(group.batch, pods=group.among((*READY, *STARTED)))
    why = (
        _why_missing(group)
        if group.missing or not _sound(group)
        else obstacle(session, list(group.waiting))
    )
    if not why:
        yield from start(session, batch)
    elif group.live:
        session.record(_partial(session, group, why))
    else:
        yield from withdraw(session, batch, why)


def _sound(group: Group) -> bool:
    return not group.among((PodState.astray,))


def _why_missing(group: Group) -> str:
    astray = group.among((PodState.astray,))
    if astray:
        return f"pod {astray[0].name} is bound to another node than planned"
    started, size = len(group.live), group.batch.size
    if group.unsure:
        return (
            f"plan {group.batch.plan} started it, and {started} of its {size} pods are there; "
            "whether all of them ever were cannot be told"
        )
    return f"started {started} of its {size} pods; gone: {group.missing}"


def _partial(session: ApplySession, group: Group, why: str) -> GangVerdict:
    verdict = stuck(session, group.batch, Failure(why))
    return replace(verdict, undo=undo_of(group.live), unsure=group.unsure)


def mark(
    session: ApplySession, batch: PodBatch, pods: Iterable[PodOrder] | None = None
) -> Generator[Request, Event, None]:
    """Write on a few pods that the gang was whole; where that fails, a later run does it.

    ``pods``: which; None where all of the squad were just seen started.
    """
    if batch.size < 2 or session.limits.dry:
        return
    marked = _spread(batch.pods)[:MARKS] if pods is None else list(pods)
    bare = [
        (o, pod) for o in marked if (pod := session.pod(o)) is not None and not _told(session, pod)
    ]
    requests = [
        WriteIntent(o, replace(batch.intent(o), whole=True), pod.version) for o, pod in bare
    ]
    came = yield from session.together(batch.called, requests, begun=False)
    for order in marked:
        if isinstance(came.get(order.key), Done | Rejected):
            continue
        yield from session.pace(batch.called, begun=False)
        yield from _mark(session, order, replace(batch.intent(order), whole=True))


def _told(session: ApplySession, pod: LivePod) -> bool:
    """Whether it is marked already, or cannot be."""
    return (pod.intent is not None and pod.intent.whole) or not session.classifier.started(pod)


def _mark(
    session: ApplySession, order: PodOrder, intent: Intent
) -> Generator[Request, Event, None]:
    yield from session.settle(
        order,
        lambda seen: WriteIntent(order, intent, seen.version),
        done=lambda seen: seen.intent is not None and seen.intent.whole,
        hindrance=lambda seen: None if session.classifier.started(seen) else "is not started",
        then=lambda seen: replace(seen, intent=intent),
    )


def _spread(pods: Iterable[PodOrder]) -> list[PodOrder]:
    """The first pod of each node before the second of any."""
    before: Counter[str] = Counter()
    ranked = []
    for order in sorted(pods, key=lambda order: (len(order.name), order.name)):
        ranked.append((before[order.node], order))
        before[order.node] += 1
    return [order for _, order in sorted(ranked, key=lambda one: one[0])]
