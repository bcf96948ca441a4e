"""Lemma 2: averages against a slow twin, the smooth problem, what holds on a quadratic, and the study's rows."""

import json
import math

import pytest
import torch

from research import lemma2
from research.lemma2 import (
    METHODS,
    SCHEDULES,
    SETTINGS,
    Schedule,
    SmoothProblem,
    averages,
    figures,
    measure,
    page,
    slope,
)

LEMMA = Schedule("lemma", "", 100.0, 1.0, 0.0)
ROOTS = Schedule("root", "", 50.0, 0.5, 0.5)


@pytest.fixture(scope="module")
def problem():
    return SmoothProblem.from_images(100)


def twin(problem, schedule, seed, steps, *, sharp_steps):
    """SGD or SAM by hand, every step measured."""
    generator = torch.Generator().manual_seed(seed)
    weights = problem.begin(generator).detach()
    values, plains, rates = [], [], []
    for step in range(1, steps + 1):
        rate, rho = schedule.eta / step**schedule.power, SETTINGS["rho"] / step**schedule.rho_power
        plain, sharp = problem.gradients(weights, rho)
        values.append(float((0.3 * plain + 0.7 * sharp).square().sum()))
        plains.append(float(plain.square().sum()))
        rates.append(rate)
        batch = problem.draw(16, generator)
        weights = weights - rate * batch.gradients(weights, rho)[1 if sharp_steps else 0]
    weighted = sum(value * rate for value, rate in zip(values, rates, strict=True)) / sum(rates)
    return {
        "average": sum(values) / steps,
        "gradient_average": sum(plains) / steps,
        "weighted_average": weighted,
    }


@pytest.mark.parametrize("schedule", [LEMMA, ROOTS], ids=lambda schedule: schedule.name)
@pytest.mark.parametrize(("method", "sharp_steps"), [("sgd", False), ("sam", True)])
def test_the_averages_are_those_of_a_run_by_hand(problem, schedule, method, sharp_steps):
    points = averages(problem, schedule, method, 3, (5, 30))
    assert [point["horizon"] for point in points] == [5, 30]
    for point in points:
        expected = twin(problem, schedule, 3, point["horizon"], sharp_steps=sharp_steps)
        assert {name: point[name] for name in expected} == pytest.approx(expected, rel=1e-6)
    assert points[-1]["samples"] == (30 if sharp_steps else 0)


def test_a_short_run_is_the_beginning_of_a_long_one(problem):
    for method in METHODS:
        assert averages(problem, LEMMA, method, 0, (8, 40))[0] == averages(problem, LEMMA, method, 0, (8,))[0]


def test_vsam_starts_as_sam_and_then_leaves_out_second_gradients(problem):
    sam, ours = (averages(problem, LEMMA, method, 0, (20, 60)) for method in ("sam", "vsam"))
    assert sam[0] == ours[0]
    assert 20 < ours[1]["samples"] < 60
    assert ours[1]["average"] != sam[1]["average"]


def test_the_averages_stay_below_what_any_weights_have(problem):
    wild = Schedule("wild", "", 1e6, 0.0, 0.0)
    for method in METHODS:
        (point,) = averages(problem, wild, method, 0, (30,))
        assert point["average"] <= SmoothProblem.GRADIENT_BOUND**2


def test_steps_that_are_not_measured_are_stood_for(problem, monkeypatch):
    exact = averages(problem, LEMMA, "sgd", 0, (60, 400))
    monkeypatch.setattr(lemma2, "_EVERY_STEP", 40)
    monkeypatch.setattr(lemma2, "_SPACING", 1.05)
    sparse = averages(problem, LEMMA, "sgd", 0, (60, 400))
    for name in ("average", "gradient_average", "weighted_average"):
        assert sparse[1][name] == pytest.approx(exact[1][name], rel=0.05)
        assert sparse[1][name] != exact[1][name]


def quadratic_average(curvature, eta, rho, gamma, steps):
    """The lemma's average for gradient descent with η₀/t on L = a w²/2 from w = 1, where PSF = ρ a sign(w)."""
    weight, total = 1.0, 0.0
    for step in range(1, steps + 1):
        total += (curvature * weight + gamma * rho * curvature * math.copysign(1, weight)) ** 2
        weight -= eta / step * curvature * weight
    return total / steps


def test_on_a_quadratic_the_lemmas_rate_is_as_slow_as_one_likes():
    for product in (0.05, 0.2):
        early, late = (quadratic_average(1.0, product, 0.0, 0.7, steps) for steps in (2_000, 200_000))
        assert math.log(late / early) / math.log(100) == pytest.approx(-2 * product, abs=0.01)


def test_on_a_quadratic_a_fixed_radius_has_a_floor():
    for steps in (10, 1_000, 100_000):
        assert quadratic_average(2.0, 0.4, 0.5, 0.7, steps) >= (2.0 * 0.7 * 0.5) ** 2


@pytest.fixture(scope="module")
def smooth():
    return SmoothProblem.from_images(200)


