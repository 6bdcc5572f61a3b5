"""What ``run`` does under the lock: recover, record, plan, verify, apply; planned once more if it moved.

Promises: nothing is applied after a signal came or without time left on the lock; a plan that orders
nothing writes nothing. Called by ``planner.live.running``.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from models.applying.verdicts import GangVerdict, Outcome, Verdict
from planner.errors import Fault, LockedError, StaleError
from planner.live.applying import TICK_S, Way
from planner.live.course import Course
from planner.live.replanning import Planner, Source
from planner.showing.runs import announce, tell
from planner.signals import Interrupted, interruptible

if TYPE_CHECKING:
    from models.applying.limits import Limits
    from models.applying.seen import View
    from models.policy import KubernetesPolicy
    from planner.cluster.locking import Lock
    from planner.cluster.sending import Carrier
    from planner.cluster.wire import Wire
    from planner.live.applying import Ready
    from planner.planning import Planned

LEAST_LOCK_S = 15.0
"""Nothing is begun with less time left on the lock."""


@dataclass(frozen=True, slots=True)
class Rounds:
    course: Course
    lock: Lock

    def work(self, wire: Wire, settings: KubernetesPolicy) -> None:
        """What is done under the lock."""
        from planner.cluster.backends import backend_of
        from planner.cluster.sending import Carrier

        carrier = Carrier(
            wire=wire,
            settings=settings,
            backend=backend_of(settings.gpu_backend),
            lock=self.lock,
            stop=self.course.stop.event,
            clock=self.course.clock,
            sleep=self.course.stop.event.wait,
        )
        self.course.check_signal()
        with self.course.phase("recover"):
            recovered = self._recovered(carrier)
        self._judge()
        if recovered.stop is None:
            self.course.check_signal()
            self._rounds(carrier)
            self._judge()

    def _recovered(self, carrier: Carrier) -> Verdict:
        """Finish, take back or report what an earlier run left half there."""
        from models.applying.machine import recovering
        from models.applying.states import Ways
        from planner.cluster import rights
        from planner.cluster.applying import carried
        from planner.live.standing import to_recover, unbelieved
        from planner.showing.carrying import ApplyProgress

        way, settings = self.course.wish.way, carrier.settings
        view = carrier.around()
        self.course.report.cluster = view.cluster
        self.course.check_signal()
        if (line := unbelieved(view)) is not None:
            self.course.console.warn(line)
            self.course.report.warnings.append(line)
        ways = Ways(settings.scheduling_gate, settings.scheduler_name)
        namespaces = to_recover(view, ways)
        if not namespaces:
            return Verdict()
        bound = {pod.namespace for pod in view.pods.values() if ways.binds(pod)}
        rights.demand(
            carrier.wire,
            rights.working(
                namespaces,
                evictions=way.evict_partial,
                backend=settings.gpu_backend,
                bound=bound,
            ),
        )
        progress = ApplyProgress(self.course.console, self.course.clock)
        verdict = carried(recovering(view, _limits(settings, way)), carrier, progress.tell)
        progress.done()
        self.course.report.recovered = verdict
        tell(self.course.console, None, verdict, self._undo)
        return verdict

    def _rounds(self, carrier: Carrier) -> None:
        """Plan and apply; once more where the cluster moved meanwhile."""
        from planner.live.applying import check_guarded, ready

        planner = self._planner(carrier)
        try:
            planned = self._planned(planner, None)
            plan = ready(planned.document)
            try:
                self._applied(plan, carrier)
            except StaleError as error:
                if carrier.lookout.view is not None and not self.course.wish.way.shared_nodes:
                    # Nodes that are open to other schedulers would be so for another plan, too.
                    check_guarded(plan, carrier.lookout.view, one_by_one=True)
                for fault in error.faults:
                    self.course.console.say(f"{fault.what}; planning once more")
                self.course.report.replanned = True
                self._applied(ready(self._planned(planner, planned).document), carrier)
        finally:
            self.course.report.warnings += planner.warnings
            for phase, seconds in planner.seconds.items():
                self.course.add(phase, seconds)

    def _planner(self, carrier: Carrier) -> Planner:
        from models.applying.states import Ways
        from planner.cluster import tenants

        wish, settings = self.course.wish, carrier.settings
        ways, view = Ways(settings.scheduling_gate, settings.scheduler_name), carrier.lookout.view
        assert view is not None  # it was recovered from
        left = tenants.unserved(carrier.wire, view, ways, settings.gpu_backend)
        if left:
            self.course.console.warn(tenants.told(left))
            self.course.report.warnings.append(tenants.told(left))
        # Plans that stop or move what runs could not be applied whole.
        planning = replace(wish.planning, keep_running=not wish.way.allow_evictions)
        if wish.way.allow_evictions:
            kept = tenants.unyielding(carrier.wire, view, settings.gpu_backend)
            planning = replace(planning, keep_in=frozenset(kept))
        source = Source(
            self.course.console.environ,
            context=self.course.report.context,
            kubeconfig=wish.kubeconfig,
            timeout_s=wish.timeout_s,
            skip=wish.skip,
            fence=self.lock.fence,
            leave=tenants.waiting_in(left, ways),
        )
        # Ages are counted by the server's clock: that of this host may be anything.
        return Planner(
            planning, source, self.course.console, clock=self.course.clock, date=self.lock.now
        )

    def _planned(self, planner: Planner, before: Planned | None) -> Planned:
        """A plan of the cluster as it is, while the lock is kept."""
        from models.applying.reading import plan_id

        lock = self.lock
        try:
            with lock.keeping(), interruptible():
                planned = planner.plan(before)
        except Interrupted as signal:
            self.course.caught(signal.exit_code)
            raise
        self.course.report.document = planned.document
        lock.plan = self.course.report.plan = plan_id(planned.document)
        if planned.signal_exit is not None:
            self.course.caught(planned.signal_exit)
        self.course.check_signal()
        if not lock.holds(LEAST_LOCK_S):
            what = f"the lock was lost while planning: {lock.lost or 'it could not be renewed'}"
            raise LockedError(
                Fault(what, "nothing of the plan was applied; the next run tries again")
            )
        return planned

    def _applied(self, plan: Ready, carrier: Carrier) -> None:
        """Apply the plan, if it orders anything. Raises StaleError before the first write."""
        from planner.live.applying import carry, check_rights
        from planner.showing.carrying import ApplyProgress

        if not any(one.starts or one.stops or one.resizes for one in plan.orders.gangs):
            return
        report, console, way = self.course.report, self.course.console, self.course.wish.way
        if way.max_evictions is not None:
            way = replace(way, max_evictions=max(0, way.max_evictions - report.evicted))
        progress = ApplyProgress(console, self.course.clock)

        def seen(view: View) -> None:
            progress.pods = announce(console, plan.orders, view, evictions=way.allow_evictions)

        with self.course.phase("apply"):
            check_rights(plan, way, carrier.wire)
            verdict = carry(plan, way, carrier, progress.tell, seen)
            progress.done()
        before = report.recovered
        report.applied = verdict
        tell(
            console,
            plan.orders.plan,
            verdict,
            self._undo,
            told=() if before is None else before.gangs,
        )

    def _undo(self, verdict: GangVerdict) -> list[str]:
        from models.applying.undoing import commands

        if verdict.outcome is not Outcome.partial:
            return []
        return commands(verdict, self.course.report.context, self.course.wish.kubeconfig)

    def _judge(self) -> None:
        """Status and exit code by what became of every gang."""
        from planner.live.applying import exit_code

        report = self.course.report
        found = (report.recovered or Verdict(), report.applied or Verdict())
        # A gang whose intents were taken back is simply planned anew: that is no failure.
        taken_back = {one.gang for one in found[0].gangs if one.outcome is Outcome.skipped} - {
            one.gang for one in found[1].gangs
        }
        gangs = tuple(one for one in report.verdicts if one.gang not in taken_back)
        stop = found[1].stop or found[0].stop
        report.exit_code = exit_code(Verdict(gangs, stop=stop), self.course.stop.exit_code)
        if report.exit_code > 128:
            report.status = "interrupted"
        elif report.exit_code:
            report.status = "stopped part-way"
        else:
            report.status = "applied" if report.writes else "unchanged"


def _limits(settings: KubernetesPolicy, way: Way) -> Limits:
    """What the machine is held to while it only settles what others left."""
    from models.applying.limits import Limits

    return Limits(
        allow_evictions=way.allow_evictions,
        max_evictions=sys.maxsize if way.max_evictions is None else way.max_evictions,
        evict_partial=way.evict_partial,
        wait_rounds=math.ceil(way.wait_s / TICK_S),
        tick_s=TICK_S,
        gate=settings.scheduling_gate,
        scheduler=settings.scheduler_name,
        backend=settings.gpu_backend,
    )
