"""Finding the checkpoints that a path means."""

import pytest

from vsam.lab.errors import UserError
from vsam.lab.runs.trained import checkpoint_of, checkpoints_in


def test_a_checkpoint_a_run_and_a_folder_of_runs(finished, tmp_path):
    path = finished / "sgd" / "checkpoint.pt"
    assert checkpoints_in(path) == checkpoints_in(finished / "sgd") == [path] == [checkpoint_of(finished / "sgd")]
    assert [found.parent.name for found in checkpoints_in(finished)] == ["sam", "sgd", "vsam"]
    for nowhere in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match=r"has no checkpoint\.pt"):
            checkpoints_in(nowhere)
    with pytest.raises(UserError, match=r"has no checkpoint\.pt"):
        checkpoint_of(finished)
