"""Where inputs lie: those for people in inputs/, those for tests alone in tests/inputs."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
INPUTS = TESTS.parent / "inputs"
EXPECTED = TESTS / "expected"
"""What was worked out about them by hand."""


def input_folder(name: str) -> Path:
    """The folder of an input."""
    return next(base / name for base in (INPUTS, TESTS / "inputs") if (base / name).is_dir())


def input_names() -> list[str]:
    """Every input that plans: of compact documents, and recorded clusters (snapshots/NAME)."""
    return sorted(
        str(file.parent.relative_to(base))
        for base in (INPUTS, TESTS / "inputs")
        for file in (*base.glob("*/cluster.yaml"), *base.glob("snapshots/*/README.md"))
    )
