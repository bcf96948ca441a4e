"""Recipes as files: names, headers and what is below them."""

import tomllib

import pytest

from vsam.lab.errors import UserError
from vsam.lab.recipes.files import header_parts, read_recipe, recipe_body, recipe_names


@pytest.mark.parametrize("name", recipe_names())
def test_a_header_is_read_by_its_headings(name):
    parts = header_parts(name)
    assert list(parts)[:5] == ["title", "command", "hardware", "time", "expected"]
    assert "images/s" in parts["time"]
    assert tomllib.loads(recipe_body(name)) == tomllib.loads(read_recipe(name))


def test_a_users_recipe_needs_no_header(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("epochs = 3\n")
    assert header_parts(str(path)) == {"title": ""}
    assert recipe_body(str(path)) == "epochs = 3"
    with pytest.raises(UserError, match="Did you mean 'fashion-mini'"):
        header_parts("fashion-min")
