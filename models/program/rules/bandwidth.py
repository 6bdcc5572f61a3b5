"""Bandwidth (contract 2.10, sections 3 and 8): which share of its ideal and which speed a gang may claim.

A claim t = (mode, share s, ideal I, relative speed r); sum over claims of t == admit. Modes: ``one`` (all
GPUs in one server or one NVLink domain: B = inside) and, for each oversubscription O a spread gang can
meet, ``spread``: B = min over servers of min(inside, N / O). - a claim of ``one`` needs a piece carrying
all GPUs with share(inside) >= s, or a whole NVLink domain; - a server outside NVLink domains may be used
under a spread claim only if share(min(inside, N/O)) >= s; - for an NVLink domain G in use, sum of N over
its servers >= s x I x O / 1000; - a mode that crosses no level wider than l needs all GPUs in one domain
of l; - I is the ideal of a model in use: the smallest one counts (contract 3.6); - no server with a
relative speed below r is used. A claim is worth s to the bandwidth tier, and the speed that follows from s
and r to goodput. Claims below minBandwidthShare x I do not exist, but for gangs that only grow, shrink or
stay. A gang on one node: a piece of set type t on server model m exists only if inside(t) >=
minBandwidthShare x ideal(m). Options that place nothing have claims only where unknown GPUs make their
worth depend on other gangs.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby
from math import lcm

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.speed import FULL_SPEED, speed_permille
from models.program.linear_program import Linear
from models.program.options import MAX_WAYS
from models.program.rules.bandwidth_carriers import (
    Carrier,
    Rates,
    bounded_role,
    carriers_of,
    rates_of,
    relative_speed,
)
from models.program.rules.topology import Topology
from models.program.variables import GangBandwidth, GangVariables, Model
from models.rates.gang_bandwidth import FULL_SHARE, exchange_factor, ideal_MBps, share_permille
from models.rates.gpu_sets import UnknownRate
from models.values.tier_values import most_speed

LEAST_GANG = 2
"""Fewest GPUs that have a bandwidth between them."""


@dataclass(frozen=True, slots=True)
class Mode:
    """``over`` None: one server or NVLink domain. ``within``: level that must not be crossed."""

    over: Fraction | None
    within: int | None


TOO_SLOW = -1
"""Instead of a share: the rate is below minBandwidthShare."""

Claim = tuple[Mode, int, Fraction, int]


class Speeds:
    """Speeds that a gang may claim, in permille: at most the one that it has before the plan."""

    def __init__(self, instance: Instance, index: int, gang: Gang) -> None:
        self._gang = gang
        self._most = most_speed(instance, index) if instance.by_speed else None
        self.matter = instance.by_speed
        self.follow_share = instance.by_speed and gang.fraction > 0 and gang.pattern != "none"

    def of(self, share: int | None, relative: int) -> int:
        """The speed of such a share of the ideal bandwidth on GPUs of this relative speed."""
        known = share if self.follow_share else None
        speed = speed_permille(known, self._gang.fraction, relative)
        return speed if self._most is None else min(speed, self._most)


class Claims:
    """The claims of one gang, with the rows that bind them. ``share``, ``speed``: permille of the ideal."""

    def __init__(self, model: Model, gang: GangVariables, topology: Topology) -> None:
        self._program = model.program
        self._instance = model.instance
        self._gang = gang
        self._topology = topology
        self.exact = True
        self._speeds = Speeds(model.instance, gang.demand.gang, gang.gang)
        weighs = gang.gang.pattern != "none" and gang.gang.weight > 0
        self._counts = weighs or self._speeds.follow_share
        # 0 if it only stays, grows or shrinks
        stays = gang.gang.running and not gang.effect.moved and not gang.gang.missing
        self._min_share = Fraction(0) if stays else model.instance.min_share(gang.gang)
        self._carriers: list[Carrier] = []
        self._kinds: list[Rates] = []
        self._variables: dict[Claim, int] = {}
        self.share, self.speed = Linear(), Linear()
        if gang.demand.total_gpus >= LEAST_GANG and (self._counts or self._min_share):
            with contextlib.suppress(UnknownRate):  # its share is then null and adds nothing
                self._carriers = carriers_of(model, gang)
        # whether the rates of its servers do not bound its bandwidth
        groups = gang.gang.by_rank and bounded_role(gang.gang, gang.demand.counts) is None
        if blind := bool(self._carriers) and groups:
            self._allow_all()
        if blind or not self._carriers or not self._build():
            self._relative()
        domains = any(carrier.rates.domain is not None for carrier in self._carriers)
        self.exact &= not (gang.gang.by_rank or domains)
        if gang.gang.pattern == "none":
            self.share = Linear()

    def _allow_all(self) -> None:
        """Any share: a bound that is too tight would be wrong."""
        if self._counts:
            self.share = Linear().add(self._gang.admit, FULL_SHARE)

    def _relative(self) -> None:
        """The speed where it depends on the GPU models alone: the slowest one in use counts."""
        if not self._speeds.matter:
            return
        program, gang = self._program, self._gang
        of = [relative_speed(self._instance, gang.gang, piece.n) for piece in gang.pieces]
        standing = [relative_speed(self._instance, gang.gang, n) for n, _ in gang.demand.standing]
        slowest = min(standing, default=FULL_SPEED)
        found = sorted({min(slowest, relative) for relative in of}) or [slowest]
        if len(found) == 1:
            self.speed = Linear().add(gang.admit, self._speeds.of(None, found[0]))
            return
        claims = {relative: program.boolean() for relative in found}
        program.equal(Linear().add_all(claims.values()).add(gang.admit, -1))
        for piece, relative in zip(gang.pieces, of, strict=True):
            fine = [claim for least, claim in claims.items() if least <= relative]
            if len(fine) < len(claims):
                most = program.upper[piece.variable]
                program.at_most(Linear().add(piece.variable).add_all(fine, -most))
        for relative, claim in claims.items():
            self.speed.add(claim, self._speeds.of(None, relative))

    def _build(self) -> bool:
        """Whether the claims decide the speed; if not, the bandwidth is ideal wherever the gang is."""
        self._kinds = list({carrier.rates: None for carrier in self._carriers})
        self._groups = self._domain_wholes()
        modes = self._modes()
        ideals = sorted({rates.ideal for rates in self._kinds})
        met = [(mode, self._rates(mode)) for mode in modes]
        claims = [
            (mode, share, ideal, relative)
            for ideal in ideals
            for mode, rates in met
            for share in sorted({self._limit(rate, ideal) for rate in rates} - {TOO_SLOW})
            for relative in sorted({rates.relative for rates in self._kinds})
        ]
        bound = self._min_share or not self._counts or self._groups
        full = all(share == FULL_SHARE for _, share, _, _ in claims)
        if not self.exact or (full and not bound):  # no placement loses bandwidth
            # with claims missing the bound would be too tight
            self._allow_all()
            return False
        self._variables = {claim: self._program.boolean() for claim in claims}
        self._program.equal(Linear().add_all(self._variables.values()).add(self._gang.admit, -1))
        for (_, share, _, relative), variable in self._variables.items():
            if self._counts:
                self.share.add(variable, share)
            if self._speeds.matter:
                self.speed.add(variable, self._speeds.of(share, relative))
        self._one_rows(ideals)
        self._spread_rows()
        self._domain_rows()
        self._level_rows()
        self._ideal_rows(ideals)
        return True

    def _domain_wholes(self) -> dict[int, tuple[int, Fraction]]:
        """For each NVLink domain: a boolean, 1 only if all GPUs are on its servers, and its rate."""
        found: dict[int, tuple[int, Fraction]] = {}
        for group in sorted({k.group for k in self._kinds if k.group is not None}):
            members = [c for c in self._carriers if c.rates.group == group]
            whole = self._program.boolean()
            for c in self._carriers:
                if c.rates.group != group:
                    self._program.at_most(Linear().add(c.variable).add(whole, c.most), c.most)
            self._program.at_most(Linear().add(whole).add(self._gang.admit, -1))
            fabric = min(c.rates.fabric for c in members if c.rates.fabric is not None)
            self.exact &= all(c.rates.fabric == fabric and c.rates.switched for c in members)
            found[group] = (whole, fabric)
        return found

    def _modes(self) -> list[Mode]:
        """``one`` and, per distinct oversubscription, the widest crossing that costs no more."""
        cluster = self._instance.cluster
        required = self._gang.gang.required
        first = 0 if required is None else required + 1
        spread: dict[Fraction, int | None] = {}
        over = Fraction(1)
        for level in range(cluster.node_level - 1, first - 1, -1):
            spread[over] = level
            over = max(over, cluster.levels[level].oversubscription)
        spread[over] = None
        return [Mode(None, None), *(Mode(o, within) for o, within in spread.items())]

    def _rates(self, mode: Mode) -> set[Fraction]:
        rates: set[Fraction] = set()
        if mode.over is None:
            rates |= {k.inside for k in self._kinds if k.whole and k.inside is not None}
            rates |= {fabric for _, fabric in self._groups.values()}
            return rates
        rates |= {k.spread_MBps(mode.over) for k in self._kinds if k.group is None}
        for group, (_, fabric) in self._groups.items():
            if self._gang.gang.in_groups:
                rates |= self._between(group, fabric, mode.over)
            else:
                totals = self._sums(group, fabric * mode.over)
                rates |= {min(fabric, total / mode.over) for total in totals}
        return rates

    def _between(self, group: int, fabric: Fraction, over: Fraction) -> set[Fraction]:
        """What a gang in groups gets at most if it also needs servers out of this NVLink domain."""
        rates = set()
        for kind in self._kinds:
            if kind.group == group and kind.domain is not None:
                network, gpus = kind.domain
                if kind.bounds is not None:
                    rates.add(min(fabric, kind.bounds.across(network, gpus, over)))
                else:
                    total = self._gang.demand.total_gpus
                    factor = exchange_factor(self._gang.gang.pattern, gpus, total)
                    rates.add(min(fabric, network * factor / over))
        return rates

    def _sums(self, group: int, cap: Fraction) -> set[Fraction]:
        """Every network rate the servers of one NVLink domain may add up to, cut off at ``cap``."""
        steps = sorted({k.network for k in self._kinds if k.group == group})
        most = sum(c.most for c in self._carriers if c.rates.group == group)
        sums = {Fraction(0)}
        fresh = {Fraction(0)}
        for _ in range(most):
            fresh = {min(cap, total + step) for total in fresh for step in steps} - sums
            sums |= fresh
            if len(sums) > MAX_WAYS:  # real servers stay below 100
                self.exact = False
                break
        return sums

    def _limit(self, rate: Fraction, ideal: Fraction) -> int:
        """The largest share that the rate allows."""
        if self._min_share and rate < self._min_share * ideal:
            return TOO_SLOW
        return share_permille(rate, ideal) if self._counts else 0

    def _one_rows(self, ideals: list[Fraction]) -> None:
        for ideal in ideals:
            claims = self._variables.items()
            own = [(s, v) for (m, s, i, _), v in claims if m.over is None and i == ideal]
            for share in dict.fromkeys(share for share, _ in own):
                row = Linear().add_all(v for s, v in own if s >= share)
                enough = {
                    k
                    for k in self._kinds
                    if k.whole and k.inside is not None and self._limit(k.inside, ideal) >= share
                }
                row.add_all((c.variable for c in self._carriers if c.rates in enough), -1)
                for whole, fabric in self._groups.values():
                    if self._limit(fabric, ideal) >= share:
                        row.add(whole, -1)
                self._program.at_most(row)

    def _spread_rows(self) -> None:
        allowed = {kind: self._allowed(kind) for kind in self._kinds}
        for c in self._carriers:
            fine = allowed[c.rates]
            if len(fine) < len(self._variables):
                self._program.at_most(Linear({c.variable: 1}).add_all(fine, -c.most))

    def _allowed(self, kind: Rates) -> list[int]:
        """Claims under which such a server may be used."""
        found = []
        usable = [item for item in self._variables.items() if item[0][3] <= kind.relative]
        alike = groupby(usable, key=lambda item: (item[0][0], item[0][2]))
        for (mode, ideal), claims in alike:
            if mode.over is None:
                limit = FULL_SHARE
            elif kind.group is None:
                limit = self._limit(kind.spread_MBps(mode.over), ideal)
            else:
                limit = TOO_SLOW if kind.fabric is None else self._limit(kind.fabric, ideal)
            found += [variable for (_, share, _, _), variable in claims if share <= limit]
        return found

    def _domain_rows(self) -> None:
        if self._gang.gang.in_groups:  # bounded whatever servers of a domain are used
            return
        for group in self._groups:
            members = [c for c in self._carriers if c.rates.group == group]
            used = self._program.boolean()
            for c in members:
                self._program.at_most(Linear().add(c.variable).add(used, -c.most))
            needs = {
                # MB/s of network that a domain in use must have
                variable: max(Fraction(share, FULL_SHARE), self._min_share) * ideal * mode.over
                for (mode, share, ideal, _), variable in self._variables.items()
                if mode.over is not None
            }
            largest = max(needs.values(), default=Fraction(0))
            scale = lcm(
                *(r.denominator for r in (*needs.values(), *(c.rates.network for c in members)))
            )
            row = Linear(constant=int(largest * scale)).add(used, -int(largest * scale))
            for c in members:
                row.add(c.variable, int(c.rates.network * scale))
            for variable, need in needs.items():
                row.add(variable, -int(need * scale))
            self._program.at_least(row)

    def _level_rows(self) -> None:
        by_level: dict[int, list[int]] = {}
        for (mode, _, _, _), variable in self._variables.items():
            if mode.within is not None:
                by_level.setdefault(mode.within, []).append(variable)
        for level, own in by_level.items():
            whole = self._topology.whole(level, gpus_only=True)
            self._program.at_most(Linear().add_all(own).add_linear(whole, -1))

    def _ideal_rows(self, ideals: list[Fraction]) -> None:
        for ideal in ideals[:-1]:
            row = Linear().add_all(v for (_, _, i, _), v in self._variables.items() if i == ideal)
            slow = (c.variable for c in self._carriers if c.rates.ideal <= ideal)
            self._program.at_most(row.add_all(slow, -1))


def add_claims(model: Model, gang: GangVariables, topology: Topology) -> None:
    claims = Claims(model, gang, topology)
    model.bandwidth[gang.admit] = GangBandwidth(claims.share, claims.speed, claims.exact)


def add_rates(model: Model, gang: GangVariables, _topology: Topology) -> None:
    """What gangs reach together that are one piece on one node each; none is too slow (contract 2.10)."""
    instance, spec, gpus = model.instance, gang.gang, gang.demand.total_gpus
    least = instance.min_share(spec) if gpus >= LEAST_GANG and not spec.by_rank else Fraction(0)
    speeds, share, speed = Speeds(instance, gang.demand.gang, spec), Linear(), Linear()
    for piece in gang.pieces:
        server, inside = model.servers[piece.n].node.model, piece.kind.inside
        assert server is not None
        own: int | None = None
        if inside is not None and spec.by_rank:
            own = FULL_SHARE  # groups in one server are as fast as they can be behind a switch
        elif inside is not None or least:
            with contextlib.suppress(UnknownRate):  # an unknown rate does not bind
                ideal = ideal_MBps((server,), gpus)
                own = None if inside is None else share_permille(inside, ideal)
                if (inside or 0) < least * ideal:
                    model.program.fix(piece.variable, 0)
        speed.add(piece.variable, speeds.of(own, relative_speed(instance, spec, piece.n)))
        if spec.pattern != "none" and gpus >= LEAST_GANG:
            share.add(piece.variable, own or 0)
    model.bandwidth[gang.admit] = GangBandwidth(share, speed, not spec.by_rank)


def add_stay_claims(model: Model, stay: GangVariables) -> None:
    """The claims of an option that places nothing but whose bandwidth depends on the case of a server."""
    if not stay.effect.admitted:
        return
    nodes = model.instance.cluster.nodes
    servers = [(nodes[n], chosen, model.cases(n)) for n, chosen in stay.demand.standing]
    if any(len(rates_of(*server)) > 1 for server in servers):
        # pods that stay may break their own required level, which then implies nothing
        gang = replace(stay, gang=replace(stay.gang, required=None))
        add_claims(model, gang, Topology(model, gang))
