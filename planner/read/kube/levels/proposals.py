"""Labels that may be topology levels, although no source names them: proposed, never used.

A label is proposed if it divides the nodes with GPUs evenly, and its name has a word of topology.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from planner.read.kube.levels.label_families import is_known
from planner.read.kube.levels.node_domains import Chain, Column, divisions, with_distinct_names
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
    ("capacity", "class", "count", "driver", "group", "mode", "model", "owner", "pool", "role")
) | {"size", "slot", "speed", "state", "storage", "type", "version"}
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
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


def with_proposals(levels: Sequence[Column], nodes: Sequence[KubeNode]) -> list[Column]:
    """These levels and at most MAX_PROPOSED labels that nest with them, widest first.

    ``nodes``: those that count, in any order. The levels alone if there is nothing to propose.
    """
    chain = Chain(nodes)
    chain.set(levels)
    used = {key for level in levels for key in level.keys}
    own = {divisions([level], nodes)[0] for level in levels}
    added = 0
    for column in _candidates(nodes, used):
        (division,) = divisions([column], nodes)
        if added == MAX_PROPOSED:
            break
        if division not in own and division not in chain.divisions and chain.insert(column):
            added += 1
            own.add(division)
    return with_distinct_names(chain.columns) if added else list(levels)


def _candidates(nodes: Sequence[KubeNode], used: set[str]) -> list[Column]:
    """Labels that divide the nodes evenly and look like topology, the widest by their word first."""
    having = Counter(key for node in nodes for key in node.labels)
    found = []
    for key in sorted(key for key, count in having.items() if 10 * count >= 9 * len(nodes)):
        width = _width(key)
        if key in used or is_known(key) or not is_label_key(key) or width is None:
            continue
        values = {node.name: value for node in nodes if (value := node.labels.get(key))}
        sizes = Counter(values.values())
        if _may_be_domains(sizes, len(nodes)):
            found.append((width, len(sizes), key, Column(key, values, (key,))))
    return [column for *_, column in sorted(found, key=lambda one: one[:3])]


def _width(key: str) -> int | None:
    """The place in _WORDS of the word that a label's name has; None if it is something else.

    Long words may have an ending, as in ``rackid``.
    """
    prefix, _, name = key.rpartition("/")
    parts = {part.lower() for part in _PART.findall(name)}
    for width, word in enumerate(_WORDS):
        if word in parts or (len(word) > 3 and any(part.startswith(word) for part in parts)):
            clear = word in _CLEAR_WORDS or "topology" in {*parts, *prefix.split(".")}
            other = parts & _OTHER_WORDS or (_VENDORS.fullmatch(prefix) and not clear)
            return None if other else width
    return None


def _may_be_domains(sizes: Counter[str], nodes: int) -> bool:
    """Whether the values are names of at least two domains of at least two nodes: no flags, no versions.

    They are of about the same size: none has more than twice the nodes of the median, and at most one in
    four, or one of three, has less than half of them: the last rack is often part full.
    """
    if not 2 <= len(sizes) <= nodes // 2 or not all(map(is_name, sizes)):
        return False
    if all(value.lower() in _FLAGS for value in sizes) or all(map(_VERSION.fullmatch, sizes)):
        return False
    ordered = sorted(sizes.values())
    median = ordered[len(ordered) // 2]
    small = sum(2 * size < median for size in ordered)
    few = 4 * small <= len(ordered) or (small == 1 and len(ordered) == 3)
    return few and median > 1 and ordered[-1] <= 2 * median
