"""Comparisons: the table says what the runs say, and no cell disturbs another."""

import csv
import json
import shutil
import statistics
from contextlib import closing
from pathlib import Path

import pytest
from PIL import Image

from lab.command import QUICK, assert_refused, vsam
from lab.helpers import CPU, assert_same_run, lines, open_run, quick_recipe
from vsam.lab.compare import compare
from vsam.lab.progress import NullProgress
from vsam.lab.rows import by_label, summarise
from vsam.lab.run import Run, run_path

KEYS = [
    *("data", "model", "method", "seeds", "steps", "accuracy", "accuracy_std", "best", "best_std"),
    *("samples", "ais", "ais_ratio_to_sam", "speed_to_sgd", "ideal_ratio"),
]
METHODS = ("sgd", "sam", "vsam")
TABLES = ("--csv", "t.csv", "--markdown", "t.md", "--latex", "deep/er/t.tex")
ARGUMENTS = ("compare", *QUICK, "--seeds", "2", "--out", "out")


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Three methods and two seeds, finished, with the command that trained them."""
    folder = tmp_path_factory.mktemp("compared")
    command = vsam(*ARGUMENTS, "--json", "t.json", *TABLES, folder=folder)
    assert command.code == 0, command.stderr
    return folder, command


@pytest.fixture
def spoilt(compared, tmp_path):
    """A copy of the comparison in which two cells are unfinished and one of these is broken."""
    folder = shutil.copytree(compared[0], tmp_path / "spoilt")
    for cell in ("sam/seed-0", "vsam/seed-1"):
        (cells(folder) / cell / "summary.json").unlink()
    (cells(folder) / "sam/seed-0/checkpoint.pt").write_bytes(b"broken")
    return folder


def cells(folder):
    return folder / "out" / "fashion-mini-tiny"


def summaries(folder, method):
    return [json.loads((cells(folder) / method / f"seed-{i}" / "summary.json").read_text()) for i in (0, 1)]


def rows(folder):
    return {row["method"]: row for row in json.loads((folder / "t.json").read_text())}


def state(folder):
    """All files of all cells."""
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.glob("*/seed-*/*")}


def test_the_json_has_exactly_the_promised_keys(compared):
    table = json.loads((compared[0] / "t.json").read_text())
    assert [list(row) for row in table] == [KEYS] * 3
    assert [row["method"] for row in table] == list(METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_the_table_says_what_the_folders_say(compared, method):
    row, runs = rows(compared[0])[method], summaries(compared[0], method)
    assert (row["data"], row["model"], row["seeds"], row["steps"]) == ("fashion-mini", "resnet8", 2, 12)
    for name in ("accuracy", "best"):
        values = [run[name] for run in runs]
        assert row[name] == pytest.approx(statistics.fmean(values))
        assert row[f"{name}_std"] == pytest.approx(statistics.stdev(values))
    for name in ("samples", "ais"):
        assert row[name] == pytest.approx(statistics.fmean(run[name] for run in runs))


def test_the_ratios_follow(compared):
    table = rows(compared[0])
    for row in table.values():  # four common turns are too few to pair
        assert row["ais_ratio_to_sam"] == pytest.approx(row["ais"] / table["sam"]["ais"])
        assert row["speed_to_sgd"] == pytest.approx(row["ais"] / table["sgd"]["ais"])
        assert row["ideal_ratio"] == pytest.approx(2 / (1 + row["samples"] / row["steps"]))
    assert table["sam"]["ideal_ratio"] == 1
    assert table["sgd"]["ideal_ratio"] == 2
    assert 1 < table["vsam"]["ideal_ratio"] < 2


@pytest.mark.parametrize("method", METHODS)
def test_turns_do_not_change_the_weights(compared, finished, method):
    assert_same_run(cells(compared[0]) / method / "seed-0", finished / method)


def test_the_methods_of_a_seed_take_turns(compared):
    order = [line.split() for line in compared[1].stderr.splitlines()]
    assert [(words[0], words[2], words[4]) for words in order] == [
        (method, seed, epoch) for seed in "01" for epoch in "12" for method in METHODS
    ]


def test_the_csv_holds_the_same_numbers(compared):
    with (compared[0] / "t.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    for row in table:
        assert row == {name: str(value) for name, value in rows(compared[0])[row["method"]].items()}
    assert len(table) == 3


def test_the_printed_tables_hold_the_accuracies(compared):
    texts = [compared[1].stdout, *((compared[0] / name).read_text() for name in ("t.md", "deep/er/t.tex"))]
    for text, sign in zip(texts, ("±", "±", r"$\pm$"), strict=True):
        for row in rows(compared[0]).values():
            assert f"{row['accuracy']:.2f} {sign} {row['accuracy_std']:.2f}" in text
            assert f"{row['ideal_ratio']:.2f}" in text


def test_the_picture_opens(compared):
    path = cells(compared[0]) / "accuracy-cost.png"
    assert str(path.relative_to(compared[0])) in compared[1].stdout
    with Image.open(path) as image:
        image.load()
        assert image.format == "PNG"
        assert len(image.convert("RGB").getcolors(1 << 20)) > 10


def test_finished_cells_are_kept_and_json_on_the_output_is_alone(compared):
    folder, _ = compared
    before = state(cells(folder))
    assert len(before) >= 6 * 4
    command = vsam(*ARGUMENTS, "--json", "-", folder=folder)
    assert command.code == 0, command.stderr
    assert json.loads(command.stdout) == json.loads((folder / "t.json").read_text())
    assert state(cells(folder)) == before


def test_a_broken_cell_is_named_and_does_not_stop_the_others(spoilt):
    command = vsam(*ARGUMENTS, "--json", "-", folder=spoilt)
    assert_refused(command, 1, "These runs are not finished:", "sam, seed 0", str(run_path_of("sam", 0)))
    assert (cells(spoilt) / "vsam/seed-1/summary.json").exists()
    assert {row["method"]: row["seeds"] for row in json.loads(command.stdout)} == {
        "sgd": 2,
        "sam": 1,
        "vsam": 2,
    }


def test_a_cell_that_lost_its_metrics_is_named_and_does_not_stop_the_others(spoilt):
    shutil.rmtree(cells(spoilt) / "sam/seed-0")
    (cells(spoilt) / "sgd/seed-1/metrics.jsonl").unlink()
    command = vsam(*ARGUMENTS, folder=spoilt)
    assert "Traceback" not in command.stderr
    assert (cells(spoilt) / "sam/seed-0/summary.json").exists()
    assert (cells(spoilt) / "vsam/seed-1/summary.json").exists()


def run_path_of(method, seed):
    return f"out/fashion-mini-tiny/{method}/seed-{seed}/checkpoint.pt"


def test_a_cell_that_fails_while_training_does_not_stop_the_others(tmp_path):
    small = ("data.train=32", "epochs=2")
    recipes = [quick_recipe(*small, "method=sgd", "lr=1e30"), quick_recipe(*small, "method=sam-5")]
    done, failures = compare(recipes, tmp_path, None, CPU)
    assert [cell.method for cell in done] == ["sam-5"]
    assert len(done[0].epochs) == 2
    assert len(failures) == 1
    assert failures[0].startswith("sgd, seed 0: The loss is nan at step 2")


def test_a_cell_of_another_process_is_named_and_does_not_stop_the_others(tmp_path):
    small = ("data.train=32", "epochs=1")
    recipes = [quick_recipe(*small, f"method={method}") for method in ("sgd", "sam")]
    with closing(open_run(run_path(tmp_path, recipes[0]), *small, "method=sgd")):
        done, failures = compare(recipes, tmp_path, None, CPU)
    assert [cell.method for cell in done] == ["sam"]
    assert len(failures) == 1
    assert failures[0].startswith("sgd, seed 0: ")
    assert "in use by another process" in failures[0]


def cut(config):
    config.write_text(config.read_text()[:-5])


@pytest.mark.parametrize("spoil", [cut, lambda config: config.write_text(""), lambda config: config.unlink()])
@pytest.mark.parametrize("is_last", [True, False], ids=["finished", "with others to train"])
def test_a_cell_with_damaged_settings_is_named_and_does_not_stop_the_others(tmp_path, spoil, is_last):
    small = ("data.train=32", "epochs=1")
    recipes = [quick_recipe(*small, f"method={method}") for method in ("sgd", "sam")]
    compare(recipes[: 1 + is_last], tmp_path, None, CPU)
    spoil(run_path(tmp_path, recipes[0]) / "config.toml")
    done, failures = compare(recipes, tmp_path, None, CPU)
    assert [cell.method for cell in done] == ["sam"]
    assert len(failures) == 1
    assert failures[0].startswith("sgd, seed 0: ")
    assert f"Delete {run_path(tmp_path, recipes[0])} to retrain" in failures[0]


def test_a_cell_that_another_process_has_finished_meanwhile_is_in_the_table(tmp_path):
    small = ("data.train=32", "epochs=1")
    recipes = [quick_recipe(*small, f"method={method}") for method in ("sgd", "sam")]

    class Meanwhile(NullProgress):
        def epoch(self, *_):
            while not other.is_finished:
                other.train_epoch()

    with closing(open_run(run_path(tmp_path, recipes[0]), *small, "method=sgd")) as other:
        done, failures = compare(recipes, tmp_path, None, CPU, Meanwhile())
    assert [cell.method for cell in done] == ["sgd", "sam"]
    assert failures == []


def test_a_killed_comparison_goes_on(compared, tmp_path):
    arguments = ("compare", *QUICK, "--seeds", "1", "--out", "out", "--json", "t.json")
    assert vsam(*arguments, folder=tmp_path, die_before=36).code == -9
    begun = [path for path in cells(tmp_path).rglob("metrics.jsonl") if len(lines(path)) == 1]
    assert begun
    assert vsam(*arguments, folder=tmp_path).code == 0
    for method in METHODS:
        assert_same_run(cells(tmp_path) / method / "seed-0", cells(compared[0]) / method / "seed-0")


def test_seeds_count_from_the_recipes(tmp_path):
    changes = ("--set", "seed=5", "--set", "data.train=32", "--set", "epochs=1")
    command = vsam(
        "compare",
        *QUICK,
        *changes,
        "--methods",
        "sam-2",
        "--seeds",
        "2",
        "--out",
        "out",
        "--json",
        "-",
        folder=tmp_path,
    )
    assert command.code == 0, command.stderr
    assert sorted(path.name for path in (cells(tmp_path) / "sam-2").iterdir()) == ["seed-5", "seed-6"]
    (row,) = json.loads(command.stdout)
    assert row["ais_ratio_to_sam"] is None
    assert row["speed_to_sgd"] is None


def cell(method, seed, accuracy=50.0, ais=10.0, samples=0):
    summary = {"accuracy": accuracy, "best": accuracy + 1, "samples": samples, "ais": ais}
    summary |= {"data": "d", "model": "m", "steps": 8, "cost": 1 + samples / 8}
    return Run(Path(run_path_of(method, seed)), settings={"method": method, "seed": seed}, summary=summary)


def test_rows_by_hand():
    found = summarise(
        by_label(
            [
                cell("sam", 0, accuracy=60, ais=10, samples=8),
                cell("sgd", 0, accuracy=50, ais=20),
                cell("sam", 1, accuracy=64, ais=14, samples=8),
            ]
        )
    )
    assert [row.method for row in found] == ["sam", "sgd"]
    sam, sgd = found
    assert (sam.accuracy, sam.best, sam.seeds) == (62, 63, 2)
    assert sam.accuracy_std == pytest.approx(8**0.5)
    assert (sam.ais, sam.ais_ratio_to_sam, sam.speed_to_sgd, sam.ideal_ratio) == (12, 1, 0.6, 1)
    assert (sgd.accuracy_std, sgd.ideal_ratio, sgd.ais_ratio_to_sam) == (0, 2, pytest.approx(20 / 12))


def test_runs_lie_below_recipe_method_and_seed(tmp_path):
    path = run_path(tmp_path, quick_recipe("method=sam", "seed=4"))
    assert path == tmp_path / "fashion-mini-tiny" / "sam" / "seed-4"


def test_a_variant_has_a_folder_and_a_name_of_its_own(tmp_path):
    small = ("data.train=32", "epochs=1", "method=sam")
    recipes = [quick_recipe(*small), quick_recipe(*small, "variant=rho-1", "rho=1.0")]
    done, _ = compare(recipes, tmp_path, None, CPU)
    assert [(cell.label, cell.method, cell.path.parent.name) for cell in done] == [
        ("sam", "sam", "sam"),
        ("sam-rho-1", "sam", "sam-rho-1"),
    ]
    assert [(row.label, row.method) for row in summarise(by_label(done))] == [("sam", "sam"), ("sam-rho-1", "sam")]


def test_other_settings_in_any_cell_are_refused_before_anything_is_trained(compared, tmp_path):
    folder = shutil.copytree(compared[0], tmp_path / "other")
    for path in cells(folder).glob("*/seed-0"):
        shutil.rmtree(path)
    before = state(cells(folder))
    assert_refused(vsam(*ARGUMENTS, "--set", "rho=0.3", folder=folder), 2, "seed-1", "other settings", "rho")
    assert state(cells(folder)) == before


def test_every_epoch_says_in_which_turn_it_ran(compared):
    turns = [line["turn"] for line in lines(cells(compared[0]) / "sam/seed-0/metrics.jsonl")]
    assert len(set(turns)) == 2
    for method in METHODS:
        assert [line["turn"] for line in lines(cells(compared[0]) / method / "seed-0/metrics.jsonl")] == turns
    other = {line["turn"] for line in lines(cells(compared[0]) / "sam/seed-1/metrics.jsonl")}
    assert not other & set(turns)
