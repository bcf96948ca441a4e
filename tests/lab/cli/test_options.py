"""The options are an interface: a change of them is a decision, made here as well."""

import pytest
from typer.main import get_command

from vsam.lab.cli.app import app

COMMANDS = get_command(app).commands
SHARED = {"--out", "--tiny", "--set", "--data-dir", "--device", "--tensorboard"}
TABLES = {"--json", "--csv", "--markdown", "--latex"}

OPTIONS = {
    "train": {"recipe"} | SHARED,
    "compare": {"--recipe", "--methods", "--seeds", "--ray"} | SHARED | TABLES,
    "study": {
        *("name", "--scale", "--out", "--seeds", "--only", "--methods", "--dry-run", "--compare-paper"),
        *("--ray", "--json", "--data-dir", "--device", "--tensorboard"),
    },
    "report": {"runs", "--out", "-o", "--title", "--figures"},
    "tune": {"recipe", "--method", "--trials", "--search", "--seeds", "--storage", "--timeout"} | SHARED,
    "check": {"what", "--method", "--set", "--budget", "--seconds", "--accuracy", "--data-dir", "--device", "--json"},
    "methods": {"--json"},
    "models": {"--json"},
    "explain": {"method", "--json"},
    "recipes": {"name", "--json"},
    "data": {"--data-dir", "--json"},
    "sharpness": {
        *("runs", "--rho", "--samples", "--batch", "--mode", "--adaptive", "--density", "--out", "--landscape"),
        *("--between", "--points", "--span", "--data-dir", "--device", "--json"),
    },
}


def options(command):
    return {
        name
        for parameter in command.params
        for name in (parameter.opts if parameter.param_type_name == "option" else [parameter.name])
    }


def test_the_command_itself_has_these_options():
    assert options(get_command(app)) == {"--version", "--install-completion", "--show-completion"}


def test_the_commands_are_these():
    assert set(COMMANDS) == set(OPTIONS)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_options_are_these(name):
    assert options(COMMANDS[name]) == OPTIONS[name] | ({"--use"} if name not in ("recipes", "report") else set())


@pytest.mark.parametrize(
    ("command", "parameter", "default"),
    [
        ("train", "recipe", "fashion-mini"),
        ("compare", "recipe", "fashion-mini"),
        ("compare", "methods", "sgd,sam,vsam"),
        ("compare", "seeds", 3),
        ("study", "scale", "small"),
        ("tune", "trials", 20),
        ("train", "tiny", False),
        ("train", "out", None),
        ("train", "device", None),
        ("train", "tensorboard", False),
    ],
)
def test_defaults_are_these(command, parameter, default):
    found = {parameter.name: parameter.default for parameter in COMMANDS[command].params}
    assert found[parameter] == default


def test_set_may_be_given_again_and_again():
    for name in ("train", "compare"):
        (changes,) = [parameter for parameter in COMMANDS[name].params if "--set" in parameter.opts]
        assert changes.multiple
        assert changes.metavar == "KEY=VALUE"


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_says_what_it_does(name):
    for parameter in COMMANDS[name].params:
        assert parameter.help, f"{name} {parameter.name}"
