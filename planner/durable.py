"""Writes that outlive a power cut.

Promises: does what the file system offers, and never fails. Called by ``saving`` and ``cluster``.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Make renames in the folder durable, where the file system offers it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
