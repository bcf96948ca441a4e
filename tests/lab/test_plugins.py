"""Methods, models and datasets of users work like the package's own."""

import json
import runpy
import shutil
from pathlib import Path

import pytest
import torch

import vsam.lab
from lab.command import assert_refused
from lab.command import vsam as command
from lab.helpers import CPU
from lab.report.made import read_groups
from vsam.lab import plugins
from vsam.lab.compare import compare
from vsam.lab.data import Dataset, load
from vsam.lab.errors import DataError, UserError
from vsam.lab.methods import all_methods, find_method
from vsam.lab.methods.build import build_optimizer
from vsam.lab.models import build
from vsam.lab.recipes.load import load_recipe
from vsam.lab.report.write import write_report
from vsam.lab.run import run_path
from vsam.lab.study.plan import STUDIES

EXAMPLE = Path(__file__).parents[2] / "examples/your_own.py"
CHANGES = ("data.name=stripes", "model=perceptron", "epochs=1", "batch=100")


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
    """Every test begins and ends with what is ours alone."""
    monkeypatch.setattr(plugins, "_known", {"method": {}, "model": {}, "data": {}})
    monkeypatch.setattr(plugins, "_used", {})


@pytest.fixture
def example():
    vsam.lab.use(EXAMPLE)


def write(tmp_path, text, name="mine.py"):
    path = tmp_path / name
    path.write_text(f"import torch\nimport vsam\nimport vsam.lab\n{text}")
    return path


def recipe(*changes):
    return load_recipe("fashion-mini", changes=(*CHANGES, *changes))


def test_the_example_joins_the_lists(example):
    assert [method.name for method in all_methods()][-2:] == ["often-at-first", "decayed-3"]
    assert isinstance(load("stripes"), Dataset)
    assert build("perceptron", 3)(torch.zeros(2, 1, 8, 8)).shape == (2, 3)
    assert "often-at-first" in {r.method for part in STUDIES["table1"].parts("tiny", 1, Path()).values() for r in part}


def test_each_of_the_examples_functions_is_short():
    text = EXAMPLE.read_text()
    for block in text.split("@vsam.lab.")[1:]:
        assert len(block.partition("\n\n\n")[0].splitlines()) <= 10


def test_the_example_runs_by_itself(capsys):
    runs = runpy.run_path(str(EXAMPLE), run_name="example")["main"]()
    assert [run.label for run in runs] == ["sgd", "often-at-first", "decayed-3"]
    assert 0 < runs[1].summary["samples"] < runs[1].summary["steps"]
    assert "second gradients" in capsys.readouterr().out


def test_the_page_says_what_works(tmp_path):
    text = (EXAMPLE.parents[1] / "docs/your-own.md").read_text(encoding="utf-8")
    (tmp_path / "own.py").write_text(text.partition("```python\n")[2].partition("```")[0])
    plugins.use(tmp_path / "own.py")
    changes = ("data.name=noise", "model=perceptron", "method=decayed-3", "own.gamma=0.3", "epochs=1", "batch=100")
    done, failures = compare([load_recipe("fashion-mini", changes=changes)], tmp_path, None, CPU)
    assert failures == []
    assert done[0].path == tmp_path / "noise/decayed-3/seed-0"
    assert done[0].summary["train_images"] == 400


RANDOM = """
import random, numpy
@vsam.lab.data("random")
def f():
    numbers = torch.tensor([random.random(), numpy.random.rand(), torch.rand(()).item()])
    images = (255 * numbers).byte().view(1, 3, 1, 1).repeat(20, 1, 1, 1)
    return images, torch.arange(20) % 2, images, torch.arange(20) % 2
"""


def test_data_drawn_at_random_are_the_same_for_every_run(tmp_path):
    vsam.lab.use(write(tmp_path, RANDOM))
    torch.manual_seed(1)
    first, draw = load("random"), torch.rand(())
    torch.manual_seed(1)
    assert torch.rand(()) == draw
    assert torch.equal(first.train_images, load("random").train_images)


def test_runs_are_trained_resumed_and_reported_like_ours(example, tmp_path):
    recipes = [recipe(f"method={name}") for name in ("sgd", "often-at-first")]
    done, failures = compare(recipes, tmp_path, None, CPU)
    assert failures == []
    assert [run.path for run in done] == [tmp_path / "stripes" / name / "seed-0" for name in ("sgd", "often-at-first")]
    assert done[0].summary["data"] == "stripes"
    before = (done[0].path / "summary.json").stat().st_mtime_ns
    compare(recipes, tmp_path, None, CPU)
    assert (done[0].path / "summary.json").stat().st_mtime_ns == before
    files = write_report([tmp_path], tmp_path / "report.html", figures=False)
    assert (files.num_finished, files.problems) == (2, ())
    assert "perceptron on stripes" in files.page.read_text()


def test_a_report_needs_no_file_of_the_users(example, tmp_path, monkeypatch):
    compare([recipe("method=decayed-3")], tmp_path, None, CPU)
    monkeypatch.setattr(plugins, "_known", {"method": {}, "model": {}, "data": {}})
    files = write_report([tmp_path], tmp_path / "report.html", figures=False)
    assert (files.num_finished, files.problems) == (1, ())
    assert "2,146 parameters" in files.page.read_text()


