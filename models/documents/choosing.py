"""How a role chooses its nodes: tolerations, and expressions of a node affinity.

Promises: types by pydantic, what Kubernetes itself would refuse by ``complaints``. Called by ``gang``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from models.affinity import NODE_NAME, whole_number
from models.documents.base import Complaint, Document, LabelKey, LabelValue, Many, Prose
from models.quantities import shown


class TolerationDocument(Document):
    """A Kubernetes toleration."""

    key: LabelKey | Literal[""] = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: LabelValue = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""

    def complaints(self) -> Iterator[Complaint]:
        """What Kubernetes would refuse; paths start at the toleration."""
        if self.operator == "Exists" and self.value:
            yield Complaint(
                ("value",), "Exists takes no value", "remove it, or use operator: Equal"
            )
        if self.operator == "Equal" and not self.key:
            yield Complaint(
                (), "a toleration without a key tolerates everything or nothing",
                "add a key, or operator: Exists to tolerate everything",
            )  # fmt: skip


class NodeExpressionDocument(Document):
    """One requirement on the labels of a node, or on its name."""

    key: LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: Many[Prose] = ()
    field: bool = Field(default=False, description="On the field metadata.name, not on a label")

    def complaints(self) -> Iterator[Complaint]:
        """What Kubernetes would refuse; paths start at the expression."""
        if self.field and self.key != NODE_NAME:
            yield Complaint(("key",), f"no field {shown(self.key)}", f"the only one is {NODE_NAME}")
        if self.field and self.operator not in ("In", "NotIn"):
            yield Complaint(("operator",), f"{self.operator} on a field", "use In or NotIn")
        elif self.operator in ("In", "NotIn"):
            if not self.values:
                yield Complaint((), f"{self.operator} without values", "add `values`")
        elif self.operator in ("Exists", "DoesNotExist"):
            if self.values:
                yield Complaint(("values",), f"{self.operator} takes no values", "remove them")
        elif len(self.values) != 1 or whole_number(self.values[0]) is None:
            yield Complaint(
                ("values",) if self.values else (),
                f"{self.operator} compares with one whole number",
                'write it like values: ["4"]',
            )
