"""Which nodes take a number of like pods: few domains, equal pieces, and the tightest of what is left.

Works on arrays of room; knows no gangs and no rules. One node if one suffices, else as few domains as
possible from the widest level on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from planner.search.free_arrays import BoolArray, FreeArrays, IntArray, Key, by, sums, tightest

Piece = tuple[int, int]
"""(node, pods)."""


@dataclass(frozen=True, slots=True)
class Room:
    """Nodes, the pods that fit on each, its free GPUs, and 1 where no earlier plan placed the gang."""

    nodes: IntArray
    pods: IntArray
    free: IntArray
    unplanned: IntArray

    def part(self, chosen: BoolArray | IntArray) -> Room:
        return Room(
            self.nodes[chosen], self.pods[chosen], self.free[chosen], self.unplanned[chosen]
        )


def spread(arrays: FreeArrays, count: int, room: Room, used: IntArray) -> Iterator[Piece]:
    """Pods a node, ``count`` in all; the room must suffice. ``used``: nodes that the gang uses already."""
    if count < 1:
        return
    room = room.part(room.pods >= _least_piece(count, room.pods))
    while count:
        whole = np.flatnonzero(room.pods >= count)
        if len(whole):
            yield _tightest_node(arrays, room.part(whole)), count
            return
        level, room = _narrowest(arrays, count, room, used)
        if level >= arrays.tree.levels - 1:
            yield from _pieces(count, room)
            return
        domains = arrays.tree.domain_of[level + 1]
        of = domains[room.nodes]
        pods = sums(of, room.pods, arrays.tree.sizes[level + 1])
        # the one with room for most pods, of those that the gang uses already if there are some
        keys = (_unused(domains[used]), by(-pods), by(arrays.idle(level + 1)))
        inside = of == tightest(np.flatnonzero(pods), keys)
        full = room.part(inside)
        yield from zip(full.nodes.tolist(), full.pods.tolist(), strict=True)
        count -= int(full.pods.sum())
        room = room.part(~inside)


def _least_piece(count: int, pods: IntArray) -> int:
    """The most pods that every used node can have: the smallest piece decides the bandwidth."""
    down = -np.sort(-pods)
    needed = int(np.searchsorted(np.cumsum(down), count)) + 1
    return min(int(down[needed - 1]), count // needed)


def _tightest_node(arrays: FreeArrays, room: Room) -> int:
    around = (
        by(idle_around(arrays, level, room.nodes)) for level in reversed(range(arrays.tree.levels))
    )
    keys = chain((by(room.free), by(room.unplanned)), around)
    return int(room.nodes[tightest(np.arange(len(room.nodes)), keys)])


def idle_around(arrays: FreeArrays, level: int, nodes: IntArray) -> IntArray:
    """Free GPUs of the domain of a level that each node is in."""
    return arrays.idle(level)[arrays.tree.domain_of[level][nodes]]


def _narrowest(arrays: FreeArrays, count: int, room: Room, used: IntArray) -> tuple[int, Room]:
    """The room of the tightest domain of the narrowest level that takes all pods; level -1: all of it."""
    for level in range(arrays.tree.levels - 1, -1, -1):
        of = arrays.tree.domain_of[level]
        found = sums(of[room.nodes], room.pods, arrays.tree.sizes[level])
        fitting = np.flatnonzero(found >= count)
        if len(fitting):
            best = tightest(fitting, (_unused(of[used]), by(found), by(arrays.idle(level))))
            return level, room.part(of[room.nodes] == best)
    return -1, room


def _unused(domains: IntArray) -> Key:
    """0 for these domains, 1 for others."""
    return lambda d: (~np.isin(d, domains)).astype(np.int64)


def _pieces(count: int, room: Room) -> Iterator[Piece]:
    """The fewest nodes, the smallest piece as large as it can be, and the tightest nodes that allow that."""
    order = np.lexsort((room.nodes, room.unplanned, room.free, room.pods))
    pods = room.pods[order]
    nodes = room.nodes[order].tolist()
    needed = int(np.searchsorted(np.cumsum(pods[::-1]), count)) + 1
    least = min(int(pods[-needed]), count // needed)
    upward = np.concatenate(([0], np.cumsum(pods)))
    at = int(np.searchsorted(pods, least))
    left = count
    for more in range(needed - 1, -1, -1):
        others = int(upward[-1] - upward[len(pods) - more])
        # the tightest node with which the largest ones can hold the rest
        at = max(at, int(np.searchsorted(pods, left - others)))
        piece = min(int(pods[at]), left - least * more)
        yield nodes[at], piece
        left -= piece
        at += 1
