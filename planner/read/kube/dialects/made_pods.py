"""The pods that a controller makes from its templates: how many, their names, labels and owners.

As the controllers do it, so that a gang reads the same before and after its pods exist. Nothing here raises,
and nothing takes longer because a number is large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from planner.read.kube.lookup import Tree
from planner.read.kube.records import KubeObject

JOB_NAME = "batch.kubernetes.io/job-name"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


class MadePod(NamedTuple):
    """What sets one pod apart: its name, the labels its controller adds, and an owner reference."""

    name: str
    labels: Mapping[str, str]
    owner: Tree


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of one template. ``count``: None if it cannot be read; ``made``: by their number, from 0.

    ``scheduler``, ``priority_class``: for templates that name none.
    """

    template: Tree
    count: int | None
    made: Callable[[int], MadePod]
    scheduler: str | None = None
    priority_class: str | None = None


@dataclass(frozen=True, slots=True)
class Makes:
    """A kind whose objects may wait without pods. ``pods``: those that an object would have.

    ``waits``: whether it does wait, where the kind has a state of its own for that; else a suspended one
    does, or one whose group waits. ``group_of_its_name``: its operator names the group after it.
    """

    pods: Callable[[KubeObject], Iterable[PodSet]]
    waits: Callable[[KubeObject], bool] | None = None
    group_of_its_name: bool = False


def owned_by(one: KubeObject) -> Tree:
    """A reference to the controller."""
    version = f"{one.group}/{one.version}" if one.group else one.version
    return reference(version, one.kind, one.name, one.uid)


def reference(version: str, kind: str, name: str, uid: str | None = None) -> Tree:
    found: Tree = {"apiVersion": version, "kind": kind, "name": name, "controller": True}
    return found if uid is None else {**found, "uid": uid}
