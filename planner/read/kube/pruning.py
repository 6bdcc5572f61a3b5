"""Reduces an object of the API to the fields that planning reads: an allow-list, nothing else passes.

Which fields: ``planner.read.kube.kinds``. For recording, a value whose type differs from the expected one
is dropped; for reading see ``planner.read.kube.object_bounds``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

Tree = dict[str, Any]
Prune = Callable[[Any], Any]
"""From a value to the part of it that is kept, or GONE."""

GONE: Final = object()

_SCALARS = frozenset({str, int, float, bool})
_LABEL = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_DNS_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_QUANTITY = re.compile(r"[+-]?[0-9.]{1,40}(?:[eE][+-]?[0-9]{1,3}|[KMGTPEkmun]i?)?")


def compiled(fields: str, fragments: Mapping[str, str], rules: Rules | None = None) -> Prune:
    """The pruner of a selection of fields, written like those of GraphQL; for recording by default.

    ``name``: a text, number or boolean. ``name=Type``: another type, or a fragment.
    ``name { ... }``: an object with these fields. ``...Name``: the fields of a fragment.
    ``name[]`` is a list, ``name[+]`` one that grows with the cluster, and ``name[*]`` a map with any
    keys, of what follows.
    """
    rules = rules or Rules()
    return rules.record(_selection(iter(_WORD.findall(fields)), fragments, rules))


_WORD = re.compile(r"\S+")
_FIELD = re.compile(r"(?P<name>\w+)(?P<shape>\[[+*]?\])?(?:=(?P<type>\w+))?")


def _selection(
    words: Iterator[str], fragments: Mapping[str, str], rules: Rules
) -> dict[str, Prune]:
    """The fields up to the closing brace or the end of the text."""
    found: dict[str, Prune] = {}
    last: tuple[str, str | None] | None = None
    for word in words:
        if word == "}":
            break
        if word == "{":
            assert last is not None
            found[last[0]] = _shaped(
                *last, rules.record(_selection(words, fragments, rules)), rules
            )
        elif word.startswith("..."):
            found |= _selection(iter(_WORD.findall(fragments[word[3:]])), fragments, rules)
        else:
            field = _FIELD.fullmatch(word)
            assert field is not None, word
            name, of_type = field["name"], field["type"] or "Scalar"
            last = name, field["shape"]
            of = rules.typed(name, of_type) or compiled(fragments[of_type], fragments, rules)
            found[name] = _shaped(*last, of, rules)
    return found


def _shaped(name: str, shape: str | None, of: Prune, rules: Rules) -> Prune:
    match shape:
        case "[]" | "[+]":
            return rules.list(name, of, long=shape == "[+]")
        case "[*]":
            return rules.map(name, of)
        case _:
            return of


def _scalar(value: Any) -> Any:  # noqa: ANN401  # trees of JSON have no narrower type
    return value if type(value) in _SCALARS else GONE


def _record(fields: dict[str, Prune]) -> Prune:
    """An object of these fields; empty if it has none of them: ``basic: {}`` has a meaning."""

    def prune(value: Any) -> Any:  # noqa: ANN401
        if type(value) is not dict:
            return GONE
        kept = {}
        for name, inner in value.items():
            rule = fields.get(name)
            if rule is None:
                continue
            if rule is _scalar:  # nine fields of ten: saves a call
                if type(inner) in _SCALARS:
                    kept[name] = inner
            elif (found := rule(inner)) is not GONE:
                kept[name] = found
        return kept

    return prune


class Rules:
    """How values are reduced: for recording, nothing of an unexpected type passes. ``name``: of the field."""

    def record(self, fields: dict[str, Prune]) -> Prune:
        """An object of these fields."""
        return _record(fields)

    def list(self, name: str, of: Prune, *, long: bool) -> Prune:
        """A list; ``long``: it grows with the cluster."""
        del name, long

        def prune(value: Any) -> Any:  # noqa: ANN401
            if type(value) is not list:
                return GONE
            return [found for found in map(of, value) if found is not GONE]

        return prune

    def map(self, name: str, of: Prune) -> Prune:
        """An object with any keys."""
        del name

        def prune(value: Any) -> Any:  # noqa: ANN401
            if type(value) is not dict:
                return GONE
            pairs = ((name, of(inner)) for name, inner in value.items())
            return {name: found for name, found in pairs if found is not GONE}

        return prune

    def typed(self, name: str, of_type: str) -> Prune | None:
        """A value of a type; None if that is no type but a fragment."""
        del name
        return _TYPES.get(of_type)


def _integer(value: Any) -> Any:  # noqa: ANN401
    return value if type(value) is int else GONE


def _label(value: Any) -> Any:  # noqa: ANN401
    """A text that the API server accepts as the value of a label."""
    return value if type(value) is str and _LABEL.fullmatch(value) else GONE


def _quantity(value: Any) -> Any:  # noqa: ANN401
    if type(value) in {int, float}:
        return value
    return value if type(value) is str and _QUANTITY.fullmatch(value) else GONE


def _dns_name(value: Any) -> Any:  # noqa: ANN401
    return value if type(value) is str and _DNS_NAME.fullmatch(value) else GONE


def _annotations(value: Any) -> Any:  # noqa: ANN401
    """The annotations on the allow-list; GONE if there is none."""
    if type(value) is not dict:
        return GONE
    found = {key: text for key, text in value.items() if type(text) is str and allowed(key)}
    return found or GONE


_VOLUME = _record(
    {
        "name": _scalar,
        "persistentVolumeClaim": _record({"claimName": _scalar}),
        "ephemeral": _record({}),
    }
)


def _volumes(value: Any) -> Any:  # noqa: ANN401
    """The volumes of a template that name a claim, with its name alone; GONE if there is none."""
    if type(value) is not list:
        return GONE
    claims = ("persistentVolumeClaim", "ephemeral")
    found = [one for one in value if type(one) is dict and any(name in one for name in claims)]
    return [_VOLUME(one) for one in found] or GONE


_TYPES: dict[str, Prune] = {
    "Scalar": _scalar,
    "Long": _scalar,
    "Integer": _integer,
    "Label": _label,
    "Quantity": _quantity,
    "DnsName": _dns_name,
    "Annotations": _annotations,
    "Volumes": _volumes,
}


_KEPT_ANNOTATIONS = """
gangplan.dev/
kueue.x-k8s.io/ kai.scheduler/ scheduling.k8s.io/ scheduling.x-k8s.io/ scheduling.run.ai/
volcano.sh/ scheduling.volcano.sh/ topology.volcano.sh/
batch.kubernetes.io/ jobset.sigs.k8s.io/ alpha.jobset.sigs.k8s.io/ leaderworkerset.sigs.k8s.io/
training.kubeflow.org/ trainer.kubeflow.org/ grove.io/
topograph.run/ network.topology.nvidia.com/
pod-group-name
gpu-fraction gpu-fraction-num-devices gpu-memory runai-gpu-group
topology.kubernetes.io/gpu-group topology.kubernetes.io/gpu-visible
resource.kubernetes.io/pod-claim-name
nvidia.com/use-gpuuuid nvidia.com/nouse-gpuuuid nvidia.com/use-gputype nvidia.com/vgpu-mode
nvidia.com/mig-profile-preference hami.io/vgpu-mig-allocations
hami.io/vgpu-node hami.io/vgpu-devices-allocated hami.io/vgpu-devices-to-allocate
hami.io/bind-phase hami.io/node-nvidia-register
run.ai/reserve_for_gpu_index scheduler.framework.gpushare.allocation ALIYUN_COM_GPU_MEM_IDX
ray.io/num-hosts
"""
"""Keys that are kept; ``domain/``: every key of that domain. Never kubectl's last-applied one."""

_KEPT_KEYS = frozenset(_KEPT_ANNOTATIONS.split())


def allowed(key: str) -> bool:
    """Whether an annotation with that key is kept."""
    domain, slash, _ = key.partition("/")
    return key in _KEPT_KEYS or bool(slash and domain + slash in _KEPT_KEYS)


def with_volume_claims(prune: Prune) -> Prune:
    """For pods: keeps the names of the volume claims as the annotation VOLUME_CLAIMS, and no volume."""
    from planner.read.kube.pods.constraints import VOLUME_CLAIMS
    from planner.read.kube.pods.volumes import volume_claims

    def pruned(value: Any) -> Any:  # noqa: ANN401
        kept = prune(value)
        if kept is GONE or "metadata" not in kept:
            return GONE
        metadata = kept["metadata"]
        annotations = metadata.get("annotations", {})
        annotations.pop(VOLUME_CLAIMS, None)  # a tenant may have written it
        claims = dict.fromkeys(volume_claims(value.get("spec"), metadata.get("name")))
        if claims:
            metadata["annotations"] = {**annotations, VOLUME_CLAIMS: ",".join(claims)}
        return kept

    return pruned
