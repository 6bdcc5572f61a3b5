"""Predicted step times: the formula by hand, the eight published figures, the fraction of a step."""

from __future__ import annotations

from fractions import Fraction

import pytest
from step_figures import BATCH, FIGURES, predicted_images_per_s

from models.instance.speed import SPEED_STEP, speed_permille
from models.step_time import (
    EXAMPLES,
    OVERLAP,
    Training,
    Transformer,
)


@pytest.mark.parametrize("case", FIGURES)
def test_the_calibration_reproduces_the_published_figure_within_three_percent(case: str) -> None:
    published = Fraction(FIGURES[case][0])
    assert abs(predicted_images_per_s(case) / published - 1) < Fraction(3, 100)


def test_the_calibration_orders_the_published_gains() -> None:
    # Published: 991.92 / 200.47 = 4.9 and 820.5 / 435.2 = 1.9 for VGG16, 1.97 and 1.06 for ResNet50.
    fast = [predicted_images_per_s(case) for case in list(FIGURES)[::2]]
    slow = [predicted_images_per_s(case) for case in list(FIGURES)[1::2]]
    gains = [round(float(a / b), 1) for a, b in zip(fast, slow, strict=True)]
    assert gains == [5.1, 1.9, 1.9, 1.1]


def test_without_overlap_the_figures_are_out_of_reach() -> None:
    # One bandwidth must explain both PyTorch runs: without overlap VGG16 implies
    # 1.5 x 553.4 MB / 276.2 ms = 3.0 GB/s, ResNet50 1.5 x 102.2 MB / 10.8 ms = 14 GB/s.
    slower = {
        name: 4 * BATCH / Fraction(FIGURES[f"PyTorch {name}, other GPUs"][0])
        - 4 * BATCH / Fraction(FIGURES[f"PyTorch {name}, chosen GPUs"][0])
        for name in EXAMPLES
    }
    implied = {
        name: Fraction(3, 2) * EXAMPLES[name].step_bytes / slower[name] / 10**9 for name in slower
    }
    assert [round(float(implied[name])) for name in ("VGG16", "ResNet50")] == [3, 14]


def test_communication_is_free_up_to_the_part_that_computation_hides() -> None:
    training = Training(Fraction(10**9), Fraction(2), Fraction(1, 4))
    assert training.step_s(Fraction(1, 2)) == 2
    assert training.step_s(Fraction(3, 2)) == 3


def test_the_fraction_counts_communication_whether_it_is_hidden_or_not() -> None:
    training = Training(Fraction(10**9), Fraction(2), Fraction(1, 4))
    assert training.fraction(Fraction(0)) == 0
    assert training.fraction(Fraction(1, 2)) == Fraction(1, 4)  # all hidden: 0.5 of 2
    assert training.fraction(Fraction(3, 2)) == Fraction(1, 2)  # 1.5 of 2 + 1.5 - 0.5
    assert training.fraction(Fraction(1, 7)) == Fraction("0.071")  # 1/14, rounded
    assert training.fraction(Fraction(1000)) == Fraction("0.95")  # 0.9985, capped


@pytest.mark.parametrize("share", [1000, 500, 200, 50, 10])
@pytest.mark.parametrize("communication_ms", [50, 514, 600, 3000])
def test_the_formula_of_the_speed_agrees_with_the_step_or_is_below_by_what_is_hidden(
    share: int, communication_ms: int
) -> None:
    # C = 2 s, phi = 0.257: 514 ms can be hidden. Where communication is at least as long on ideal
    # links, both are equal but for the decimals of the fraction and the step of the speed; where it is
    # shorter, the formula is below, by no more than phi C - comm of a step of T(share).
    training = Training(Fraction(10**9), Fraction(2))
    ideal_s = Fraction(communication_ms, 1000)
    slow_s = ideal_s * 1000 / share
    step = training.step_s(ideal_s) / training.step_s(slow_s)
    formula = Fraction(speed_permille(share, training.fraction(ideal_s)), 1000)
    idle_s = max(Fraction(0), OVERLAP * 2 - ideal_s)
    tolerance = Fraction(SPEED_STEP, 1000) + Fraction(1, 500)
    assert formula <= step + tolerance
    assert formula >= step * (1 - idle_s / training.step_s(slow_s)) - tolerance


def test_a_transformers_step_is_that_of_its_formulas() -> None:
    # 12 x 128^2 x 10^3 parameters: 10 layers of 1,280. 8 tensor x 2 pipeline x 4 data = 64 GPUs.
    parameters = Fraction(12 * 128**2 * 10**3)
    model = Transformer(parameters, 8, 2, 4, tokens=Fraction(10**6))
    training = model.training(Fraction(1000))
    # 6 x 196.6 M x 10^6 / (64 x 10^15 x 1/2) s
    assert training.compute_s == 6 * parameters * 10**6 / (64 * 10**15 * Fraction(1, 2))
    assert training.step_bytes == 2 * parameters / 16
    # 4 x 5 layers x 250,000 tokens x 1,280 x 2 bytes among 8 GPUs: x 2 x 7/8, at 350,000 MB/s
    size = 4 * 5 * 250_000 * 1280 * 2
    assert model.tensor_s(Fraction(350_000)) == Fraction(7, 4) * size / (350_000 * 10**6)
    assert Transformer(parameters, 1, 1, 4).tensor_s(Fraction(0)) == 0
