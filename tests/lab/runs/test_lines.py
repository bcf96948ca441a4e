"""Lines that were cut, spoilt or shuffled: each bad one is told of, and drops no good one."""

import json
import os

import pytest

from vsam.lab.runs.lines import read_json, read_json_lines

GOOD = [json.dumps({"step": step}) for step in (1, 2, 3, 4)]
DEEP = "[" * 500 + "]" * 500


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ('{"step": 3, "los', "truncated, or not JSON"),
        ("\0" * 4096, "truncated, or not JSON"),
        ('{"step": "three"}', "step is 'three'"),
        ('{"step": 900}', "step 900 is out of order"),
        ('{"step": 1}', "step 1 is out of order"),
        (f'{{"step": 3, "x": {DEEP}}}', "not a line of numbers"),
        ("[" * 100_000, "truncated, or not JSON"),
    ],
    ids=range(7),
)
def test_one_bad_line_drops_no_good_ones(tmp_path, bad, why):
    path = tmp_path / "steps.jsonl"
    path.write_text("\n".join([*GOOD[:2], bad, *GOOD[2:]]) + "\n")
    lines, reason = read_json_lines(path)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert reason == (f"steps.jsonl is damaged: 1 of 5 lines are unusable, first line 3 ({why}). The rest are used.")


def test_a_file_that_is_not_as_it_was_written_is_told_of(tmp_path):
    path = tmp_path / "steps.jsonl"
    path.write_text("\n".join(GOOD) + "\n")
    lines, reason = read_json_lines(path, checksum="sha256:0")
    assert len(lines) == 4
    assert reason == "steps.jsonl is damaged: it was changed after it was written."


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "summary.json")
    assert read_json(tmp_path / "summary.json")[1] == (
        "summary.json cannot be read: it is a device or a pipe, not a regular file."
    )
    os.mkfifo(tmp_path / "steps.jsonl")
    assert "not a regular file" in str(read_json_lines(tmp_path / "steps.jsonl")[1])


def test_what_is_nested_too_deeply_is_told_of(tmp_path):
    (tmp_path / "summary.json").write_text(f'{{"x": {DEEP}}}')
    assert read_json(tmp_path / "summary.json") == (None, "summary.json is nested too deeply.")