def weights_of_size(scale, seed=0):
    return scale * torch.randn(50, 10, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_features_have_length_one_and_targets_one_class(smooth):
    assert smooth.features.shape == (200, 50)
    assert torch.allclose(smooth.features.norm(dim=1), torch.ones(200, dtype=torch.float64))
    assert smooth.targets.sum(1).eq(1).all()
    assert smooth.features.dtype == torch.float64


def test_gradients_are_those_of_finite_differences(smooth):
    weights, direction, width = weights_of_size(1.0), weights_of_size(1.0, seed=1), 1e-6
    slope = (smooth.loss(weights + width * direction) - smooth.loss(weights - width * direction)) / (2 * width)
    plain, _ = smooth.gradients(weights, 0.0)
    assert float((plain * direction).sum()) == pytest.approx(float(slope), rel=1e-7)


def test_the_second_gradient_is_that_at_the_worst_nearby_point(smooth):
    weights = weights_of_size(1.0)
    plain, sharp = smooth.gradients(weights, 0.3)
    expected, _ = smooth.gradients(weights + 0.3 * plain / plain.norm(), 0.0)
    assert torch.allclose(sharp, expected, rtol=1e-9)
    assert not torch.allclose(sharp, plain, rtol=1e-3)
    assert weights.requires_grad is False


@pytest.mark.parametrize("scale", [0.0, 1.0, 10.0, 100.0])
def test_loss_and_gradients_are_bounded_for_any_weights_and_batch(smooth, scale):
    generator = torch.Generator().manual_seed(1)
    for seed in range(5):
        weights = weights_of_size(scale, seed)
        batch = smooth.draw(1, generator)
        assert 0 <= float(batch.loss(weights)) <= 2
        assert float(batch.gradients(weights, 0.0)[0].norm()) <= SmoothProblem.GRADIENT_BOUND


def test_one_image_of_two_classes_has_a_gradient_in_closed_form():
    # L = 2q² for the wrong class's probability q, so each logit's derivative is ±4q²(1 − q), largest at q = 2/3.
    one = SmoothProblem(torch.ones(1, 1, dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    weights = torch.tensor([[0.0, math.log(2)]], dtype=torch.float64)
    assert float(one.loss(weights)) == pytest.approx(8 / 9)
    assert float(one.gradients(weights, 0.0)[0].norm()) == pytest.approx(math.sqrt(2) * 16 / 27)


def test_the_loss_is_not_convex(smooth):
    # Along a line on which a wrong class wins, the middle lies above the chord.
    weights = torch.zeros(50, 10, dtype=torch.float64)
    weights[-1, 0] = 40.0
    middle = float(smooth.loss(weights / 2))
    assert middle > float(smooth.loss(weights) + smooth.loss(0 * weights)) / 2 + 0.1


def test_gradients_of_batches_are_unbiased_and_their_psf_is_not(smooth):
    weights, rho = weights_of_size(3.0), 2.0
    generator = torch.Generator().manual_seed(0)
    plain, sharp = smooth.gradients(weights, rho)
    plains, psfs = [], []
    for _ in range(800):
        found = smooth.draw(16, generator).gradients(weights, rho)
        plains.append(found[0])
        psfs.append(found[1] - found[0])

    def off(values, expected):
        """Return the mean squared distance from the expected mean, in standard errors."""
        stacked = torch.stack(values)
        errors = stacked.std(0) / math.sqrt(len(values))
        used = errors > 0
        return float((((stacked.mean(0) - expected) / errors)[used] ** 2).mean())

    assert off(plains, plain) < 2
    assert off(psfs, sharp - plain) > 10


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lemma2")
    return folder, measure("tiny", folder)


def test_a_row_is_the_mean_over_its_seeds(study):
    rows = study[1]["rows"]
    keys = [(row["schedule"], row["method"], row["horizon"]) for row in rows]
    assert keys == [(s.name, method, horizon) for s in SCHEDULES for method in METHODS for horizon in (4, 12, 40)]
    for row in rows:
        first, second = row["averages"]
        assert row["average"] == pytest.approx((first + second) / 2)
        assert row["average_std"] == pytest.approx(abs(first - second) / 2**0.5)
        assert 0 < row["average"] < row["trivial_bound"] == pytest.approx(2.0)
    samples = {row["method"]: row["samples"] for row in rows if row["horizon"] == 40}
    assert (samples["sgd"], samples["sam"]) == (0, 40)
    assert 20 <= samples["vsam"] < 40


def test_finished_cells_are_kept_and_those_of_other_settings_measured_again(study):
    folder, content = study
    cells = sorted(folder.rglob("seed-*.json"))
    before = {path: path.stat().st_mtime_ns for path in cells}
    cells[0].unlink()
    spoilt = json.loads(cells[1].read_text())
    spoilt["settings"]["eta"] = 1.0
    cells[1].write_text(json.dumps(spoilt))
    assert measure("tiny", folder) == content
    assert [path for path in cells if path.stat().st_mtime_ns != before[path]] == cells[:2]


def test_the_page_and_the_figures_have_every_schedule(study):
    text = page(study[1])
    assert text.count("over the last decade of T.") == len(SCHEDULES)
    assert "supported" not in text
    assert list(figures(study[1])) == [f"lemma2-{schedule.name}" for schedule in SCHEDULES]


@pytest.mark.parametrize("power", [-0.5, 0.0, 0.25])
def test_the_slope_is_the_power_of_the_last_decade(power):
    rows = [
        {"schedule": "lemma", "method": "sgd", "horizon": T, "average": 1e-3 * T**power} for T in (10, 100, 300, 1000)
    ]
    rows[0]["average"] = 5.0  # before the last decade
    assert slope(rows, "lemma", "sgd") == pytest.approx(power)
