"""Gangs that need volumes on a live cluster: local ones, ones to be made, and missing claims."""

from __future__ import annotations

import contextlib
import signal
import urllib.error
from collections.abc import Iterator
from typing import Any

import pytest
from effort import first_fast
from kube_volumes import LOCAL, NOW, claim, only_on, storage_class, using, volume
from live_checks import annotations_of, overfull, partial, placed
from live_cluster import Live
from live_objects import MARK, Wanted, listed, pods
from live_runs import Killer, killed, ran, run_words

pytest_plugins = ("live_fixtures",)

SELECTED = "volume.kubernetes.io/selected-node"
_CLAIMS = "/api/v1/namespaces/{}/persistentvolumeclaims"
_VOLUMES = "/api/v1/persistentvolumes"
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"

Tree = dict[str, Any]


class Storage:
    """Classes, volumes and claims of one test, under names of the test run."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.local, self.made, self.now = (f"{live.run}-{kind}" for kind in ("local", "csi", "now"))
        self._paths: list[str] = []
        provisioner = "gangplan.dev/of-a-test"
        self.create(_CLASSES, storage_class(self.local, provisioner=LOCAL))
        self.create(_CLASSES, storage_class(self.made, provisioner=provisioner))
        self.create(_CLASSES, storage_class(self.now, provisioner=LOCAL, mode=NOW))

    def create(self, path: str, *trees: Tree) -> None:
        for tree in trees:
            tree["metadata"]["labels"] = {MARK: self.live.run}
            self._paths.append(f"{path}/{tree['metadata']['name']}")
        self.live.kubectl("create", "--validate=false", "-f", "-", given=listed(trees))

    def volumes(self, *nodes: str, size: str = "10Gi") -> None:
        """A local volume of each of the nodes, once it is there for claims."""
        names = [f"{self.live.run}-{len(self._paths) + i}" for i in range(len(nodes))]
        source = {"local": {"path": "/mnt/none"}, "persistentVolumeReclaimPolicy": "Retain"}
        self.create(
            _VOLUMES,
            *(
                volume(name, size=size, of=self.local, nodeAffinity=only_on(node), **source)
                for name, node in zip(names, nodes, strict=True)
            ),
        )
        self.live.wait_until(
            lambda: all(
                (self.live.get(f"{_VOLUMES}/{name}").get("status") or {}).get("phase")
                == "Available"
                for name in names
            ),
            "volumes to be available",
        )

    def claims(self, *names: str, of: str) -> None:
        path = _CLAIMS.format(self.live.namespace)
        self.create(path, *(claim(one, of=of, namespace=self.live.namespace) for one in names))

    def gang(self, gang: Wanted) -> None:
        """Its pods, pod NAME-0 with the claim NAME-0 and so on."""
        made = pods(gang, self.live.namespace, self.live.run)
        for pod in made:
            pod["spec"]["volumes"] = using(pod["metadata"]["name"])
        self.live.kubectl("create", "--validate=false", "-f", "-", given=listed(made))

    def selected(self, name: str) -> str | None:
        found = self.live.get(f"{_CLAIMS.format(self.live.namespace)}/{name}")
        return annotations_of(found).get(SELECTED)

    def clean(self) -> None:
        self.live.delete_pods()
        for path in reversed(self._paths):
            with contextlib.suppress(urllib.error.HTTPError):
                self.live.send("DELETE", f"{path}?gracePeriodSeconds=0")
        paths = [_CLAIMS.format(self.live.namespace)]
        paths.append(f"{_VOLUMES}?labelSelector={MARK}%3D{self.live.run}")
        self.live.wait_until(
            lambda: not any(self.live.get(path)["items"] for path in paths), "volumes to go"
        )


@pytest.fixture
def storage(live: Live) -> Iterator[Storage]:
    made = Storage(live)
    try:
        yield made
    finally:
        made.clean()


def test_a_gang_goes_to_the_nodes_with_local_volumes_or_waits_whole(
    live: Live, storage: Storage
) -> None:
    one, other = live.nodes[1], live.nodes[4]
    storage.claims("disk-0", "disk-1", of=storage.local)
    storage.gang(Wanted("disk", 2, 8))
    storage.volumes(one)
    waiting = ran(live, *run_words(live, "--wait", "20s"))
    assert waiting.code == 0, waiting.err
    assert placed(live.pods()) == {}
    assert not [call for call in waiting.calls if call.writes_pods]
    storage.volumes(other)
    done = ran(live, *run_words(live, "--wait", "20s"))
    assert done.code == 0, done.err
    assert sorted(node for node, _ in placed(live.pods()).values()) == sorted((one, other))


def test_gangs_whose_claims_need_something_first_leave_room_to_others(
    live: Live, storage: Storage
) -> None:
    storage.claims("now-0", of=storage.now)
    storage.gang(Wanted("now", 1, 8))
    storage.gang(Wanted("none", 1, 8))
    live.create(Wanted("plain", 7, 8))
    done = ran(live, *run_words(live, "--wait", "20s"))
    assert done.code == 0, done.err
    assert {name.rpartition("-")[0] for name in placed(live.pods())} == {"plain"}


def test_pods_that_gangplan_binds_have_their_nodes_selected_first(
    live: Live, storage: Storage
) -> None:
    storage.claims("made-0", "made-1", of=storage.made)
    storage.gang(Wanted("made", 2, 8, "binding"))
    storage.claims("disk-0", of=storage.local)
    storage.volumes(live.nodes[0])
    storage.gang(Wanted("disk", 1, 8, "binding"))
    done = ran(live, *run_words(live, "--wait", "20s"))
    assert done.code == 0, done.err
    there = placed(live.pods())
    assert sorted(there) == ["made-0", "made-1"]
    for name, (node, _) in there.items():
        assert storage.selected(name) == node
    writes = [
        "claim" if "persistentvolumeclaims" in call.path else "bind"
        for call in done.calls
        if call.binds or (call.method == "PATCH" and "persistentvolumeclaims" in call.path)
    ]
    assert writes == ["claim", "claim", "bind", "bind"]
    again = ran(live, *run_words(live, "--wait", "20s"))
    assert (again.code, [call for call in again.calls if call.writes_pods]) == (0, [])


@pytest.mark.parametrize("at", first_fast([3, 2, 4]))
def test_a_run_that_dies_between_claims_and_bindings_is_completed(
    live: Live, storage: Storage, at: int
) -> None:
    storage.claims("made-0", "made-1", of=storage.made)
    storage.gang(Wanted("made", 2, 8, "binding"))
    dead = killed(live, Killer(at, after=True), *run_words(live, "--wait", "20s"))
    assert dead.code == -signal.SIGKILL
    done = ran(live, *run_words(live, "--wait", "20s", "--lock-timeout", "75s"))
    assert done.code == 0, done.err
    there = placed(live.pods())
    assert (len(there), partial(live.pods()), overfull(live.pods())) == (2, [], [])
    assert {name: storage.selected(name) for name in there} == {
        name: node for name, (node, _) in there.items()
    }
