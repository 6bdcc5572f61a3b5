"""The server-model document: one kind of server, in the catalogue or inline in a Cluster."""

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema

from models.documents.base import (
    Document,
    FieldError,
    Many,
    Prose,
    Title,
    bounded,
    decimal_check,
    made,
    omitted,
    positive,
    twice,
    whole,
    within,
)
from models.hardware import MAX_MESH_GPUS, Fabric, Nic, ServerModel, slug
from models.units import InvalidValueError, number, shown

MAX_GPUS = 1024
"""Most GPUs of one server."""

MAX_GBPS = 1_000_000

_LINK = re.compile(r"X|NV([1-9][0-9]{0,2})|PIX|PXB|PHB|NODE|SYS")
_LINK_HINT = "nvidia-smi's names: X, NV1, NV2, ..., PIX, PXB, PHB, NODE, SYS"

GpuIndex = Annotated[int, whole(0, MAX_GPUS - 1)]
GpuIndices = Annotated[
    tuple[GpuIndex, ...], Field(strict=False, max_length=MAX_GPUS), BeforeValidator(bounded)
]
GroupIndex = Annotated[int, whole(0, 10_000)]
Rate = Annotated[int, whole(1, 10**9)]


_gbps = decimal_check(0, MAX_GBPS)


def _megabits(value: object) -> int:
    megabits = _gbps(value) * 1000
    if megabits == 0:
        raise InvalidValueError(
            "a speed must be above zero", "remove the NIC, or write gbps: null if it is not known"
        )
    if megabits.denominator != 1:
        raise InvalidValueError("a speed finer than 0.001 Gb/s", "write it like 400, 25 or 2.5")
    return megabits.numerator


_NO_SPEED = ("a relative speed must be above zero", "remove it if the speed is not known")
RelativeSpeed = Annotated[Fraction, *positive(1_000_000, *_NO_SPEED)]

Megabits = Annotated[
    int,
    PlainValidator(_megabits),
    PlainSerializer(lambda megabits: number(Fraction(megabits, 1000))),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": MAX_GBPS}),
]


class NicDocument(Document):
    """One network interface."""

    name: Title = Field(description="Interface name, unique in its server")
    megabits: Megabits | None = Field(default=None, alias="gbps")
    """Line rate in Gb/s, whole or decimal; null: unknown"""
    gpus: GpuIndices | None = omitted(None, "Indices of the near GPUs; absent: near all of them")

    def to_nic(self) -> Nic:
        """The NIC as the planner uses it."""
        return made(Nic, self, gpus=None if self.gpus is None else tuple(sorted(self.gpus)))


def nic_errors(nics: tuple[NicDocument, ...], gpus: int) -> Iterator[FieldError]:
    """Contradictions in the NICs of a server with this number of GPUs; paths start in the list."""
    names = [nic.name for nic in nics]
    yield from twice(names, (), "two NICs are named {}", "rename one", ("name",))
    for i, nic in enumerate(nics):
        near = nic.gpus or ()
        for j, gpu in enumerate(near):
            if gpu >= gpus:
                yield out_of_range((i, "gpus", j), gpu, gpus)
            elif gpu in near[:j]:
                yield FieldError((i, "gpus", j), f"GPU {gpu} is listed twice", "list it once")


def out_of_range(path: tuple[str | int, ...], gpu: int, gpus: int) -> FieldError:
    """GPU indices count from 0."""
    hint = f"its GPUs are 0 to {gpus - 1}" if gpus else "this server has no GPUs"
    return FieldError(path, f"there is no GPU {gpu}", hint)


