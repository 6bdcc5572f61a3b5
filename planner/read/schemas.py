"""JSON schemas of the document kinds: ``python -m planner.read.schemas FOLDER`` writes them.

What a kind takes from another, as a plan takes the cluster, it refers to in that one's file.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from models.documents.answers import CapacityDocument, ComparisonDocument
from models.documents.base import DURATION, Data, fields_of
from models.documents.cluster import ClusterDocument
from models.documents.gang import GangDocument
from models.documents.plan import PlanDocument
from models.documents.policy import PolicyDocument
from models.documents.queue import QueueDocument
from models.documents.server import ServerModelDocument
from models.units import number

KINDS: dict[str, type[BaseModel]] = {
    # What others take from comes first.
    "cluster": ClusterDocument,
    "gang": GangDocument,
    "queue": QueueDocument,
    "policy": PolicyDocument,
    "plan": PlanDocument,
    "capacity": CapacityDocument,
    "comparison": ComparisonDocument,
    "server-model": ServerModelDocument,
}

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_OWN = "#/$defs/"


class _Readable(GenerateJsonSchema):
    """Fields without titles; described by the text below them; defaults as people write them."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002
        return False

    def encode_default(self, dft: object) -> object:
        if isinstance(dft, BaseModel | Data):
            return {}  # each of its fields states its own
        return number(dft) if isinstance(dft, Fraction) else super().encode_default(dft)

    def default_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401  # as of a core schema
        found = super().default_schema(schema)
        kinds = found.get("anyOf", [found])
        if type(found.get("default")) is int and DURATION in (k.get("description") for k in kinds):
            one = found["default"]  # in hours where they are whole
            found["default"] = f"{one // 3600}h" if one and one % 3600 == 0 else f"{one}s"
        return found

    def model_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401
        return _described(schema["cls"], super().model_schema(schema))

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401
        return _described(schema["cls"], super().dataclass_schema(schema))


def _described(kind: type[BaseModel | Data], schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with the texts that stand below fields of the class, or of those that it is made of."""
    names = kind.model_fields if issubclass(kind, BaseModel) else kind.__match_args__  # type: ignore[attr-defined]
    aliases = dict(zip(names, fields_of(kind), strict=True))
    for one in (each for each in kind.__mro__ if each.__module__.startswith("models.")):
        for field, text in pairwise(_classes(one.__module__)[one.__name__]):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                words = " ".join(ast.literal_eval(text.value).split())
                schema["properties"][aliases[ast.unparse(field.target)]]["description"] = words
    return schema


@cache
def _classes(module: str) -> dict[str, list[ast.stmt]]:
    source = inspect.getsource(sys.modules[module])
    return {one.name: one.body for one in ast.parse(source).body if isinstance(one, ast.ClassDef)}


def schemas() -> dict[str, dict[str, Any]]:
    """Every schema by its file name."""
    found: dict[str, dict[str, Any]] = {}
    homes: dict[str, tuple[str, Any]] = {}
    for kind, model in KINDS.items():
        schema = model.model_json_schema(by_alias=True, schema_generator=_Readable)
        defined = schema.pop("$defs", {})
        known = {
            name: homes[name][0]
            for name, one in defined.items()
            if homes.get(name, ("", None))[1] == one
        }
        head = {"$schema": DRAFT, "$id": f"https://gangplan.dev/schemas/v1alpha1/{kind}.json"}
        own = {name: one for name, one in defined.items() if name not in known}
        whole = head | schema | ({"$defs": own} if own else {})
        found[f"{kind}.json"] = _referring(whole, known)
        homes[model.__name__] = (f"{kind}.json", schema)
        homes |= {name: (f"{kind}.json{_OWN}{name}", one) for name, one in own.items()}
    return found


def _referring(part: Any, known: dict[str, str]) -> Any:  # noqa: ANN401
    """The same with references to where these definitions are."""
    if isinstance(part, list):
        return [_referring(one, known) for one in part]
    if not isinstance(part, dict):
        return part
    return {
        name: known.get(one.removeprefix(_OWN), one)
        if name == "$ref" and isinstance(one, str)
        else _referring(one, known)
        for name, one in part.items()
    }


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in schemas().items():
        (folder / name).write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
