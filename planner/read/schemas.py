"""JSON schemas of the document kinds: ``python -m planner.read.schemas docs/schemas`` writes them."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from models.documents.audit import AuditDocument
from models.documents.base import Data
from models.documents.capacity import CapacityDocument
from models.documents.cluster import ClusterDocument
from models.documents.comparison import ComparisonDocument
from models.documents.drain_order import DrainOrderDocument
from models.documents.gang import GangDocument
from models.documents.plan import PlanDocument
from models.documents.policy import PolicyDocument
from models.documents.queue import QueueDocument
from models.documents.replay import ReplayDocument
from models.documents.server import ServerModelDocument
from models.documents.trace import TraceDocument
from models.units import number

KINDS: dict[str, type[BaseModel]] = {
    "audit": AuditDocument,
    "capacity": CapacityDocument,
    "cluster": ClusterDocument,
    "comparison": ComparisonDocument,
    "drain-order": DrainOrderDocument,
    "gang": GangDocument,
    "plan": PlanDocument,
    "policy": PolicyDocument,
    "queue": QueueDocument,
    "replay": ReplayDocument,
    "server-model": ServerModelDocument,
    "trace": TraceDocument,
}


class _Readable(GenerateJsonSchema):
    """Fields without titles; defaults as people write them."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002
        return False

    def encode_default(self, dft: object) -> object:
        if isinstance(dft, BaseModel | Data):
            return {}  # each of its fields states its own
        return number(dft) if isinstance(dft, Fraction) else super().encode_default(dft)


def schemas() -> dict[str, str]:
    """Text of every schema by its file name."""
    return {f"{name}.json": _text(name) for name in KINDS}


def _text(name: str) -> str:
    schema = KINDS[name].model_json_schema(by_alias=True, schema_generator=_Readable)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://gangplan.dev/schemas/v1alpha1/{name}.json",
    }
    return json.dumps({**head, **schema}, indent=2, ensure_ascii=False) + "\n"


def write(folder: Path) -> None:
    """Write every schema into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in schemas().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
