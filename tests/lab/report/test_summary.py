"""The sentence that sums a report up, and its dates."""

from dataclasses import replace
from datetime import date

import pytest

from lab.report.made import make_comparison, make_run
from lab.report.shared import read_groups
from vsam.lab.report.summary import dates, overall, sentence

TODAY = date(2026, 3, 1)


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    return read_groups(make_comparison(tmp_path_factory.mktemp("runs")))[0][0]


def test_a_group_is_summed_up_by_accuracy_share_and_speed(group):
    sgd, sam, vsam = group.rows
    rows = (sgd, replace(sam, accuracy=80.0), replace(vsam, ais_ratio_to_sam=1.59))
    words = sentence(replace(group, rows=rows))
    assert words.startswith("sam reached 80.0 ± 1.1 %; vsam ")
    assert "with 33% of the second gradients at 1.59 times SAM's speed; sgd " in words
    assert words.endswith("(test images, last epoch, mean of 2 seeds).")


def test_one_seed_and_tiny_runs_are_said(tmp_path):
    [group], _ = read_groups(make_run(tmp_path / "run", "sam"))
    assert "one seed, so differences may be chance" in sentence(group)
    assert "tiny" not in sentence(group)
    assert sentence(replace(group, recipe="cifar10-small-tiny")).endswith("says nothing about the methods.")


def test_many_methods_are_counted(group):
    rows = tuple(replace(group.rows[0], label=f"method-{number}") for number in range(9))
    assert "; 5 more methods are below (" in sentence(replace(group, rows=rows))


def test_nothing_finished_is_said(tmp_path):
    [group], _ = read_groups(make_run(tmp_path / "run", finished=False))
    assert sentence(group) == overall([group]) == overall([]) == "No run is finished yet."


def test_several_groups_count_who_was_ahead(group):
    assert overall([group]) == sentence(group)
    other = replace(group, rows=tuple(replace(row, accuracy=99.0 if row.label == "sgd" else 1.0) for row in group.rows))
    assert overall([group, group, other]) == "Most accurate of 3 comparisons: vsam in 2, sgd in 1."


def test_tiny_runs_do_not_count_among_comparisons(group):
    tiny = replace(group, recipe="x-tiny")
    assert overall([tiny, group]) == f"{sentence(group)} 1 more setting is below."
    assert overall([tiny]) == sentence(tiny)


def test_dates_are_those_of_the_runs_and_of_the_page(tmp_path, group):
    assert dates([group], TODAY) == "Written on 1 March 2026."
    for seed, day in enumerate(("2026-02-27T10:00:00+00:00", "2026-02-28T10:00:00+00:00", "no date")):
        make_run(tmp_path / f"{seed}", seed=seed, date=day)
    [dated], _ = read_groups(tmp_path)
    assert dates([dated], TODAY) == "Written on 1 March 2026; runs finished from 27 February 2026 to 28 February 2026."
