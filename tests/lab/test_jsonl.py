"""Lines that were cut, spoilt or shuffled: the first bad one ends the file, and is named."""

import json
import os

import pytest

from vsam.lab.jsonl import read_lines, read_object

GOOD = [json.dumps({"step": step}) for step in (1, 2, 3, 4)]
DEEP = "[" * 500 + "]" * 500


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ('{"step": 3, "los', "truncated"),
        ("\0" * 4096, "truncated"),
        ('{"step": "three"}', "step is 'three'"),
        ('{"step": NaN}', "step is nan"),
        ('{"step": 1}', "step 1 is out of order"),
        (f'{{"step": 3, "x": {DEEP}}}', "not an object"),
        ("[" * 100_000, "not an object"),
    ],
    ids=range(7),
)
def test_a_bad_line_ends_the_file_and_is_named(tmp_path, bad, why):
    path = tmp_path / "steps.jsonl"
    path.write_text("\n".join([*GOOD[:2], bad, *GOOD[2:]]) + "\n")
    lines = read_lines(path)
    assert [line["step"] for line in lines] == [1, 2]
    assert "steps.jsonl is damaged at line 3" in lines.problem
    assert why in lines.problem


def test_a_whole_file_has_no_problem_and_a_missing_one_has(tmp_path):
    (tmp_path / "steps.jsonl").write_text("\n".join(GOOD) + "\n")
    assert (len(read_lines(tmp_path / "steps.jsonl")), read_lines(tmp_path / "steps.jsonl").problem) == (4, "")
    assert read_lines(tmp_path / "none.jsonl").problem == "none.jsonl is missing."


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "summary.json")
    with pytest.raises(ValueError, match="not a regular file"):
        read_object(tmp_path / "summary.json")
    os.mkfifo(tmp_path / "steps.jsonl")
    assert "not a regular file" in read_lines(tmp_path / "steps.jsonl").problem


@pytest.mark.parametrize("content", ["", "[]", "{", f'{{"x": {DEEP}}}', "null"])
def test_an_object_that_is_none_is_damage(tmp_path, content):
    (tmp_path / "summary.json").write_text(content)
    with pytest.raises(ValueError, match="damaged"):
        read_object(tmp_path / "summary.json")
    assert read_object(tmp_path / "none.json") == {}
