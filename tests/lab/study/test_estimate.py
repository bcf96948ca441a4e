"""What a study takes before it is run: runs, hours and disk, from measured, published or written times."""

from pathlib import Path

import pytest
from typer.main import get_command

from lab.helpers import CPU
from vsam.lab.cli.app import app
from vsam.lab.errors import UserError
from vsam.lab.paper.numbers import table1
from vsam.lab.study.estimate import MEASURED, PAPER, RECIPE, estimate_study
from vsam.lab.study.plan import STUDIES
from vsam.lab.study.run import run_study

GUIDE = Path(__file__).parents[3] / "docs/studies.md"


def test_the_papers_table_takes_about_a_thousand_gpu_hours_as_help_and_guide_say(tmp_path):
    found = estimate_study(STUDIES["table1"], "paper", 3, tmp_path)
    assert 900 < sum(part.hours for part in found.parts) < 1100
    assert "216 runs to train, about 1,0" in found.sentence()
    assert not list(tmp_path.iterdir())
    (scale,) = [option for option in get_command(app).commands["study"].params if option.name == "scale"]
    for text in (scale.help, GUIDE.read_text()):
        assert "about 1,000 GPU hours" in text


def test_the_papers_own_speeds_count_where_the_setting_is_the_papers(tmp_path):
    only, methods = ["cifar10-resnet18"], ["sam", "vsam"]
    found = estimate_study(STUDIES["table1"], "paper", 3, tmp_path, only=only, methods=methods)
    (part,) = found.parts
    speeds = table1("resnet18", "cifar10")
    assert part.hours == pytest.approx(sum(3 * 200 * 50_000 / speeds[name].ais / 3600 for name in methods))
    assert (part.runs, part.finished, part.hours_from) == (6, 0, (PAPER,))
    assert 0.7e9 < part.bytes < 1.5e9  # six checkpoints of 11 million weights with momentum and PSF, and their lines
    assert "6 runs to train" in found.sentence()
    assert "GPU" in found.sentence()


def test_a_header_tells_where_nothing_else_does(tmp_path):
    (part,) = estimate_study(STUDIES["alpha"], "small", 3, tmp_path).parts
    assert part.hours_from == (RECIPE,)
    assert 0.3 < part.hours < 1.5
    parts = estimate_study(STUDIES["lsq"], "small", 3, tmp_path).parts
    assert [part.unknown for part in parts] == [3, 0, 3, 9]  # no header speaks of that network
    assert "15 runs of unknown time" in estimate_study(STUDIES["lsq"], "small", 3, tmp_path).sentence()


def test_finished_runs_count_and_their_times_are_taken(tmp_path):
    study = STUDIES["norms"]
    run_study(study, "tiny", 1, tmp_path, None, CPU, methods=["sam"])
    (part,) = estimate_study(study, "tiny", 2, tmp_path).parts
    assert (part.runs, part.finished, part.missing, part.hours_from) == (4, 1, 3, (MEASURED,))
    seconds = run_study(study, "tiny", 1, tmp_path, None, CPU, methods=["sam"]).to_dict()["training_seconds"]
    assert 3600 * part.hours == pytest.approx(seconds * (1 + 2 * 1.35 / 2))


def test_a_method_that_the_study_does_not_train_is_refused_with_those_that_it_does(tmp_path):
    with pytest.raises(UserError, match=r"no method 'asam' at this scale. It has: sam, vsam"):
        estimate_study(STUDIES["norms"], "small", 3, tmp_path, methods=["asam"])


def test_what_quantized_runs_start_from_is_always_trained(tmp_path):
    parts = estimate_study(STUDIES["lsq"], "tiny", 1, tmp_path, methods=["vsam"]).parts
    assert [part.runs for part in parts] == [1, 1]