def test_a_method_of_ones_own_stands_in_the_table_of_ours(example, tmp_path):
    small = ("data.train=32", "data.test=20", "epochs=1")
    changes = [("method=sgd",), ("method=decayed-3",), ("method=decayed-3", "own.gamma=0.25", "variant=low")]
    recipes = [load_recipe("fashion-mini", changes=(*small, *change)) for change in changes]
    compare(recipes, tmp_path, None, CPU)
    [group], outside = read_groups(tmp_path)
    assert (outside, [row.label for row in group.rows]) == ([], ["sgd", "decayed-3", "decayed-3-low"])


def test_the_files_checksum_is_a_setting_and_a_changed_file_is_noticed(tmp_path):
    file = write(tmp_path, '@vsam.lab.method("mine")\ndef mine(base, gamma=0.5): return base\n')
    plugins.use(file)
    first = recipe("data.name=fashion-mini", "model=resnet8", "data.train=32", "data.test=20", "method=mine")
    assert list(first.use) == [str(file)]
    assert first.use[str(file)].startswith("sha256:")
    assert recipe("data.name=fashion-mini", "model=resnet8").use == {}
    compare([first], tmp_path / "runs", None, CPU)
    file.write_text(file.read_text().replace("0.5", "0.6"))
    plugins.use(file)
    with pytest.raises(UserError, match=r"mine.py has changed"):
        compare([first.updated()], tmp_path / "runs", None, CPU)


def test_a_moved_file_is_the_same(tmp_path):
    file = write(tmp_path, '@vsam.lab.method("mine")\ndef mine(base): return base\n')
    plugins.use(file)
    small = ("data.name=fashion-mini", "model=resnet8", "data.train=32", "data.test=20", "method=mine")
    compare([recipe(*small)], tmp_path / "runs", None, CPU)
    (tmp_path / "deeper").mkdir()
    plugins._known["method"].clear()
    plugins.use(shutil.move(file, tmp_path / "deeper"))
    _, failures = compare([recipe(*small)], tmp_path / "runs", None, CPU)
    assert failures == []


def test_a_recipe_names_its_files(tmp_path, example):
    text = (
        'use = ["mine.py"]\nmodel = "tiny-net"\nepochs = 1\nbatch = 8\nlr = 0.1\n[data]\nname = "fashion-mini"\n'
        "train = 16\ntest = 10\n"
    )
    write(
        tmp_path,
        '@vsam.lab.model("tiny-net")\ndef net(num_classes):\n    return torch.nn.Sequential('
        "torch.nn.Flatten(), torch.nn.Linear(784, num_classes))\n",
    )
    (tmp_path / "mine.toml").write_text(text)
    found = load_recipe(str(tmp_path / "mine.toml"))
    assert list(found.use) == [str(tmp_path / "mine.py")]
    assert load_recipe_again(tmp_path, found) == found


def load_recipe_again(tmp_path, found):
    """From its own settings file, as a run's config.toml holds it."""
    (tmp_path / "config.toml").write_text(found.to_toml())
    return load_recipe(str(tmp_path / "config.toml"))


def test_a_settings_file_with_another_checksum_is_refused(tmp_path):
    file = write(tmp_path, '@vsam.lab.method("mine")\ndef mine(base): return base\n')
    plugins.use(file)
    (tmp_path / "config.toml").write_text(load_recipe("fashion-mini", changes=["method=mine"]).to_toml())
    file.write_text(file.read_text() + "\n")
    with pytest.raises(UserError, match="has changed: its checksum is"):
        load_recipe(str(tmp_path / "config.toml"))


def test_settings_of_an_own_method_arrive_and_unknown_ones_are_named(example):
    model = build("perceptron", 2)
    optimizer = build_optimizer(model, recipe("method=decayed-3", "own.gamma=0.25"), 10)
    assert optimizer.between.gamma == 0.25
    with pytest.raises(UserError, match=r"no setting own.gama. Did you mean 'own.gamma'\?"):
        build_optimizer(model, recipe("method=decayed-3", "own.gama=0.25"), 10)
    with pytest.raises(UserError, match="sam is not a method of your own"):
        build_optimizer(model, recipe("method=sam", "own.gamma=0.25"), 10)


WRONG = {
    "the import failed on line 4: ZeroDivisionError": "1 / 0\n",
    "the import failed on line 4: SyntaxError": "def f(:\n",
    "the import failed on line 4: SystemExit": "raise SystemExit(3)\n",
    "registers nothing": "x = 1\n",
    "A method named 'sam' already exists in vsam": '@vsam.lab.method("sam")\ndef f(base): return base\n',
    "A method named 'sam-7' already exists in vsam": '@vsam.lab.method("sam-7")\ndef f(base): return base\n',
    "A model named 'resnet32' already exists in vsam": '@vsam.lab.model("resnet32")\ndef f(): return 0\n',
    "A data named 'cifar10' already exists in vsam": '@vsam.lab.data("cifar10")\ndef f(): return 0\n',
    "needs a plain name": '@vsam.lab.method("a/b")\ndef f(base): return base\n',
    "needs a plain name: printable": '@vsam.lab.method("a\\nb")\ndef f(base): return base\n',
    "needs a plain name.*Got 'a,b'": '@vsam.lab.method("a,b")\ndef f(base): return base\n',
    r"needs a plain name.*Got '\.\.'": '@vsam.lab.method("..")\ndef f(base): return base\n',
    "must decorate a function, got int": 'vsam.lab.method("x")(5)\n',
}


