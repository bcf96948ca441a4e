"""Recipes: those that ship, those that users write, and what is said about mistakes."""

import tomllib

import pytest
import torch

from vsam.lab import models
from vsam.lab.errors import UserError
from vsam.lab.methods import find_method
from vsam.lab.recipes.load import load_recipe, recipe_header, recipe_names
from vsam.lab.recipes.recipe import check_recipe

SMALLEST = """
data = { name = "fashion-mini" }
model = "resnet8"
epochs = 3
batch = 8
lr = 0.1
"""
TINY = "\n[tiny]\nepochs = 1"


def num_parameters(model):
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in models.build(model).parameters())


@pytest.fixture
def write(tmp_path):
    def write(text, name="mine.toml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def test_the_default_ships():
    assert "fashion-mini" in recipe_names()


@pytest.mark.parametrize("name", recipe_names())
@pytest.mark.parametrize("tiny", [False, True])
def test_every_recipe_loads(name, tiny):
    recipe = load_recipe(name, tiny=tiny)
    assert recipe.name == name + "-tiny" * tiny
    assert recipe.model == models.canonical(recipe.model)
    find_method(recipe.method)


@pytest.mark.parametrize("name", recipe_names())
def test_tiny_is_smaller(name):
    whole, tiny = load_recipe(name), load_recipe(name, tiny=True)
    assert tiny.epochs <= 3
    assert tiny.epochs < whole.epochs
    assert tiny.batch <= 32
    assert tiny.data.train is not None
    assert tiny.data.train <= 1000
    assert tiny.data.test is not None
    assert tiny.data.test <= 1000
    # What a run costs goes by its images and, for one so short, by the network's weights that are loaded and saved.
    assert tiny.data.train * tiny.epochs * num_parameters(tiny.model) < 2e8
    if num_parameters(whole.model) > 1e6:
        assert num_parameters(tiny.model) < num_parameters(whole.model) / 10


@pytest.mark.parametrize("name", recipe_names())
def test_the_header_says_what_it_is(name):
    first = recipe_header(name).splitlines()[0]
    assert len(first) > 20
    assert not first.startswith("#")


@pytest.mark.parametrize("name", recipe_names())
@pytest.mark.parametrize("tiny", [False, True])
def test_a_recipe_survives_being_written(name, tiny, write):
    recipe = load_recipe(name, tiny=tiny)
    assert load_recipe(write(recipe.to_toml(), "other.toml")) == recipe


def test_a_file_needs_only_a_few_keys_and_is_named_by_its_name(write):
    recipe = load_recipe(write(SMALLEST))
    assert (recipe.name, recipe.method, recipe.seed) == ("mine", "vsam", 0)


@pytest.mark.parametrize("tiny", [False, True])
def test_a_file_with_a_space_in_its_name_is_a_recipe(write, tiny):
    assert load_recipe(write(SMALLEST + TINY, "my recipe.toml"), tiny=tiny).name == "my recipe" + "-tiny" * tiny


@pytest.mark.parametrize("name", [".hidden.toml", "..toml", "...toml"])
def test_a_file_whose_name_names_no_folder_needs_another_name(write, name):
    with pytest.raises(UserError, match=r"name: .* begins with a dot"):
        load_recipe(write(SMALLEST, name))
    assert load_recipe(write('name = "mine"' + SMALLEST, name)).name == "mine"


@pytest.mark.parametrize("name", ["", "../x", "/x", "a/b", "..", "a\\u0000b"])
@pytest.mark.parametrize("tiny", [False, True])
def test_a_name_in_a_file_is_a_plain_name_too(write, name, tiny):
    with pytest.raises(UserError, match=r"name: .*it becomes the name of a folder"):
        load_recipe(write(f'name = "{name}"' + SMALLEST + TINY), tiny=tiny)


def test_settings_from_elsewhere_are_checked_and_explained():
    settings = load_recipe("fashion-mini").model_dump()
    assert check_recipe("of a run", settings) == load_recipe("fashion-mini")
    with pytest.raises(UserError, match=r"Recipe of a run: epochs: .*got 0"):
        check_recipe("of a run", settings | {"epochs": 0})


def test_a_recipe_cannot_be_changed_by_accident(write):
    with pytest.raises(ValueError, match="frozen"):
        load_recipe(write(SMALLEST)).lr = 3


@pytest.mark.parametrize(
    ("change", "read", "value"),
    [
        ("epochs=7", lambda recipe: recipe.epochs, 7),
        ("lr=1e-2", lambda recipe: recipe.lr, 0.01),
        ("lr = 0.3", lambda recipe: recipe.lr, 0.3),
        ("method=sam-5", lambda recipe: recipe.method, "sam-5"),
        ('method="sam"', lambda recipe: recipe.method, "sam"),
        ("compile=true", lambda recipe: recipe.compile, True),
        ("channels_last=false", lambda recipe: recipe.channels_last, False),
        ("vsam.alpha=0.25", lambda recipe: recipe.vsam.alpha, 0.25),
        ("data.noise=0.2", lambda recipe: recipe.data.noise, 0.2),
        ("data={held_out=true,train=20,test=10}", lambda recipe: recipe.data.held_out, True),
        ("data.name=folder:/a=b", lambda recipe: recipe.data.name, "folder:/a=b"),
        ("vsam={alpha = 0.5}", lambda recipe: recipe.vsam.alpha, 0.5),
        ("name=größer als", lambda recipe: recipe.name, "größer als"),
    ],
)
def test_changes_are_read_as_toml_or_as_text(change, read, value):
    assert read(load_recipe("fashion-mini", changes=[change])) == value


def test_an_inline_table_keeps_the_rest_of_its_table():
    before = load_recipe("fashion-mini").vsam
    assert load_recipe("fashion-mini", changes=["vsam={alpha=0.5}"]).vsam.window == before.window


def test_changes_win_over_tiny_and_later_ones_over_earlier_ones():
    recipe = load_recipe("fashion-mini", tiny=True, changes=["epochs=11", "data.train=50", "data.train=60"])
    assert (recipe.epochs, recipe.data.train) == (11, 60)
    assert recipe.data.test == load_recipe("fashion-mini", tiny=True).data.test


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("epoch=3", "unknown key 'epoch'. Did you mean 'epochs'?"),
        ("weight_deca=3", "Did you mean 'weight_decay'?"),
        ("vsam.windw=3", "unknown key 'vsam.windw'. Did you mean 'window'?"),
        ("data.nois=3", "unknown key 'data.nois'. Did you mean 'noise'?"),
        ("data={name = 'fashion-mini', held_out = true}", "data: held_out .*: set data.train"),
        ("augment.cutuot=3", "Did you mean 'cutout'?"),
        ("zzzz=3", "Known: name, use, data, model"),
        ("epochs=many", "epochs: .*got 'many'"),
        ("epochs=0", "epochs: .*greater than or equal to 1, got 0"),
        ("epochs=1.5", "epochs: .*got 1.5"),
        ("epochs=[1, 2]", "epochs: .*got \\[1, 2\\]"),
        ("lr=-1", "lr: .*greater than 0, got -1"),
        ("lr=nan", "lr: .*got nan"),
        ("lr=inf", "lr: .*got inf"),
        ("lr=", "lr: .*got ''"),
        ("method=3", "method: .*got 3"),
        ("optimizer=adam", "optimizer: .*'sgd' or 'adamw', got 'adam'"),
        ("data=3", "data: .*got 3"),
        ("data.name.deep=3", "data.name: "),
        ("vsam.gamma=2", "vsam.gamma: .*less than or equal to 1, got 2"),
        ("seed=-1", "seed: .*got -1"),
        ("seed=99999999999999999999", "seed: "),
        ("epochs=true", "epochs: .*got True"),
        ("model=resnet9", "model: .*depth"),
        ("model=resnt8", "model: .*resnet8"),
        ("model=resnet9", "model: depth"),
        ("lr=0.1\nepochs=7", "lr: .*got '0.1"),
        pytest.param("epochs=" + "9" * 5000, "epochs: .*got '9{59} … 9{16}'", id="too many digits"),
        pytest.param("lr=" + "9" * 400, "lr: .*got 9{60} … 9{17}", id="too large"),
        pytest.param("lr=" + "[" * 5000, "lr: .*got '", id="too deep"),
        ("epochs", "--set needs key=value, got 'epochs'"),
        ("=3", "--set needs key=value, got '=3'"),
        ("", "--set needs key=value, got ''"),
    ],
)
def test_a_wrong_change_is_explained(change, message):
    with pytest.raises(UserError, match=message):
        load_recipe("fashion-mini", changes=[change])


