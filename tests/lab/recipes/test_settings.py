"""Settings are not converted, do not leave the folder, and do not fill all memory."""

import pytest

from lab.command import QUICK, assert_refused, vsam
from vsam.lab.errors import UserError
from vsam.lab.recipes.load import load_recipe
from vsam.lab.recipes.settings import VSAMSettings


@pytest.mark.parametrize("key", ["name", "method", "variant"])
@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ("../x", "has a slash"),
        ("/x", "has a slash"),
        ("a/b", "has a slash"),
        ("'a\\b'", "has a slash"),
        ("..", "begins with a dot"),
        (".x", "begins with a dot"),
        ("", "is empty"),
        ("' x'", "begins or ends with a space"),
        ('"a\\u0000b"', "cannot be printed"),
        ('"a\\nb"', "cannot be printed"),
        ("a\udcffb", "cannot be printed"),
        ("x" * 300, "has 300 bytes"),
    ],
)
def test_what_becomes_a_folders_name_is_a_plain_name(key, value, wrong):
    with pytest.raises(UserError, match=f"Recipe fashion-mini: {key}: .*{wrong}.* but it becomes the name of a folder"):
        load_recipe("fashion-mini", changes=[f"{key}={value}"])


@pytest.mark.parametrize("name", ["my recipe", "größer", "a.b", "~", "-x", "x" * 200])
def test_other_names_are_taken(name):
    assert load_recipe("fashion-mini", changes=[f"name={name}"]).name == name


@pytest.mark.parametrize("change", ["name=../../escaped", "name=", "variant=../../escaped"])
@pytest.mark.parametrize("command", ["train", "compare"])
def test_no_run_leaves_its_folder(tmp_path, command, change):
    work = tmp_path / "deep" / "er"
    work.mkdir(parents=True)
    assert_refused(vsam(command, *QUICK, "--set", change, folder=work), 2, change.partition("=")[0])
    assert not list(work.iterdir())
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("lr=true", "lr: .*valid number, got True"),
        ('lr="0.1"', "lr: .*valid number, got '0.1'"),
        ("vsam.alpha=true", "vsam.alpha: .*valid number, got True"),
        ("compile=1", "compile: .*valid boolean, got 1"),
        ("norms=yes", "norms: .*valid boolean, got 'yes'"),
        ("vsam.start=true", "vsam.start: .*valid integer, got True"),
        ("vsam.start=3.0", "vsam.start: .*valid integer, got 3.0"),
        ("augment.padding=true", "augment.padding: .*valid integer, got True"),
        ("quantize.weight_bits=4.0", "quantize.weight_bits: .*valid integer, got 4.0"),
        ("saf.start_epoch=false", "saf.start_epoch: .*valid integer, got False"),
        ("epochs=1e9", "epochs: .*valid integer, got 1000000000.0"),
    ],
)
def test_nothing_is_converted(change, message):
    with pytest.raises(UserError, match=message):
        load_recipe("fashion-mini", changes=[change])


FLOATS = ["lr", "rho", "weight_decay", "momentum", "label_smoothing", "data.noise", "augment.flip", "vsam.gamma"]
FLOATS += [
    "vsam.alpha",
    "vsam.initial_samples",
    "vsam.max_rate",
    "looksam.scale",
    "asam.rho",
    "aesam.delta",
    "aesam.low",
]
FLOATS += ["aesam.high", "esam.beta", "saf.weight", "saf.temperature", "mesa.decay", "checkpoint_seconds"]


@pytest.mark.parametrize("key", FLOATS)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_numbers_are_finite(key, value):
    with pytest.raises(UserError, match=f"{key}: .*got {value}"):
        load_recipe("fashion-mini", changes=[f"{key}={value}"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("batch=1000000000000", "batch: .*less than or equal to 65536"),
        ("epochs=1000000000000", "epochs: .*less than or equal to 1000000000"),
        ("data.size=100000", "data.size: .*less than or equal to 4096"),
        ("augment.padding=100000", "augment.padding: .*less than or equal to 512"),
        ("augment.cutout=99999999999999999999", "augment.cutout: .*less than or equal"),
        ("saf.lag=1000000", "saf.lag: .*less than or equal to 1000"),
        ("model=resnet6000002", "model: .*deeper or wider than the limit of 999"),
        ("model=wrn28-999", "model: wrn28-999 has 363,564,775,770 parameters, more than the limit of 1,000,000,000"),
    ],
)
def test_a_slip_of_the_finger_does_not_ask_for_all_memory(change, message):
    with pytest.raises(UserError, match=message):
        load_recipe("fashion-mini", changes=[change])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 3}, "window must be at least 10, got 3"),
        ({"window": 12}, "window must be divisible by slices, got window=12 and slices=5.*Try window=10"),
        ({"slices": 7}, "window must be divisible by slices"),
        (
            {"initial_samples": 45.0},
            "initial_samples must be between min_samples and max_rate · window, 1 to 40, got 45",
        ),
        ({"max_rate": 0.01}, "max_rate must"),
        ({"min_samples": 0.5, "initial_samples": 0.5, "variant": "released"}, "min_samples must be"),
    ],
)
def test_vsams_settings_fit_each_other(settings, message):
    with pytest.raises(ValueError, match=message):
        VSAMSettings(**settings)
    changes = [f"vsam.{key}={value}" for key, value in settings.items()]
    with pytest.raises(UserError, match=rf"Recipe cifar10-resnet18: vsam: {message}"):
        load_recipe("cifar10-resnet18", changes=["method=sgd", *changes])


@pytest.mark.parametrize("key", ["aesam.delta", "mesa.decay", "momentum"])
def test_what_must_stay_below_one_does(key):
    assert load_recipe("fashion-mini", changes=[f"{key}=0.999"])
    with pytest.raises(UserError, match=rf"{key.partition('.')[0]}.*(less than 1|below 1|1\)), got 1"):
        load_recipe("fashion-mini", changes=[f"{key}=1"])
