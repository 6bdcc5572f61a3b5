"""Bandwidth that sets of GPUs reach: inside a server, and out of it (contract, section 3).

Promises: exact ``Fraction`` MB/s, no solver; answers are kept per distinct hardware.
Called by planning, checking and showing; sets of GPUs are bit masks.
"""

from models.bandwidth.alike import automorphisms, count_only
from models.bandwidth.extremes import best_inside_MBps, worst_inside_MBps
from models.bandwidth.ideal import ideal_MBps
from models.bandwidth.inside import inside_MBps, switched_MBps
from models.bandwidth.outside import extreme_nics_MBps, nics_MBps, worst_nics_MBps
from models.bandwidth.sets import UnknownRate, mask_of, members
from models.bandwidth.table import TableRow, table

__all__ = [
    "TableRow",
    "UnknownRate",
    "automorphisms",
    "best_inside_MBps",
    "count_only",
    "extreme_nics_MBps",
    "ideal_MBps",
    "inside_MBps",
    "mask_of",
    "members",
    "nics_MBps",
    "switched_MBps",
    "table",
    "worst_inside_MBps",
    "worst_nics_MBps",
]