@pytest.mark.parametrize("key", ["data", "model", "epochs", "batch", "lr"])
def test_a_missing_key_is_named(write, key):
    text = "\n".join(line for line in SMALLEST.splitlines() if not line.startswith(key))
    with pytest.raises(UserError, match=f"{key} is missing"):
        load_recipe(write(text))


def test_all_problems_are_said_at_once(write):
    with pytest.raises(UserError, match=r"epochs is missing.*lr is missing"):
        load_recipe(write('data = {name = "fashion-mini"}\nmodel = "resnet8"\nbatch = 3'))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs = ", "mine.toml is not valid TOML"),
        ("epochs = 1\nepochs = 2", "mine.toml is not valid TOML"),
        pytest.param("epochs = " + "9" * 5000, "mine.toml is not valid TOML", id="too many digits"),
        pytest.param("lr = " + "[" * 5000, "mine.toml is not valid TOML", id="too deep"),
        (SMALLEST + "colour = 3" + TINY, "unknown key 'colour'"),
        ("name = 3" + SMALLEST + TINY, "name: .*got 3"),
        ("tiny = 3" + SMALLEST, "tiny"),
        (SMALLEST, r"has no \[tiny\] table"),
        (SMALLEST + "[tiny]\nepoks = 1", "unknown key 'epoks'. Did you mean 'epochs'?"),
    ],
)
def test_a_wrong_file_is_explained(write, text, message):
    with pytest.raises(UserError, match=message):
        load_recipe(write(text), tiny=True)


def test_a_file_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "mine.toml").write_bytes("# größer".encode("latin-1"))
    with pytest.raises(UserError, match=r"mine\.toml cannot be read"):
        load_recipe(str(tmp_path / "mine.toml"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fashion-min", "There is no recipe 'fashion-min'. Did you mean 'fashion-mini'?"),
        ("", "There is no recipe ''"),
        ("nowhere.toml", "Recipe nowhere.toml cannot be read: .*No such file"),
        ("../recipes/fashion-mini", "There is no recipe"),
    ],
)
def test_an_unknown_recipe_is_explained(name, message):
    with pytest.raises(UserError, match=f"^{message}"):
        load_recipe(name)


def test_a_folder_called_like_a_recipe_is_explained(tmp_path):
    (tmp_path / "mine.toml").mkdir()
    with pytest.raises(UserError, match=r"mine\.toml cannot be read"):
        load_recipe(str(tmp_path / "mine.toml"))


def test_the_settings_file_of_a_run_is_a_recipe(finished):
    path = finished / "vsam" / "config.toml"
    assert load_recipe(str(path)).to_toml() == path.read_text()
    assert tomllib.loads(path.read_text())["name"] == "fashion-mini-tiny"
