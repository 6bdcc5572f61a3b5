"""Numbers in sentences. Called by ``reasons`` and ``notes``."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """``1 pod``, ``2 pods``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
