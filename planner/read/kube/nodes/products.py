"""Tables: product names to GPU models, and numbers of GPUs to servers of the catalogue."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from models.hardware import slug
from models.mig import Board, boards_of

PRODUCT = "nvidia.com/gpu.product"
"""Label with the product name of the GPUs of a node."""

Form = Literal["board", "board-16", "pair", "card", "open"]
"""On a board with links (of 8 or 4; of 16), in bridged pairs, a card without links, or unknown."""


class Product(Struct, frozen=True):
    """``gpu``: the GPU model as the catalogue writes it; ``known``: whether it was recognised."""

    gpu: str
    form: Form
    known: bool = True


_VENDORS = re.compile(r"^(?:(?:NVIDIA|TESLA|AMD|INSTINCT|INTEL|HABANA|RADEON)-)+")

_NAMES: tuple[tuple[str, str, Form], ...] = (
    (r"GB300.*", "GB300", "board"),
    (r"GB200.*", "GB200", "board"),
    (r"GH200.*", "GH200", "card"),
    (r"B300.*", "B300", "board"),
    (r"B200.*", "B200", "board"),
    (r"H200-NVL.*", "H200 NVL", "pair"),
    (r"H200(-.*)?", "H200", "board"),
    (r"H100-NVL(-.*)?", "H100 NVL", "pair"),
    (r"H100-(.*-)?PCIE.*", "H100 PCIe", "card"),
    (r"H100-(.*HBM.*|SXM.*|NVLINK.*|80GB|MEGA-80GB)", "H100", "board"),
    (r"H100(-.*)?", "H100", "open"),
    (r"H800-(.*-)?PCIE.*", "H800 PCIe", "card"),
    (r"H800-NVL(-.*)?", "H800 NVL", "pair"),
    (r"H800(-.*)?", "H800", "board"),
    (r"H20-(.*-)?(3E|141GB).*", "H20-3e", "board"),
    (r"H20(-.*)?", "H20", "board"),
    (r"A([18])00-(.*-)?(SXM|NVLINK).*", "A{1}00", "board"),
    (r"A([18])00-(.*-)?PCI.*", "A{1}00", "card"),
    (r"A([18])00(-.*)?", "A{1}00", "open"),
    (r"V100-SXM3.*", "V100", "board-16"),
    (r"V100-(SXM2|NVLINK).*", "V100", "board"),
    (r"V100S?-(PCI|FHHL|DGXS).*", "V100", "card"),
    (r"V100(-.*)?", "V100", "open"),
    (r"P100-(SXM2|NVLINK).*", "P100", "board"),
    (r"P100-PCI.*", "P100", "card"),
    (r"P100(-.*)?", "P100", "open"),
    (r"RTX-PRO-(SERVER-)?6000(?!.*MAX-Q)(-.*)?", "RTX PRO 6000", "card"),
    (
        r"(L40S|L40G|L40|L20|L4|L2|T4G|T4|A10G|A10|A16|A2|A30|A40|P40|P4|K80|M60)(-.*)?",
        "{1}",
        "card",
    ),
    (r"(MI[1-9][0-9]{2}[AX]?)(-.*)?", "{1}", "board"),
    (r"(GAUDI-?2|HL-225.*)", "Gaudi2", "board"),
    (r"(GAUDI-?3|HL-325.*)", "Gaudi3", "board"),
    (r"GAUDI(-.*)?", "Gaudi", "open"),
)
"""Patterns of product names (upper case, without vendor and shares), the GPU, and its form."""

_MATCHED = tuple(
    (re.compile(pattern, re.DOTALL).fullmatch, gpu, form) for pattern, gpu, form in _NAMES
)

_MEMORY = re.compile(r"-([0-9]{2,3})GB?(?=-|$)")
"""Memory in a product name."""

AMD_DEVICES = {
    "738c": "MI100",
    "740f": "MI210",
    "7408": "MI250X",
    "74a1": "MI300X",
    "74a2": "MI308X",
    "74a5": "MI325X",
    "75a0": "MI350X",
    "75a3": "MI355X",
}
"""PCI device ids, as AMD's node labeller writes them."""

