"""A search covers the method's own settings, or the user's, checked against the recipe."""

import pytest

from lab.helpers import quick_recipe
from vsam.lab.errors import UserError
from vsam.lab.learner import build_model
from vsam.lab.methods import METHODS
from vsam.lab.methods.build import build_optimizer
from vsam.lab.tune.space import Range, change, choose_space, own_values


def choose(text=None, *changes):
    return choose_space(text, lambda more: quick_recipe(*changes, *more))


@pytest.mark.parametrize(
    ("method", "keys"),
    [
        ("sam", ["rho"]),
        ("sam-7", ["rho"]),
        ("looksam-3", ["rho", "looksam.scale"]),
        ("vsam", ["rho", "vsam.alpha", "vsam.gamma"]),
        ("vsam-a", ["rho", "vsam.alpha"]),
        ("asam", ["asam.rho"]),
        ("saf", ["saf.weight"]),
    ],
)
def test_a_method_is_searched_over_its_own_settings(method, keys):
    assert [one.key for one in choose(None, f"method={method}")] == keys


@pytest.mark.parametrize("method", [method.name for method in METHODS if method.name != "sgd"])
def test_both_ends_of_every_default_range_can_be_trained(method):
    recipe = quick_recipe(f"method={method}")
    space = choose(None, f"method={method}")
    assert set(own_values(recipe, space)) == {one.key for one in space}, "the shipped recipe should lie within"
    for end in ("low", "high"):
        changed = change(recipe, {one.key: getattr(one, end) for one in space})
        assert changed.method == method
        assert changed != recipe
        model = build_model(changed, _FakeData())
        build_optimizer(model, changed, 10)


def test_sgd_has_nothing_of_its_own():
    with pytest.raises(UserError, match="sgd has no settings of its own"):
        choose(None, "method=sgd")
    assert choose("lr=0.01:0.3:log", "method=sgd") == (Range("lr", 0.01, 0.3, log=True),)


def test_ranges_are_read_as_written():
    assert choose("rho=0.02:0.5:log, vsam.alpha = 0.05:0.4 ,vsam.window=10:40,") == (
        Range("rho", 0.02, 0.5, log=True),
        Range("vsam.alpha", 0.05, 0.4),
        Range("vsam.window", 10, 40, whole=True),
    )


def test_a_range_is_written_as_it_has_listeners():
    text = "rho=0.02:0.5:log,vsam.gamma=0:0.95,batch=8:32:log,lr=0.0123456789:1"
    assert ",".join(str(one) for one in choose(text)) == text


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["at least one range"]),
        ("rho", ["key=low:high", "'rho'"]),
        ("rho=0.1", ["key=low:high"]),
        ("rho=0.1:0.2:0.3", ["key=low:high"]),
        ("rho=0.1:0.2:log:log", ["key=low:high"]),
        ("=0.1:0.2", ["key=low:high"]),
        ("rho=a:0.2", ["'a' is not a number"]),
        ("rho=nan:0.2", ["'nan' is not a number"]),
        ("rho=0.1:inf", ["'inf' is not a number"]),
        ("rho=0.2:0.1", ["the first bound must be smaller"]),
        ("rho=0.2:0.2", ["the first bound must be smaller"]),
        ("vsam.gamma=0:0.9:log", ["must start above 0"]),
        ("rho=0.1:0.2,rho=0.2:0.3", ["rho twice"]),
        ("roh=0.1:0.2", ["unknown key 'roh'", "Did you mean 'rho'"]),
        ("vsam.alhpa=0.1:0.2", ["vsam.alhpa", "alpha"]),
        ("vsam.gamma=0.5:1.5", ["vsam.gamma", "1.5"]),
        ("rho=-0.1:0.2", ["rho", "-0.1"]),
        ("vsam.window=10.5:20", ["vsam.window", "10.5"]),
        ("compile=0:1", ["compile"]),
        ("vsam.variant=0:1", ["vsam.variant"]),
        ("name=0:1", ["name"]),
        ("vsam=0:1", ["vsam"]),
        ("looksam.scale=0.1:0.2", ["vsam does not depend on it"]),
        ("seed=0:9", ["changes how trials are measured", "rho"]),
        ("epochs=1:9", ["changes how trials are measured"]),
        ("data.train=10:90", ["changes how trials are measured"]),
        ("quantize.weight_bits=2:8", ["does not depend on it"]),
    ],
)
def test_mistakes_are_explained(text, parts):
    with pytest.raises(UserError) as raised:
        choose(text)
    for part in parts:
        assert part in str(raised.value)


@pytest.mark.parametrize(("method", "key"), [("sgd", "rho"), ("saf", "rho"), ("asam", "rho"), ("vsam-a", "vsam.gamma")])
def test_a_setting_without_effect_is_refused(method, key):
    with pytest.raises(UserError, match=f"{method} does not depend on it"):
        choose(f"{key}=0.1:0.2", f"method={method}")


def test_values_are_short_and_within_the_bounds():
    plain, whole = Range("a", 0.123412, 0.2), Range("c", 3, 9, whole=True)
    assert plain.tidy(0.123412) == 0.123412  # rounding does not leave the range
    assert plain.tidy(0.161706) == 0.1617
    assert isinstance(whole.tidy(5), int)


def test_the_recipes_own_values_are_those_within_the_ranges():
    recipe = quick_recipe("rho=0.3", "vsam.alpha=0.2")
    space = (Range("rho", 0.1, 0.2), Range("vsam.alpha", 0.1, 0.2))
    assert own_values(recipe, space) == {"vsam.alpha": 0.2}
    assert own_values(recipe, (Range("asam.rho", 1, 5),)) == {"asam.rho": 3.0}


class _FakeData:
    num_classes, image_shape = 10, (1, 28, 28)
