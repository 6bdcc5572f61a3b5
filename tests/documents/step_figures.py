"""Published images a second, and what the model of the step time predicts for them."""

from __future__ import annotations

from fractions import Fraction

from models.step_time import (
    LATENCY_S,
    RESNET50_BYTES,
    VGG16_BYTES,
    Training,
)

BATCH = 64  # images a GPU and step


NETWORK_LATENCY_S = Fraction(50, 10**6)


# Four V100, one of each pod, a batch of 64 each. Alibaba Cloud ACK, topology-aware GPU scheduling,
# the pages on TensorFlow and on PyTorch: images/s, and what is compared. C (ms) is calibrated for each
# framework and model, B (MB/s) for each kind of slow run; the fast runs show no limit, 60 GB/s is assumed.
FIGURES = {
    "TensorFlow VGG16, one server": ("991.92", VGG16_BYTES, "257.4", 60000, LATENCY_S),
    "TensorFlow VGG16, two servers": ("200.47", VGG16_BYTES, "257.4", 749, NETWORK_LATENCY_S),
    "TensorFlow ResNet50, one server": ("1471.55", RESNET50_BYTES, "175.6", 60000, LATENCY_S),
    "TensorFlow ResNet50, two servers": ("745.38", RESNET50_BYTES, "175.6", 749, NETWORK_LATENCY_S),
    "PyTorch VGG16, chosen GPUs": ("820.5", VGG16_BYTES, "312.9", 60000, LATENCY_S),
    "PyTorch VGG16, other GPUs": ("435.2", VGG16_BYTES, "312.9", 2360, LATENCY_S),
    "PyTorch ResNet50, chosen GPUs": ("1321.9", RESNET50_BYTES, "191.8", 60000, LATENCY_S),
    "PyTorch ResNet50, other GPUs": ("1251.8", RESNET50_BYTES, "191.8", 2360, LATENCY_S),
}


def predicted_images_per_s(case: str) -> Fraction:
    _, size, compute_ms, MBps, alpha_s = FIGURES[case]
    training = Training(size, Fraction(compute_ms) / 1000)
    communication_s = training.communication_s(4, Fraction(MBps), alpha_s)
    return 4 * BATCH / training.step_s(communication_s)
