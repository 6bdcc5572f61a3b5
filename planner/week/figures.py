"""What one look at a cluster says of idle GPUs, as the journal keeps it. GPUs are integer thousandths."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Amount = Annotated[int, Meta(ge=0)]


class Start(Struct, frozen=True, array_like=True):
    """A gang that could have run, and on which nodes."""

    gang: str
    gpus: Amount
    nodes: tuple[str, ...] = ()


class Idle(Struct, frozen=True):
    """Thousandths of GPUs of waiting gangs that could have run. ``proven``: no plan starts more.

    ``gangs``: who; ``moved``: who would restart for it, with GPUs and the GPU-seconds of work that are lost,
    None if not known.
    """

    gpus: Amount = 0
    proven: bool = True
    gangs: tuple[Start, ...] = ()
    moved: tuple[tuple[str, Amount, Amount | None], ...] = ()


class Figures(Struct, frozen=True):
    """``now``: with nothing moved; ``moving``: beyond that, with at most ``restarts`` gangs restarted.

    ``quotas``: beyond ``now``, if no queue had a limit. ``spread``: what running gangs lose by where they
    stand. ``stranded``: free GPUs by the cause why the usual requests cannot use them.
    """

    installed: Amount
    held: Amount
    free: Amount
    effective: Amount
    spread: Amount
    stranded: dict[str, Amount]
    restarts: Amount
    now: Idle = Idle()
    moving: Idle = Idle()
    quotas: Idle = Idle()
