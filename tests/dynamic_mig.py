"""Servers whose GPUs claims partition, as NVIDIA's DRA driver publishes them (KEP-4815), and such claims.

Each GPU has a set of counters, one for each memory slice among them; the GPU as a whole consumes all of
them, an instance those of its slices. Names are numbered against the order of the PCI addresses.
"""

from __future__ import annotations

from typing import Any

from backend_world import claim as claim_of
from bundles import load_all
from kube import node, pod

from planner.read.instance_builder import LoadedInput

Json = dict[str, Any]

API, DRIVER, CLASS = "resource.k8s.io/v1", "gpu.nvidia.com", "mig.nvidia.com"
PRODUCT = "NVIDIA H100 80GB HBM3"
PLACES = {
    "1g.10gb": (range(7), 1),
    "1g.10gb+me": (range(7), 1),
    "1g.20gb": (range(0, 8, 2), 2),
    "2g.20gb": (range(0, 6, 2), 2),
    "3g.40gb": (range(0, 8, 4), 4),
    "4g.40gb": (range(1), 4),
    "7g.80gb": (range(1), 8),
}
"""Where instances of each profile of an H100 begin, and their size, as nvidia-smi lists them."""

MOST_DEVICES = 64
"""In a slice whose devices consume counters."""


def made(gpu: int, profile: str, start: int, gpus: int = 8) -> str:
    """The name of a device."""
    plain = profile.replace(".", "").replace("+", "-")
    return f"gpu-{gpus - 1 - gpu}-mig-{plain}-{start}"


def gpu_name(gpu: int, gpus: int = 8) -> str:
    return f"gpu-{gpus - 1 - gpu}"


def _counters(start: int, size: int, **more: str) -> Json:
    amounts = {**{f"memory-slice-{i}": "1" for i in range(start, start + size)}, **more}
    return {name: {"value": value} for name, value in amounts.items()}


def _device(name: str, gpu: int, start: int, size: int, **attributes: str) -> Json:
    """``attributes``: of type string."""
    own = {"productName": PRODUCT, **attributes}
    own["resource.kubernetes.io/pciBusID"] = f"0000:{gpu + 1:02x}:00.0"
    memory = _counters(start, size, memory=f"{size * 9}Gi", multiprocessors=str(size * 16))
    return {
        "name": name,
        "attributes": {key: {"string": value} for key, value in own.items()},
        "consumesCounters": [{"counterSet": f"set-{gpu}", "counters": memory}],
    }


def devices(gpus: int = 8, without: str = "") -> list[Json]:
    """All devices of a server. ``without``: a profile that is not published."""
    found = []
    for gpu in range(gpus):
        found.append(_device(gpu_name(gpu, gpus), gpu, 0, 8, type="gpu", uuid=f"GPU-{gpu}"))
        for profile, (starts, size) in PLACES.items():
            found += [
                _device(
                    made(gpu, profile, start, gpus),
                    gpu,
                    start,
                    size,
                    type="mig",
                    profile=profile,
                    parentUUID=f"GPU-{gpu}",
                )
                for start in (starts if profile != without else ())
            ]
    return found


def slices(node: str, gpus: int = 8, listed: list[Json] | None = None) -> list[Json]:
    """The slices of a server: one of counters, and those of its devices."""
    listed = devices(gpus) if listed is None else listed
    chunks = [listed[i : i + MOST_DEVICES] for i in range(0, len(listed), MOST_DEVICES)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": len(chunks) + 1}
    counters = [{"name": f"set-{gpu}", "counters": _counters(0, 8)} for gpu in range(gpus)]
    specs: list[Json] = [{"sharedCounters": counters}, *({"devices": one} for one in chunks)]
    return [
        {
            "apiVersion": API,
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node}-{number}"},
            "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, **spec},
        }
        for number, spec in enumerate(specs)
    ]


def asks(profile: str = "1g.10gb", name: str = "r") -> Json:
    expression = f"device.attributes['{DRIVER}'].profile == '{profile}'"
    selectors = [{"cel": {"expression": expression}}]
    return {"name": name, "exactly": {"deviceClassName": CLASS, "selectors": selectors}}


def asks_whole(count: int) -> Json:
    return {"name": "r", "exactly": {"deviceClassName": DRIVER, "count": count}}


def claim(
    name: str, *requests: Json, held: str | None = None, user: str = "", node: str = "n1"
) -> Json:
    """A claim for instances; ``held``: the device that the pod ``user`` has."""
    found = claim_of(name, *(requests or (asks(),)))
    if held is not None:
        result = {"request": "r", "driver": DRIVER, "pool": node, "device": held}
        found["status"] = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": user, "uid": f"uid-default-{user}"}],
        }
    return found


def mig_class() -> Json:
    on = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'mig'"
    selectors = [{"cel": {"expression": on}}]
    return {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": {"name": CLASS},
        "spec": {"selectors": selectors},
    }


def gpu_class() -> Json:
    on = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
    found = mig_class()
    found["metadata"]["name"] = DRIVER
    found["spec"]["selectors"] = [{"cel": {"expression": on}}]
    return found


Json = dict[str, Any]


def server(name: str = "n1", listed: list[Json] | None = None) -> list[Json]:
    return [node(name, gpus=0), mig_class(), gpu_class(), *slices(name, listed=listed)]


def user(name: str, *claims: str, **spec: Any) -> Json:  # noqa: ANN401  # any field
    entries = [{"name": f"c{i}", "resourceClaimName": one} for i, one in enumerate(claims)]
    gated = "on" not in spec
    return pod(name, gated=gated, resourceClaims=entries, **spec)


def holding(name: str, gpu: int, profile: str, start: int, **spec: Any) -> list[Json]:  # noqa: ANN401
    """A pod that runs on n1, and its claim for one instance."""
    held = made(gpu, profile, start)
    one = claim(f"of-{name}", asks(profile), held=held, user=name)
    return [user(name, f"of-{name}", on="n1", **spec), one]


def loaded(*trees: Json, backend: str = "dra") -> LoadedInput:
    policy = {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Policy",
        "spec": {"kubernetes": {"gpuBackend": backend}},
    }
    return load_all([policy, *trees])
