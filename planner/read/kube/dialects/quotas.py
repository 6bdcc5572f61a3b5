"""What the queues of a system promise, in words of ours, and how GPUs are read from their fields.

Amounts are whole GPUs; a fraction is rounded down. Nothing here raises, whatever an object holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec
from msgspec import Struct

from models.documents.base import MAX_GPUS
from models.instance.queue import Amount
from planner.read.findings import Remarks
from planner.read.kube.lookup import Tree, amount
from planner.read.kube.records import KubeGang, KubeObject, Objects


class Quota(Struct):
    """A queue of another system.

    ``key``: its name within its system; ``parent``: the key of the queue above it. ``name``: preferred in a
    plan; ``other_name``: if that one is taken. ``replaceable``: a Queue document of its name counts instead.
    """

    key: str
    name: str
    other_name: str
    subject: str
    parent: str | None = None
    guarantee: Amount = msgspec.field(default_factory=Amount)
    limit: Amount = msgspec.field(default_factory=Amount)
    lending_limit: Amount = msgspec.field(default_factory=Amount)
    reclaim: bool = True
    weight: Fraction = Fraction(1)
    strict: bool = False
    replaceable: bool = True


def quota(made: KubeObject, system: str, **fields: Any) -> Quota:  # noqa: ANN401
    """The queue of an object that is one, named as it."""
    return Quota(made.name, made.name, f"{made.name}.{system}", made.where, **fields)


class QuotaSources(Struct, frozen=True):
    """What quotas are read from.

    ``gpu_resources``: names that count whole GPUs. ``models_of``: the GPU models of the nodes with these
    labels, sorted. ``installed``: GPUs of all nodes. ``trusted``: only administrators write quotas in the
    namespaces of tenants.
    """

    api: Objects
    gpu_resources: Sequence[str]
    models_of: Callable[[Mapping[str, str]], tuple[str, ...]]
    installed: int
    trusted: bool
    remarks: Remarks

    def gpus(self, amounts: Tree, subject: str) -> int | None:
        """GPUs of all resources that count whole ones, together; None where none of them is stated."""
        stated = [amounts[name] for name in self.gpu_resources if name in amounts]
        found = [self.whole(one, subject) for one in stated]
        known = [gpus for gpus in found if gpus is not None]
        return min(sum(known), MAX_GPUS) if known else None

    def whole(self, written: object, subject: str) -> int | None:
        """GPUs of a number or a quantity; None, with a remark, for what is neither."""
        found = amount(written)
        if found is None:
            self.remarks.add(subject, "states an amount of GPUs that cannot be read; it is ignored")
            return None
        if found.denominator != 1:
            self.remarks.add(subject, "states a fraction of a GPU; it is rounded down")
        return min(math.floor(found), MAX_GPUS)


class QuotaReader(Struct, frozen=True):
    """How one system shares out GPUs.

    ``read``: its queues. ``find``: the key of the queue of pods in a namespace that name this one (None:
    they name none of this system). ``default``: the queue of pods that name none, by the scheduler of this
    system that they wait for. ``stopped``: why a gang whose pods name this queue may not start now, in words.
    ``precedence``: of two queues of one name that of the lower keeps it; tenants write the highest.
    """

    read: Callable[[QuotaSources], Iterable[Quota]]
    find: Callable[[QuotaSources, str, str | None], str | None]
    default: Mapping[str, str] = {}
    stopped: Callable[[QuotaSources, KubeGang, str], str | None] = lambda *_: None
    precedence: int = 0


class CellReader(Struct, frozen=True):
    """What pods say of the cells that a file of their system promises, in their annotations.

    ``queue``: to whom they are promised; ``pinned``: the one on whose nodes alone the pod runs; ``lent``:
    the pod gives way to all that is promised if there is any.
    """

    queue: Callable[[Mapping[str, str]], str | None]
    pinned: Callable[[Mapping[str, str]], str | None]
    lent: Callable[[Mapping[str, str]], object]


def weight(written: object) -> Fraction:
    """The weight in a fair share; 1 where it cannot be read."""
    found = amount(written)
    return Fraction(1) if found is None else found


def find_by_name(sources: QuotaSources, namespace: str, stated: str | None) -> str | None:
    """The key of a queue that pods of any namespace may name."""
    del sources, namespace
    return stated
