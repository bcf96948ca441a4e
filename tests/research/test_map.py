"""The map: a plan whose searches and seeds follow its rules, and a runner that resumes."""

import json
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from statistics import fmean
from types import SimpleNamespace

import pytest
import torch
from scipy.stats import sem, t
from torch import nn

from research.map import analyse as writer
from research.map import run as runner
from research.map.figure import draw
from research.map.numbers import analyse
from research.map.plan import HERE, Plan, Results, explore, read_plan
from research.map.sentences import TokenBatches
from research.map.tables import filled, for_check, pages
from research.map.train import _average, _memorised, round_to_4_bits
from vsam.lab.errors import DamagedError
from vsam.lab.report.figures import save

TINY = tomllib.loads("""
seeds = [0, 1]
more_seeds = [2]
tuning_seeds = [100]
extensions = 1
curve = 2
horizons = [0.1, 1.0]
held_out = 30
test = 30
eight_seeds = ["small"]
changes = []
[base.sgd]
lr = [0.05, 0.1]
weight_decay = [0.001, 0.002]
[method.sam]
rho = [0.1, 0.2]
[setting.small]
data = "fashion-mini"
model = "resnet8"
train = 40
epochs = 1
noise = 0.2
augment = true
""")


def scored(run):
    """Measurements that are best at lr 0.05, weight decay 0.002 and rho 0.2, the last of its list."""
    score = (
        50 - 100 * abs(run.lr - 0.05) + 1000 * run.weight_decay * (run.weight_decay < 0.003) + run.rho * (run.rho < 0.3)
    )
    averages = [{"horizon": horizon, "held_out_accuracy": score - horizon} for horizon in run.horizons]
    return {"held_out_accuracy": score, "averages": averages}


def test_a_list_grows_at_its_ends_only_so_often():
    grows = lambda value: value  # noqa: E731
    known = {0.1, 0.2, 0.4}
    missing, _ = explore([0.1, 0.2], lambda value: grows(value) if value in known else None, extensions=2)
    assert missing == [0.8]
    missing, choice = explore([0.1, 0.2], grows, extensions=2)
    assert (missing, choice.value, choice.is_at_end) == ([], 0.8, True)
    _, choice = explore([0.1, 0.2, 0.4], lambda value: -abs(value - 0.2), extensions=2)
    assert (choice.value, choice.is_at_end) == (0.2, False)
    _, choice = explore([0.1, 0.2], lambda value: 1.0, extensions=2)
    assert choice.value == 0.025  # the smaller of two equal ones, down to the last extension


def test_the_runs_of_a_setting_follow_from_each_other():
    plan = Plan(TINY)
    setting, done, rounds = plan.settings["small"], Results(), []
    while due := plan.due(setting, done):
        rounds.append([(run.phase, run.method, run.seed, run.lr, run.weight_decay, run.rho, run.epochs) for run in due])
        for run in due:
            done.add(json.loads(json.dumps({"run": asdict(run), **scored(run)})))
    tune = [[one[3:6] for one in found if one[0] == "tune"] for found in rounds]
    assert tune[:3] == [[(0.05, 0.002, 0.0), (0.1, 0.002, 0.0)], [(0.025, 0.002, 0.0)], [(0.05, 0.001, 0.0)]]
    assert tune[3:6] == [[(0.05, 0.004, 0.0)], [(0.05, 0.002, 0.1), (0.05, 0.002, 0.2)], [(0.05, 0.002, 0.4)]]
    confirming = rounds[-1]
    assert {one[2] for one in confirming} == {0, 1, 2}
    assert confirming[:3] == [
        ("confirm", "base", 0, 0.05, 0.002, 0.0, 1),
        ("confirm", "base", 0, 0.05, 0.002, 0.0, 2),
        ("confirm", "sam", 0, 0.05, 0.002, 0.2, 1),
    ]
    _, chosen = plan.choose(setting, done)
    assert chosen["horizon"].value == 0.1
    assert chosen["sam"].value == 0.2


