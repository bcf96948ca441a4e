"""Methods by name: each is built as its name says, with the recipe's settings."""

import re

import pytest
from torch import nn
from torch.optim import SGD, AdamW

import vsam
from lab.helpers import quick_recipe
from vsam.lab.errors import UserError
from vsam.lab.methods import METHODS, find_method
from vsam.lab.methods.build import build_optimizer
from vsam.lab.recipes.load import load_recipe

NAMES = [method.name for method in METHODS]


def build(*changes, steps=100):
    return build_optimizer(nn.Linear(3, 2), quick_recipe(*changes), steps)


def test_the_librarys_methods_and_the_labs_are_there_and_the_papers_come_first():
    lab = {"sgd", "sam-10", "saf", "mesa", "bernoulli", "displaced"}
    assert set(NAMES) == {*vsam.list_methods(), *lab}
    assert NAMES[:6] == ["sgd", "sam", "sam-5", "sam-10", "looksam-5", "esam"]
    assert [find_method(name).name for name in NAMES] == NAMES


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_a_method_is_described_in_full_and_its_settings_exist(method):
    recipe = quick_recipe(f"method={method.name}")
    assert all((method.summary, method.formula, method.cost, method.avoid, method.reference, method.settings))
    for key in method.settings:
        value = recipe
        for name in key.split("."):
            value = getattr(value, name)


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_a_name_gives_its_optimizer(method):
    model = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2))
    made = build_optimizer(model, quick_recipe(f"method={method.name}"), 100)
    assert type(made) is getattr(vsam, method.kind or ("SharpnessAware" if method.parts else ""), SGD)


def test_the_base_optimizer_has_the_recipes_settings():
    base = build("method=sam", "lr=0.3", "momentum=0.5", "weight_decay=0.2").base
    assert isinstance(base, SGD)
    assert [base.param_groups[0][name] for name in ("lr", "momentum", "weight_decay")] == [0.3, 0.5, 0.2]
    assert isinstance(build("method=sam", "optimizer=adamw").base, AdamW)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (("method=sam-7",), "every=7|Every\\(7\\)|Every\\(k=7\\)"),
        (("method=looksam-3",), "3"),
        (("method=vsam", "vsam.gamma=0.6"), "0\\.6"),
        (("method=vsam-a", "vsam.gamma=0.6"), "Plain|gamma=0(\\.0)?\\b"),
    ],
)
def test_settings_arrive(changes, text):
    assert re.search(text, repr(build(*changes)).split("Parameter Group")[0] + build(*changes).describe())


def test_a_budget_arrives():
    optimizer = build("method=vsam-budget", "budget.budget=0.25", "budget.gamma=0.8", steps=40)
    assert repr(optimizer.when) == "Even(budget=0.25)"
    assert optimizer.between.gamma == 0.8


def test_normalisation_layers_alone_arrive_and_must_exist():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    assert build_optimizer(model, quick_recipe("method=sam-on"), 10).where.only == "norm"
    with pytest.raises(UserError, match="sam-on: only='norm'"):
        build("method=sam-on")


def test_radii_arrive():
    assert build("method=sam", "rho=0.3").param_groups[0]["rho"] == 0.3
    assert build("method=asam", "rho=0.3").param_groups[0]["rho"] == pytest.approx(3)
    assert build("method=asam", "rho=0.3", "asam.rho=1").param_groups[0]["rho"] == 1


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("vsm", "'vsam'"),
        ("sam5", "'sam-5'"),
        ("SAM", "sgd, sam"),
        ("", "Known"),
        ("sam-0", "Known"),
        ("sam--5", "Known"),
    ],
)
def test_an_unknown_name_gets_a_hint(name, hint):
    with pytest.raises(UserError, match=f"There is no method {name!r}.*{hint}"):
        find_method(name)


@pytest.mark.parametrize("name", ["sam-1", "sam-7", "sam-100", "looksam-2"])
def test_any_period_works(name):
    assert find_method(name).name == name.split("-")[0] + "-5"


def test_settings_that_contradict_each_other_are_the_users_error():
    with pytest.raises(UserError, match="vsam: window must be at least"):
        build("method=vsam", "vsam.window=10", "vsam.slices=50")


def test_what_to_try_first_is_a_setting_of_the_method():
    tried = {method.name: method.first_try for method in METHODS if method.first_try}
    assert {"sam-part", "sam-on", "wsam"} <= set(tried)
    for name, setting in tried.items():
        key, _, value = setting.partition("=")
        assert key in find_method(name).settings
        recipe = load_recipe("fashion-mini", changes=[f"method={name}", setting])
        assert recipe.value(key) == float(value) != load_recipe("fashion-mini").value(key)


def test_the_decay_of_a_budget_is_the_librarys():
    for budget, gamma in [("0.2", 0.9), ("0.1", 0.95)]:
        for method in ("vsam-budget", "bernoulli"):
            assert build(f"method={method}", f"budget.budget={budget}").between.gamma == gamma
    assert build("method=vsam-budget", "budget.gamma=0.5").between.gamma == 0.5
