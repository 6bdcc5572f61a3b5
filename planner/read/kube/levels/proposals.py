"""Labels that may be topology levels, although no source names them: proposed, never used.

A label is proposed if it divides the nodes with GPUs evenly, and its name or its values look like topology.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from planner.read.kube.levels.label_families import is_known
from planner.read.kube.levels.node_domains import (
    Chain,
    Column,
    Division,
    divisions,
    with_distinct_names,
)
from planner.read.kube.lookup import is_label_key, is_name
from planner.read.kube.records import KubeNode

MAX_PROPOSED = 3

_WORDS = (
    *("datacenter", "dc", "site", "building", "hall", "room", "island", "superpod", "superblock"),
    *("spine", "block", "row", "aisle", "pod", "scalable", "su", "cell", "network", "fabric"),
    *("domain", "subblock", "rack", "cabinet", "leaf", "tor", "switch", "enclosure", "chassis"),
    *("location",),
)
"""What parts of a data centre or network are called, widest first."""

_CLEAR_WORDS = frozenset(("island", "superpod", "spine", "rack", "cabinet", "leaf"))
"""Those that mean nothing else in the labels of vendors."""

_OTHER_WORDS = frozenset(
    (
        *("arch", "batch", "billing", "capacity", "channel", "class", "cost", "count", "cpu"),
        *("date", "driver", "env", "environment", "family", "firmware", "flavor", "generation"),
        *("group", "image", "instance", "kernel", "lifecycle", "machine", "maintenance"),
        *("memory", "mode", "model", "nodegroup", "nodepool", "nodeset", "os", "owner", "patch"),
        *("phase", "pool", "present", "product", "profile", "project", "purpose", "queue"),
        *("reservation", "ring", "role", "slot", "speed", "stage", "state", "team", "tenant"),
        *("type", "update", "upgrade", "user", "vendor", "version", "wave"),
    )
)
"""Words of labels that divide nodes by something else."""

_VENDORS = re.compile(
    r"(?:.*\.)?(?:kubernetes\.io|k8s\.io|x-k8s\.io|k8s\.aws|amazonaws\.com|google\.com|azure\.com|"
    r"nvidia\.com|amd\.com|intel\.com|habana\.ai|oraclecloud\.com|aliyun\.com|alibabacloud\.com|"
    r"coreweave\.(?:cloud|com)|karpenter\.sh|openshift\.io|volcano\.sh|run\.ai|kai\.scheduler|"
    r"topograph\.run|cattle\.io|eksctl\.io|gke\.io|gangplan\.dev)"
)
"""Prefixes whose labels have documented meanings, few of them topology."""

_FLAGS = frozenset(("true", "false", "yes", "no", "on", "off", "enabled", "disabled"))
_VERSION = re.compile(r"v?[0-9]+\.[0-9].*|20[0-9]{2}-?[0-9]{2}-?[0-9]{2}.*")
_MEMBER = re.compile(r"(.*?)([0-9]{1,6}|[A-Za-z])")
_NUMBER = re.compile(r"[0-9]{1,3}|[A-Za-z]")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


@dataclass(frozen=True, slots=True)
class _Candidate:
    """``evidence``: 0 its name, 1 its prefix, 2 only its values. ``width``: place of its word."""

    evidence: int
    width: int
    domains: int
    column: Column

    @property
    def order(self) -> tuple[int, int, int, str]:
        return self.evidence, self.width, self.domains, self.column.name


def with_proposals(levels: Sequence[Column], nodes: Sequence[KubeNode]) -> list[Column]:
    """These levels and at most MAX_PROPOSED labels that nest with them, widest first.

    ``nodes``: those that count, in any order. The levels alone if there is nothing to propose.
    """
    chain = Chain(nodes)
    chain.set(levels)
    used = {key for level in levels for key in level.keys}
    all_wide = all(level.wide for level in levels)
    own = set(divisions_alone(levels, nodes))
    added: list[_Candidate] = []
    for one in _candidates(nodes, used):
        if len(added) == MAX_PROPOSED or (one.evidence == 2 and (added or not all_wide)):
            break
        (division,) = divisions_alone([one.column], nodes)
        if division in own or division in chain.divisions:
            continue  # another name of what is there
        if chain.insert(one.column) or (all_wide and _add_inside(chain, one, added)):
            added.append(one)
            own.add(division)
    return with_distinct_names(chain.columns) if added else list(levels)


def divisions_alone(columns: Sequence[Column], nodes: Sequence[KubeNode]) -> list[Division]:
    """The division of each column by itself."""
    return [divisions([column], nodes)[0] for column in columns]


def _add_inside(chain: Chain, one: _Candidate, added: Sequence[_Candidate]) -> bool:
    """Add it innermost if its values are numbers of their wider domain: rack 1 of every row."""
    numbered = all(_NUMBER.fullmatch(value) for value in one.column.values.values())
    narrower = one.evidence == 0 and all(one.width > wider.width for wider in added)
    if not numbered or not narrower:
        return False
    columns = [*chain.columns, one.column]
    if not _is_even(Counter(divisions(columns, chain.nodes)[-1]), len(chain.nodes)):
        return False
    chain.set(columns)
    return True


def _candidates(nodes: Sequence[KubeNode], used: set[str]) -> list[_Candidate]:
    """Labels that divide the nodes evenly and look like topology, the most plausible first."""
    having = Counter(key for node in nodes for key in node.labels)
    found = []
    for key in sorted(key for key, count in having.items() if 10 * count >= 9 * len(nodes)):
        if key in used or is_known(key) or not is_label_key(key):
            continue
        evidence, width = _evidence(key)
        if evidence is None:
            continue
        values = {node.name: value for node in nodes if (value := node.labels.get(key))}
        sizes = Counter(values.values())
        if _may_be_domains(sizes, len(nodes)) and (evidence < 2 or _is_series(sizes)):
            found.append(_Candidate(evidence, width, len(sizes), Column(key, values, (key,))))
    return sorted(found, key=lambda one: one.order)


def _evidence(key: str) -> tuple[int | None, int]:
    """How well the name of a label speaks for topology, and the place of its word in _WORDS.

    0: its name does, 1: its prefix does, 2: nothing does, None: it is something else.
    """
    prefix, _, name = key.rpartition("/")
    words = {word.lower() for word in _PART.findall(name)}
    width = next((i for i, word in enumerate(_WORDS) if _names(word, words)), len(_WORDS))
    topological = "topology" in words or "topology" in prefix.split(".")
    clear = topological or (width < len(_WORDS) and _WORDS[width] in _CLEAR_WORDS)
    if words & _OTHER_WORDS or (_VENDORS.fullmatch(prefix) and not clear):
        return None, width
    return (0 if width < len(_WORDS) else 1 if topological else 2), width


def _names(word: str, words: set[str]) -> bool:
    """Whether a part of a label's name is the word; long words may have an ending, as in ``rackid``."""
    return word in words or (len(word) > 3 and any(one.startswith(word) for one in words))


