"""What a snapshot keeps of an object, and above all what it never keeps."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kube import SNAPSHOTS, pod
from snapshots import recorded
from strategies import trees

from planner.read.kube.decoders import REFUSED
from planner.read.kube.kinds import ALL, PODS, Kind
from planner.read.kube.object_bounds import ObjectReducer

Tree = dict[str, Any]

SECRET = "hunter2 swordfish!"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

POISON: Tree = yaml.load(
    """
    env: [{name: $, value: $, valueFrom: {secretKeyRef: {name: $}}}]
    envFrom: [{secretRef: {name: $}}, {configMapRef: {name: $}}]
    volumeMounts: [{name: $, mountPath: $}]
    livenessProbe: {exec: {command: [$]}, httpGet: {httpHeaders: [{value: $}]}}
    lifecycle: {preStop: {exec: {command: [$]}}}
    managedFields: [{manager: $, fieldsV1: {$: {}}}]
    data: {$: $}
    stringData: {password: $}
    parameters: {password: $, nested: {name: $}}
    hostAliases: [{hostnames: [$]}]
    nodeSelectorTermsOfAnotherKind: {values: [$]}
    secretRef: {name: $}
    imagePullSecrets: [{name: $}]
    command: [$]
    args: [$]
    image: $
    secretName: $
    serviceAccountName: $
    message: $
    token: $
    entrypoint: $
    description: $
    volumes:
    - {name: $, secret: {secretName: $}}
    - {name: $, configMap: {name: $}}
    - {name: $, projected: {sources: [{secret: {name: $}}]}}
    - {name: $, csi: {nodePublishSecretRef: {name: $}}}
    - {name: $, hostPath: {path: $}}
    """.replace("$", f"'{SECRET}'"),
    Loader=yaml.CSafeLoader,
)
"""Fields planted everywhere; whatever of them reached a file would show SECRET."""

VOLUMES = POISON.pop("volumes")
SAMPLES = yaml.load(
    (Path(__file__).parents[1] / "data" / "kube_kinds.yaml").read_text(), Loader=yaml.CSafeLoader
)


def kind_of(group: str, name: str) -> Kind:
    return next(kind for kind in ALL if (kind.group, kind.name) == (group, name))


def specimens() -> Iterator[tuple[Kind, Tree]]:
    """Objects of every kind: the recorded ones, and one each of the others."""
    for path in sorted(SNAPSHOTS.glob("*/*.json*")):
        tree = recorded(path)
        group, name = tree["apiVersion"].rpartition("/")[0], tree["kind"].removesuffix("List")
        for item in tree["items"][:: 1 + len(tree["items"]) // 15]:
            yield kind_of(group, name), item
    for sample in SAMPLES:
        yield kind_of(sample["group"], sample["object"]["kind"]), sample["object"]


SPECIMENS = list(specimens())


def poisoned(tree: Any) -> Any:  # noqa: ANN401  # any part of a tree
    """The tree with POISON in every object of it, and last-applied wherever annotations may be."""
    if isinstance(tree, list):
        return [poisoned(entry) for entry in tree]
    if not isinstance(tree, dict):
        return tree
    found = {name: poisoned(value) for name, value in tree.items()}
    for name, value in POISON.items():
        found.setdefault(name, copy.deepcopy(value))
    found["volumes"] = copy.deepcopy(VOLUMES)
    for name in ("metadata", "labels", "annotations"):
        if isinstance(found.get(name), dict):
            found[name] |= {LAST_APPLIED: SECRET, "example.com/password": SECRET}
    if "metadata" in found and isinstance(found["metadata"], dict):
        found["metadata"].setdefault("annotations", {LAST_APPLIED: SECRET})
    return found


def test_every_kind_has_a_specimen() -> None:
    missing = {kind.resource for kind in ALL} - {kind.resource for kind, _ in SPECIMENS}
    # The same rules as for TFJob, with another name for the map of replica types.
    assert missing == {"jaxjobs.kubeflow.org"}


def kept_of(kind: Kind, tree: Tree) -> str:
    """What a snapshot keeps of an object, as JSON: decoded, else pruned; where both do, they are equal."""
    pruned = kind.prune(tree)
    written = json.dumps(pruned, default=str)
    try:
        decoded = msgspec.json.encode(kind.decode(json.dumps(tree)))
    except REFUSED:
        return written
    assert json.loads(decoded) == json.loads(written), tree
    return decoded.decode()


def test_nothing_planted_anywhere_reaches_a_file() -> None:
    for kind, item in SPECIMENS:
        text = kept_of(kind, poisoned(item))
        for name in ("hunter2", "swordfish", "last-applied", "secretName", "managedFields"):
            assert name not in text, (kind.resource, item["metadata"]["name"], name)


_PLACES = """metadata spec status template containers resources requests labels annotations affinity
    devices allocation replicatedJobs podSets tasks selector matchLabels conditions volumes name"""
_WORDS = st.sampled_from([*POISON, *_PLACES.split()])
_ODD = trees(st.floats(allow_nan=False) | st.just("text"), _WORDS, leaves=12)


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_odd_types_anywhere_raise_nothing_and_hide_nothing(data: st.DataObject) -> None:
    kind, item = data.draw(st.sampled_from(SPECIMENS))
    tree = copy.deepcopy(item)
    for _ in range(data.draw(st.integers(1, 4))):
        place = tree
        while True:
            name = data.draw(st.sampled_from(sorted(place)) if place else st.just("spec"))
            below = place.get(name)
            if isinstance(below, list) and below and isinstance(below[0], dict):
                below = below[0]
            if isinstance(below, dict) and below and data.draw(st.booleans()):
                place = below
                continue
            break
        place[name] = data.draw(_ODD)
    tree = poisoned(tree)
    text = kept_of(kind, tree)
    _read_alike(kind, tree)
    for name in ("hunter2", "swordfish", LAST_APPLIED):
        assert name not in text


def _read_alike(kind: Kind, tree: Tree) -> None:
    """Of a list and of a document of another form the same is read."""
    reducer = ObjectReducer()
    decoded = reducer.decode(json.dumps(tree), kind.group, kind.name)
    if decoded is not None:
        pruned = reducer.reduce(json.loads(json.dumps(tree)), kind.group, kind.name)
        assert not reducer.lost
        hollow = {"annotations": {}, "volumes": []}
        assert _without(decoded, hollow) == _without(pruned, hollow)


def _without(tree: object, hollow: Tree) -> object:
    """The tree without fields that are empty, which both ways may leave out."""
    if isinstance(tree, list):
        return [_without(one, hollow) for one in tree]
    if not isinstance(tree, dict):
        return tree
    return {
        name: _without(inner, hollow)
        for name, inner in tree.items()
        if not (name in hollow and not inner)
    }


def test_what_planning_reads_is_kept() -> None:
    for sample in SAMPLES:
        kept = kind_of(sample["group"], sample["object"]["kind"]).prune(sample["object"])
        for path in sample["read"]:
            assert _at(kept, path) == _at(sample["object"], path), (sample["group"], path)


def _at(tree: Any, path: str) -> Any:  # noqa: ANN401  # any part of a tree
    for step in path.split("."):
        tree = tree[int(step)] if isinstance(tree, list) else tree[step]
    return tree


def test_of_volumes_those_are_kept_that_name_a_claim() -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "datasets"}}
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    kept = PODS.prune(pod("p", volumes=[claim, scratch, *VOLUMES]))
    assert kept["spec"]["volumes"] == [claim, {"name": "scratch", "ephemeral": {}}]
    assert "volumes" not in PODS.prune(pod("p", volumes=VOLUMES))["spec"]


def test_what_a_pods_status_tells_is_kept() -> None:
    allocated = {"name": "c", "allocatedResources": {"cpu": "8"}}
    status = {
        "phase": "Running",
        "nominatedNodeName": "n1",
        "reason": "Evicted",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
        "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}],
    }
    more = {"message": SECRET, "podIP": "10.0.0.1", "hostIP": "10.0.0.2"}
    more["containerStatuses"] = [allocated | {"image": SECRET, "state": {"waiting": {}}}]
    kept = PODS.prune({**pod("p"), "status": status | more})["status"]
    assert kept == status | {"containerStatuses": [allocated]}


def test_of_annotations_only_those_of_the_scheduling_world_are_kept() -> None:
    kept = {
        "kueue.x-k8s.io/podset-required-topology": "rack",
        "scheduling.k8s.io/group-name": "g",
        "topology.kubernetes.io/gpu-visible": "0,1",
        "gangplan.dev/submitted-at": "2026-11-20T08:00:00Z",
        "pod-group-name": "g",
        "leaderworkerset.sigs.k8s.io/size": "4",
    }
    dropped = [LAST_APPLIED, "kueue.x-k8s.io.example.com/x", "example.com/kueue.x-k8s.io/x"]
    dropped += ["topology.kubernetes.io/note", "prometheus.io/scrape", "gangplan.dev"]
    tree = PODS.prune(pod("p", annotations=kept | dict.fromkeys(dropped, "y")))
    assert tree["metadata"]["annotations"] == kept
