"""The check of ``gangplan doctor`` that pods of namespaces that opted in get the gate at creation.

Whether the server serves the policy of ``deploy/gate``, whether it is there as shipped, which namespaces
opted in, and which of their pods with GPUs wait without the gate. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from models.apply.live_state import ClusterView, LivePod
from models.instance.policy import KubernetesPolicy
from models.units import first_of, plural
from planner.cli.doctor_findings import Finding, passed, warned
from planner.cluster.pages import is_served, list_objects
from planner.cluster.rights import GATE
from planner.cluster.transport import Reply, Transport, Tree, core, grouped
from planner.errors import GangplanError
from planner.read.kube.lookup import mapping, objects, text, texts
from planner.read.kube.pods.requests import is_about_gpus
from planner.untrusted_text import one_line

LABEL, ENABLED = "gangplan.dev/placement", "enabled"
"""Of a namespace that opted in."""

QUEUES = "gangplan.dev/placement-queues"
"""Annotation of such a namespace: the queues whose pods wait for gangplan; without it all."""

_API = ("admissionregistration.k8s.io", "v1")
_POLICIES, _BINDINGS = (grouped(*_API, one.resource, name=one.name) for one in GATE)
PATHS = (f"^/apis/{_API[0].replace('.', '[.]')}/{_API[1]}$",)
"""URL paths to learn what is served."""

_MANY = 5
_INSTALL = "kubectl apply -k deploy/gate"


def check_gate(
    transport: Transport, view: ClusterView, settings: KubernetesPolicy
) -> Iterator[Finding]:
    """Findings about the policy, then about pods that it did not gate."""
    try:
        opted = _opted_in(transport)
        policy, binding = transport.send("GET", _POLICIES), transport.send("GET", _BINDINGS)
    except GangplanError as error:
        fault = error.faults[0]
        yield warned("gate", f"not checked: {fault.what}", fault.hint or "try again")
        return
    if not opted and not policy.ok:
        yield passed("gate", f"in pod templates: no namespace has the label {LABEL}: {ENABLED}")
    elif not policy.ok:
        yield _without(transport, opted, policy)
    elif faults := list(_faults(policy.body, binding, settings.scheduling_gate)):
        yield warned("gate", f"{GATE[0].name} is not as shipped: {'; '.join(faults)}", _INSTALL)
    else:
        yield passed("gate", f"{GATE[0].name}, for {_listed(opted)}")
    loose = [pod for pod in view.pods.values() if _is_loose(pod, opted, settings)]
    if loose:
        names = first_of(sorted("/".join(pod.key) for pod in loose), _MANY)
        what = f"{plural(len(loose), 'pod')} with GPUs left to another scheduler: {names}"
        hint = "made before the namespace opted in, or given back: delete them to have them planned"
        yield warned("gate", what, hint)


def _opted_in(transport: Transport) -> dict[str, str]:
    """The namespaces that opted in, with their queues, "" for all pods."""
    found = list_objects(transport, core("namespaces"))
    return {
        text(one, "metadata", "name") or "": texts(one, "metadata", "annotations").get(QUEUES, "")
        for one in found
        if texts(one, "metadata", "labels").get(LABEL) == ENABLED
    }


def _listed(opted: Mapping[str, str]) -> str:
    """Namespaces that opted in: ``2 namespaces: research (queues a,b), vision``."""
    shown = [f"{name} (queues {queues})" if queues else name for name, queues in opted.items()]
    names = f": {first_of(sorted(map(one_line, shown)), _MANY)}" if opted else ""
    return plural(len(opted), "namespace") + names


def _without(transport: Transport, opted: Mapping[str, str], policy: Reply) -> Finding:
    """What it means that the policy cannot be read."""
    past = f"pods of {_listed(opted)} start without gangplan"
    if not is_served(transport, *_API, GATE[0].resource):
        what = f"this server has no MutatingAdmissionPolicy: {past}"
        hint = "put the gate into their pod templates (docs/apply.md); Kubernetes 1.36 serves it"
        return warned("gate", what, hint)
    if policy.status == 404:
        return warned("gate", f"there is no policy {GATE[0].name}: {past}", _INSTALL)
    what = f"not checked: {one_line(policy.message)}"
    return warned("gate", what, f"{GATE[0].name} of deploy/gate grants it")


def _faults(policy: Tree, binding: Reply, gate: str) -> Iterator[str]:
    """What keeps pods from getting this gate."""
    spec = mapping(policy, "spec")
    written = [
        text(one, "applyConfiguration", "expression") or "" for one in objects(spec, "mutations")
    ]
    if not any(f"'{gate}'" in one for one in written):
        yield f"it does not add the gate {gate}"
    if spec.get("failurePolicy") not in (None, "Fail"):
        yield "failurePolicy is not Fail"
    if not binding.ok:
        yield f"no binding {GATE[1].name}"
        return
    bound = mapping(binding.body, "spec")
    chosen = {"matchLabels": {LABEL: ENABLED}}
    if text(bound, "policyName") != GATE[0].name:
        yield "its binding names another policy"
    if mapping(bound, "matchResources").get("namespaceSelector") != chosen:
        yield f"its binding selects other namespaces than those with {LABEL}: {ENABLED}"


def _is_loose(pod: LivePod, opted: Mapping[str, str], settings: KubernetesPolicy) -> bool:
    """Whether a pod with GPUs waits without the gate, where all pods with GPUs should have it."""
    asks = pod.gpus > 0 or any(is_about_gpus(name) for name, _ in pod.requests)
    waits = pod.stays and pod.node is None and pod.start is None and not pod.expected
    everyone = opted.get(pod.namespace) == ""
    return everyone and waits and asks and settings.scheduling_gate not in pod.gates
