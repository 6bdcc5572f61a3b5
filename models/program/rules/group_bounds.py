"""Upper bounds of the bandwidth of a gang in groups, from the servers that carry it (section 3, 7 to 12).

The claims of the bandwidth rule know, of every server in use, the GPUs of the gang and the network rate, and
the largest oversubscription that is crossed. A kind of group must leave a server that is too small for one of
its groups; of the others at least one kind does.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from models.hardware import ServerModel
from models.instance.gang import Gang, Role
from models.rates.group_bandwidth import Kind, combined, role_kinds
from models.rates.server_bandwidth import best_inside_MBps


def bounded_role(gang: Gang, counts: Sequence[int]) -> tuple[Role, tuple[Kind, ...]] | None:
    """The one role with GPUs and its kinds of groups; None where there are several such roles."""
    roles = [
        (role, count) for role, count in zip(gang.roles, counts, strict=True) if role.gpus * count
    ]
    if len(roles) != 1:
        return None
    role, count = roles[0]
    kinds = role_kinds(gang, role, count)
    return None if kinds is None else (role, kinds)


class GroupBounds:
    """``servers``: every one that may carry GPUs: its model, their network rate, and their number."""

    def __init__(
        self,
        role: Role,
        kinds: Sequence[Kind],
        servers: Sequence[tuple[ServerModel, Fraction, int]],
    ) -> None:
        self._kinds = kinds
        self._siblings = [_siblings(role, kind) for kind in kinds]
        models = {id(model): model for model, _, _ in servers}.values()
        self._best = [max((_best(m, kind) for m in models), default=Fraction(0)) for kind in kinds]
        self._free = [i for i, kind in enumerate(kinds) if role.gpus % (kind.size * kind.stride)]
        self._out = list(self._best)
        for i in self._free:
            out = max((self._leaving(i, n, own) for _, n, own in servers), default=Fraction(0))
            self._out[i], self._best[i] = out, max(self._best[i], out)

    def across(self, network: Fraction, own: int, over: Fraction) -> Fraction:
        """The most that the gang gets with ``own`` GPUs on such a server, if it crosses ``over``."""
        rates = list(self._best)
        if not self._free:  # one pod
            return combined(self._kinds, rates)
        for i in self._free:
            if self._kinds[i].size * self._siblings[i] > own:
                rates[i] = min(rates[i], self._leaving(i, network, own))
        if rates != self._best:
            return max(self._slowed(rates, i, self._out[i] / over) for i in self._free)
        # at least one kind leaves the server
        most = []
        for i in self._free:
            out = self._leaving(i, network, own)
            most.append(self._slowed(rates, i, min(out, self._out[i] / over)))
        return max(most)

    def _slowed(self, rates: Sequence[Fraction], kind: int, rate: Fraction) -> Fraction:
        """The bandwidth if one kind has at most this rate."""
        limited = (min(rate, known) if i == kind else known for i, known in enumerate(rates))
        return combined(self._kinds, tuple(limited))

    def alone(self, inside: Fraction, total: int) -> Fraction:
        """The most that the gang gets on ``total`` GPUs of one server with this inside(S)."""
        whole = [kind.size == total and kind.form == "ring" for kind in self._kinds]
        pairs = zip(whole, self._best, strict=True)
        return combined(self._kinds, [min(inside, best) if all_ else best for all_, best in pairs])

    def _leaving(self, kind_index: int, network: Fraction, own: int) -> Fraction:
        """The most that a kind gets of which groups leave a server with ``own`` GPUs of the role."""
        kind, siblings = self._kinds[kind_index], self._siblings[kind_index]
        near = min(kind.size - 1, max(1, own // siblings))
        if kind.form == "chain":
            return network / min(siblings, own)
        if kind.form == "exchange":
            return network * (kind.size - 1) / (own * (kind.size - near))
        return network * near / own


def _siblings(role: Role, kind: Kind) -> int:
    """How many groups of a kind have their ranks in the same pods."""
    if not kind.stride % role.gpus:
        return role.gpus
    tensor = 1 if role.parallelism is None else role.parallelism.tensor
    return 1 if role.gpus % tensor or kind.stride % tensor else tensor


def _best(model: ServerModel, kind: Kind) -> Fraction:
    """The most that a group inside a server gets."""
    size = 2 if kind.form == "chain" else kind.size
    sizes = range(2, min(size, model.gpus) + 1) if not model.switched else range(2, 3)
    if model.gpus < 2:
        return Fraction(0)
    return max(best_inside_MBps(model, k) or Fraction(0) for k in sizes)
