"""How a gang communicates: pattern and weight, and the part of a step it takes, written or from a model.

The fraction that follows from a model is computed by ``planner.read.step_fractions``.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Discriminator, Field, PlainSerializer, Tag

from models.documents.base import (
    Document,
    FieldError,
    Quantity,
    above_zero,
    decimal,
    omitted,
    positive,
    whole,
    within,
)
from models.step_time import MOST_FRACTION, OVERLAP, TRANSFORMER_TOKENS
from models.units import number, plural

DEFAULT_FRACTION = Fraction(1, 4)
"""Part of a step that a gang spends in communication, unless it says otherwise (contract 8)."""

Pattern = Literal[
    "all-reduce",
    "all-gather",
    "all-to-all",
    "broadcast",
    "parameter-server",
    "pipeline",
    "reduce-scatter",
    "none",
]
"""Patterns; those without a formula of their own (``models.instance.gang``) count as all-reduce."""


Amount = Annotated[
    Quantity, above_zero("it must be above zero", "write it like 7G"), PlainSerializer(number)
]
Overlap = Annotated[Fraction, *decimal(0, 1)]


class StepModel(Document):
    """A measured step: every GPU computes, and all-reduces the gradients."""

    parameters: Amount | None = omitted(None, "Number of parameters, such as 7G")
    bytes_per_step: Amount | None = omitted(None)
    """All-reduced by each GPU in a step; absent: 2 for each parameter"""
    compute_seconds: Annotated[
        Fraction, *positive(100_000, "it must be above zero", "write seconds, such as 0.25")
    ] = Field(description="Of a step, without communication, on the fastest GPUs it may use")
    overlap: Overlap = OVERLAP
    """Part of the computation that can hide communication"""

    def field_errors(self) -> Iterator[FieldError]:
        """No message size; paths start at the model."""
        if self.parameters is None and self.bytes_per_step is None:
            what = "neither `parameters` nor `bytesPerStep`"
            yield FieldError((), what, "add one: it says how much is all-reduced")


Degree = Annotated[int, whole(1, 1_000_000)]


class TransformerDegrees(Document):
    """How the GPUs of a transformer share the work: their product is the gang's GPUs at `min`."""

    tensor: Degree = 1
    pipeline: Degree = 1
    data: Degree | None = omitted(None, "Replicas; absent: the GPUs that are left")


class TransformerModel(Document):
    """A transformer, whose traffic follows from its size."""

    parameters: Amount = Field(description="Number of parameters, such as 70G")
    parallelism: TransformerDegrees
    tokens: Amount = TRANSFORMER_TOKENS
    """Tokens of a step, of all replicas together"""
    overlap: Overlap = OVERLAP
    """Part of the computation that can hide communication"""

    def replicas(self, gpus: int) -> int:
        """`data`, or what `tensor` and `pipeline` leave of the gang's GPUs."""
        one = self.parallelism.tensor * self.parallelism.pipeline
        return self.parallelism.data or max(1, gpus // one)

    def field_errors(self, gpus: int) -> Iterator[FieldError]:
        """A product that is not the gang's GPUs at `min`; paths start at the model."""
        degrees = self.parallelism
        product = degrees.tensor * degrees.pipeline * self.replicas(gpus)
        if product != gpus:
            named = "tensor x pipeline" + ("" if degrees.data is None else " x data")
            used = product if degrees.data else degrees.tensor * degrees.pipeline
            what = f"{named} is {used:,}, but the gang has {plural(gpus, 'GPU')}"
            hint = "the product is the number of GPUs, at `min` if the gang is elastic"
            yield FieldError(("parallelism",), what, hint)


def _model_form(value: object) -> str:
    if isinstance(value, TransformerModel) or (isinstance(value, dict) and "parallelism" in value):
        return "transformer"
    return "measured" if isinstance(value, dict | StepModel) else "named"


ExampleModel = Literal["vgg16", "resnet50"]

CommunicationModel = Annotated[
    Annotated[ExampleModel, Tag("named")]
    | Annotated[StepModel, Tag("measured")]
    | Annotated[TransformerModel, Tag("transformer")],
    Discriminator(_model_form),
]


class Communication(Document):
    """How its GPUs communicate; `none`: no bandwidth counts, other patterns count as all-reduce."""

    pattern: Pattern = "all-reduce"
    weight: Annotated[int, whole(0, 1000)] = 1
    nvlink_across_nodes: bool = omitted(default=True)
    """false: its pods use only the network between servers, even in an NVLink domain"""
    fraction: Annotated[Fraction, *decimal(0, MOST_FRACTION)] = DEFAULT_FRACTION
    """Part of a step spent in communication where links are ideal"""
    model: CommunicationModel | None = omitted(None)
    """What it trains, from which `fraction` is computed: an example model, {parameters, bytesPerStep,
    computeSeconds, overlap} or {parameters, parallelism, tokens}"""
    speed: Literal["count", "ignore"] = omitted("count", "ignore: as fast on slower GPU models")

    def field_errors(self, gpus: int) -> Iterator[FieldError]:
        """Two answers to one question, and a model that does not fit ``gpus``, those of the gang at `min`."""
        if self.model is not None and "fraction" in self.model_fields_set:
            hint = "keep one: `fraction` is computed from `model`"
            yield FieldError(("model",), "both `fraction` and `model`", hint)
        elif isinstance(self.model, StepModel):
            yield from within(("model",), self.model.field_errors())
        elif isinstance(self.model, TransformerModel):
            yield from within(("model",), self.model.field_errors(gpus))