_BOARDS: dict[tuple[str, Form, int], tuple[str, str | None]] = {
    ("GB300", "board", 4): ("GB300 NVL72", "GB300 NVL72"),
    ("GB200", "board", 4): ("GB200 NVL72 compute tray", "GB200 NVL72 compute tray"),
    ("B300", "board", 8): ("DGX B300", "DGX B300"),
    ("B200", "board", 8): ("DGX B200", "DGX B200"),
    ("H200", "board", 8): ("DGX H200", "DGX H200"),
    ("H100", "board", 8): ("DGX H100", "GCP a3-highgpu-8g"),
    ("H800", "board", 8): ("HGX H800 8-GPU", "HGX H800 8-GPU"),
    ("H20", "board", 8): ("HGX H20 8-GPU", "HGX H20 8-GPU"),
    ("H20-3e", "board", 8): ("HGX H20 8-GPU", "HGX H20 8-GPU"),
    ("H100 NVL", "pair", 8): ("H100 NVL 8-GPU with NVLink bridges", None),
    ("A100", "board", 8): ("DGX A100", "AWS p4d.24xlarge"),
    ("A100", "board", 4): ("HGX A100 4-GPU (direct)", None),
    ("A800", "board", 8): ("HGX A800 8-GPU", "HGX A800 8-GPU"),
    ("V100", "board-16", 16): ("DGX-2", "DGX-2"),
    ("V100", "board", 8): ("DGX-1 V100", "p3.16xlarge"),
    ("V100", "board", 4): ("V100 4-GPU full mesh (NV2)", None),
    ("P100", "board", 8): ("DGX-1 P100", None),
    ("GH200", "card", 1): ("GH200 1-GPU", "GH200 1-GPU"),
    ("H100 PCIe", "card", 8): ("H100 PCIe 8-GPU", "H100 PCIe 8-GPU"),
    ("RTX PRO 6000", "card", 8): ("RTX PRO 6000 8-GPU", "RTX PRO 6000 8-GPU"),
    ("L40S", "card", 8): ("L40S 8-GPU", "L40S 8-GPU"),
    ("L40", "card", 8): ("L40 8-GPU", "L40 8-GPU"),
    ("L4", "card", 8): ("L4 8-GPU", "L4 8-GPU"),
    ("A40", "card", 8): ("A40 8-GPU", "A40 8-GPU"),
    ("A30", "card", 8): ("A30 8-GPU", "A30 8-GPU"),
    ("A2", "card", 4): ("A2 4-GPU", "A2 4-GPU"),
    ("A10", "card", 8): ("A10 8-GPU", "A10 8-GPU"),
    ("A10G", "card", 8): ("g5.48xlarge", "g5.48xlarge"),
    ("T4", "card", 8): ("T4 8-GPU", "T4 8-GPU"),
    ("MI300X", "board", 8): ("AMD MI300X 8-GPU", "AMD MI300X 8-GPU"),
    ("MI350X", "board", 8): ("AMD MI350X 8-GPU", "AMD MI350X 8-GPU"),
    ("MI355X", "board", 8): ("AMD MI355X 8-GPU", "AMD MI355X 8-GPU"),
    ("MI250X", "board", 8): ("AMD MI250X 4-module node (8 GCDs)", None),
    ("Gaudi2", "board", 8): ("Intel Gaudi2 8-card", "Intel Gaudi2 8-card"),
    ("Gaudi3", "board", 8): ("Intel Gaudi3 8-card", "Intel Gaudi3 8-card"),
}
"""GPU, form and count: a server with that board on premises, and in a cloud.

NVSwitch boards of one GPU are equal in all servers; the NICs are not. A server on premises counts as the
vendor's reference, a NIC a GPU; a cloud instance that the catalogue lacks as the smallest one it has. None:
clouds split that board, so it is unknown.
"""

