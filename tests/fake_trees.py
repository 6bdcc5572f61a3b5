"""Names for JSON: what objects, bodies and answers are made of."""

from __future__ import annotations

from typing import Any

Tree = dict[str, Any]
"""An object."""

Json = Any
"""An object, a list, a string, a number, a truth value or null."""
