"""``communication.model`` of a gang becomes the fraction that its step communicates on ideal links."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import yaml

from models.documents.base import digest
from models.documents.canonical import canonical_instance
from models.documents.communication import DEFAULT_FRACTION
from models.instance.instance import Instance
from models.step_time import Transformer
from planner.read.inputs import instance_from_document, read

API = "gangplan.dev/v1alpha1"
# C 0.1 s, nothing hidden: the fraction is comm / (0.1 + comm).
MEASURED = {"bytesPerStep": "3708M", "computeSeconds": 0.1, "overlap": 0}


def instance_of(
    folder: Path,
    trained: object,
    *,
    pods: int = 1,
    nodes: list[dict[str, object]] | None = None,
    server_models: list[dict[str, object]] | None = None,
    **role: object,
) -> Instance:
    """One gang of pods with 8 GPUs, by default on four DGX H100."""
    cluster = {
        "apiVersion": API,
        "kind": "Cluster",
        "metadata": {"name": "c"},
        "spec": {
            "serverModels": server_models or [],
            "nodes": nodes or [{"name": "gpu-[1-4]", "model": "DGX H100"}],
        },
    }
    roles = [{"name": "w", "replicas": pods, "gpus": 8, **role}]
    gang = {
        "apiVersion": API,
        "kind": "Gang",
        "metadata": {"name": "g"},
        "spec": {"roles": roles, "communication": {"model": trained}},
    }
    path = folder / "in.yaml"
    path.write_text(yaml.safe_dump_all([cluster, gang]), encoding="utf-8")
    return read([str(path)])


def fraction(folder: Path, trained: object, **different: object) -> Fraction:
    (gang,) = instance_of(folder, trained, **different).gangs  # type: ignore[arg-type]  # keywords
    return gang.fraction


def test_a_measured_step_is_priced_at_the_ideal_of_one_server(tmp_path: Path) -> None:
    # 8 GPUs behind a switch: 370,800 MB/s. 14/8 x 3,708 / 370,800 s = 17.5 ms; 17.5 / 117.5.
    assert fraction(tmp_path, MEASURED) == Fraction("0.149")


def test_a_measured_step_is_priced_at_the_ideal_of_several_servers(tmp_path: Path) -> None:
    # 16 GPUs: min(370,800 inside, 400,000 through the NICs). 30/16 x 10 ms = 18.75 ms.
    assert fraction(tmp_path, MEASURED, pods=2) == round(Fraction(1875, 11875), 3)


def test_gradients_of_two_bytes_a_parameter_unless_the_bytes_are_written(tmp_path: Path) -> None:
    step = {"computeSeconds": 0.1, "overlap": 0}
    assert fraction(tmp_path, {**step, "parameters": "1854M"}) == fraction(tmp_path, MEASURED)
    assert fraction(tmp_path, {**MEASURED, "parameters": "7G"}) == fraction(tmp_path, MEASURED)


MIXED = [
    {"name": "a-[1-2]", "model": "DGX A100", "labels": {"pool": "old"}},
    {"name": "h-[1-2]", "model": "DGX H100", "unschedulable": True},
    {"name": "v-[1-2]", "model": "DGX-1 V100"},
]


def test_the_fastest_server_model_that_the_gang_may_use_counts(tmp_path: Path) -> None:
    def alone(model: str) -> Fraction:
        return fraction(tmp_path, "vgg16", nodes=[{"name": "n-[1-2]", "model": model}])

    # A cordon passes: the fraction does not depend on it.
    assert fraction(tmp_path, "vgg16", nodes=MIXED) == alone("DGX H100") != alone("DGX A100")
    old = {"nodeSelector": {"pool": "old"}}
    assert fraction(tmp_path, "vgg16", nodes=MIXED, **old) == alone("DGX A100")
    assert fraction(tmp_path, "vgg16", nodes=MIXED, model="V100") == alone("DGX-1 V100")


def test_a_gang_that_no_server_suits_has_the_default(tmp_path: Path) -> None:
    assert fraction(tmp_path, "vgg16", model="B200") == DEFAULT_FRACTION
    assert fraction(tmp_path, "vgg16", gpus=9) == DEFAULT_FRACTION


def test_the_network_alone_counts_for_a_gang_without_nvlink_across_nodes(tmp_path: Path) -> None:
    nodes = [{"name": "t-[1-18]", "model": "GB200 NVL72"}]
    instance = instance_of(tmp_path, MEASURED, pods=4, gpus=4, nodes=nodes)
    path = tmp_path / "in.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace("communication:\n", "communication:\n    nvlinkAcrossNodes: false\n")
    )
    (apart,) = read([str(path)]).gangs
    assert not apart.nvlink_across_nodes
    # In one NVLink domain 721,800 MB/s; through four NICs of 50,000 each 200,000.
    assert apart.fraction > instance.gangs[0].fraction


def transformer(tensor: int, pipeline: int = 1, **more: object) -> dict[str, object]:
    return {"parameters": "70G", "parallelism": {"tensor": tensor, "pipeline": pipeline}, **more}


def test_a_transformer_reduces_gradients_through_shared_nics_and_activations_inside(
    tmp_path: Path,
) -> None:
    model = Transformer(Fraction(70 * 10**9), 8, 1, 4)
    training = model.training(Fraction("989.5"))
    # The eight GPUs of a server reduce different parameters: each has an eighth of 370,800 MB/s.
    gradients_s = Fraction(6, 4) * training.step_bytes * 8 / (370_800 * 10**6)
    expected = training.fraction(gradients_s + model.tensor_s(Fraction(370_800)))
    assert fraction(tmp_path, transformer(8), pods=4) == expected
    assert Fraction("0.1") < expected < Fraction("0.3")


def test_the_canonical_gang_has_the_fraction_alone_and_reads_back(tmp_path: Path) -> None:
    instance = instance_of(tmp_path, transformer(8), pods=2)
    document = canonical_instance(instance)
    (gang,) = document["gangs"]
    assert set(gang["spec"]["communication"]) == {"pattern", "weight", "fraction"}
    again = instance_from_document(document)
    assert again.gangs == instance.gangs
    assert digest(canonical_instance(again)) == digest(document)
