"""What a reading found odd or worth knowing, said on stderr.

Promises: nothing is said twice; a dry run shows the first remarks and says where the rest are.
Called by the verbs that read an input or show a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.read.instance_builder import Built
    from planner.show.console import Console

MOST_OF_A_DRY_RUN = 8


def tell(console: Console, built: Built, *, all_with: str | None = None) -> None:
    """Say where the levels come from, and the remarks; ``all_with`` as in ``warn_of``."""
    if built.found is not None:
        console.say(built.found)
        console.event("levels", found=built.found)
    warn_of(console, built.remarks, all_with=all_with)


def warn_of(console: Console, remarks: Sequence[str], *, all_with: str | None = None) -> None:
    """Say the remarks: all of them, or the first MOST_OF_A_DRY_RUN.

    ``all_with``: the command that shows them all; None shows them here.
    """
    told = remarks if all_with is None else remarks[:MOST_OF_A_DRY_RUN]
    for line in told:
        console.warn(line)
    for line in remarks:
        console.event("warning", warning=line)
    rest = len(remarks) - len(told)
    if rest:
        console.warn(f"and {rest:,} more; {all_with} shows {'it' if rest == 1 else 'all'}")
