"""A saved plan as the tables need it: the shape is checked, everything else is left unread.

Promises: a file that is not a plan, or a broken one, is an InputError with the place; never a traceback.
Plans of hundreds of megabytes pass: the parser builds only what is shown. Used by ``show``, ``verify``
and ``plan``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.errors import Fault, InputError, MissingPathError

MAX_PLAN_BYTES = 512 * 1024 * 1024
"""More is no plan of ours (100,000 GPUs make about 30 MB) and would only fill the memory."""

API_VERSION = "gangplan.dev/v1alpha1"
Decision = Literal["place", "complete", "keep", "move", "resize", "preempt", "wait"]
ADMITTED = ("place", "complete", "keep", "move", "resize")
Count = Annotated[int, Field(ge=0)]


class _View(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)


class PodView(_View):
    """One pod after the plan; ``gpus`` None where the node decides."""

    name: str
    role: str
    index: Count
    node: str
    gpus: list[Count] | None


class ReasonView(_View):
    code: str
    message: str


class GangView(_View):
    """One decision."""

    namespace: str
    name: str
    decision: Decision
    pods: list[PodView]
    bandwidth: Count | None = Field(alias="bandwidthMBps")
    share: Count | None
    domains: dict[str, Count] | None
    reason: ReasonView | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    @property
    def incomplete(self) -> bool:
        """Running with pods missing: kept, but not admitted."""
        return self.decision == "keep" and self.reason is not None


class TierView(_View):
    """One objective tier; ``gap`` in parts of one."""

    name: str
    sense: Literal["max", "min"]
    value: int
    best: int
    bound: int | None
    gap: Annotated[float, Field(ge=0)] | None
    proof: Literal["exact", "numerical"] | None

    @property
    def family(self) -> str:
        return self.name.partition("/")[0]

    @property
    def proven(self) -> bool:
        return self.gap == 0 and self.proof is not None


class ServerModelView(_View):
    name: str
    gpus: Count


class LevelView(_View):
    name: str


class NodeView(_View):
    name: str
    model: str | None = None
    domains: dict[str, str] = Field(default_factory=dict)
    ready: bool = True
    unschedulable: bool = False
    unhealthy: list[Count] = Field(default_factory=list, alias="unhealthyGpus")
    unknown_unhealthy: Count = Field(default=0, alias="unknownUnhealthy")


class _ClusterSpec(_View):
    levels: list[LevelView] = Field(default_factory=list)
    models: list[ServerModelView] = Field(default_factory=list, alias="serverModels")
    nodes: list[NodeView]


class MetadataView(_View):
    name: str
    namespace: str = "default"


class _ClusterView(_View):
    metadata: MetadataView
    spec: _ClusterSpec


class RangeView(_View):
    min: Count


class RoleView(_View):
    """``replicas`` is a count, or an elastic range."""

    name: str
    gpus: Count = 0
    replicas: Count | RangeView = 1

    @property
    def asked(self) -> int:
        """GPUs at the smallest allowed count."""
        return self.gpus * (self.replicas if isinstance(self.replicas, int) else self.replicas.min)


class _AskSpec(_View):
    priority: int = 0
    roles: list[RoleView]


class StandingView(_View):
    node: str | None = None


class _AskStatus(_View):
    pods: list[StandingView] = Field(default_factory=list)


class AskView(_View):
    """A gang as the input has it."""

    metadata: MetadataView
    spec: _AskSpec
    status: _AskStatus | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.metadata.namespace, self.metadata.name)

    @property
    def running(self) -> bool:
        return self.status is not None and any(pod.node is not None for pod in self.status.pods)


class _Instance(_View):
    cluster: _ClusterView
    gangs: list[AskView]


class _PlanMetadata(_View):
    name: str
    created_at: str = Field(alias="createdAt")
    generator: str


class _Search(_View):
    solver: str = ""
    seed: int = 0
    stopped_by: str = Field(alias="stoppedBy")


class _Status(_View):
    outcome: Literal["optimal", "feasible"]
    objectives: list[TierView]
    search: _Search
    notes: list[str] = Field(default_factory=list)
    digests: dict[str, str]


class _Spec(_View):
    gangs: list[GangView]


class PlanView(_View):
    """What the tables show of a plan."""

    metadata: _PlanMetadata
    instance: _Instance
    spec: _Spec
    status: _Status


class _Header(_View):
    api_version: Any = Field(default=None, alias="apiVersion")
    kind: Any = None


def read_bytes(path: str, stdin: IO[bytes] | None = None) -> bytes:
    """The bytes of a plan file; ``-`` reads ``stdin``. At most MAX_PLAN_BYTES are ever held."""
    try:
        if path == "-":
            content = b"" if stdin is None else stdin.read(MAX_PLAN_BYTES + 1)
        else:
            with Path(path).open("rb") as stream:
                content = stream.read(MAX_PLAN_BYTES + 1)
    except IsADirectoryError:
        raise InputError(Fault("a plan is one JSON file, this is a folder", file=path)) from None
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise MissingPathError(Fault(f"cannot read {path}: {why}", "check the path")) from error
    if len(content) > MAX_PLAN_BYTES:
        raise InputError(Fault(f"larger than {MAX_PLAN_BYTES >> 20} MiB: not a plan", file=path))
    return content


def view(content: bytes, path: str) -> PlanView:
    """The plan in ``content``. Raises InputError with every fault of its shape (at most 20)."""
    try:
        _check_header(_Header.model_validate_json(content), path)
        return PlanView.model_validate_json(content)
    except ValidationError as error:
        if any(not fault["loc"] for fault in error.errors(include_input=False)):
            parse(content, path)  # not JSON, or no object: Python's parser says where
        raise InputError(*_faults(error, path)) from None


def view_of(document: dict[str, Any]) -> PlanView:
    """The view of a plan that this process has just composed."""
    return PlanView.model_validate(document)


def parse(content: bytes, path: str) -> dict[str, Any]:
    """The whole document, strictly JSON: no NaN, UTF-8, an object at the top.

    Raises InputError with line and column.
    """
    try:
        document = json.loads(content.decode("utf-8-sig"), parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        hint = "the file is cut short" if error.pos >= len(error.doc.rstrip()) else None
        raise InputError(
            Fault(f"not JSON: {_lower(error.msg)}", hint, path, error.lineno, error.colno)
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(Fault(f"not a plan: byte {error.start} is not UTF-8", file=path)) from None
    except RecursionError:
        raise InputError(Fault("not a plan: nested too deeply", file=path)) from None
    except ValueError as error:
        raise InputError(Fault(f"not a plan: {_lower(str(error))}", file=path)) from None
    if not isinstance(document, dict):
        raise InputError(Fault("not a plan: an object is expected", file=path))
    _check_header(_Header(apiVersion=document.get("apiVersion"), kind=document.get("kind")), path)
    return document


def _check_header(header: _Header, path: str) -> None:
    if header.kind != "Plan":
        said = f"kind is {_short(header.kind)}" if header.kind is not None else "it has no kind"
        hint = "a plan is what `plan --out FILE` writes"
        raise InputError(Fault(f"not a plan: {said}", hint, path))
    if header.api_version != API_VERSION:
        raise InputError(
            Fault(
                f"unknown version of a plan: apiVersion is {_short(header.api_version)}",
                f"this gangplan reads {API_VERSION}; plan again or use the gangplan that wrote it",
                path,
            )
        )


def _faults(error: ValidationError, path: str) -> list[Fault]:
    faults = []
    for fault in error.errors(include_url=False, include_input=False)[:20]:
        place = ""
        for step in fault["loc"]:
            place += f"[{step}]" if isinstance(step, int) else f".{step}"
        where = f"{place.lstrip('.')}: " if place else ""
        where = where if len(where) < 200 else f"{where[:197]}...: "
        faults.append(Fault(f"not a plan: {where}{_lower(fault['msg'])}", file=path))
    return faults


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