class ServerModelDocument(Document):
    """One kind of server: its GPUs, their links, its NICs. Rates are MB/s, one direction."""

    name: Title = Field(description="Name; found by slug (lower case, other characters one '-')")
    aliases: Many[Title] = ()
    vendor: Prose = ""
    gpu: Title = Field(description="GPU model, such as H100")
    gpus: Annotated[int, whole(1, MAX_GPUS)] = Field(description="GPUs in one server")
    fabric: Fabric = Field(description="How its GPUs are linked")
    matrix: Many[Many[str]] | None = omitted(None)
    """nvidia-smi link names, gpus x gpus; may be absent for nvswitch alone"""
    link_MBps: Rate | None = omitted(None, alias="linkMBps")
    """Planning rate of one NVLink in MB/s; null: unknown"""
    links_per_gpu: Annotated[int, whole(1, 1000)] | None = omitted(None, "NVLinks of one GPU")
    pcie_MBps: Rate = Field(default=20000, alias="pcieMBps")
    """Two GPUs under one PCIe switch, MB/s"""
    sys_MBps: Rate = Field(default=10000, alias="sysMBps")
    """Two GPUs on different sockets, MB/s"""
    numa: Many[GroupIndex | None] | None = omitted(None, "NUMA node of each GPU")
    pcie_switch: Many[GroupIndex | None] | None = omitted(None, "PCIe switch of each GPU")
    nics: Many[NicDocument] = ()
    nvlink_domain_nodes: Annotated[int, whole(1, 10_000)] = 1
    """Number of such servers that share one NVLink fabric"""
    relative_speed: RelativeSpeed | None = omitted(None)
    """Speed of one GPU next to other models: dense BF16 or FP16 tensor peak, TFLOP/s"""
    sources: Many[Prose] = ()
    confidence: Prose = ""

    def field_errors(self) -> tuple[FieldError, ...]:
        """Contradictions inside the model, in document order; paths start at the model."""
        nics = within(("nics",), nic_errors(self.nics, self.gpus))
        return (*self._naming(), *self._shape(), *self._links(), *nics)

    def to_server_model(self) -> ServerModel:
        """The model as the planner uses it. Raises InvalidValueError with the first contradiction."""
        if faults := self.field_errors():
            raise InvalidValueError(f"{self.name}: {faults[0].what}", faults[0].hint)
        return made(ServerModel, self, nics=tuple(nic.to_nic() for nic in self.nics))

    def _naming(self) -> Iterator[FieldError]:
        aliases = ((("aliases", i), alias) for i, alias in enumerate(self.aliases))
        for path, name in ((("name",), self.name), *aliases):
            if not slug(name).strip("-"):
                what = f"{shown(name)} has no letter or digit"
                yield FieldError(path, what, "add one: they identify a model")

    def _shape(self) -> Iterator[FieldError]:
        for field, groups in (("numa", self.numa), ("pcieSwitch", self.pcie_switch)):
            if groups is not None and len(groups) != self.gpus:
                what = f"entries: {len(groups)}, GPUs: {self.gpus}"
                yield FieldError((field,), what, "write one for each GPU")
        if self.fabric == "nvswitch":
            if self.links_per_gpu is None:
                what = "an nvswitch server needs the number of links of a GPU"
                yield FieldError(("fabric",), what, "add `linksPerGpu`")
            return
        if self.matrix is None:
            what = f"a {self.fabric} server needs its link matrix"
            yield FieldError(("fabric",), what, "add `matrix`")
        if self.gpus > MAX_MESH_GPUS:
            hint = f"a server without NVSwitch may have at most {MAX_MESH_GPUS}"
            yield FieldError(("gpus",), f"{self.gpus} GPUs without a switch", hint)
        if self.nvlink_domain_nodes > 1:
            what = f"a {self.fabric} server cannot share one NVLink fabric with others"
            hint = "remove `nvlinkDomainNodes`, or set fabric: nvswitch"
            yield FieldError(("nvlinkDomainNodes",), what, hint)

    def _links(self) -> Iterator[FieldError]:
        if self.matrix is None:
            return
        if len(self.matrix) != self.gpus:
            what = f"rows: {len(self.matrix)}, GPUs: {self.gpus}"
            yield FieldError(("matrix",), what, "write one row for each GPU")
            return
        for i, row in enumerate(self.matrix):
            if len(row) != self.gpus:
                what = f"entries in row {i}: {len(row)}, GPUs: {self.gpus}"
                yield FieldError(("matrix", i), what, "the matrix is square")
                return
        for i, row in enumerate(self.matrix):
            yield from self._row(i, row)

    def _row(self, i: int, row: tuple[str, ...]) -> Iterator[FieldError]:
        assert self.matrix is not None
        links = 0
        for j, name in enumerate(row):
            found = _LINK.fullmatch(name)
            if found is None:
                yield FieldError(("matrix", i, j), f"unknown link {shown(name)}", _LINK_HINT)
            elif (name == "X") != (i == j):
                what = f"{shown(name)} between GPU {i} and GPU {j}"
                yield FieldError(("matrix", i, j), what, "X marks the diagonal only")
            elif j > i and (back := self.matrix[j][i]) != name:
                ways = f"{i} to {j} is {shown(name)}, {j} to {i} is {shown(back)}"
                what = f"the matrix is not symmetric: {ways}"
                yield FieldError(("matrix", j, i), what, "write the same name in both directions")
            elif found.group(1):
                more = int(found.group(1))
                # split among neighbours; behind a switch each pair can use all of them
                links = max(links, more) if self.fabric == "nvswitch" else links + more
        if self.fabric == "pcie" and links:
            what = f"row {i} has NVLinks in a pcie server"
            yield FieldError(("matrix", i), what, "set fabric to direct or bridges")
        elif self.links_per_gpu is not None and links > self.links_per_gpu:
            what = f"row {i} has {links} NVLinks, but a GPU has {self.links_per_gpu}"
            yield FieldError(("matrix", i), what, "check the row, or `linksPerGpu`")
