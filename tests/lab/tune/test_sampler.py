"""Trials are a function of seed, number and results: nothing else is remembered."""

import optuna
import pytest

from vsam.lab.tune.sampler import NUM_RANDOM, Sampler, distribution
from vsam.lab.tune.space import Range

SPACE = (Range("rho", 0.02, 0.5, log=True), Range("vsam.gamma", 0, 0.95), Range("vsam.window", 5, 60, whole=True))
OWN = {"rho": 0.2, "vsam.gamma": 0.7, "vsam.window": 20}


def search(trials, seed=0, forgets=False, own=OWN):
    """The settings of trials whose result is better the nearer rho is to 0.1."""
    study = optuna.create_study(direction="maximize", sampler=Sampler(SPACE, own, seed))
    for _ in range(trials):
        if forgets:
            study.sampler = Sampler(SPACE, own, seed)
        trial = study.ask({one.key: distribution(one) for one in SPACE})
        study.tell(trial, -abs(trial.params["rho"] - 0.1))
    return [trial.params for trial in study.trials]


@pytest.fixture(autouse=True)
def _quiet():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    yield
    optuna.logging.set_verbosity(before)


def test_a_new_sampler_goes_on_where_the_old_one_ended():
    trials = NUM_RANDOM + 6
    assert search(trials, forgets=True) == search(trials)


def test_seeds_differ():
    assert search(4, seed=0)[1:] != search(4, seed=1)[1:]


def test_the_recipes_own_settings_come_first():
    assert search(3)[0] == OWN
    assert search(3)[1:] != [OWN, OWN]
    partly = search(1, own={"rho": 0.2})[0]
    assert partly["rho"] == 0.2
    assert partly != OWN


def test_settings_lie_in_their_ranges_and_are_short():
    for params in search(NUM_RANDOM + 6):
        for one in SPACE:
            assert one.low <= params[one.key] <= one.high
            assert one.whole is isinstance(params[one.key], int)
            assert params[one.key] == float(f"{params[one.key]:.4g}")


def test_the_first_ones_are_spread_and_the_later_ones_learn():
    params = search(NUM_RANDOM + 30)
    first = [one["rho"] for one in params[1:NUM_RANDOM]]
    later = [one["rho"] for one in params[-15:]]
    assert min(first) < 0.06
    assert max(first) > 0.2
    assert sum(abs(rho - 0.1) < 0.04 for rho in later) > 9


def test_a_trial_that_was_cut_off_between_two_settings_draws_the_same():
    study = optuna.create_study(direction="maximize", sampler=Sampler(SPACE, {}, 0))
    study.ask({"vsam.gamma": distribution(SPACE[1])})  # as if killed here
    assert study.trials[0].params["vsam.gamma"] == search(1, own={})[0]["vsam.gamma"]
