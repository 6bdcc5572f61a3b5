"""Predicted time of a training step from the bandwidth of a placement, and the part spent in communication.

One formula, its calibration on eight published figures, and the usual traffic of transformers. It
makes the ``fraction`` of gangs and explains bandwidths to people; no rule and no tier reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

MICROSECOND = Fraction(1, 10**6)

LATENCY_S = 20 * MICROSECOND

"""alpha: seconds of one of the 2 (n - 1) steps of a ring, inside a server and between servers.
Assumed, and small next to messages of 100 MB."""

NO_LATENCY = Fraction(0)
"""For the fraction: latency does not grow where the bandwidth falls."""

OVERLAP = Fraction("0.257")
"""phi: the part of the computation that can hide communication, as calibrated (docs/goodput.md)."""

MOST_FRACTION = Fraction("0.95")
"""Largest fraction of a gang (contract 8)."""


@dataclass(frozen=True, slots=True)
class Training:
    """A training step of which every GPU computes its part and all-reduces its gradients.

    ``step_bytes``: S, all-reduced by each GPU. ``compute_s``: C, seconds without communication.
    ``overlap``: phi, the part of C that can hide communication.
    """

    step_bytes: Fraction
    compute_s: Fraction
    overlap: Fraction = OVERLAP

    def communication_s(self, gpus: int, MBps: Fraction, alpha_s: Fraction = LATENCY_S) -> Fraction:
        """Seconds of communication in a step on ``gpus`` GPUs that reach this bandwidth."""
        return all_reduce_s(gpus, self.step_bytes, MBps, alpha_s)

    def step_s(self, communication_s: Fraction) -> Fraction:
        """C + max(0, comm - phi C): seconds of a step."""
        return self.compute_s + max(Fraction(0), communication_s - self.overlap * self.compute_s)

    def fraction(self, communication_s: Fraction) -> Fraction:
        """Part of the step spent in communication, hidden or not: at most 0.95, three decimals.

        Hidden communication counts because it shows where links are slower: without it, a gang whose
        communication just fits behind its computation would seem to run as fast on any links.
        """
        return min(MOST_FRACTION, round(communication_s / self.step_s(communication_s), 3))

    def on_speed(self, relative_speed: Fraction | None) -> Training:
        """The step, which is one of V100s, on GPUs of another speed; the same where that is unknown."""
        if relative_speed is None:
            return self
        return replace(self, compute_s=self.compute_s * V100_SPEED / relative_speed)


def all_reduce_s(gpus: int, size: Fraction, MBps: Fraction, alpha_s: Fraction) -> Fraction:
    """2 (n - 1) alpha + 2 (n - 1) / n x S / B: seconds to all-reduce S bytes, B in MB/s and above 0.

    B is the bus bandwidth of nccl-tests (doc/PERFORMANCE.md), so the formula holds for every n.
    """
    if gpus < 2:
        return Fraction(0)
    steps = 2 * (gpus - 1)
    return steps * alpha_s + Fraction(steps, gpus) * size / (MBps * 10**6)


V100_SPEED = 125
"""``relativeSpeed`` of the V100, on which the eight figures were published."""

VGG16_BYTES = Fraction(4 * 138_357_544)
RESNET50_BYTES = Fraction(4 * 25_557_032)
"""Gradients in FP32: 4 bytes for each of the parameters of the model."""

EXAMPLES = {
    "VGG16": Training(VGG16_BYTES, Fraction("0.3129")),
    "ResNet50": Training(RESNET50_BYTES, Fraction("0.1918")),
}
"""Example models on V100s with a batch of 64 a GPU, as calibrated on the PyTorch figures."""

TRANSFORMER_TOKENS = Fraction(4 * 2**20)
"""Tokens of a step in all replicas: 4 Mi, as large language models are pre-trained (Llama 2: 4 M)."""

UTILISATION = Fraction(1, 2)
"""Part of the published peak reached while a GPU computes. Published runs reach 38 to 52 % of the peak
in all (Llama 3, Megatron-LM), with their communication."""

ELEMENT_BYTES = 2
"""BF16 gradients and activations."""

LAYER_ALL_REDUCES = 4
"""All-reduces of activations a layer with tensor parallelism: two forward, two backward (Megatron-LM)."""

HIDDEN_OF_LAYERS = 128
"""Hidden size a layer: GPT-3 has 96 layers of 12,288; a layer has 12 x hidden^2 parameters."""


@dataclass(frozen=True, slots=True)
class Transformer:
    """A transformer of ``parameters`` on tensor x pipeline x data GPUs; ``tokens`` of a step in all replicas.

    Pipeline stages are taken to hide what they send each other.
    """

    parameters: Fraction
    tensor: int
    pipeline: int
    data: int
    tokens: Fraction = TRANSFORMER_TOKENS
    overlap: Fraction = OVERLAP

    @property
    def layers(self) -> int:
        """The most layers whose parameters, 12 x hidden^2 each, are not more than the model's."""
        layers = 1
        while 12 * HIDDEN_OF_LAYERS**2 * (layers + 1) ** 3 <= self.parameters:
            layers += 1
        return layers

    def training(self, peak_teraflops: Fraction) -> Training:
        """Its step on GPUs of this peak.

        C = 6 x parameters x tokens / (GPUs x peak x utilisation);
        S = 2 bytes x parameters / (tensor x pipeline), gradients among the replicas.
        """
        gpus = self.tensor * self.pipeline * self.data
        flops = 6 * self.parameters * self.tokens
        size = ELEMENT_BYTES * self.parameters / (self.tensor * self.pipeline)
        return Training(size, flops / (gpus * peak_teraflops * 10**12 * UTILISATION), self.overlap)

    def tensor_s(self, MBps: Fraction) -> Fraction:
        """Seconds a step that a GPU all-reduces activations, with the bandwidth of ``tensor`` GPUs.

        4 all-reduces of 2 bytes x hidden x tokens / data for each of its layers / pipeline layers.
        """
        activations = ELEMENT_BYTES * HIDDEN_OF_LAYERS * self.layers * self.tokens / self.data
        size = activations * LAYER_ALL_REDUCES * self.layers / self.pipeline
        return all_reduce_s(self.tensor, size, MBps, NO_LATENCY)
