"""Bodies of answers: one JSON object, or none that can be used.

Promises: pure; a body that is cut short, no object, or holds what is no number, is refused. Called by
``planner.cluster.kubectl`` and ``planner.cluster.proxy``.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

MAX_BYTES = 256 * 2**20
"""Largest answer that is read."""

Tree = dict[str, Any]


class MalformedError(ValueError):
    """An answer that is no JSON object."""


def json_object(body: bytes) -> Tree:
    """Raises MalformedError for anything but one JSON object without NaN and infinities."""
    try:
        tree = _DECODE(body.decode(json.detect_encoding(body), "surrogatepass"))
    except (ValueError, RecursionError) as error:
        where = f" after {len(body):,} bytes" if len(body) else ": it is empty"
        raise MalformedError(f"the answer is not whole JSON{where}") from error
    if not isinstance(tree, dict):
        raise MalformedError("the answer is no JSON object")
    return tree


def _finite(written: str) -> float:
    """Raises ValueError for what is too large to be a number, such as 1e999."""
    value = float(written)
    if math.isinf(value):
        _no_number(written)
    return value


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


_DECODE = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number).decode
