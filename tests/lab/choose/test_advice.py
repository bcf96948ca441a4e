"""The settings for a price or a time, as code that runs."""

from dataclasses import replace

import pytest
import torch

import vsam
from lab.choose.test_costs import TIMES
from lab.subject.files import write
from vsam.lab.choose.advice import advise, budget_for_time, check_price, check_time
from vsam.lab.errors import UserError
from vsam.lab.subject import read_file


@pytest.fixture
def subject(tmp_path):
    return read_file(write(tmp_path, more="base = torch.optim.SGD(model.parameters(), lr=0.1)\n"))


def run(subject, advice):
    """Paste the code at the end of the file."""
    names = {**subject.names, "epochs": 10, "loader": [0] * 50}
    exec(advice.code, names)
    assert names["base"] is subject.base or "base" not in subject.names
    return names["optimizer"]


def test_a_price_between_is_a_budget(subject):
    advice = advise(subject, TIMES, 1.2, None)
    assert (advice.method, advice.settings) == ("vsam-budget", {"rho": 0.05, "budget": 0.2})
    assert advice.time == pytest.approx(1.2 + 0.2 * 1.2)
    assert advice.code.splitlines()[0] == "import vsam"
    optimizer = run(subject, advice)
    assert optimizer.expected_price == pytest.approx(1.2)
    assert advise(subject, TIMES, None, None) == advice


def test_the_ends_are_sam_and_the_base(subject):
    assert isinstance(run(subject, advise(subject, TIMES, 2.0, None)), vsam.SAM)
    assert type(run(subject, advise(subject, TIMES, 1.0, None))) is torch.optim.SGD
    assert advise(subject, TIMES, None, 2.1).method == "sam"
    assert advise(subject, TIMES, None, 1.1).method == "sgd"


@pytest.mark.parametrize(
    ("more", "line", "rho"),
    [
        ("", "base = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)  # or yours", 0.05),
        ("base = torch.optim.AdamW(model.parameters())\n", "", 0.1),
        ("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", "base = optimizer", 0.05),
        (
            "import vsam\noptimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1), rho=0.15)\n",
            "base = optimizer.base",
            0.15,
        ),
    ],
)
def test_the_code_follows_the_file(tmp_path, more, line, rho):
    subject = read_file(write(tmp_path, more=more))
    assert subject.base_code == line
    for price, kind in [(1.2, vsam.VSAM), (2.0, vsam.SAM), (1.0, type(subject.base))]:
        optimizer = run(subject, advise(subject, TIMES, price, None))
        assert type(optimizer) is kind
        if price > 1:
            assert type(optimizer.base) is type(subject.base)
            assert optimizer.param_groups[0]["rho"] == rho


def test_a_gamma_of_the_users_own_is_kept(subject):
    subject.gamma = 0.5
    assert run(subject, advise(subject, TIMES, 1.2, None)).between.gamma == 0.5


def test_a_time_that_only_plain_steps_without_a_buffer_fit_into(subject):
    times = replace(TIMES, plain=1.0, plain_with_memory=1.4)
    for time, every in [(1.3, 5), (1.15, 10)]:
        advice = advise(subject, times, None, time)
        assert (advice.method, advice.settings["every"]) == (f"sam-{every}", every)
        assert advice.time <= time
        assert run(subject, advice).when.k == every
    assert advise(subject, times, None, 1.05).method == "sgd"


def test_a_time_buys_what_fits_into_it(subject):
    assert budget_for_time(TIMES, 1.8) == pytest.approx(0.5)
    advice = advise(subject, TIMES, None, 1.8)
    assert advice.settings["budget"] == pytest.approx(0.5, abs=1e-3)
    assert advice.time <= 1.8 + 1e-9
    assert budget_for_time(TIMES, 1.0) == 0
    assert budget_for_time(TIMES, 9.0) == 1


@pytest.mark.parametrize("price", [0.9, 2.1, float("nan"), float("inf")])
def test_a_price_that_no_method_has_is_refused(price):
    with pytest.raises(UserError, match=r"--price must be between 1 .* and 2"):
        check_price(price)


@pytest.mark.parametrize("time", [0.5, float("nan"), float("inf")])
def test_a_time_that_cannot_be_is_refused(time):
    with pytest.raises(UserError, match=r"--time must be at least 1"):
        check_time(time)
