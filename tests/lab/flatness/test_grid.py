"""The points of a slice in a file: kept as they are found, and never those of other settings."""

import pytest

from vsam.lab.flatness.grid import GridFile

SETTINGS = {"checkpoint": "abc", "num_points": 3}


def test_points_are_there_again(tmp_path):
    grid = GridFile(tmp_path, SETTINGS)
    grid[0, 1] = 0.125
    grid[2, 2] = float("inf")
    grid.flush()
    assert dict(GridFile(tmp_path, SETTINGS)) == {(0, 1): 0.125, (2, 2): float("inf")}


def test_after_a_kill_all_but_the_last_few_are_there(tmp_path):
    grid = GridFile(tmp_path, SETTINGS)
    for i in range(20):
        grid[i,] = float(i)  # never flushed by hand, as when the process is killed
    with grid.path.open("a") as file:
        file.write("[20, 20")
    again = GridFile(tmp_path, SETTINGS)
    assert len(again) == 16
    again[20,] = 5.0
    again.flush()
    assert GridFile(tmp_path, SETTINGS)[20,] == 5.0  # the line that was cut has swallowed nothing


@pytest.mark.parametrize("other", [{"checkpoint": "abd"}, {"num_points": 5}])
def test_other_settings_read_no_points_of_these(tmp_path, other):
    grid = GridFile(tmp_path, SETTINGS)
    grid[0,] = 1.0
    grid.flush()
    assert len(GridFile(tmp_path, SETTINGS | other)) == 0


def test_lines_that_are_no_points_are_left_out(tmp_path):
    grid = GridFile(tmp_path, SETTINGS)
    grid.path.write_text(grid.path.read_text() + '[0, "x"]\n{}\n[1.5, 2.0]\n[0, NaN]\n7\n[3, 1.0]\n')
    assert dict(GridFile(tmp_path, SETTINGS)) == {(3,): 1.0}
