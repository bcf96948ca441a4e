"""A run on the smooth problem: its averages against a slow twin, and what the lemma's critics say on a quadratic."""

import math

import pytest
import torch

from vsam.lab.study.convergence import descent
from vsam.lab.study.convergence.descent import METHODS, SETTINGS, Schedule, averages
from vsam.lab.study.convergence.smooth import SmoothProblem

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
    monkeypatch.setattr(descent, "_EVERY_STEP", 40)
    monkeypatch.setattr(descent, "_SPACING", 1.05)
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
