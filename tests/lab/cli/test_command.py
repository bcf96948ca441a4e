"""The command: lists, mistakes, terminals and missing packages."""

import importlib.util
import io
import json
import os
import pty
import re
import subprocess
import sys

import pytest
from rich.console import Console
from typer.main import get_command

from lab.command import QUICK, Command, assert_refused, vsam
from vsam.lab import data, models
from vsam.lab.cli.app import app
from vsam.lab.methods import METHODS
from vsam.lab.recipes.files import header_parts, recipe_names
from vsam.lab.recipes.load import load_recipe

COMMANDS = sorted(get_command(app).commands)


MISTAKES = [
    ("fly",),
    ("train", "--fly"),
    ("train", "a", "b"),
    ("train", "fashion-maxi"),
    ("train", "nowhere.toml"),
    ("train", ""),
    ("train", "--set", "epochs"),
    ("train", "--set", "epoch=3"),
    ("train", "--set", "epochs=0"),
    ("train", "--set", "seed=99999999999999999999"),
    ("train", "--set"),
    ("train", "--device", "gpu"),
    ("train", "--device", "cuda:77"),
    ("train", "--tiny", "--set", "method=vsm"),
    ("train", "--tiny", "--set", "method="),
    ("train", "--tiny", "--set", "model=resnet9"),
    ("train", "--tiny", "--set", "data.name=mnist"),
    ("train", "--tiny", "--set", "data.name=folder:nowhere"),
    ("train", "--tiny", "--set", "data.train=5000"),
    ("train", "--tiny", "--set", "vsam.window=3"),
    ("compare", "--seeds", "0"),
    ("compare", "--seeds", "-1"),
    ("compare", "--seeds", "many"),
    ("compare", "--seeds", "1.5"),
    ("compare", "--methods", ""),
    ("compare", "--methods", ","),
    ("compare", "--set", "method=sam"),
    ("compare", "--methods", "sgd,vsm"),
    ("compare", "--recipe", "fashion-maxi"),
    ("compare", "--recipe", ""),
    ("compare", "--device", "gpu"),
    ("compare", "--json", "-", "--csv", "-"),
    ("compare", "--json"),
    ("compare", "fashion-mini"),
    ("explain",),
    ("explain", "vsm"),
    ("explain", ""),
    ("recipes", "fashion-maxi"),
    ("study", "table1", "--methods", "vsm"),
    ("study", "table1", "--methods", ""),
    ("study", "table1", "--details"),
    ("study", "table1", "--compare-paper", "--dry-run"),
    ("study", "table1", "--compare-paper", "--json", "-"),
    ("study", "norms", "--scale", "tiny", "--methods", "asam"),
    ("models", "resnet8"),
    ("sharpness", "nowhere"),
    ("sharpness",),
    ("data", "cifar10"),
]


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_gets_two_a_message_and_no_files(call, tmp_path, arguments):
    code, output, error = call(*arguments)
    assert code == 2
    assert output == ""
    assert "rror" in error
    assert len(error) < 800
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("compare", "--methods", "sgd,vsm"), "Did you mean 'vsam'?"),
        (("compare", "--seeds", "0"), "--seeds must be at least 1, got 0."),
        (("explain", "looksan-5"), "Did you mean 'looksam-5'?"),
        (("train", "--device", "gpu"), "There is no device 'gpu' here"),
        (("train", "fashion-min"), "Did you mean 'fashion-mini'?"),
    ],
)
def test_a_mistake_is_explained(call, arguments, part):
    assert part in call(*arguments)[2]


def test_a_recipe_without_its_required_keys_is_a_mistake(call, tmp_path):
    (tmp_path / "mine.toml").write_text('model = "resnet8"')
    code, _, error = call("train", "mine.toml")
    assert code == 2
    assert "epochs is missing" in error


def test_a_damaged_data_folder_is_a_mistake(call, tmp_path):
    (tmp_path / "data" / "cifar-10-batches-bin").mkdir(parents=True)
    code, _, error = call("train", "--tiny", "--set", "data.name=cifar10", "--data-dir", "data")
    assert code == 2
    assert "cifar-10-batches-bin" in error


@pytest.mark.parametrize("out", ["file", "file/deeper"])
def test_a_comparison_with_a_file_in_the_way_is_a_mistake(call, tmp_path, out):
    (tmp_path / "file").touch()
    code, _, error = call("compare", "--tiny", "--out", out)
    assert code == 2
    assert f"{out} cannot be written to" in error


