"""The Policy document: objectives, mix of future requests, defaults, limits and the search budget."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from models.documents.base import (
    ApiVersion,
    Data,
    Document,
    Duration,
    FieldError,
    LabelKey,
    LabelValue,
    Many,
    Mapped,
    Name,
    Requested,
    SchedulerName,
    Sentence,
    Time,
    Title,
    bounded,
    decimal,
    omitted,
    suggestion,
    twice,
    whole,
    within,
)
from models.documents.cluster import MAX_LEVELS, PolicyLevel, level_errors, resource_errors
from models.documents.gang import MAX_PRIORITY, LevelName, Share
from models.host_ranges import host_ranges
from models.tiers import MAINS, Main, objective_names
from models.units import InvalidValueError, described, first_of, shown

Preset = Main

DEFAULT_PRESET: Preset = "goodput"


def preset_objectives(preset: Preset) -> tuple[str, ...]:
    """The objectives of a preset, in order: that one in the place of the other ones like it."""
    names = objective_names(default_only=True)
    return (preset, *(name for name in names if name not in MAINS))


MAX_BUDGET = 1_000_000

QUEUE_LIMIT = 5000
"""Waiting gangs of one namespace that are planned, unless the policy says otherwise."""

GPUS: Final = "gpus"
LOST_RUNTIME: Final = "lostRuntime"
NO_COST: Final = "none"

DAY_S = 24 * 60 * 60

QUOTAS = "quotas"
CONSTRAINTS = ("podAntiAffinity", "podAffinity", "topologySpread", "volumeZone", QUOTAS)
"""Constraints of pods that a plan obeys, or makes a gang wait for, unless the policy ignores them."""

GATE = "gangplan.dev/placement"
GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "aliyun.com/gpu", "habana.ai/gaudi")

SLURM_PRIORITIES = 8
"""Most priorities of jobs of Slurm, unless the policy says otherwise."""

PENDING_LIMIT_S = 300
"""Seconds that a started pod may wait for its scheduler, unless the policy says otherwise."""

Limit = Annotated[int, whole(0, 1_000_000_000)]


class MovesDocument(Document):
    """How much may restart elsewhere in one plan, and what it must gain."""

    max_gangs: Limit | None = None
    """Most gangs of which any pod moves; absent: 5 % of the gangs that run, at least 10, and no limit where
    restarts are free; null: no limit"""
    max_gpus: Limit | None = omitted(None, alias="maxGPUs")
    """Most GPUs of those gangs together; absent: no limit"""
    min_gain: Annotated[Fraction, *decimal(0, 1_000_000)] = Fraction(0)
    """GPUs that a set of moves must gain for each GPU that it restarts"""


@dataclass(frozen=True, slots=True)
class Disruption(Data):
    """What it costs to stop, move or shrink a gang."""

    # NO_COST also lets a running gang count the speed that it has after the plan, whatever it was before
    weight: Literal["gpus", "lostRuntime", "none"] = GPUS
    """gpus: its GPUs; lostRuntime: GPUs times seconds of lost work; none: nothing, as a what-if that cannot
    be applied"""
    cap_s: Annotated[Duration, Field(alias="cap")] = DAY_S
    """The most lost work that counts, and what an unknown start counts"""


class StarvationDocument(Document):
    """When a gang has waited too long."""

    after: Duration = DAY_S
    """A gang that waited longer goes before others of its priority"""


@dataclass(frozen=True, slots=True)
class EvictionBackoff(Data):
    """How long a gang that a plan stopped waits before it may start again."""

    base_s: Annotated[Duration, Field(alias="base")] = 10 * 60
    """After the first eviction; twice as long after each further one"""
    max_s: Annotated[Duration, Field(alias="max")] = 2 * 60 * 60
    """The longest"""


_COMPARED = re.compile(r"(>=|<=|>|<|=?)\s?(-?[0-9]{1,10})")


def _comparison(value: object) -> tuple[str, int]:
    """A comparison with a priority: ``>=1000``, or a priority alone."""
    found = _COMPARED.fullmatch(value) if isinstance(value, str) else None
    if isinstance(value, int) and not isinstance(value, bool):
        found = _COMPARED.fullmatch(str(value))
    if found is None or abs(int(found[2])) > MAX_PRIORITY:
        what = f"{shown(value) if isinstance(value, str) else described(value)} compares with no priority"
        raise InvalidValueError(what, 'write it like ">=1000", "<0" or 100')
    return found[1] or "=", int(found[2])


Comparison = Annotated[
    tuple[str, int],
    PlainValidator(_comparison),
    PlainSerializer(lambda found: "".join(map(str, found)), return_type=str),
    WithJsonSchema({"type": ["string", "integer"], "pattern": r"^(>=|<=|>|<|=?)\s?-?[0-9]{1,10}$"}),
]
"""(comparison, priority)."""

MAX_QUEUE = 1_000_000


@dataclass(frozen=True, slots=True)
class Reservations(Data):
    """Which waiting gangs hold a reservation: a time and nodes that others leave to them."""

    per_priority: Annotated[int, whole(1, MAX_QUEUE)] = 1
    """Most gangs of one priority that hold one, the first in the queue"""
    priorities: Annotated[
        tuple[Comparison, ...],
        Field(strict=False, max_length=100),
        BeforeValidator(bounded),
        omitted((), 'Of these priorities, such as ">=1000"; absent: of all'),
    ] = ()
    horizon_s: Annotated[Duration, Field(alias="horizon")] = DAY_S
    """Gangs that could not start within this time hold none"""


Order = Literal["submitted", "shortest"]
"""Who goes first within a priority."""

MAX_MIX_GPUS = 1_000_000_000


def _gpu_count(key: object) -> int:
    """A key of ``mix``: a whole number of GPUs, written as text in JSON."""
    if isinstance(key, str) and re.fullmatch(r"[1-9][0-9]{0,9}", key) and int(key) <= MAX_MIX_GPUS:
        return int(key)
    raise InvalidValueError(
        f"{shown(key)} is not a number of GPUs", "write it like mix: {1: 300, 8: 700}"
    )


GpuCount = Annotated[
    int, PlainValidator(_gpu_count), WithJsonSchema({"type": "string", "pattern": "^[1-9][0-9]*$"})
]


@dataclass(frozen=True, slots=True)
class Objective(Data):
    """One tier; later tiers may give away `tolerance` of it."""

    name: Annotated[str, Field(json_schema_extra={"enum": list(objective_names())})]
    tolerance: Annotated[Fraction, *decimal(0, 1000)] = Fraction(0)


@dataclass(frozen=True, slots=True)
class SolveLimits(Data):
    """Limits of the search."""

    # 1 is about a second of one core
    budget: Annotated[int, whole(1, MAX_BUDGET)] = 60
    """Deterministic search budget"""
    time_limit_s: Annotated[Duration, Field(alias="timeLimit")] = 120
    """Wall-clock limit"""
    workers: Annotated[int, whole(1, 256)] = 2
    seed: Annotated[int, whole(0, 2**31 - 1)] = 0


_SORTED = AfterValidator(lambda found: dict(sorted(found.items())))


@dataclass(frozen=True, slots=True)
class ServerModelChoice(Data):
    """Nodes with these labels are servers of this model; without labels: every node."""

    node_selector: Annotated[Mapped[LabelKey, LabelValue], _SORTED, Field(default={})]
    """Labels its nodes have; absent: every node"""
    model: Annotated[Title, Field(description="Server model by name or alias")]


@dataclass(frozen=True, slots=True)
class KubernetesDocument(Data):
    """How Kubernetes objects are read, and how a plan is applied to them."""

    scheduling_gate: LabelKey = GATE
    """Waiting pods with this gate are planned"""
    scheduler_names: Annotated[Many[SchedulerName], omitted((), max_length=64)] = ()
    """Other schedulers whose waiting pods are planned too, as a what-if that cannot be applied; "*": every
    scheduler"""
    gpu_resources: Annotated[Many[LabelKey], Field(max_length=64)] = GPU_RESOURCES
    """Resource names that count whole GPUs"""
    levels: Annotated[Many[PolicyLevel] | None, omitted(None)] = None
    """Topology levels, widest first; absent: detected, []: none"""
    server_models: Many[ServerModelChoice] = ()
    """Server model of nodes, by their labels; the first match applies"""
    ignore: Annotated[
        Many[str],
        Field(json_schema_extra={"items": {"type": "string", "enum": list(CONSTRAINTS)}}),
    ] = ()
    """Constraints that a plan leaves out"""
    trust_submitted_at: bool = False
    """Whether an annotation may set the submission time of a gang"""
    trust_communication: Annotated[bool, omitted(default=False)] = False
    """Whether annotations about its communication may make a gang count as faster than one that says
    nothing"""
    trust_min_run_time: Annotated[bool, omitted(default=False)] = False
    """Whether an annotation may state a `minRunTime` above that of the queue or the policy"""
    trust_elastic_quotas: Annotated[bool, omitted(default=False)] = False
    """Whether only administrators write ElasticQuotas, so that they promise GPUs, too"""
    nvlink_across_nodes: Literal["assumed", "claimed"] = "assumed"
    """Whether NVLink between servers counts for every gang, or only where all GPU pods have a ComputeDomain
    claim"""
    gpu_backend: Annotated[
        Literal["annotation", "none", "hami", "dra", "kai"], omitted("annotation")
    ] = "annotation"
    """How `apply` passes the GPU indices of a pod to its node, or with kai its node to KAI's binder"""
    other_schedulers: Annotated[Many[Name] | None, omitted(None)] = None
    """Schedulers whose pods hold room on the node they select before they are bound; absent:
    default-scheduler, and those with a running pod in another namespace"""
    pending_limit_s: Annotated[Duration | None, omitted(PENDING_LIMIT_S, alias="pendingLimit")] = (
        PENDING_LIMIT_S
    )
    """How long a started pod may stay unbound before its gang is reported as stuck; null: for ever"""

    def field_errors(self) -> Iterator[FieldError]:
        """Contradictions; paths start at `kubernetes`."""
        if not self.gpu_resources:
            hint = f"list at least one, such as {GPU_RESOURCES[0]}"
            yield FieldError(("gpuResources",), "no resource name for GPUs", hint)
        for field in ("scheduler_names", "gpu_resources", "other_schedulers", "ignore"):
            names = getattr(self, field) or ()
            yield from twice(names, (to_camel(field),), "{} is listed twice")
        levels = self.levels or ()
        if len(levels) > MAX_LEVELS:
            yield FieldError(("levels",), f"{len(levels):,} levels", f"the most is {MAX_LEVELS}")
        yield from level_errors(levels, ("levels",))
        for i, level in enumerate(levels):
            yield from within(("levels", i), level.field_errors())
        for i, name in enumerate(self.ignore):
            if name not in CONSTRAINTS:
                hint = suggestion(name, CONSTRAINTS, "constraints")
                yield FieldError(("ignore", i), f"unknown constraint {shown(name)}", hint)