@pytest.mark.slow
def test_the_runner_resumes_and_measures(tmp_path, monkeypatch):
    plan = Plan(TINY)
    settings, path = list(plan.settings.values()), tmp_path / "small.jsonl"
    assert not runner.run_study(plan, settings, tmp_path, None, 1, 0.0, "command")
    assert runner.run_study(plan, settings, tmp_path, None, 1, 1.0, "command")
    text = path.read_text(encoding="utf-8")
    monkeypatch.setattr(runner, "train", None)  # nothing is left to run
    assert runner.run_study(plan, settings, tmp_path, None, 1, 1.0, "command")
    assert path.read_text(encoding="utf-8") == text
    lines = list(map(json.loads, text.splitlines()))
    confirmed = [line for line in lines if line["run"]["phase"] == "confirm"]
    assert len(confirmed) == 3 * 3
    for line in confirmed:
        assert {"accuracy", "loss", "four_bits", "early", "curve", "train"} <= line.keys()
        assert line["passes"] == (2 if line["run"]["method"] == "sam" else 1)
        assert 0 <= line["train"]["memorised"] <= 100
    assert all("accuracy" not in line for line in lines if line["run"]["phase"] == "tune")


def test_a_failed_run_does_not_discard_the_other(tmp_path, monkeypatch):
    def train(setting, run, data_dir):
        if run.lr == 0.1:
            raise OSError("lost")
        time.sleep(0.2)
        return {**scored(run), "cpu_seconds": 0.2}

    monkeypatch.setattr(runner, "train", train)
    monkeypatch.setattr(runner, "_pool", ThreadPoolExecutor)
    plan = Plan(TINY)
    settings = list(plan.settings.values())
    with pytest.raises(OSError, match="lost"):
        runner.run_study(plan, settings, tmp_path, None, 2, 1.0, "command")
    assert [line["run"]["lr"] for line in runner.read_results(tmp_path, settings[0]).lines.values()] == [0.05]


@pytest.mark.parametrize("text", ["", "[]", '{"run": {}}', '{"run": {"setting": "small"', "\xff"])
def test_a_damaged_line_is_named(tmp_path, text):
    (tmp_path / "small.jsonl").write_bytes(text.encode("latin-1") + b"\n")
    with pytest.raises(DamagedError, match="line 1"):
        runner.read_results(tmp_path, Plan(TINY).settings["small"])


@pytest.mark.parametrize("given", [["--budget", "nan"], ["--budget", "-1"], ["--jobs", "0"], ["--setting", "none"]])
def test_bad_options_are_refused(given):
    with pytest.raises(SystemExit, match="2"):
        runner.main(given)


def test_weights_are_rounded_per_output_channel():
    layer = nn.Linear(2, 2)
    layer.weight.data = torch.tensor([[7.0, 2.4], [0.7, 0.26]])
    rounded = round_to_4_bits(nn.Sequential(layer))[0].weight
    assert torch.equal(layer.weight.data, torch.tensor([[7.0, 2.4], [0.7, 0.26]]))
    torch.testing.assert_close(rounded.data, torch.tensor([[7.0, 2.0], [0.7, 0.3]]))


