"""GPUs as devices: DRA ResourceSlices."""

from __future__ import annotations

from kube import load, node
from kube_nodes import claimed, device, gpus_of, one, read, slice_of

from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.nodes.nodes import read_nodes


def test_devices_of_a_recorded_node_are_ordered_as_nvidia_smi_counts() -> None:
    found = {one_.name: one_ for one_ in read_nodes(load("nvl72"), KubernetesPolicy(), Remarks())}
    devices = found["gb200-r06-n01"].devices
    assert [(d.index, d.name) for d in devices] == [
        (0, "gpu-0"),
        (1, "gpu-1"),
        (2, "gpu-2"),
        (3, "gpu-3"),
    ]
    assert found["gb200-r01-n01"].devices == ()  # only channels and daemons of a compute domain


def test_gpus_are_counted_by_slices_where_there_is_no_resource() -> None:
    # PCI addresses as a p4d.24xlarge shows them: the order of the slice does not matter
    buses = ("0000:a0:1c.0", "0000:10:1d.0", "0000:10:1c.0", "0000:20:1c.0")
    found, said = one(
        *claimed(
            *(
                device(f"gpu-{i}", pciBusID=bus, uuid=f"GPU-{i}", pcieRoot=f"pci{bus[:7]}",
                       productName="NVIDIA A100-SXM4-40GB")
                for i, bus in enumerate(buses)
            )
        )
    )  # fmt: skip
    assert (found.gpus, found.installed, found.gpu_resource) == (4, 4, "gpu.nvidia.com")
    assert [(d.index, d.uuid) for d in found.devices] == [
        (0, "GPU-2"),
        (1, "GPU-1"),
        (2, "GPU-3"),
        (3, "GPU-0"),
    ]
    assert {d.product for d in found.devices} == {"NVIDIA A100-SXM4-40GB"}
    assert said == ""


def test_slices_do_not_stand_in_for_a_plugin_that_is_gone() -> None:
    devices = [device(f"gpu-{i}", index=i) for i in range(8)]
    (gone, sound), _ = read(
        node("a", gpus=0), node("b"), slice_of("a", devices), slice_of("b", devices)
    )
    assert (gone.gpus, gone.installed, gone.gpu_resource) == (0, 8, "nvidia.com/gpu")
    assert sound.gpus == 8


def test_an_index_that_devices_state_goes_before_their_addresses() -> None:
    found, _ = one(
        *claimed(
            device("gpu-0", index=1, pciBusID="0000:01:00.0"),
            device("gpu-1", index=0, pciBusID="0000:02:00.0"),
        )
    )
    assert [(d.index, d.name) for d in found.devices] == [(0, "gpu-1"), (1, "gpu-0")]


def test_devices_in_the_beta_form_are_read() -> None:
    beta = {
        "name": "gpu-0",
        "basic": {"attributes": {"type": {"string": "gpu"}, "index": {"int": 3}}},
    }
    found, _ = one(*claimed(beta, version="v1beta1"))
    assert [d.index for d in found.devices] == [3]


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    old = slice_of("n1", [device("gpu-0", uuid="old"), device("gpu-1")], generation=1)
    new = slice_of("n1", [device("gpu-0", uuid="new")], generation=2)
    for order in ((old, new), (new, old)):
        found, _ = one(node("n1", gpus=0), *order)
        assert [d.uuid for d in found.devices] == ["new"]


def test_a_pool_with_slices_missing_is_told() -> None:
    found, said = one(*claimed(device("gpu-0"), count=2))
    assert found.gpus == 1
    assert "pool n1 of gpu.nvidia.com: some of its ResourceSlices are missing" in said


def test_a_tainted_device_is_sick_and_a_shared_one_is_not_given() -> None:
    tainted = {**device("gpu-1", index=1), "taints": [{"key": "ecc", "effect": "NoExecute"}]}
    found, _ = one(*claimed(device("gpu-0", index=0), tainted))
    assert (found.gpus, found.installed, found.sick) == (1, 2, (1,))
    told = {**device("gpu-1", index=1), "taints": [{"key": "note", "effect": "None"}]}
    assert one(*claimed(device("gpu-0", index=0), told))[0].sick == ()
    shared = {**device("gpu-0"), "allowMultipleAllocations": True}
    assert one(*claimed(shared))[0].shared == "fractional"


def test_gpus_of_amd_and_their_partitions() -> None:
    found, _ = one(*claimed(device("gpu-1-129", "amdgpu"), driver="gpu.amd.com"))
    assert (found.gpus, found.shared, found.gpu_resource) == (1, None, "gpu.amd.com")
    parts = [device(f"gpu-0-{i}", "amdgpu-partition") for i in range(8)]
    found, _ = one(gpus_of(node("n1"), None, None), slice_of("n1", parts, driver="gpu.amd.com"))
    assert (found.gpus, found.shared, found.devices) == (0, "fractional", ())


def test_a_rule_of_an_operator_makes_devices_sick() -> None:
    def rule(name: str, effect: str, **selector: object) -> dict[str, object]:
        return {
            "apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule",
            "metadata": {"name": name},
            "spec": {"deviceSelector": selector, "taint": {"key": "broken", "effect": effect}},
        }  # fmt: skip

    devices = [device(f"gpu-{i}", index=i) for i in range(4)]
    driver = {"driver": "gpu.nvidia.com", "pool": "n1"}
    found, _ = one(
        *claimed(*devices),
        rule("a", "NoSchedule", **driver, device="gpu-2"),
        rule("b", "NoExecute", pool="n1", device="gpu-0"),
        rule("c", "None", **driver, device="gpu-1"),
        rule("d", "NoSchedule", driver="gpu.nvidia.com", pool="n2"),
        rule("e", "NoSchedule", deviceClassName="gpu.nvidia.com"),
    )
    assert (found.gpus, found.sick) == (2, (0, 2))
