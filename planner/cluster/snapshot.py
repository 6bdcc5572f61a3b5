"""Record a live cluster into a folder: what planning needs of it, and nothing else.

Promises: nodes are read first, then pods, then the other kinds; pages are pruned as they come, so
memory stays bounded; the folder is written whole or not at all. Called by ``planner.cli.snapshot``.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models.apply.intents import SealKey
from planner.cluster.answers import Reason, Refusal
from planner.cluster.discovery import Discovery, Served, certain
from planner.cluster.kinds import FILE_NAMES, NAMESPACES, NODES, OTHERS, PODS, Kind, file_name
from planner.cluster.kubectl import FailedRequestError, Kubectl
from planner.cluster.live_view import standing
from planner.cluster.pages import Listing
from planner.cluster.pruning import GONE
from planner.cluster.snapshot_folder import Folder, ListFile
from planner.cluster.transport import Tree
from planner.errors import Fault, NotPermittedError, UnavailableError
from planner.read.kube.lookup import text

_AHEAD = 3
"""Kinds whose first page is asked for while another is worked on."""

_IDENTITY = "/api/v1/namespaces/kube-system"


@dataclass(frozen=True, slots=True)
class Wish:
    """What to record. ``namespaces``: of namespaced kinds only these; none: all. ``skip``: resources.

    ``seal_key``: of the lock, where that is known: what else says of pods to be ours is left out.
    ``leave``: whether a pod is left out.
    """

    namespaces: tuple[str, ...] = ()
    skip: frozenset[str] = frozenset()
    seal_key: SealKey | None = None
    leave: Callable[[Tree], bool] = lambda _: False


@dataclass(slots=True)
class Recorded:
    """What was recorded. ``counts``: resource to objects. ``forbidden``: rights that were lacking."""

    counts: dict[str, int] = field(default_factory=dict)
    absent: list[Kind] = field(default_factory=list)
    forbidden: list[str] = field(default_factory=list)
    cluster: str | None = None
    restarts: int = 0
    bytes: int = 0


Progress = Callable[[str, int, int], None]
"""Told the resource, how many objects were read, and how many there seem to be in all."""


def folder_for(out: Path, *, force: bool) -> Folder:
    """The folder of a snapshot; entering it fails where it cannot be written."""
    return Folder(out, ours=FILE_NAMES, force=force)


def record(door: Kubectl, folder: Folder, wish: Wish, progress: Progress) -> Recorded:
    """Read the cluster behind the door into the folder, and keep that.

    Raises CannotWriteError, UnavailableError, NotPermittedError (nodes or pods may not be listed).
    """
    recorder = _Recorder(door, wish, folder, progress)
    with _no_cycles():
        recorder.run()
        recorder.recorded.bytes = folder.keep()
    return recorder.recorded


@contextmanager
def _no_cycles() -> Iterator[None]:
    """Trees of JSON have no cycles, and looking for some takes as long as parsing them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Recorder:
    def __init__(self, door: Kubectl, wish: Wish, folder: Folder, progress: Progress) -> None:
        self._door = door
        self._wish = wish
        self._folder = folder
        self._progress = progress
        self.recorded = Recorded()

    def run(self) -> None:
        nodes, pods = self._listing(certain(NODES)), self._listing(certain(PODS))
        nodes.open()
        identity = self._door.ask_json(_IDENTITY)
        wanted = [kind for kind in OTHERS if kind.resource not in self._wish.skip]
        discovery = Discovery(self._door, wanted)
        self._record(nodes)
        pods.open()
        discovery.ask()
        self._record(pods)
        self._identity(identity.result())
        served, self.recorded.absent = discovery.found()
        for listing in self._opened(served):
            try:
                self._record(listing)
            except FailedRequestError as error:
                raise _with_a_way_on(error, listing.served.kind) from error

    def _listing(self, served: Served) -> Listing:
        return Listing(self._door, served, self._wish.namespaces)

    def _opened(self, served: Sequence[Served]) -> Iterator[Listing]:
        """Listings in order, the first pages of the next ones on their way."""
        waiting = deque(map(self._listing, served))
        ahead: deque[Listing] = deque()
        while waiting or ahead:
            while waiting and len(ahead) <= _AHEAD:
                waiting[0].open()
                ahead.append(waiting.popleft())
            yield ahead.popleft()

    def _record(self, listing: Listing) -> None:
        """One kind into one file."""
        served = listing.served
        kind = served.kind
        required = kind in (NODES, PODS)
        with self._folder.list_file(
            file_name(kind), f"{kind.name}List", served.api_version, even_empty=required
        ) as file:
            for page in listing.pages():
                if page.begins:
                    file.begin(page.resource_version)
                file.add(_pruned(kind, self._believed(kind, page.items)))
                self._progress(kind.resource, file.items, file.items + page.left)
            self._refused(listing, file, required=required)
        self.recorded.restarts += listing.restarts
        if file.items:
            self.recorded.counts[kind.resource] = file.items

    def _believed(self, kind: Kind, items: list[Any]) -> Iterator[Any]:
        """Without what tenants only say of their pods: marks there hold room on nodes."""
        for item in items:
            pod = kind is PODS and isinstance(item, dict)
            if not (pod and self._wish.leave(item)):
                yield standing(item, self._wish.seal_key) if pod else item

    def _refused(self, listing: Listing, file: ListFile, *, required: bool) -> None:
        """Note what could not be listed. Raises NotPermittedError for nodes and pods."""
        kind = listing.served.kind
        for place, refusal in listing.refusals:
            right = _right(kind, place, self._wish.namespaces)
            if required:
                raise _lacking(kind, right, refusal)
            if refusal.reason is Reason.forbidden:
                self.recorded.forbidden.append(right)
            elif not file.items and kind not in self.recorded.absent:
                self.recorded.absent.append(kind)

    def _identity(self, answer: dict[str, Any] | Refusal) -> None:
        """The uid of kube-system, in a list of one namespace."""
        if isinstance(answer, Refusal):
            self.recorded.forbidden.append("get namespaces/kube-system")
            return
        metadata = {name: text(answer, "metadata", name) for name in ("name", "uid")}
        kept = {"metadata": {name: value for name, value in metadata.items() if value is not None}}
        self.recorded.cluster = metadata["uid"]
        served = certain(NAMESPACES)
        with self._folder.list_file(
            file_name(NAMESPACES), "NamespaceList", served.api_version, even_empty=True
        ) as file:
            file.begin(None)
            file.add([kept])


