"""What people write, as exact integers: quantities, durations, times, decimals, host ranges.

Promises: pure, exact (no floats decide), bounded before anything is built; bad text raises Refused.
Called by ``models.documents`` and the readers; the inverse functions by ``models.canonical``.
"""

from models.quantities.amounts import MAX_AMOUNT, offered, quantity, quantity_text, requested
from models.quantities.decimals import MAX_DIGITS, exact, number, significant_digits
from models.quantities.hosts import MAX_NAMES, check_hosts, host_count, host_ranges, hosts
from models.quantities.refusal import Refused, described, shown
from models.quantities.times import (
    MAX_SECONDS,
    duration_text,
    epoch_seconds,
    seconds,
    time_text,
)

__all__ = [
    "MAX_AMOUNT",
    "MAX_DIGITS",
    "MAX_NAMES",
    "MAX_SECONDS",
    "Refused",
    "check_hosts",
    "described",
    "duration_text",
    "epoch_seconds",
    "exact",
    "host_count",
    "host_ranges",
    "hosts",
    "number",
    "offered",
    "quantity",
    "quantity_text",
    "requested",
    "seconds",
    "shown",
    "significant_digits",
    "time_text",
]
