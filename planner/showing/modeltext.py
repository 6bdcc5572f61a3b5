"""Server models as YAML or JSON documents, ready for ``spec.serverModels`` of a Cluster.

Promises: read back they are the same models; what is not known is left out. Called by ``topo``.
"""

from __future__ import annotations

from typing import Any

import yaml

from models.canonical import server_model_document
from models.hardware import ServerModel
from planner.showing.text import document_safe

_WITHOUT = {"aliases": [], "vendor": "", "sources": [], "confidence": "", "nics": [],
            "nvlinkDomainNodes": 1}  # fmt: skip
"""Fields that say nothing at these values."""


def model_document(model: ServerModel, assumed: tuple[str, ...] = ()) -> dict[str, Any]:
    """The document of a model without what is not known. ``assumed``: fields to leave out."""
    document = server_model_document(model)
    document["nics"] = [
        {key: value for key, value in nic.items() if value is not None} for nic in document["nics"]
    ]
    return {
        key: value
        for key, value in document.items()
        if key not in assumed and (key not in _WITHOUT or value != _WITHOUT[key])
    }


def model_yaml(document: dict[str, Any]) -> str:
    """The document with a row of the matrix and a NIC a line, as in the catalogue."""
    return "".join(
        _matrix(value) if key == "matrix" else _field(key, value) for key, value in document.items()
    )


def _matrix(rows: list[list[str]]) -> str:
    width = max(len(cell) for row in rows for cell in row) + 1
    lines = [
        "".join(f"{cell},".ljust(width + 1) for cell in row[:-1]) + row[-1] for row in rows
    ]  # fmt: skip
    return "matrix:\n" + "".join(f"- [{line}]\n" for line in lines)


_MAP = "tag:yaml.org,2002:map"
_LIST = "tag:yaml.org,2002:seq"


class _FlowMapping(dict[str, object]):
    """A mapping that is written in one line."""


class _FlowList(list[object]):
    """A list that is written in one line."""


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_representer(
    _FlowMapping, lambda dumper, data: dumper.represent_mapping(_MAP, data, flow_style=True)
)
_Dumper.add_representer(
    _FlowList, lambda dumper, data: dumper.represent_sequence(_LIST, data, flow_style=True)
)


def _field(key: str, value: object) -> str:
    if key == "nics" and isinstance(value, list):
        value = [_FlowMapping(nic) for nic in value]
    elif key in ("numa", "pcieSwitch") and isinstance(value, list):
        value = _FlowList(value)
    text = _dumped({key: value}, unicode=True)
    return text if document_safe(text) else _dumped({key: value}, unicode=False)


def _dumped(document: dict[str, object], *, unicode: bool) -> str:
    return yaml.dump(
        document,
        Dumper=_Dumper,
        default_flow_style=False,
        sort_keys=False,
        allow_unicode=unicode,
        width=10**6,
    )
