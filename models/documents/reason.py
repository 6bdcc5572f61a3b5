"""Why a gang waits, is stopped or lacks pods: the fields of a reason, and which of them each code has.

The one table of reasons. Words are made of it elsewhere (``planner.show.reason_words``). Room is always what
the plan leaves: free GPUs and pods that fit after all that it starts, keeps and moves; of ``Never`` that of
the empty cluster, with every node in order.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import Field

from models.documents.base import GpuAmount, Many, Open, Time, checked, omitted, whole
from models.units import quantity

MAX_NAMED = 5
"""Most entries in a list of a reason."""


Natural = Annotated[int, whole(0, 10**12)]
"""A count, bounded so that no text of it is long."""

Priority = Annotated[int, whole(-(10**10), 10**10)]

QuantityText = Annotated[str, checked(quantity)]
"""A Kubernetes quantity, as it is written."""


class ReasonGang(Open):
    """A gang that has, gets or is promised what another lacks."""

    gang: str = Field(description="namespace/name")
    priority: Priority
    gpus: Natural | None = omitted(None, "GPUs that it has there after the plan")
    start: Time | None = omitted(None, "From when nodes are reserved for it")


class ReasonFields(Open):
    """Facts that the reason consists of; which ones a code has is in the table of codes."""

    text: str | None = omitted(None)
    """Why nothing of it starts, as the reader of its objects found it"""
    cause: str | None = omitted(None)
    """Of `Incomplete`: code of the reason why its missing pods do not start, whose fields are here too. Of
    `Never`: the rule that no place on the empty cluster keeps"""
    role: str | None = omitted(None)
    """The role that is short; absent if the gang has only one, or all roles together are"""
    pods: Natural | None = omitted(None, "Pods of the role that it needs")
    gpus: GpuAmount | None = omitted(None)
    """GPUs that it needs: of these pods, or, without `pods`, in all; where a queue is why, parts of GPUs
    too"""
    level: str | None = omitted(None)
    """The level of which one domain must hold these pods, or each slice of them; of `Quota`: of the cells
    that it would take"""
    domain: str | None = omitted(None, "The domain with most room, by its path, or the node")
    model: str | None = omitted(None)
    """The GPU model with most room, of which all these pods must be; or that is limited"""
    nodes_with: str | None = omitted(None)
    """What its nodes must have: labels, affinity, model; shortened"""
    taints: Many[str] = omitted((), "Keys of taints that it does not tolerate")
    resources: Many[str] = omitted(())
    """Resources of a node of which there is too little, besides GPUs"""
    offered: QuantityText | None = omitted(None)
    """The most of the resource, or of GPUs where none is named, that a node offers"""
    room_pods: Natural | None = omitted(None, "Pods for which there is room")
    room_gpus: Natural | None = omitted(None, "GPUs that are free there")
    by: Many[ReasonGang] = omitted(())
    """Gangs without all of which it could start, and without fewer it could not, those of the lowest priority
    with the fewest GPUs; that take its nodes; for which nodes are reserved; or that come before it in its
    queue. At most five"""
    queue: str | None = omitted(None, "The queue whose limit or guarantee it is")
    held: GpuAmount | None = omitted(None)
    """GPUs that gangs like it in the queue hold after the plan, with those not lent below it"""
    limit: GpuAmount | None = omitted(None)
    """GPUs that gangs like it in the queue may hold; without `held`: that are promised to the queue; of
    `QueueLimit`: waiting gangs that are planned"""
    until: Time | None = omitted(None, "When it may start again")
    proven: bool = omitted(default=False)
    """That it is proven: no plan that is as good in the earlier tiers starts more of its priority, or none
    starts it whoever gives way"""

    @classmethod
    def with_values(cls, **fields: Any) -> Self:  # noqa: ANN401  # of every field's own type
        """Fields by their Python names; times and quantities as documents write them."""
        return cls.model_validate(fields, by_name=True, by_alias=False)

    @property
    def has_room(self) -> bool:
        """Whether it states room for pods, or free GPUs."""
        return self.room_pods is not None or self.room_gpus is not None

    def stated(self) -> dict[str, Any]:
        """The fields that are not at their default, by their Python names."""
        found = ((name, getattr(self, name), one) for name, one in type(self).model_fields.items())
        return {name: value for name, value, one in found if value != one.default}


@dataclass(frozen=True, slots=True)
class Code:
    """What a code means, and the fields that its reasons may have, by their Python names."""

    meaning: str
    fields: tuple[str, ...]


ROOM = ("role", "pods", "gpus", "room_pods", "room_gpus")
PLACE = ("level", "domain", "model", "resources")
HELD = ("by", "proven")
_RULE = ("gpus", "proven")


UNSTATED = "Unstated"

CODES: Mapping[str, Code] = {
    "NoRoom": Code(
        "not enough GPUs, or not where they could be used together",
        (*ROOM, "model", *HELD, "text"),
    ),
    "Resources": Code(
        "not enough cpu, memory, pod slots or other resources beside its GPUs",
        (*ROOM, "resources", *HELD),
    ),
    "RequiredTopology": Code(
        "no domain of a level that it requires has enough room",
        (*ROOM, "level", "domain", *HELD, "text"),
    ),
    "Selector": Code(
        "every node that has what it needs is cordoned, not ready, tainted, or excluded by other rules",
        ("role", "nodes_with", "taints"),
    ),
    "Bandwidth": Code("below its minBandwidthShare everywhere", _RULE),
    "Outranked": Code(
        "gangs that come first, or tiers that come first, leave it no place",
        (*ROOM, *PLACE, *HELD),
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
        ("by",),
    ),
    "Quota": Code(
        "so many GPUs would be more than a queue may hold, or than others leave of their guarantees",
        ("gpus", "model", "queue", "held", "limit", "level"),
    ),
    "Never": Code(
        "it could not start even if nothing else ran",
        (*ROOM, *PLACE, "nodes_with", "taints", "offered", "queue", "limit", "cause"),
    ),
    "Preempted": Code("it is stopped for gangs that come to its nodes", ("by",)),
    "Incomplete": Code(
        "some of its pods are missing, and do not start; or do not exist yet",
        tuple(ReasonFields.model_fields),
    ),
    "QueueLimit": Code("more gangs of its namespace wait than the Policy plans", ("limit",)),
    "Backoff": Code("plans stopped it, and it may not start again yet", ("until",)),
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
