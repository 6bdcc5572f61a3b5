"""Why a gang waits, is stopped or lacks pods: the fields of a reason, and which of them each code has.

The one table of reasons. Words are made of it elsewhere (``planner.show.reason_words``).
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field

from models.documents.base import GpuAmount, Many, Open, Time, omitted, whole
from models.units import quantity

MAX_NAMED = 3
"""Names in one list of a reason; ``more`` counts the others."""

MAX_HOLDERS = 5
"""Most holders that a reason names; where more are in the way, none is."""


def _quantity(text: str) -> str:
    quantity(text)
    return text


Natural = Annotated[int, whole(0, 10**12)]
"""A count, bounded so that no text of it is long."""

Priority = Annotated[int, whole(-(10**10), 10**10)]

QuantityText = Annotated[str, AfterValidator(_quantity)]
"""A Kubernetes quantity, as it is written."""

Counted = Literal["running", "first", "empty"]
Help = Literal["smallerRequests", "nodesInOrder", "preemptible", "othersEnd"]
Proven = Literal["noPlanAdmits", "noPlanGains", "displacesPeers", "slowsPeers"]


class ReasonFirst(Open):
    """How many gangs start on nodes that the gang may use, and come before it or are its equals."""

    higher: Natural = Field(description="Of higher priority")
    aged: Natural = Field(description="Of its priority, that waited longer than `starvation.after`")
    peers: Natural = Field(description="Others of its priority")


class ReasonHolder(Open):
    """A running gang that holds what another lacks."""

    gang: str = Field(description="namespace/name")
    gpus: Natural = Field(description="GPUs that it holds there after the plan")


class ReasonGang(Open):
    """A gang of higher priority."""

    gang: str = Field(description="namespace/name")
    priority: Priority
    start: Time | None = omitted(description="From when nodes are reserved for it")


class ReasonGuard(Open):
    """A running gang that only disruption budgets, or its minimum run time, keep from giving way."""

    gang: str = Field(description="namespace/name")
    budgets: Many[str] = omitted(
        default=(),
        description="namespace/name of the budget; or two, of which both guard one of its pods",
    )
    until: Time | None = omitted(
        description="When its minimum run time ends; of several such gangs the first to end it"
    )
    allowed: Natural | None = omitted(description="Evictions that the one budget has left")
    evictions: Natural | None = omitted(description="Evictions that stopping the gang takes")


class ReasonFields(Open):
    """Facts that the reason consists of; which ones a code has is in the table of codes."""

    text: str | None = omitted(
        description="Why nothing of it starts, as the reader of its objects found it"
    )
    missing: Natural | None = omitted(description="Pods that it lacks")
    cause: str | None = omitted(
        description="Code of the reason why these pods do not start; its fields are here too"
    )
    role: str | None = omitted(
        description="The role that is short; absent if the gang has only one, or all roles together are"
    )
    pods: Natural | None = omitted(description="Pods of the role that it needs")
    gpus_per_pod: Natural | None = omitted(description="GPUs of each of these pods")
    gpus: GpuAmount | None = omitted(
        description="GPUs that it needs in all; where a queue is why, parts of GPUs too"
    )
    slices: Natural | None = omitted(description="Slices of the role that it needs")
    slice_pods: Natural | None = omitted(description="Pods of each slice")
    level: str | None = omitted(
        description="The level of which one domain must hold these pods, or each slice"
    )
    one_model: bool = omitted(default=False, description="These pods need GPUs of one model")
    nodes_with: str | None = omitted(
        description="What its nodes must have: labels, affinity, model; shortened"
    )
    counted: Counted | None = omitted(
        description="On what room was counted: what `running` gangs leave; what those leave that start"
        " `first`, and the running ones; the `empty` cluster, with every node in order"
    )
    without: Natural = omitted(
        default=0,
        description="Running gangs on its nodes that may be stopped or moved, which were not counted",
    )
    first: ReasonFirst | None = omitted(
        description="Gangs that start in this plan before it, on nodes that it may use"
    )
    domain: str | None = omitted(description="The domain with most room, by its path, or the node")
    model: str | None = omitted(description="The GPU model with most room, or that is limited")
    resources: Many[str] = omitted(
        default=(), description="Resources of a node of which there is too little, besides GPUs"
    )
    room_pods: Natural | None = omitted(description="Pods for which there is room")
    room_slices: Natural | None = omitted(description="Slices for which there is room")
    room_gpus: Natural | None = omitted(description="GPUs that are free there")
    node_gpus: Natural | None = omitted(description="GPUs of the largest node that it may use")
    asked: QuantityText | None = omitted(description="Amount of the resource that a pod requests")
    offered: QuantityText | None = omitted(description="The most of it that a node offers")
    taints: Many[str] = omitted(default=(), description="Keys of taints that it does not tolerate")
    models: Many[str] = omitted(default=(), description="GPU models that the cluster has")
    selected: bool = omitted(
        default=False, description="Only nodes count that the Policy's nodeSelector selects"
    )
    matching: Natural | None = omitted(
        description="Nodes that have what it needs, and take no pods of it now"
    )
    by_rules: bool = omitted(
        default=False, description="Other rules exclude these nodes, not their state or taints"
    )
    apart: bool = omitted(
        default=False,
        description="By counts there is room, but an exact search proved that its pods do not fit together",
    )
    rule: str | None = omitted(
        description="The rule but for which it could start on the empty cluster, by its code: `AntiAffinity`,"
        " `Affinity`, `Spread`, `Balance`, `Bandwidth`, `Quota`"
    )
    broken: bool = omitted(
        default=False, description="Its running pods already violate its topology or GPU model"
    )
    share: float | None = omitted(description="The minBandwidthShare that no placement reaches")
    until: Time | None = omitted(
        description="Until when it waits for a place that reaches it; of `Backoff`: when it may start again"
    )
    evictions: Natural | None = omitted(description="How often plans stopped or moved it")
    holders: Many[ReasonHolder] = omitted(
        default=(),
        description="Running gangs in that domain, or on its nodes: without all of them it could start"
        " there, and without fewer of them it could not",
    )
    instead: bool = omitted(
        default=False,
        description="Without the holders it could start there only in place of gangs that start in this plan",
    )
    fits: Literal["beside", "instead"] | None = omitted(
        description="It fits beside the plan, or instead of gangs of lower priority that start"
    )
    earlier: Many[str] = omitted(
        default=(), description="Tiers that come before those that reward a start"
    )
    guaranteed: bool = omitted(
        default=False, description="What queues are guaranteed comes first, too"
    )
    unrewarded: bool = omitted(default=False, description="No tier of the policy rewards a start")
    no_speed: bool = omitted(default=False, description="Its speed would be 0 there")
    ended: bool = omitted(
        default=False,
        description="The search ended before it was placed, or before a cause was found",
    )
    proven: Proven | None = omitted(
        description="What is proven of every plan that is as good in the earlier tiers: none admits it, or"
        " gains by it; or each leaves out, or slows down, gangs of its priority or higher"
    )
    within: bool = omitted(
        default=False, description="Or gangs within the guarantees of their queues"
    )
    unmoved: Many[str] = omitted(
        default=(), description="namespace/name of gangs that do not move in those plans"
    )
    tried: Natural = omitted(
        default=0,
        description="Running gangs that may give way, but no way to make room so was found",
    )
    guarded: ReasonGuard | None = omitted(
        description="A running gang that might make room, but for a disruption budget or its minimum run time"
    )
    help: Help | None = omitted(
        description="What might let it start: smaller requests; nodes and GPUs that are out of order; that"
        " running gangs of lower priority become preemptible; that running gangs end"
    )
    by: Many[ReasonGang] = omitted(
        default=(), description="Gangs that come first: those that get its nodes, or hold room"
    )
    more: Natural = omitted(default=0, description="Further entries that a list leaves out")
    queue: str | None = omitted(description="The queue whose limit or guarantee it is")
    held: GpuAmount | None = omitted(description="GPUs that gangs in the queue hold after the plan")
    limit: GpuAmount | None = omitted(
        description="GPUs that gangs in the queue may hold; of `QueueLimit`: waiting gangs that are planned"
    )
    not_preemptible: bool = omitted(
        default=False, description="`held` and `limit` are about gangs that are not preemptible"
    )
    guarantee: GpuAmount | None = omitted(description="GPUs that the queue is guaranteed")
    unused: GpuAmount | None = omitted(description="GPUs of its guarantee that it may still take")
    kept: GpuAmount | None = omitted(
        description="GPUs that the queue does not lend and does not hold; with `limit`: those of queues below"
    )
    cells: Natural | None = omitted(
        description="Cells that it would take from the queue; 0: nobody counted them"
    )
    cell_gpus: Natural | None = omitted(description="GPUs of each such cell")
    pinned: Natural | None = omitted(description="Nodes with room that are pinned to the queue")
    reserved_nodes: Natural | None = omitted(
        description="Nodes that are reserved for others; of `Reserved`, absent: GPUs that queues may hold, or"
        " are guaranteed, are"
    )
    endless: bool = omitted(default=False, description="Nobody knows how long it runs")

    @classmethod
    def with_values(cls, **fields: Any) -> Self:  # noqa: ANN401  # of every field's own type
        """Fields by their Python names; times and quantities as documents write them."""
        return cls.model_validate(fields, by_name=True, by_alias=False)

    def stated(self) -> dict[str, Any]:
        """The fields that are not at their default, by their Python names."""
        found = ((name, getattr(self, name), one) for name, one in type(self).model_fields.items())
        return {name: value for name, value, one in found if value != one.default}

    def __repr_args__(self) -> Iterable[tuple[str, Any]]:
        return self.stated().items()


@dataclass(frozen=True, slots=True)
class Code:
    """What a code means, and the fields that its reasons may have, by their Python names."""

    meaning: str
    fields: tuple[str, ...]


_NEED = ("gpus", "role", "pods", "gpus_per_pod")
_ROOM = (*_NEED, "counted", "without", "first", "room_pods", "room_gpus")
_HELD = ("holders", "instead")
_TRIED = ("proven", "within", "unmoved", "more", "tried", "ended", "guarded", "help")
_SLICES = ("slices", "slice_pods", "room_slices")
_TOPOLOGY = ("level", "domain", *_SLICES)
_SHORT = (*_ROOM, *_TOPOLOGY, "one_model", "model", "resources")
_RULE = ("gpus", "first", *_TRIED)


UNSTATED = "Unstated"

CODES: Mapping[str, Code] = {
    "NoRoom": Code(
        "not enough GPUs, or not where they could be used together",
        (*_ROOM, "one_model", "model", "apart", "text", *_HELD, *_TRIED),
    ),
    "Resources": Code(
        "not enough cpu, memory, pod slots or other resources beside its GPUs",
        (*_ROOM, "resources", *_HELD, *_TRIED),
    ),
    "RequiredTopology": Code(
        "no domain of a level that it requires has enough room",
        (*_ROOM, *_TOPOLOGY, "apart", "broken", "text", *_HELD, *_TRIED),
    ),
    "Selector": Code(
        "every node that has what it needs is cordoned, not ready, tainted, or excluded by other rules",
        ("role", "nodes_with", "matching", "by_rules"),
    ),
    "Bandwidth": Code(
        "below its `minBandwidthShare` everywhere",
        ("without", "share", "guarded"),
    ),
    "Outranked": Code(
        "gangs that come first, or tiers that come first, leave it no place",
        (*_SHORT, "fits", "earlier", "guaranteed", "unrewarded", "no_speed", *_TRIED),
    ),
    "AntiAffinity": Code("it would fit, but for a rule that keeps pods apart", _RULE),
    "Affinity": Code("it would fit, but for a rule that keeps pods together", _RULE),
    "Spread": Code("it would fit, but for a rule that spreads pods evenly", _RULE),
    "Balance": Code("it would fit, but not with equal shares over the domains it uses", _RULE),
    "Exclusive": Code("it would fit, but not in domains of its own", _RULE),
    "Spares": Code("it would fit, but not beside the nodes kept free for failures", _RULE),
    "QueueOrder": Code("it fits, but an earlier gang of its strict queue waits", ("queue", "by")),
    "Reserved": Code(
        "it fits, but only on nodes, or within limits and guarantees of queues, that are reserved for others",
        ("reserved_nodes", "by", "more", "endless"),
    ),
    "Quota": Code(
        "so many GPUs would be more than a queue may hold, or than others leave of their guarantees",
        (
            *(
                "gpus",
                "model",
                "queue",
                "held",
                "limit",
                "guarantee",
                "unused",
                "kept",
                "not_preemptible",
            ),
            *("cells", "cell_gpus", "level", "pinned"),
        ),
    ),
    "Never": Code(
        "it could not start even if nothing else ran",
        (
            *_SHORT,
            *(
                "nodes_with",
                "taints",
                "models",
                "selected",
                "more",
                "node_gpus",
                "asked",
                "offered",
            ),
            *("queue", "limit", "not_preemptible", "apart", "rule"),
        ),
    ),
    "Preempted": Code("it is stopped for gangs that come to its nodes", ("by", "more")),
    "Incomplete": Code(
        "some of its pods are missing, and do not start; or do not exist yet",
        tuple(ReasonFields.model_fields),
    ),
    "QueueLimit": Code("more gangs of its namespace wait than the Policy plans", ("limit",)),
    "Backoff": Code("plans stopped it, and it may not start again yet", ("until", "evictions")),
    "Gated": Code(
        "another controller's scheduling gate or stopped queue holds its pods", ("text",)
    ),
    "Unsupported": Code("it uses a constraint that is not modelled", ("text",)),
    UNSTATED: Code("the reason that was found is left out: the check of the plan refused it", ()),
}
"""Every code, as far as this version knows them."""


def unlisted(code: str, fields: ReasonFields, rules: Container[str] = ()) -> list[str]:
    """Names, in documents, of fields that this code does not have; of an unknown code nothing is known.

    ``rules``: codes of further rules about several gangs.
    """
    known = CODES.get(code)
    own = known.fields if known is not None else _RULE if code in rules else None
    if own is None:
        return []
    aliases = type(fields).model_fields
    return [str(aliases[n].alias) for n in fields.stated() if n in aliases and n not in own]
