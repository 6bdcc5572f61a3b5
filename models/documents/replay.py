"""The Replay document: what a trace of jobs would have met under several policies and baselines.

The schema of a replay and its only reader. Times are seconds since the start of the replayed part of the
trace; numbers with a fraction have up to three digits. Only ``status.timing`` depends on the machine.
"""

from typing import Annotated, Literal

from pydantic import Field

from models.documents.base import ApiVersion, Document, Many, Time, omitted

MAX_AMOUNT = 10**18
"""Largest number of a replay: far above any real one, far below where charts cannot be drawn."""

Ending = Literal["idle", "stalled", "failures"]

Natural = Annotated[int, Field(ge=0, le=MAX_AMOUNT)]
Amount = Annotated[float, Field(ge=0, le=MAX_AMOUNT)]
Share = Annotated[float, Field(ge=0, le=1)]


class ReplayMetadata(Document):
    """Name, time and maker of a replay."""

    name: str
    created_at: Time
    generator: str


class ReplayTrace(Document):
    """The part of a trace that is replayed."""

    name: str
    jobs: Natural = Field(description="Jobs that are replayed")
    left_out: Natural = Field(
        default=0, description="Jobs that do not fit on the cluster even when it is empty"
    )
    gpu_seconds: Amount = Field(description="Work: GPUs times duration at full speed")


class ReplayCluster(Document):
    """The cluster on which it is replayed."""

    name: str
    nodes: Natural
    gpus: Natural


class ReplayFailures(Document):
    """Nodes fail each for itself, at random."""

    mtbf_seconds: Natural = Field(description="Mean time between two failures of one node")
    repair_seconds: Natural


class ReplaySpec(Document):
    """What is replayed, and how."""

    trace: ReplayTrace
    cluster: ReplayCluster
    seed: Natural
    from_seconds: Natural = Field(
        description="Start of the replayed part, in the time of the trace"
    )
    until_seconds: Natural | None = Field(description="Jobs are submitted before; null: all")
    every_seconds: Natural = Field(
        description="Time between two plans; 0: plans at events, such as a job that comes or ends"
    )
    debounce_seconds: Natural = omitted(
        default=0,
        description="Time from the first event that no plan has answered to the plan that does, "
        "where plans are made at events",
    )
    budget: Natural = Field(description="Search budget of one plan")
    speedup: Amount = Field(
        description="The times between arrivals are those of the trace divided by this"
    )
    prefer: str | None = omitted(
        description="Level that gangs of several pods prefer where the trace says nothing"
    )
    restart_seconds: Natural = Field(
        description="Time that an interrupted job takes to start again"
    )
    checkpoint_seconds: Natural = Field(
        description="Time between two checkpoints: an interrupted job loses its work since the last one"
    )
    failures: ReplayFailures | None = omitted()
    repeat: Natural = omitted(default=1, description="Runs of each policy and baseline")
    preemptible: bool = omitted(
        default=False, description="Whether plans could stop all jobs, which saved their work first"
    )
    jitter_seconds: Natural = omitted(
        default=0,
        description="Arrivals are moved at random by so much at most, differently each time",
    )


class Distribution(Document):
    """Seconds; null without any job."""

    mean: Amount | None
    p50: Amount | None
    p95: Amount | None = omitted()
    p99: Amount | None


class QueueingBySize(Distribution):
    """The same of the jobs with so many GPUs."""

    gpus: Natural = Field(
        description="The most GPUs of these jobs: sizes are grouped by powers of 2"
    )
    jobs: Natural


class Queueing(Distribution):
    """From submission to the first start."""

    by_size: Many[QueueingBySize]


class ReplayQueue(Document):
    """The jobs of one queue."""

    queue: str
    jobs: Natural
    gpu_seconds: Amount = Field(description="GPUs times the time for which its jobs held them")
    mean_queueing_seconds: Amount | None
    service: Share | None = Field(
        description="Mean of duration at full speed / completion time: 1 if nothing ever waited"
    )


class Fairness(Document):
    """How alike queues are served."""

    by_queue: Many[ReplayQueue]
    jain: Share | None = Field(description="Jain's index of `service`: 1 if all are served alike")


class Curves(Document):
    """Over time, at most 500 points; each value holds until the next point."""

    seconds: Many[Amount]
    gpus_busy: Many[Amount]
    waiting_gpus: Many[Amount]
    effective_gpus: Many[Amount] = Field(description="GPUs held times the speed of their jobs")


class CompletionCurve(Document):
    """Which share of the jobs is complete so many seconds after its submission."""

    seconds: Many[Amount]
    share: Many[Share]