@pytest.mark.parametrize("option", ["--json", "--csv", "--markdown", "--latex"])
def test_a_table_that_cannot_be_written_is_refused_before_training(call, tmp_path, option):
    (tmp_path / "file").touch()
    arguments = ("--set", "data.train=32", "--set", "epochs=1", "--methods", "sgd", "--seeds", "1")
    code, _, error = call("compare", *QUICK, *arguments, option, "file/table")
    assert code == 2
    assert "file" in error
    assert not list(tmp_path.rglob("summary.json"))


def test_an_empty_out_is_a_mistake_and_does_not_mean_here(call, tmp_path):
    code, _, error = call("train", *QUICK, "--set", "data.train=16", "--set", "epochs=1", "--out", "")
    assert code == 2
    assert "--out" in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_works(call, command):
    code, output, _ = call(command, "--help")
    assert code == 0
    assert "--help" in output
    assert len(get_command(app).commands[command].help) > 10


def test_the_command_alone_shows_all_commands(call):
    code, output, error = call("--help")
    assert code == 0
    alone = call()
    for name in COMMANDS:
        assert name in output
        assert name in alone[1] + alone[2]
    assert error == ""


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_fits_80_columns_and_cuts_nothing_off(call, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    lines = call(*([command] if command else []), "--help")[1].splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line.endswith("...") and "[OPTIONS]" not in line]


@pytest.mark.parametrize("arguments", [("methods",), ("models",), ("recipes",), ("data",), ("explain", "vsam")])
def test_lists_fit_80_columns_and_break_no_name(call, monkeypatch, arguments):
    monkeypatch.setattr("vsam.lab.cli.output.make_console", lambda width: Console(width=80))
    monkeypatch.setenv("COLUMNS", "80")
    lines = call(*arguments)[1].splitlines()
    assert max(map(len, lines)) <= 80
    known = {"methods": [row.name for row in METHODS], "models": models.names(), "recipes": recipe_names()}
    for name in known.get(arguments[0], []):
        assert sum(line.startswith(f"{name} ") for line in lines) == 1


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("methods",), [method.name for method in METHODS]),
        (("recipes",), recipe_names()),
        (("data", "--data-dir", "nowhere"), list(data.names())),
    ],
    ids=lambda arguments: arguments[0],
)
def test_every_list_is_there_for_programs(call, arguments, names):
    code, output, error = call(*arguments, "--json")
    assert (code, error) == (0, "")
    assert [row["name"] for row in json.loads(output)] == names