class PolicySpec(Document):
    """Objectives, defaults and limits."""

    preset: Preset | None = omitted(None)
    """Which list of objectives, where none is written: goodput (default) settles how many GPUs run against
    how fast they run, admission puts the number first"""
    objectives: Many[Objective] | None = None
    """Tiers in order; absent: those of the preset"""
    mix: Mapped[GpuCount, Annotated[int, whole(0, 1000)]] | None = None
    """Permille of future requests by GPUs; absent: from the input"""
    min_bandwidth_share: Share = Field(Fraction(0), description="Default for every gang")
    gpu_binding: Literal["exact", "none"] = "exact"
    """exact: pods get the planned GPUs; none: the node decides"""
    node_selector: Mapped[LabelKey, LabelValue] = Field(default={})
    """Labels of the nodes that may be used"""
    solve: SolveLimits = SolveLimits()
    moves: MovesDocument = MovesDocument.model_construct()
    disruption: Disruption = omitted(Disruption())
    starvation: StarvationDocument | None = StarvationDocument.model_construct()
    """Absent: after 24h; null: waiting time gives no gang precedence"""
    min_run_time_s: Duration = omitted(0, alias="minRunTime")
    """For so long after its start a running gang is not stopped, shrunk or moved"""
    eviction_backoff: EvictionBackoff | None = omitted(EvictionBackoff())
    """When a gang that plans stopped may start again; null: at once"""
    now: Time | None = omitted(None, "Reference time of ages; absent: the latest time in the input")
    queue_limit: Annotated[int, whole(1, MAX_QUEUE)] | None = omitted(QUEUE_LIMIT)
    """The most waiting gangs of a namespace that are planned, the oldest of the highest priorities; null:
    all"""
    order: Order = omitted("submitted")
    """Who goes first within a priority. submitted: who has waited longer; shortest: who is expected to need
    much less GPU time, and others that may be stopped are stopped for it"""
    trust_durations: bool = omitted(default=False)
    """Whether under `order: shortest` the `expectedDuration` of a gang counts until it is over"""
    reservations: Reservations | None = omitted(None)
    """Gangs that cannot start hold a reservation, and others start there only if they end before it; absent
    or null: none does"""
    gpu_hour_price: Annotated[Fraction, *decimal(0, 1_000_000_000)] | None = omitted(None)
    """Price of one GPU for an hour, in any currency, for the losses of an audit"""
    slurm_priorities: Annotated[int, whole(1, MAX_QUEUE)] = omitted(SLURM_PRIORITIES)
    """Most different priorities of waiting jobs of Slurm; jobs whose priorities lie close together count as
    equal"""
    spares: Mapped[LevelName, Annotated[int, whole(0, 1_000_000)]] = omitted({})
    """Nodes with GPUs kept free in every domain of a level, for failures"""
    per_gpu: Requested = omitted({}, alias="perGpu")
    """What a free GPU needs of its node, such as cpu and memory, not to be stranded"""
    suspect_for_s: Duration = omitted(DAY_S, alias="suspectFor")
    """So long after its last failure a node counts in the tier `suspect`"""
    kubernetes: KubernetesDocument = omitted(KubernetesDocument())

    def to_objectives(self) -> tuple[Objective, ...]:
        """The objectives as written, else those of the preset."""
        if self.objectives is None:
            names = preset_objectives(self.preset or DEFAULT_PRESET)
            return tuple(Objective(name) for name in names)
        return self.objectives

    @property
    def states_max_gangs(self) -> bool:
        """Whether it says how many gangs may move: by a number, by null, or as restarts are free."""
        return "max_gangs" in self.moves.model_fields_set or self.disruption.weight == NO_COST


