"""`vsam sharpness`: a row per run."""

import json

from lab.command import assert_refused, vsam


def test_runs_side_by_side(finished, tmp_path):
    command = vsam("sharpness", *(str(finished / name) for name in ("sam", "sgd")), "--samples", "4", folder=tmp_path)
    assert command.code == 0, command.stderr
    heading, *rows = command.stdout.splitlines()[:3]
    assert heading.split()[:2] == ["run", "loss"]
    assert [row.split()[0] for row in rows] == ["sam", "sgd"]
    assert all(row.count("±") == 6 for row in rows)
    assert "On 4 training images" in command.stdout
    assert not list(tmp_path.iterdir())


def test_pictures_and_a_landscape_that_goes_on_after_a_kill(finished, tmp_path):
    runs = [str(finished / name) for name in ("sam", "sgd")]
    arguments = ("sharpness", *runs, "--samples", "4", "--landscape", "--between", "--points", "5", "--out", "pics")
    killed = vsam(*arguments, folder=tmp_path, die_before=20)
    assert killed.code == -9
    assert not (tmp_path / "pics/sharpness.html").exists()
    command = vsam(*arguments, folder=tmp_path)
    assert command.code == 0, command.stderr
    assert "pics/sharpness.html" in command.stdout
    content = json.loads((tmp_path / "pics/sharpness.json").read_text())
    assert content["landscape"].keys() == {"lines", "planes", "between"}
    assert len(content["landscape"]["planes"]["sam"]["losses"]) == 5


def test_what_does_not_go_together_is_refused(finished, tmp_path):
    command = vsam("sharpness", str(finished / "sam"), "--between", folder=tmp_path)
    assert_refused(command, 2, "--between")
    command = vsam("sharpness", str(finished / "sam"), "--landscape", "--points", "4", folder=tmp_path)
    assert_refused(command, 2, "--points")
