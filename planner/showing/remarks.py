"""What a reading found odd or worth knowing, said on stderr.

Promises: nothing is said twice; a dry run shows the first remarks and says where the rest are.
Called by the verbs that read an input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.console import Console
    from planner.reading import Built

MOST_OF_A_DRY_RUN = 8


def tell(console: Console, built: Built, *, all_with: str | None = None) -> None:
    """Say where the levels come from, and the remarks: all of them, or the first MOST_OF_A_DRY_RUN.

    ``all_with``: the command that shows them all; None shows them here.
    """
    if built.found is not None:
        console.say(built.found)
        console.event("levels", found=built.found)
    told = built.remarks if all_with is None else built.remarks[:MOST_OF_A_DRY_RUN]
    for line in told:
        console.warn(line)
    for line in built.remarks:
        console.event("warning", warning=line)
    rest = len(built.remarks) - len(told)
    if rest:
        console.warn(f"and {rest:,} more; {all_with} shows {'it' if rest == 1 else 'all'}")