class PolicyMetadata(Document):
    """Name of a policy."""

    name: Name = "default"


class PolicyDocument(Document):
    """How to plan; without one, the defaults apply."""

    api_version: ApiVersion
    kind: Literal["Policy"]
    metadata: PolicyMetadata = PolicyMetadata.model_construct()
    spec: PolicySpec = PolicySpec.model_construct()

    def field_errors(self) -> Iterator[FieldError]:
        """Contradictions inside the policy; paths start at its top."""
        names = [objective.name for objective in self.spec.objectives or ()]
        for i, name in enumerate(names):
            if name not in objective_names():
                hint = suggestion(name, objective_names(), "objectives")
                path = ("spec", "objectives", i, "name")
                yield FieldError(path, f"unknown objective {shown(name)}", hint)
        known = [name if name in objective_names() else i for i, name in enumerate(names)]
        what = "objective {} is listed twice"
        yield from twice(known, ("spec", "objectives"), what, field=("name",))
        yield from self._rivals(names)
        if (total := sum((self.spec.mix or {}).values())) > 1000:
            what = f"the mix adds up to {total} permille"
            yield FieldError(("spec", "mix"), what, "the most is 1000")
        yield from self._short_times()
        yield from resource_errors(self.spec.per_gpu, ("spec", "perGpu"))
        for name, units in self.spec.per_gpu.items():
            if not units:
                what = f"no {name} a GPU"
                yield FieldError(("spec", "perGpu", name), what, "write more, or remove it")
        yield from within(("spec", "kubernetes"), self.spec.kubernetes.field_errors())

    def _rivals(self, listed: Sequence[str]) -> Iterator[FieldError]:
        """Settings of which only one may be there. ``listed``: objectives."""
        if self.spec.objectives is not None and self.spec.preset is not None:
            what = "both `objectives` and `preset`, which stands for a list of objectives"
            yield FieldError(("spec", "preset"), what, "keep one of the two")
        if all(name in listed for name in MAINS):
            last = max(i for i, name in enumerate(listed) if name in MAINS)
            what = f"both {' and '.join(MAINS)} among the objectives"
            hint = "keep goodput, which counts GPUs times speed, or admission, which counts GPUs"
            yield FieldError(("spec", "objectives", last, "name"), what, hint)

    def _short_times(self) -> Iterator[FieldError]:
        """Durations under one second."""
        for section, field, attribute, name in (
            ("solve", "timeLimit", "time_limit_s", "a time limit"),
            ("disruption", "cap", "cap_s", "a cap"),
            ("starvation", "after", "after", "a wait"),
            ("reservations", "horizon", "horizon_s", "a horizon"),
            ("kubernetes", "pendingLimit", "pending_limit_s", "a limit"),
        ):
            seconds = getattr(getattr(self.spec, section), attribute, None)
            if seconds is not None and seconds < 1:
                what = f"{name} under one second"
                yield FieldError(("spec", section, field), what, "write 1s or more")


@dataclass(frozen=True, slots=True)
class Relaxed(Data):
    """A requirement that does not bind a gang."""

    gang: Annotated[Sentence, Field(description="namespace/name")]
    what: Annotated[Sentence, Field(description="A level, or what else `--relax` takes")]


@dataclass(frozen=True, slots=True)
class WhatIf(Data):
    """What was supposed: files added, nodes drained, gangs left out and requirements relaxed."""

    added: Annotated[Many[Sentence], omitted((), "Files")] = ()
    drained: Annotated[Many[Name], omitted(())] = ()
    """Nodes, sorted: they take nobody, and who stood there is placed anew"""
    without: Annotated[Many[Sentence], omitted((), "namespace/name of gangs, sorted")] = ()
    relaxed: Annotated[Many[Relaxed], omitted((), "By gang")] = ()

    def words(self) -> Iterator[str]:
        """What was supposed, in words that follow "a what-if "."""
        relaxed = [f"{one.what} of {one.gang}" for one in self.relaxed]
        for names, text in (
            (self.added, "with {} added"),
            (host_ranges(self.drained), "with {} drained"),
            (self.without, "without {}"),
            (relaxed, "with {} relaxed"),
        ):
            if names:
                yield text.format(first_of(names, 4, "other"))
