"""`vsam sharpness`: a row per run."""

import json

from lab.command import assert_refused, vsam


def test_runs_side_by_side(finished, tmp_path):
    command = vsam("sharpness", *(str(finished / name) for name in ("sam", "sgd")), "--samples", "4", folder=tmp_path)
    assert command.code == 0, command.stderr
    heading, *rows, setting = command.stdout.splitlines()[:4]
    assert heading.split()[:3] == ["run", "method", "loss"]
    assert [row.split()[1] for row in rows] == ["sam", "sgd"]
    assert all(row.count("±") == 6 for row in rows)
    assert setting.startswith(
        "On 4 training images as they are stored, at rho = 0.05, m = 4; BatchNorm and dropout as in evaluation."
    )
    assert ("* not converged" in command.stdout) == any("*" in row for row in rows)
    assert not list(tmp_path.iterdir())


def test_pictures_and_a_landscape_that_goes_on_after_a_kill(finished, tmp_path):
    runs = [str(finished / name) for name in ("sam", "sgd")]
    arguments = ("sharpness", *runs, "--samples", "4", "--landscape", "--between", "--points", "5", "--out", "pics")
    killed = vsam(*arguments, folder=tmp_path, die_before=20)
    assert killed.code == -9
    points = sum(len(path.read_text().splitlines()) - 1 for path in (tmp_path / "pics/grids").iterdir())
    assert points > 0
    assert not (tmp_path / "pics/sharpness.html").exists()
    command = vsam(*arguments, folder=tmp_path)
    assert command.code == 0, command.stderr
    assert "pics/sharpness.html" in command.stdout
    content = json.loads((tmp_path / "pics/sharpness.json").read_text())
    assert content["landscape"].keys() == {"lines", "planes", "between"}
    assert len(content["landscape"]["planes"]["sam"]["losses"]) == 5
    assert (tmp_path / "pics/landscape-surfaces.svg").exists()


def test_what_does_not_go_together_is_refused(finished, tmp_path):
    command = vsam("sharpness", str(finished / "sam"), "--between", folder=tmp_path)
    assert_refused(command, 2, "--between is for --landscape")
    command = vsam("sharpness", str(finished / "sam"), "--landscape", "--points", "4", folder=tmp_path)
    assert_refused(command, 2, "--points must be an odd number")
