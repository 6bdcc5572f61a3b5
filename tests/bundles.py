"""Documents of any kind as one input, read as from standard input."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

from models.instance.instance import Instance
from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput


def load_all(documents: Iterable[dict[str, Any]]) -> LoadedInput:
    """What is read of a List of these documents, with remarks."""
    bundle = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    return load(["-"], stdin=io.BytesIO(json.dumps(bundle).encode()))


def read_all(documents: Iterable[dict[str, Any]]) -> Instance:
    """The Instance of a List of these documents."""
    return load_all(documents).instance