_INSTANCES = {
    "gd-8xh100ib-i128": "DGX H100",
    "gd-8xh200ib-i128": "DGX H200",
    "gb200-4x": "GB200 NVL72 compute tray",
    "gb300-4x": "GB300 NVL72",
    "b200-8x": "DGX B200",
    "bm-gpu-h100-8": "DGX H100",
    "bm-gpu-h200-8": "DGX H200",
    "bm-gpu-b200-8": "DGX B200",
    "bm-gpu-a100-v2-8": "DGX A100",
    "bm-gpu4-8": "DGX A100",
    "bm-gpu-b4-8": "DGX A100",
    "bm-gpu-b300-8": "DGX B300",
    "bm-gpu3-8": "p3.16xlarge",
    "bm-gpu-gb200-4": "GB200 NVL72 compute tray",
    "bm-gpu-gb300-4": "GB300 NVL72",
    "a4x-maxgpu-4g-metal": "GB300 NVL72",
    "bm-gpu-mi300x-8": "AMD MI300X 8-GPU",
    "nd96isr-h200-v5": "DGX H200",
    "nd128isr-ndr-gb200-v6": "GB200 NVL72 compute tray",
    "nd96isr-mi300x-v5": "AMD MI300X 8-GPU",
    "p6-b300-48xlarge": "DGX B300",
    "ecs-gn6e-c12g1-24xlarge": "p3.16xlarge",
    "ecs-gn6v-c10g1-20xlarge": "p3.16xlarge",
}
"""Instance types by slug whose links and NICs equal those of another server in the catalogue.

OCI's A100 shapes have 16 x 100 Gb/s, a DGX A100 has 8 x 200; its V100 shape has 2 x 25, and the two of
Alibaba Cloud one 32 Gb/s interface, p3.16xlarge has 25: figures are never better than the server.
"""

GKE_ACCELERATORS = {
    "nvidia-h100-80gb": "a3-highgpu-8g",
    "nvidia-h100-mega-80gb": "a3-megagpu-8g",
    "nvidia-h200-141gb": "a3-ultragpu-8g",
    "nvidia-b200": "a4-highgpu-8g",
    "nvidia-gb200": "a4x",
}
"""GKE's accelerator names that only one machine type carries eight (GB200: four) of."""

NO_INSTANCE = frozenset({"k3s", "rke2", "k0s", "metal3", "bare-metal", "baremetal", "unknown"})
"""Values of the instance-type label that are no instance type of a cloud."""


@lru_cache(maxsize=4096)
def product(name: str) -> Product:
    """The GPU of a product name: ``NVIDIA-A100-SXM4-80GB`` is an A100 on a board with links."""
    for match, gpu, form in _MATCHED:
        found = match(_plain(name))
        if found is not None:
            return Product(gpu.format("", *found.groups(default="")), form)
    return Product(gpu_name(name), "open", known=False)


@lru_cache(maxsize=4096)
def mig_boards(name: str) -> tuple[Board, ...]:
    """The boards that GPUs of a product name may be: those with the memory that it states, if it does."""
    plain = _plain(name)
    stated, found = _MEMORY.search(plain), boards_of(product(name).gpu)
    if stated is None:
        return found
    return boards_of(plain) or tuple(one for one in found if one.gigabytes == int(stated[1]))


@lru_cache(maxsize=4096)
def gpu_name(name: str) -> str:
    """A GPU's name for a document: at most 60 characters, one spelling a slug."""
    plain = re.sub(r"[^A-Z0-9]+", "-", _without_shares(name[:512].upper())).strip("-")
    plain = plain[:60].strip("-")
    return plain if plain not in {"", "UNKNOWN"} else "unknown"


def _plain(name: str) -> str:
    """A product name as the patterns have it: ``A100-SXM4-80GB``."""
    plain = re.sub(r"[^A-Z0-9]+", "-", name[:512].upper()).strip("-")
    return _without_shares(_VENDORS.sub("", plain))


def _without_shares(plain: str) -> str:
    """The name without what a device plugin appends to it for shared GPUs and partitions."""
    plain, _, _ = plain.partition("-MIG-")
    while plain.endswith("-SHARED"):
        plain = plain.removesuffix("-SHARED")
    return plain


def board(found: Product, gpus: int, *, cloud: bool) -> str | None:
    """The catalogue's server with so many of these GPUs; a board with missing GPUs counts as complete."""
    for count in (gpus, 8 if 4 < gpus < 8 else 4 if gpus == 3 else gpus):
        names = _BOARDS.get((found.gpu, found.form, count))
        if names is not None and (count == gpus or found.form == "board"):
            return names[1] if cloud else names[0]
    return None


def instance(name: str) -> str | None:
    """The catalogue's server that equals this instance type, if it has another name."""
    return _INSTANCES.get(plain_instance(name))


def plain_instance(name: str) -> str:
    """The slug of an instance type, without Azure's ``Standard_``."""
    return slug(name[:200]).strip("-").removeprefix("standard-")