@pytest.mark.parametrize("reason", WRONG)
def test_a_wrong_file_says_why_and_leaves_nothing(tmp_path, reason):
    with pytest.raises(UserError, match=reason):
        plugins.use(write(tmp_path, WRONG[reason]))
    assert plugins.list_plugins("method") == plugins.list_plugins("model") == plugins.list_plugins("data") == []


def test_two_files_cannot_have_the_same_name(tmp_path, example):
    text = '@vsam.lab.model("perceptron")\ndef f(): return torch.nn.Linear(1, 1)\n'
    with pytest.raises(UserError, match=r"A model named 'perceptron' already exists from .*your_own.py"):
        plugins.use(write(tmp_path, text))


def test_a_file_that_is_not_there_or_no_python_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none.py cannot be read"):
        plugins.use(tmp_path / "none.py")
    with pytest.raises(UserError, match="give a Python file"):
        plugins.use(write(tmp_path, "", "mine.txt"))


def test_wrong_return_types_are_named(tmp_path):
    plugins.use(
        write(
            tmp_path,
            '@vsam.lab.method("m")\ndef m(base): return 5\n'
            '@vsam.lab.method("two")\ndef two(): return vsam.Every(2), vsam.Always()\n'
            '@vsam.lab.model("net")\ndef net(): return 5\n'
            '@vsam.lab.data("d")\ndef d(): return 5\n'
            '@vsam.lab.data("floats")\ndef f(): return [torch.zeros(4, 1, 2, 2), torch.zeros(4).long()] * 2\n',
        )
    )
    model = build("resnet8")
    with pytest.raises(UserError, match=r"'m' of .* must return an optimizer, or parts .* got int"):
        build_optimizer(model, load_recipe("fashion-mini", changes=["method=m"]), 10)
    with pytest.raises(UserError, match="got two parts for when"):
        build_optimizer(model, load_recipe("fashion-mini", changes=["method=two"]), 10)
    with pytest.raises(UserError, match=r"Model 'net' of .* must return an nn.Module, got int"):
        build("net")
    with pytest.raises(DataError, match=r"Data 'd' of .* must return .* got int"):
        load("d")
    with pytest.raises(DataError, match=r"images must be uint8 \(N, C, H, W\), got torch.float32"):
        load("floats")


def test_an_argument_without_a_default_is_named(tmp_path):
    plugins.use(write(tmp_path, '@vsam.lab.method("n")\ndef n(base, size): return base\n'))
    with pytest.raises(UserError, match="its argument 'size' needs a default"):
        find_method("n")


def test_own_images_name_their_runs(tmp_path):
    found = load_recipe("fashion-mini", tiny=True, changes=[f"data.name=folder:{tmp_path}/cats", "data.size=28"])
    assert (found.name, found.data.train, found.data.noise) == ("cats-tiny", None, 0)
    assert load_recipe("fashion-mini", changes=["data.name=folder:cats", "name=mine"]).name == "mine"
    assert run_path(Path("runs"), found) == Path("runs/cats-tiny/vsam/seed-0")


@pytest.mark.slow
def test_the_command_takes_files(tmp_path):
    options = ("--use", str(EXAMPLE), *(part for change in CHANGES for part in ("--set", change)))
    done = command("compare", "--methods", "sgd,decayed-3", "--seeds", "1", *options, "--json", "-", folder=tmp_path)
    assert done.code == 0, done.stderr
    assert [row["method"] for row in json.loads(done.stdout)] == ["sgd", "decayed-3"]
    tuned = ("--method", "decayed-3", "--search", "own.gamma=0.1:0.9", "--trials", "2")
    done = command("tune", "fashion-mini", *tuned, *options, folder=tmp_path)
    assert done.code == 0, done.stderr
    assert "These are the recipe's own settings" in done.stdout or "own.gamma" in done.stdout
    best = tmp_path / "tune/stripes/decayed-3/best.toml"
    assert "--use" in best.read_text()
    assert command("train", str(best), folder=tmp_path).code == 0
    assert command("report", "runs", folder=tmp_path).code == 0
    assert_refused(command("train", "--set", "method=decayed-3", folder=tmp_path), 2, "--use FILE.py")


def test_a_search_over_rho_suits_a_method_that_returns_parts(example):
    from vsam.lab.tune.space import choose_space

    (found,) = choose_space("rho=0.02:0.5:log", lambda more: recipe("method=decayed-3", *more))
    assert str(found) == "rho=0.02:0.5:log"
