"""Every recipe's header says how to run it, on what, how long that takes, and what comes out."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from vsam.lab.cli.app import app
from vsam.lab.methods import find_method
from vsam.lab.recipes.load import load_recipe, recipe_header, recipe_names
from vsam.lab.study.paper import PAIRS, published

HEADINGS = ("Command", "Hardware", "Time", "Expected")
OF_THE_PAPER = [(f"{data}-{model}", model, data) for model, data in PAIRS]


def headings(name):
    """The header's paragraphs by their heading."""
    found = {}
    for line in recipe_header(name).splitlines()[2:]:
        match = re.fullmatch(r"([A-Z][a-z]+) {2,}(.+)", line)
        if match:
            found[match[1]] = match[2]
        else:
            found[next(reversed(found))] += " " + line
    return found


@pytest.mark.parametrize("name", recipe_names())
def test_a_header_has_a_title_and_all_four_headings(name):
    lines = recipe_header(name).splitlines()
    assert lines[0].endswith(".")
    assert lines[1] == ""
    assert tuple(headings(name))[:4] == HEADINGS
    assert all(headings(name).values())


@pytest.mark.parametrize("name", recipe_names())
def test_the_command_exists_and_names_the_recipe(name):
    program, command, *arguments = shlex.split(headings(name)["Command"].partition("  ")[0])
    assert program == "vsam"
    given = get_command(app).commands[command].make_context(command, arguments).params
    if command == "study":  # it chooses its recipes itself
        return
    recipe = load_recipe(given["recipe"], tiny=given["tiny"], changes=given["changes"] or ())
    assert recipe.name == name
    for method in given.get("methods", recipe.method).split(","):
        find_method(method)


@pytest.mark.parametrize(("name", "model", "data"), OF_THE_PAPER)
def test_the_papers_recipes_take_the_time_that_follows_from_its_speed(name, model, data):
    check_time(name, published("table1", model, data)["vsam"].ais)


@pytest.mark.parametrize("model", ["resnet18", "mobilenet"])
def test_the_times_and_numbers_of_quantized_recipes_are_the_papers_too(model):
    rows = published("lsq", model, "cifar10")
    check_time(f"cifar10-{model}-lsq", rows["vsam"].ais)
    expected = headings(f"cifar10-{model}-lsq")["Expected"]
    assert expected.startswith("the paper reports")
    assert f"{rows['vsam'].accuracy:.2f} %" in expected
    assert f"{rows['full-precision'].accuracy:.2f} %" in expected
    assert "no training setting" in expected


def check_time(name, images_per_second):
    time, recipe = headings(name)["Time"], load_recipe(name)
    assert f"derived from the {images_per_second:,} images/s that the paper reports" in time
    assert "We have not measured it." in time
    hours, minutes = re.match(r"about (?:(\d+) h )?(\d+) min,", time).groups(default="0")
    assert 60 * int(hours) + int(minutes) == round(50_000 * recipe.epochs / images_per_second / 60)


@pytest.mark.parametrize("name", recipe_names())
def test_a_result_that_a_header_points_to_is_there(name):
    for path in re.findall(r"(?:benchmarks/results|docs)/[\w.-]+\.md", recipe_header(name)):
        assert (Path(__file__).parents[3] / path).exists()
