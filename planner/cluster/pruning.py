"""What is kept of an object, as allow-lists that compose: whatever no rule names is dropped.

Promises: pure; the result shares no mutable part with rules; a value of another type than a rule
expects is dropped, so that nothing hides in the wrong place. Used by ``planner.cluster.kept``.

Which annotations are kept: those that schedulers, queues and job controllers are told with.

Promises: an allow-list, by key or by the domain before the slash; what users or tools note down for
themselves, kubectl's last-applied-configuration first of all, is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

Keep = Callable[[Any], Any]
"""From a value to what is kept of it, or GONE."""

GONE: Final = object()

_SCALARS = frozenset({str, int, float, bool})
_LABEL = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_DNS_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_QUANTITY = re.compile(r"[+-]?[0-9.]{1,40}(?:[eE][+-]?[0-9]{1,3}|[KMGTPEkmun]i?)?")


def scalar(value: Any) -> Any:  # noqa: ANN401  # trees of JSON have no narrower type
    """A text, a number or a truth value."""
    return value if type(value) in _SCALARS else GONE


def number(value: Any) -> Any:  # noqa: ANN401
    """An integer."""
    return value if type(value) is int else GONE


def record(fields: Mapping[str, Keep]) -> Keep:
    """An object of these fields; empty if it had none of them, for `basic: {}` says something."""
    rules = dict(fields)

    def keep(value: Any) -> Any:  # noqa: ANN401
        if type(value) is not dict:
            return GONE
        kept = {}
        for name, inner in value.items():
            rule = rules.get(name)
            if rule is None:
                continue
            if rule is scalar:  # nine fields of ten: spared a call
                if type(inner) in _SCALARS:
                    kept[name] = inner
            elif (found := rule(inner)) is not GONE:
                kept[name] = found
        return kept

    return keep


def listed(rule: Keep) -> Keep:
    """A list of such values; those that are not are left out."""

    def keep(value: Any) -> Any:  # noqa: ANN401
        if type(value) is not list:
            return GONE
        return [found for found in map(rule, value) if found is not GONE]

    return keep


def each(rule: Keep) -> Keep:
    """An object of any field names, with such values."""

    def keep(value: Any) -> Any:  # noqa: ANN401
        if type(value) is not dict:
            return GONE
        pairs = ((name, rule(inner)) for name, inner in value.items())
        return {name: found for name, found in pairs if found is not GONE}

    return keep


def label(value: Any) -> Any:  # noqa: ANN401
    """A text that the API server accepts as the value of a label."""
    return value if type(value) is str and _LABEL.fullmatch(value) else GONE


def quantity(value: Any) -> Any:  # noqa: ANN401
    """An amount as Kubernetes writes it."""
    if type(value) in {int, float}:
        return value
    return value if type(value) is str and _QUANTITY.fullmatch(value) else GONE


def dns_name(value: Any) -> Any:  # noqa: ANN401
    """The name of an object."""
    return value if type(value) is str and _DNS_NAME.fullmatch(value) else GONE


names = listed(scalar)
"""A list of texts or numbers."""

labels = each(label)
amounts = each(quantity)
dns_names = each(dns_name)


_DOMAINS = frozenset(
    {
        "gangplan.dev",
        # queues, groups and schedulers
        "kueue.x-k8s.io",
        "kai.scheduler",
        "scheduling.k8s.io",
        "scheduling.x-k8s.io",
        "scheduling.run.ai",
        "volcano.sh",
        "scheduling.volcano.sh",
        "topology.volcano.sh",
        "gang.scheduling.koordinator.sh",
        "scheduling.koordinator.sh",
        "node.koordinator.sh",
        "pod-group.scheduling.sigs.k8s.io",
        "hivedscheduler.microsoft.com",
        # controllers
        "batch.kubernetes.io",
        "jobset.sigs.k8s.io",
        "alpha.jobset.sigs.k8s.io",
        "leaderworkerset.sigs.k8s.io",
        "training.kubeflow.org",
        "trainer.kubeflow.org",
        "grove.io",
        # nodes
        "topograph.run",
        "network.topology.nvidia.com",
    }
)

_KEYS = frozenset(
    {
        "pod-group-name",
        "pod-group.scheduling.sigs.k8s.io",
        "gpu-fraction",
        "gpu-fraction-num-devices",
        "gpu-memory",
        "runai-gpu-group",
        "topology.kubernetes.io/gpu-group",
        "topology.kubernetes.io/gpu-visible",
        "resource.kubernetes.io/pod-claim-name",
        "volume.kubernetes.io/selected-node",
        "nvidia.com/use-gpuuuid",
        "nvidia.com/nouse-gpuuuid",
        "nvidia.com/use-gputype",
        "hami.io/vgpu-node",
        "hami.io/vgpu-devices-allocated",
        "hami.io/vgpu-devices-to-allocate",
        "hami.io/bind-phase",
        "hami.io/node-nvidia-register",
        "run.ai/reserve_for_gpu_index",
        "scheduler.framework.gpushare.allocation",
        "ALIYUN_COM_GPU_MEM_IDX",
        "ray.io/num-hosts",
    }
)


def allowed(key: str) -> bool:
    """Whether an annotation of that key is kept."""
    domain, slash, _ = key.partition("/")
    return key in _KEYS or (bool(slash) and domain in _DOMAINS)


def known_annotations(value: Any) -> Any:  # noqa: ANN401  # trees of JSON have no narrower type
    """The annotations that are kept; GONE if none is."""
    if type(value) is not dict:
        return GONE
    found = {key: text for key, text in value.items() if type(text) is str and allowed(key)}
    return found or GONE
