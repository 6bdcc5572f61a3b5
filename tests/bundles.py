"""Documents of any kind as one input, and what is read of it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

from models.instance.instance import Instance
from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput


def packed(documents: Iterable[dict[str, Any]]) -> bytes:
    """A List of these documents."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)}).encode()


def load_all(documents: Iterable[dict[str, Any]], **how: Any) -> LoadedInput:  # noqa: ANN401  # of load
    """What is read of a List of these documents, with remarks."""
    return load(["-"], stdin=io.BytesIO(packed(documents)), **how)


def read_all(documents: Iterable[dict[str, Any]]) -> Instance:
    """The Instance of a List of these documents."""
    return load_all(documents).instance