class StartIntervals(Document):
    """Intervals in which jobs were to start, each said when a job still waited after the first decision."""

    waited: Natural = Field(description="Jobs that still waited then")
    stated: Natural = Field(description="Those with an interval; the others had no basis")
    held: Share | None = Field(description="Share of these that started within it")
    median_seconds: Amount | None = Field(description="Median width of the intervals")
    point_band_seconds: Amount | None = Field(
        description="Width of the band that holds 90 % of the errors of a point estimate: first come, first "
        "served, by counts of GPUs and expected ends"
    )


class ReplayRun(Document):
    """One policy or baseline."""

    name: str
    repeat: Natural = omitted(default=1, description="Its number among the runs of this name")
    kind: Literal["policy", "baseline"]
    inputs: str = Field(
        description="Digest of all that the run depends on; a resumed replay keeps runs of equal inputs"
    )
    jobs: Natural
    completed: Natural
    unfinished: Natural = Field(description="Jobs that never started, or never ended")
    ended_early: Ending | None = omitted(
        description="Why the simulation ended with unfinished jobs. idle: no job ran or arrived for 30 days. "
        "stalled: no job ended for ten times as long as the longest one takes, because each was interrupted. "
        "failures: more nodes failed than a replay simulates"
    )
    simulated_seconds: Amount | None = omitted(
        description="When a simulation that ended early did so"
    )
    end_seconds: Amount = Field(description="When the last job ended")
    jct_seconds: Distribution = Field(description="From submission to completion")
    queueing_seconds: Queueing
    slowdown: Amount | None = Field(
        description="Mean of completion time / duration at full speed, of which ten seconds count at least"
    )
    speed: Share | None = Field(description="Mean predicted speed of held GPUs, next to full speed")
    utilisation: Share = Field(
        description="Share of the healthy GPUs that jobs hold, until the last submission"
    )
    gpu_gbps: Amount = Field(
        alias="gpuGBps", description="Mean of the sum of GPUs times GB/s of their gang, likewise"
    )
    preemptions: Natural = Field(description="Times that a plan stopped a job")
    moves: Natural = Field(description="Times that a plan moved one")
    failures: Natural = Field(description="Times that a node failed with a job on it")
    restarts: Natural = Field(description="Starts after one of these")
    lost_gpu_seconds: Amount = Field(
        description="Work that had to be done again, and restart times"
    )
    fairness: Fairness
    start_intervals: StartIntervals | None = omitted(
        description="Absent in documents of older versions"
    )
    curves: Curves
    completion_curve: CompletionCurve


class Spread(Document):
    """Of a figure over the runs of one name."""

    mean: float
    sd: Amount | None = Field(description="Standard deviation of the sample; null with one run")


class ReplaySpread(Document):
    """The runs of one policy or baseline together. Only runs in which a figure is known count."""

    name: str
    runs: Natural
    jct_mean_seconds: Spread | None
    jct_p50_seconds: Spread | None
    jct_p99_seconds: Spread | None
    queueing_mean_seconds: Spread | None
    slowdown: Spread | None
    end_seconds: Spread | None
    utilisation: Spread | None
    speed: Spread | None
    jain: Spread | None
    stops: Spread | None = Field(description="Times that jobs were stopped or moved by decisions")
    behind_best: Spread | None = Field(
        description="Mean completion time less that of `best` in the same repeat, as a share of that"
    )


class ReplayTiming(Document):
    """What a run took on this machine."""

    name: str
    repeat: Natural = omitted(default=1)
    plans: Natural = Field(
        description="Times that a plan was made; other ticks had nothing to decide"
    )
    planning_seconds: Distribution
    max_seconds: Amount | None
    total_seconds: Amount = Field(description="Of the whole run")


class ReplayDigests(Document):
    """``sha256:<hex>`` of the runs, as compact JSON with sorted keys: equal for equal results."""

    runs: str


class ReplayStatus(Document):
    """One run a policy or baseline, in the order asked for."""

    runs: Many[ReplayRun]
    spreads: Many[ReplaySpread] = omitted(
        default=(), description="Where each policy and baseline has several runs"
    )
    least_mean_seconds: Amount | None = omitted(
        description="No schedule has a shorter mean completion time, even one that knows the future"
    )
    best: str | None = omitted(
        description="The name with the shortest mean of mean completion times"
    )
    missing: Many[str] = omitted(
        default=(), description="Runs that were not finished when the replay was stopped"
    )
    digests: ReplayDigests
    timing: Many[ReplayTiming]


class ReplayDocument(Document):
    """A replay: complete in itself."""

    api_version: ApiVersion
    kind: Literal["Replay"]
    metadata: ReplayMetadata
    spec: ReplaySpec
    status: ReplayStatus