def _may_be_domains(sizes: Counter[str], nodes: int) -> bool:
    """Whether the values are names of domains of about the same size: no flags, no versions."""
    return (
        _is_even(sizes, nodes)
        and not all(value.lower() in _FLAGS for value in sizes)
        and not all(_VERSION.fullmatch(value) for value in sizes)
        and all(is_name(value) for value in sizes)
    )


def _is_even(sizes: Counter[str] | Counter[int], nodes: int) -> bool:
    """Whether there are at least two domains of at least two nodes, of about the same size.

    About the same: none has more than twice the nodes of the median, and at most one in four, or one of
    three, has less than half of them: the last rack is often part full.
    """
    if not 2 <= len(sizes) <= nodes // 2:
        return False
    ordered = sorted(sizes.values())
    median = ordered[len(ordered) // 2]
    small = sum(2 * size < median for size in ordered)
    few = 4 * small <= len(ordered) or (small == 1 and len(ordered) == 3)
    return few and median > 1 and ordered[-1] <= 2 * median


def _is_series(sizes: Counter[str]) -> bool:
    """Whether there are at least three domains of one size, named in a row: ``u1``, ``u2``, ``u3``."""
    members = [_MEMBER.fullmatch(value) for value in sizes]
    starts = {member[1] if member else None for member in members}
    return (
        len(sizes) > 2
        and len(set(sizes.values())) == 1
        and len(starts - {None}) == len(starts) == 1
    )
