"""GPUs, and parts of them, that a scheduler gives by names and annotations of its own.

A part is never taken for a whole GPU, nor a whole GPU for a part. Nothing here raises.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from models.documents.cluster import Taint
from models.gpu_shares import CORES, Part
from models.instance.policy import KubernetesPolicy
from models.mig import Board
from planner.read.findings import Remarks
from planner.read.kube.records import Group, KubeNode, KubeObject, KubePod, MigKind, Share

MAX_POD_GPUS = 100_000
"""Most GPUs of one pod: the limit of the documents."""

NVIDIA = "nvidia.com/gpu"
PART = "nvidia.com/gpu.part"
"""In plans alone: parts, all alike on a node, that are offered and requested under the name of whole GPUs."""

MOST_MIB = 1 << 24
"""Memory of a part; more is a mistake."""

MALFORMED = "a part of a GPU that cannot be read"

WHOLE = Part(CORES, 0, CORES)
"""All of a GPU."""


class Ask(Struct, frozen=True):
    """What one pod asks of GPUs by resource names and annotations, without claims.

    ``gpus``: whole ones, by ``resource`` (None: several names). ``shares``: GPUs of which it asks for a part;
    ``part``: how much of each, None where no plan has such parts. ``by``: the system whose annotations ask.
    ``counted``: instances, and parts all alike, as other resources.
    """

    gpus: int = 0
    resource: str | None = None
    shares: int = 0
    part: Part | None = None
    by: str | None = None
    counted: tuple[tuple[str, int], ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def in_requests(self) -> dict[str, int]:
        """What of it a plan has among the other resources of the pod."""
        own = {} if self.part is None else {self.part.resource: self.part.gpus}
        return {**own, **dict(self.counted)}

    def in_parts(self) -> Ask:
        """The same where the GPUs of that name are parts."""
        parts = self.gpus and self.resource == NVIDIA
        return Ask(counted=((PART, self.gpus),)) if parts else self

    def with_problem(self, problem: str) -> Ask:
        return replace(self, problems=(*self.problems, problem))


def share(gpus: int, by: str | None = None) -> Ask:
    """A part of each of so many GPUs, not known yet."""
    return Ask(shares=max(1, min(gpus, MAX_POD_GPUS)), by=by)


class Cards(Struct, frozen=True):
    """Cards of a node, numbered from 0 to ``count`` - 1, all whole or all in MIG mode.

    ``resource``: by which the node offers parts, or whole ones. ``sick``: unhealthy ones, ascending.
    ``memory_MiB``, ``cores``, ``pods``: the least that any of them has; ``alike``: all have as much memory.
    ``kinds``: of the instances that each can have.
    """

    count: int
    resource: str
    sick: tuple[int, ...] = ()
    memory_MiB: int = 0  # noqa: N815  # a unit
    cores: int = 0
    pods: int = 0
    alike: bool = True
    kinds: tuple[MigKind, ...] = ()

    def board(self, boards: Sequence[Board]) -> Board | None:
        """The one of these boards that has such instances just there; None if several have, or none."""
        found = [board for board in boards if all(_is_of(board, kind) for kind in self.kinds)]
        return found[0] if len(found) == 1 else None


def _is_of(board: Board, kind: MigKind) -> bool:
    profile = board.profile(kind.profile)
    places = () if profile is None else [(start, profile.size) for start in profile.starts]
    return bool(places) and kind.places == frozenset(places)


class CardReader(Struct, frozen=True):
    """How nodes register the cards of a system.

    ``key``: annotation of nodes that have some. ``indices``: of each uuid; ``count``: of all, with an index
    or not. ``whole``: the cards, if all are whole; ``in_mig_mode``: if all give instances. ``backend``: the
    GPU back end that uses them.
    """

    key: str
    indices: Callable[[Mapping[str, str]], dict[str, int]]
    count: Callable[[Mapping[str, str]], int]
    whole: Callable[[Mapping[str, str]], Cards | None]
    in_mig_mode: Callable[[Mapping[str, str]], Cards | None] = lambda _: None
    backend: str = ""


class Mark(NamedTuple):
    """``refuses``: nodes that take pods with GPUs only if they are ``marked``; ``taint``: theirs in plans."""

    taint: Taint
    refuses: Callable[[KubeNode], bool]
    marked: Callable[[KubePod], bool]


class GpuSystem(Struct, frozen=True, kw_only=True):
    """How one scheduler gives GPUs or parts of them. ``name``: of its parts, in requests and on nodes.

    ``annotations``: of pods, that ask; ``hints``: on such, where what is asked cannot be read.
    ``parts``: resources that a part, or a whole GPU, stands for; ``counter``: the one that counts the GPUs.
    ``beside``: from amounts, and the number of whole GPUs, whether a pod asks for parts of these.
    ``alone``: what a pod asks that names no resource of whole GPUs; ``asks``: whether a pod does so.
    ``part``: the part, or the whole GPUs, that a pod means that asks for parts; ``held``: what one holds that
    asked for a part, on a card of so many MiB. ``instance``: the MIG instance that a pod asks for or has.
    ``number``: GPUs of a pod, where only annotations say. ``missing``: why a bound pod has none, and a hint;
    empty if it has them, None if its node decides. ``groups``: GPUs that a pod shares or reserves, by name;
    ``shares``: those of parts that it holds, None if annotations say. ``chosen``: those it may use.
    ``installed``: resource of nodes that counts the GPUs behind shares; ``alias``: one of whole GPUs that are
    those of NVIDIA's; ``shared``: why a node's are not given whole, a key of ``nodes.gpus.SHARED``.
    ``is_empty``: whether a pod only reserves GPUs of others. ``any_node``: any node's whole GPUs are shared.
    """

    name: str
    annotations: tuple[str, ...] = ()
    hints: Mapping[str, str] = {}
    parts: tuple[str, ...] = ()
    counter: str | None = None
    beside: Callable[[Mapping[str, int], int], bool] = lambda *_: False
    alone: Callable[[Mapping[str, int], Mapping[str, str]], Ask | None] = lambda *_: None
    asks: Callable[[KubeObject], bool] | None = None
    part: Callable[[Ask, KubeObject, str], Ask | None] = lambda *_: None
    held: Callable[[Part, Mapping[str, str], int | None], Part] = lambda part, *_: part
    instance: Callable[
        [Ask, KubePod, KubeNode | None, Collection[tuple[MigKind, ...]], Remarks], Ask | None
    ] = lambda *_: None
    number: Callable[[KubePod, KubeNode | None], int] | None = None
    missing: Callable[
        [KubePod, Ask, Collection[Group], KubernetesPolicy], tuple[str, ...] | None
    ] = lambda *_: None
    groups: Callable[[KubeObject], Iterable[Group]] | None = None
    shares: Callable[[KubePod], tuple[Share, ...] | None] = lambda _: None
    chosen: Callable[[Mapping[str, str], KubeNode, int], tuple[int, ...] | None] = lambda *_: None
    is_empty: Callable[[KubePod], bool] = lambda _: False
    any_node: bool = False
    installed: str = ""
    alias: str = NVIDIA
    shared: Callable[[KubeNode, Remarks], str | None] = lambda *_: None
    mark: Mark | None = None
    cards: CardReader | None = None


def is_taken(share: Share, taken: Collection[Share]) -> bool:
    """Whether a share is among those that count already."""
    return share in taken or (isinstance(share, tuple) and ("", share[1]) in taken)


def indices_by_uuid(node: KubeNode) -> dict[str, int]:
    """Index of every GPU uuid that the cards or the ResourceSlices of the node name."""
    return node.cards | {one.uuid: one.index for one in node.devices if one.uuid is not None}