def _pruned(kind: Kind, items: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for item in items:
        kept = kind.prune(item)
        if kept is not GONE:
            yield kept


def _right(kind: Kind, place: str | None, namespaces: Sequence[str]) -> str:
    """A right as an administrator grants it: ``list pods in namespace a``."""
    if place is not None:
        return f"list {kind.resource} in namespace {place}"
    everywhere = " in all namespaces" if kind.namespaced and not namespaces else ""
    return f"list {kind.resource}{everywhere}"


def _lacking(kind: Kind, right: str, refusal: Refusal) -> NotPermittedError | UnavailableError:
    if refusal.reason is not Reason.forbidden:
        what = f"the server has no {kind.resource}: {refusal.message}"
        return UnavailableError(Fault(what, "is this the API server of a Kubernetes cluster?"))
    hint = "ask for the ClusterRole in docs/snapshot.md"
    if kind is PODS and " in all namespaces" in right:
        hint += ", or record the namespaces you may read: --namespace NAME"
    return NotPermittedError(Fault(f"not permitted: {right} ({refusal.message})", hint))


def _with_a_way_on(error: FailedRequestError, kind: Kind) -> FailedRequestError:
    """One broken kind, such as one whose conversion webhook is gone, need not stop the rest."""
    (fault,) = error.faults
    hint = f"{fault.hint}; or leave this kind out: --skip {kind.resource}"
    return FailedRequestError(Fault(fault.what, hint))
