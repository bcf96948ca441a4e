"""Completion in the shell."""

import pytest
from typer.testing import CliRunner

from vsam.lab.cli import complete
from vsam.lab.cli.app import app
from vsam.lab.methods import METHODS
from vsam.lab.models import names as model_names
from vsam.lab.recipes.files import recipe_names


def words(found):
    return [word for word, _ in found]


def test_names_of_recipes_and_methods():
    assert words(complete.recipes("cifar100")) == [name for name in recipe_names() if name.startswith("cifar100")]
    assert words(complete.method("")) == [method.name for method in METHODS]
    assert words(complete.studies("a")) == ["alpha", "ablation"]
    assert words(complete.scales("")) == ["tiny", "small", "paper"]


def test_the_last_of_several_names_without_those_that_are_there():
    assert words(complete.methods("vsam,vs")) == ["vsam,vsam-a", "vsam,vsam-budget"]
    assert words(complete.methods("a")) == ["all", "ae-sam", "asam"]


@pytest.mark.parametrize(
    ("incomplete", "expected"),
    [
        ("meth", ["method="]),
        ("method=vs", ["method=vsam", "method=vsam-a", "method=vsam-budget"]),
        ("model=", [f"model={name}" for name in model_names()]),
        ("data.name=f", ["data.name=fashion-mini", "data.name=fashion-mnist", "data.name=folder:"]),
        ("epochs=", []),
    ],
)
def test_settings_and_those_values_that_are_names(incomplete, expected):
    assert words(complete.settings(incomplete)) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vsam train fashion", ["fashion-mini"]),
        ("vsam compare --methods sgd,vs", ["sgd,vsam", "sgd,vsam-a", "sgd,vsam-budget"]),
        ("vsam explain look", ["looksam-5"]),
        ("vsam study ta", ["table1"]),
        ("vsam train --set method=esa", ["method=esam"]),
        ("vsam tu", ["tune"]),
    ],
)
def test_a_shell_asks_and_is_answered(line, expected):
    place = str(len(line.split()) - 1)
    environment = {"_VSAM_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": place}
    assert CliRunner().invoke(app, prog_name="vsam", env=environment).stdout.split() == expected
