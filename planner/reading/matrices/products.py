"""The name of the GPU, where the text beside a matrix tells it, as ``nvidia-smi -L`` does.

Promises: a name or None, never a fault; two different names are none. Called by ``nvidia``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_LISTED = re.compile(r"\s*GPU\s+[0-9][0-9, ]{0,400}:\s*([A-Za-z][\w .+/-]{1,60}?)\s*(?:\(UUID.*)?")


def product(lines: Iterable[str]) -> str | None:
    """``NVIDIA H100 80GB HBM3`` of ``GPU 0: NVIDIA H100 80GB HBM3 (UUID: ...)``."""
    names = {found[1].strip() for line in lines if (found := _LISTED.fullmatch(line)) is not None}
    return names.pop() if len(names) == 1 else None
