"""`vsam sharpness`: a row per run."""

from lab.command import vsam


def test_runs_side_by_side(finished, tmp_path):
    command = vsam("sharpness", *(str(finished / name) for name in ("sam", "sgd")), "--samples", "4", folder=tmp_path)
    assert command.code == 0, command.stderr
    heading, *rows, setting = command.stdout.splitlines()[:4]
    assert heading.split()[:3] == ["run", "method", "loss"]
    assert [row.split()[1] for row in rows] == ["sam", "sgd"]
    assert all(row.count("±") == 6 for row in rows)
    assert setting.startswith("On 4 training images at rho = 0.05, m = 128; BatchNorm and dropout as in evaluation.")
    assert ("* not converged" in command.stdout) == any("*" in row for row in rows)
    assert not list(tmp_path.iterdir())
