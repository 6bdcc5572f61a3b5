"""Gangs that say what they train: ``communication.model`` to the fraction of a step that they communicate.

The fraction is one of ideal links on the fastest server model that the gang may use, whether its
nodes are cordoned, sick or full or not; so it changes only with the hardware of the cluster.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

from models.documents.communication import (
    DEFAULT_FRACTION,
    StepModel,
    TransformerModel,
)
from models.documents.gang import GangDocument
from models.hardware import ServerModel
from models.instance.cluster import Node
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.rates.gang_bandwidth import ideal_MBps
from models.rates.gpu_sets import UnknownRate
from models.step_time import (
    ELEMENT_BYTES,
    EXAMPLES,
    MOST_FRACTION,
    NO_LATENCY,
    Training,
    Transformer,
)
from models.units import shown
from planner.read.validation import Entry

_EXAMPLES = {name.lower(): training for name, training in EXAMPLES.items()}


def with_fractions(
    instance: Instance, entries: Mapping[tuple[str, str], Entry[GangDocument]]
) -> Instance:
    """The instance; gangs whose document has a model have the fraction that follows from it.

    Reports a transformer on GPUs of unknown speed. ``entries``: documents with one by (namespace, name).
    """
    servers = [
        (one.model, one) for one in instance.cluster.nodes if one.model and instance.ours(one)
    ]
    servers.sort(key=lambda one: (-(one[0].relative_speed or 0), one[0].name))
    known: dict[Hashable, Fraction] = {}
    gangs = []
    for gang in instance.gangs:
        entry = entries.get(gang.key)
        model = None if entry is None else entry.document.spec.communication.model
        if entry is None or model is None:
            gangs.append(gang)
            continue
        kind = (model, gang.roles, gang.nvlink_across_nodes)
        if kind not in known:
            known[kind] = _fraction(instance, gang, entry, servers)
        gangs.append(replace(gang, fraction=known[kind]))
    return replace(instance, gangs=tuple(gangs))


def _fraction(
    instance: Instance,
    gang: Gang,
    entry: Entry[GangDocument],
    servers: Sequence[tuple[ServerModel, Node]],
) -> Fraction:
    """On the first of the servers that a role with GPUs may use, as the cluster is built.

    The default where there is none, or a rate that it needs is not known.
    """
    roles = [role for role in gang.roles if role.gpus]
    for model, node in servers:
        if any(role.gpus <= node.gpus and instance.suits(role, node) for role in roles):
            # an unknown rate is reported where it matters: planner.read.unkeepable_promises
            with suppress(UnknownRate):
                return _fraction_on(model, gang, entry)
            break
    return DEFAULT_FRACTION


def _fraction_on(server: ServerModel, gang: Gang, entry: Entry[GangDocument]) -> Fraction:
    """The part of a step that the gang, at ``min``, communicates on ideal links of such servers."""
    gpus = sum(role.min * role.gpus for role in gang.roles) or 1
    joined = gang.nvlink_across_nodes
    ideal = ideal_MBps((server,), gpus, joined=joined)
    if gpus > 1 and not ideal:
        return MOST_FRACTION
    model = entry.document.spec.communication.model
    if not isinstance(model, TransformerModel):
        if isinstance(model, StepModel):
            size = model.bytes_per_step or ELEMENT_BYTES * (model.parameters or Fraction(0))
            training = Training(size, model.compute_seconds, model.overlap)
        else:
            training = _EXAMPLES[str(model)].on_speed(server.relative_speed)
        return training.fraction(training.communication_s(gpus, ideal, NO_LATENCY))
    if server.relative_speed is None:
        what = f"the speed of {server.gpu} GPUs is not known, and a transformer's step needs it"
        hint = f"add relativeSpeed to the server model {shown(server.name)}, or write `fraction`"
        entry.fault(("spec", "communication", "model"), what, hint)
        return DEFAULT_FRACTION
    degrees = model.parallelism
    transformer = Transformer(
        model.parameters, degrees.tensor, degrees.pipeline, model.replicas(gpus), model.tokens,
        model.overlap,
    )  # fmt: skip
    if gpus > server.gpus * (server.nvlink_domain_nodes if joined else 1):
        # The GPUs of a server that hold different parts of a replica reduce them at once.
        ideal /= min(server.gpus, transformer.tensor * transformer.pipeline)
    training = transformer.training(server.relative_speed)
    gradients_s = training.communication_s(transformer.data, ideal, NO_LATENCY)
    tensor = ideal_MBps((server,), transformer.tensor, joined=joined)
    if transformer.tensor > 1 and not tensor:
        return MOST_FRACTION
    return training.fraction(gradients_s + transformer.tensor_s(tensor))
