"""Durations and names on the command line of the live verbs, to numbers or a usage error.

Promises: pure. Called by the files of ``planner.verbs``.
"""

from __future__ import annotations

from planner.errors import Fault, UsageError


def seconds_of(option: str, text: str) -> int:
    """Whole seconds, 0 included. Raises UsageError, which names the option."""
    from models.quantities import Refused, seconds

    try:
        return seconds(text)
    except Refused as refused:
        raise UsageError(Fault(f"{option}: {refused.what}", refused.hint)) from None


def timeout_of(text: str, option: str = "--request-timeout") -> float:
    """At least a second."""
    found = seconds_of(option, text)
    if found < 1:
        raise UsageError(Fault(f"{option} is below one second", "give it like 60s or 5m"))
    return float(found)