def test_training_accuracy_is_that_of_each_example_in_whatever_order_they_are_measured():
    tokens = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1]])
    labels = torch.tensor([1, 0, 0, 1])  # 1 for a full sentence
    model = nn.Sequential(nn.Linear(3, 2))
    model.forward = lambda inputs: nn.functional.one_hot((inputs != 0).sum(1) // 3, 2)
    wrong = torch.tensor([1, 0, 0, 0])
    images = SimpleNamespace(labels=wrong, right_labels=labels, again=TokenBatches(tokens, wrong, 3))
    assert _memorised(model, images) == {"accuracy": 75.0, "right_accuracy": 100.0, "memorised": 0.0}


def test_an_average_follows_weights_and_statistics_and_copies_whole_numbers():
    model = nn.BatchNorm1d(2)
    model.register_buffer("places", torch.arange(8))
    average = _average(model, 4)
    for step in range(3):
        model.weight.data.fill_(step)
        model.running_mean.fill_(4 * step)
        model.num_batches_tracked.fill_(7 * step)
        average.update_parameters(model)
    torch.testing.assert_close(average.module.weight.data, torch.full((2,), 0.75 * 0.25 + 0.5))
    torch.testing.assert_close(average.module.running_mean, torch.full((2,), 4 * (0.75 * 0.25 + 0.5)))
    assert average.module.num_batches_tracked == 14
    assert torch.equal(average.module.places, torch.arange(8))


def test_the_plan_has_enough_settings_and_names_the_eight_seeds():
    plan = read_plan()
    assert len(plan.settings) >= 16
    assert set(plan.content["eight_seeds"]) <= set(plan.settings)
    assert {len(plan.seeds(setting)) for setting in plan.settings.values()} == {3, 8}
    seeds = {*plan.content["seeds"], *plan.content["more_seeds"]}
    assert not seeds & set(plan.content["tuning_seeds"])
    for row in (*plan.content["base"].values(), *plan.content["method"].values()):
        assert all(len(values) >= 4 for values in row.values())


def test_every_result_is_one_that_the_plan_asks_for():
    plan = read_plan()
    names = {path.stem for path in (HERE / "results").glob("*.jsonl")}
    assert names <= set(plan.settings)
    for name in names:
        setting, found, done = (
            plan.settings[name],
            runner.read_results(HERE / "results", plan.settings[name]),
            Results(),
        )
        while known := [line for run in plan.due(setting, done) if (line := found.get(run))]:
            for line in known:
                done.add(line)
        assert done.lines == found.lines, name


def test_the_page_the_figure_and_the_check_follow_from_the_runs(tmp_path):
    content = json.loads(json.dumps(analyse(read_plan(), HERE / "results")))
    assert content["settings"]
    means = [row["methods"]["sam"]["gain"]["mean"] for row in content["settings"]]
    overall = content["overall"]["sam"]
    assert [overall["mean"], overall["n"]] == [pytest.approx(fmean(means), abs=1e-5), len(means)]
    assert overall["mean"] - overall["low"] == pytest.approx(sem(means) * t.ppf(0.975, len(means) - 1), abs=1e-5)
    assert json.loads(writer.NUMBERS.read_text(encoding="utf-8")) == content
    assert json.loads(writer.GAINS.read_text(encoding="utf-8")) == for_check(content)
    for path in writer.PAGES:
        page = path.read_text(encoding="utf-8")
        assert "<!-- map: " in page
        assert filled(page, content) == page
    drawn, _ = save(draw(content), tmp_path / "map")
    kept = writer.FIGURE.with_suffix(".svg")
    assert words(drawn) == words(kept)


def words(path):
    """Texts of a figure."""
    root = ElementTree.parse(path).getroot()
    return ["".join(one.itertext()).strip() for one in root.iter("{http://www.w3.org/2000/svg}text")]


GAINS = {"base": 0.0, "sam": 4.0, "vsam-budget": 3.0, "sam-late": 2.0, "msam-adaptive": -1.0}


def measured(run):
    """Measurements with a known gain; seeds differ by noise that the methods share, and SAM by its own."""
    found = scored(run)
    if run.phase == "tune":
        return found
    accuracy = 50 + 3 * (run.seed % 3) + GAINS[run.method] + (10 if run.epochs == 2 else 0)
    accuracy += 0.1 * (-1) ** run.seed if run.method != "base" else 0
    tested = {"accuracy": accuracy, "loss": 2 - accuracy / 100, "four_bits": accuracy - 5}
    averages = [{"horizon": one, "held_out_accuracy": 0, **tested, "accuracy": accuracy + 1} for one in run.horizons]
    early = {"epoch": 1, **tested, "accuracy": accuracy + 2}
    train = {"accuracy": 95.0, "right_accuracy": 80.0, "memorised": 60.0}
    passes = {"sam": 2, "vsam-budget": 1.2, "sam-late": 1.2}.get(run.method, 1)
    return {
        **found,
        **tested,
        "averages": averages,
        "early": early,
        "train": train,
        "passes": passes,
        "cpu_seconds": 9.0,
    }


def test_the_analysis_finds_the_gains_that_were_put_in(tmp_path):
    rho = {"rho": [0.1, 0.2]}
    plan = Plan(
        {**TINY, "seeds": [0, 1, 2], "more_seeds": [3, 4, 5, 6, 7], "method": dict.fromkeys(list(GAINS)[1:], rho)}
    )
    setting, done = plan.settings["small"], Results()
    about = {"environment": {"torch": "2"}, "command": "run"}
    while due := plan.due(setting, done):
        for run in due:
            done.add(json.loads(json.dumps({"run": asdict(run), **measured(run), **about})))
    path = tmp_path / "small.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in done.lines.values()))
    content = analyse(plan, tmp_path)
    (row,), methods = content["settings"], content["settings"][0]["methods"]
    assert content["missing"] == []
    assert row["base"]["gap"] == pytest.approx(95 - row["base"]["accuracy"])
    assert row["base"]["memorised"] == 60
    for name, gain in {**GAINS, "ema": 1.0, "early": 2.0, "long": 10.0}.items():
        if name != "base":
            assert methods[name]["gain"]["mean"] == pytest.approx(gain, abs=0.01)
            assert methods[name]["gain"]["low"] <= gain <= methods[name]["gain"]["high"]
            assert methods[name]["gain"]["n"] == 8
    assert methods["long"]["passes"] == 2
    assert row["long_over_sam"]["mean"] == pytest.approx(6.0)
    assert row["radii"]["sam"] == pytest.approx({"0.1": 0.1, "0.2": 0.2, "0.4": 0.0})
    assert row["gate"]
    holds = {name: claim["holds"] for name, claim in row["claims"].items()}
    assert holds == {"vsam-budget": True, "sam-late": False, "msam-adaptive": False, "ema": False}
    assert row["claims"]["vsam-budget"]["over_half_of_sams_gain"] == pytest.approx(1.0)
    table = pages(content)["gain"]
    assert "+4.0\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}0.1" in table
    assert "20 % wrong" in table
    assert len(draw(content).axes) == 6
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))  # the last of the eight seeds is unfinished
    assert analyse(plan, tmp_path)["settings"][0]["seeds"] == [0, 1, 2]
    path.write_text("".join(lines[:-40]))
    assert analyse(plan, tmp_path)["missing"] == ["small"]


def test_sentences_are_batched_in_a_new_order_every_epoch_and_trimmed_to_the_longest():
    tokens = torch.tensor([[1, 2, 0, 0], [3, 0, 0, 0], [4, 5, 6, 0]])
    batches = TokenBatches(tokens, torch.tensor([0, 1, 1]), 2, seed=3)
    first = list(batches.epoch(0))
    assert [len(labels) for _, labels, _ in first] == [2, 1]
    assert all(torch.equal(found, tokens[indices][:, : found.shape[1]]) for found, _, indices in first)
    assert all((found != 0).any(0)[-1] for found, _, _ in first)
    orders = {tuple(torch.cat([indices for _, _, indices in batches.epoch(epoch)]).tolist()) for epoch in range(9)}
    assert len(orders) > 1
    measured = torch.cat([labels for _, labels, _ in TokenBatches(tokens, torch.arange(3), 2)])
    assert measured.tolist() == [1, 0, 2]  # by length
