"""docs/goodput.md: every figure on it is recomputed."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from step_figures import FIGURES, predicted_images_per_s

from models.instance.speed import RelativeSpeeds, speed_permille
from models.rates.catalogue import find
from models.step_time import EXAMPLES, HIDDEN_OF_LAYERS, OVERLAP, TRANSFORMER_TOKENS, UTILISATION

PAGE = (Path(__file__).parents[2] / "docs" / "goodput.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """Cells of the table whose head begins so."""
    table = PAGE.partition(f"\n| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_calibration_is_the_one_that_is_tested() -> None:
    table = rows("run")
    assert [run for run, *_ in table] == list(FIGURES)
    for run, published, predicted, error in table:
        assert published == FIGURES[run][0]
        found = predicted_images_per_s(run)
        assert predicted == f"{float(found):.1f}"
        assert error == f"{float(100 * (found / Fraction(published) - 1)):+.1f} %"


def test_the_parameters_of_the_calibration_are_those_in_use() -> None:
    calibrated = dict(rows("calibrated"))
    compute = [f"{case[2]} ms" for case in list(FIGURES.values())[::2]]
    assert calibrated["C of VGG16 and ResNet50, TensorFlow"].split(", ") == compute[:2]
    assert calibrated["C of VGG16 and ResNet50, PyTorch"].split(", ") == compute[2:]
    slow = [f"{case[3]:,} MB/s" for case in list(FIGURES.values())[1::4]]
    assert list(calibrated.values())[2:4] == slow
    assert Fraction(calibrated["phi"]) == OVERLAP
    # The example models are those of PyTorch.
    assert [f"{1000 * float(one.compute_s):.1f} ms" for one in EXAMPLES.values()] == compute[2:]


def test_the_speeds_of_the_example_are_computed() -> None:
    h100, a100 = find("DGX H100"), find("DGX A100")
    assert h100 is not None
    assert a100 is not None
    speeds = RelativeSpeeds([h100, a100])
    for where, share, relative, speed, effective in rows("gang on"):
        r = speeds.of([a100 if "A100" in where else h100])
        assert r == int(relative)
        assert speed_permille(int(share), Fraction(1, 4), r) == int(speed)
        assert f"{16 * int(speed) / 1000:.2f}" == effective


def test_assumptions_are_the_constants() -> None:
    assumed = {name: value for name, value, _ in rows("assumed")}
    assert Fraction(assumed["utilisation"]) == UTILISATION
    assert assumed["tokens of a step"] == f"{int(TRANSFORMER_TOKENS / 2**20)} Mi"
    assert assumed["hidden size"] == f"{HIDDEN_OF_LAYERS} x layers"


@pytest.mark.parametrize("plan", rows("plan"), ids=lambda row: row[0])
def test_the_plans_of_the_presets_are_computed(plan: list[str]) -> None:
    what, gpus, goodput = plan
    share = int(re.findall(r"share (\d+)", what)[0])
    large = 64 * speed_permille(share, Fraction(1, 4))
    small = 8 * 1000 if "gang of 8 runs" in what else 0
    assert int(gpus) == 64 + small // 1000
    assert goodput.rpartition("= ")[2] == f"{large + small:,}"