def test_a_method_is_explained_to_programs_too(call):
    content = json.loads(call("explain", "vsam", "--json")[1])
    assert content["settings"]["vsam.alpha"] == 0.2
    assert "PSF" in content["formula"]


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_shows_its_header_and_its_settings(call, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    code, output, _ = call("recipes", name)
    assert code == 0
    assert max(len(line) for line in output.partition("\nepochs")[0].splitlines()) <= 120
    told = " ".join(output.split())
    parts = header_parts(name)
    for heading, text in parts.items():
        assert " ".join(text.split()) in told, heading
    assert "\nepochs = " in output
    content = json.loads(call("recipes", name, "--json")[1])
    assert content["header"] == parts
    assert content["settings"]["epochs"] == load_recipe(name).epochs


def test_models_for_programs(call):
    code, output, error = call("models", "--json")
    rows = json.loads(output)
    assert (code, error) == (0, "")
    assert [set(row) for row in rows] == [{"name", "parameters_10", "parameters_100"}] * len(rows)
    assert [row["name"] for row in rows] == models.names()
    assert all(isinstance(row["parameters_10"], int) for row in rows)


def test_models_for_people(call):
    output = call("models")[1]
    assert "11,173,962" in output or "11,1" in output
    for name in models.names():
        assert name in output


def test_methods_recipes_and_data_are_listed(call):
    output = call("methods")[1]
    assert all(method.name in output for method in METHODS)
    output = call("recipes")[1]
    assert all(name in output for name in recipe_names())
    output = call("data", "--data-dir", "nowhere")[1]
    assert all(name in output for name in ("fashion-mini", "fashion-mnist", "cifar10", "cifar100", "folder"))


@pytest.mark.parametrize("name", [*(method.name for method in METHODS), "sam-7"])
def test_every_method_is_explained(call, name):
    code, output, _ = call("explain", name)
    assert code == 0
    for heading in ("Formula", "Cost", "Settings", "Avoid", "Reference"):
        assert heading in output
    assert f"method={name}" in output
    assert "None" not in output


@pytest.mark.parametrize(
    "arguments",
    [
        ("methods",),
        ("models",),
        ("recipes",),
        ("explain", "vsam"),
        ("compare", *QUICK, "--set", "data.train=16", "--set", "epochs=1", "--methods", "sgd", "--seeds", "1"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_an_output_that_knows_only_ascii_is_no_reason_to_fail(monkeypatch, call, arguments):
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", output)
    code, _, error = call(*arguments)
    output.flush()
    assert (code, output.buffer.getvalue() != b"") == (0, True), error


def test_without_a_terminal_there_are_plain_lines(tmp_path):
    command = vsam("train", *QUICK, "--set", "data.train=32", folder=tmp_path)
    assert command.code == 0
    assert "\x1b" not in command.stderr + command.stdout
    progress = command.stderr.splitlines()
    assert [line.split()[:5] for line in progress] == [["vsam", "seed", "0", "epoch", n] for n in "12"]
    path = "runs/fashion-mini-tiny/vsam/seed-0"
    assert command.stdout.startswith(f"{path}: vsam reached ")
    assert len(command.stdout.splitlines()) == 1
    assert (tmp_path / path / "summary.json").exists()


def on_terminal(folder, *arguments):
    """Run the command on a terminal, and return it with the terminal's content."""
    ours, theirs = pty.openpty()
    environment = {"TERM": "xterm", "COLUMNS": "100"}
    command = Command(arguments, folder, environment, terminal=os.ttyname(theirs)).start()
    shown = b""
    os.set_blocking(ours, False)
    while command.is_running:
        command.process.join(0.02)
        try:
            shown += os.read(ours, 1 << 20)
        except BlockingIOError:
            continue
    os.close(ours)
    os.close(theirs)
    return command, shown.decode()


@pytest.mark.parametrize(
    "arguments", [("train",), ("compare", "--methods", "sgd,sam", "--seeds", "1")], ids=["train", "compare"]
)
def test_a_terminal_gets_bars(tmp_path, arguments):
    command, shown = on_terminal(tmp_path, *arguments, *QUICK, "--set", "data.train=32", "--set", "epochs=1")
    assert command.code == 0, shown
    assert "\x1b[" in shown
    bar = r"all runs ━+ 4/4 " if arguments[0] == "compare" else r"seed 0 ━+ 2/2 "
    assert re.search(bar, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown))
    assert ("all runs" in shown) == (arguments[0] == "compare")


def test_a_mistake_on_a_terminal_is_plain_too(tmp_path):
    command, shown = on_terminal(tmp_path, "train", "--tiny", "--set", "method=vsm")
    assert command.code == 2
    assert "Did you mean 'vsam'?" in shown
    assert "Traceback" not in shown


BLOCKED = """
import sys
for name in ("typer", "rich", "pydantic", "tomli_w", "numpy", "matplotlib", "PIL"):
    sys.modules[name] = None
import vsam
from vsam.lab.cli import main
sys.argv = ["vsam", "methods"]
main()
"""


def test_without_the_labs_packages_the_command_says_what_to_install():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", BLOCKED], capture_output=True, text=True, timeout=900)
    assert done.returncode == 1
    assert "pip install" in done.stderr
    assert "[lab]" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_tensorboard_is_an_option(tmp_path):
    command = vsam("train", *QUICK, "--set", "data.train=32", "--tensorboard", "--out", "run", folder=tmp_path)
    if importlib.util.find_spec("tensorboard") is None:
        assert_refused(command, 2, "--tensorboard needs", "pip install")
    else:
        assert command.code == 0, command.stderr
        assert list((tmp_path / "run" / "tensorboard").glob("events.out.*"))


def test_the_installed_command_is_this_one():
    script = os.path.join(os.path.dirname(sys.executable), "vsam")
    if not os.path.exists(script):
        pytest.skip("the package is not installed beside this Python")
    done = subprocess.run([script, "models", "--json"], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0
    assert [row["name"] for row in json.loads(done.stdout)] == models.names()
