"""Processes share predictions, files, errors, and the request to stop."""

import pytest
import torch

from lab.ranks.launch import on_ranks
from vsam.lab.data.batches import share
from vsam.lab.errors import DataError, RunError, UserError
from vsam.lab.ranks import ALONE


def _raise(kind):
    raise kind("the folder is full")


def _error(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _share(ranks):
    weight = torch.tensor(3.0, requires_grad=True)
    rows = torch.arange(5.0)[share(5, ranks.rank, 2)]
    gathered = ranks.gather(weight * rows, 5)
    (gathered**2).mean().backward()
    part = ranks.own_part(torch.tensor([0, 1, 3, 4]), 5)
    kept = ranks.gather(rows[part[0]], 4, part[1])
    before = torch.rand(1)
    ranks.seed(7, 1)
    first = torch.rand(1)
    ranks.seed(7, 1)
    stops = [ranks.should_stop()]
    ranks.stop_wanted = not ranks.is_first
    return {
        "gathered": gathered.detach(),
        "half": ranks.gather(rows.bfloat16(), 5),
        "gradient": weight.grad,
        "kept": kept,
        "told": ranks.from_first(lambda: {"rank": ranks.rank}),
        "errors": [
            _error(ranks.from_first, lambda kind=kind: _raise(kind)) for kind in (UserError, DataError, OSError)
        ],
        "equal": _error(ranks.check_equal, [torch.ones(3), torch.zeros(())], "weights"),
        "unequal": _error(ranks.check_equal, [torch.ones(3), torch.full((), 1e-30 * ranks.rank)], "weights"),
        "draws": [before, first, torch.rand(1)],
        "stops": [*stops, ranks.should_stop()],
    }


@pytest.mark.slow
def test_two_processes_share_what_they_must(tmp_path):
    found = on_ranks(2, _share, tmp_path)
    for one in found:
        assert one["gathered"].tolist() == [0, 3, 6, 9, 12]
        assert one["half"].tolist() == [0, 1, 2, 3, 4]
        assert one["half"].dtype == torch.bfloat16
        assert one["kept"].tolist() == [0, 1, 3, 4]
        assert one["told"] == {"rank": 0}
        assert one["equal"] is None
        assert one["unequal"].startswith("RunError: The processes no longer have the same weights.")
        assert one["stops"] == [False, True]
    # The average of both is the gradient of one process: 2 · 3 · (0 + 1 + 4 + 9 + 16) / 5.
    assert sum(float(one["gradient"]) for one in found) / 2 == pytest.approx(36)
    full = "the folder is full"
    assert found[0]["errors"] == [f"UserError: {full}", f"DataError: {full}", f"OSError: {full}"]
    assert found[1]["errors"] == [f"UserError: {full}", f"DataError: {full}", f"RunError: {full}"]
    # The first process goes on with its own generator; that of the other depends on the numbers alone.
    assert len({float(draw) for draw in found[0]["draws"]}) == 3
    assert found[1]["draws"][1] == found[1]["draws"][2]
    assert not any(draw == found[1]["draws"][1] for draw in found[0]["draws"])


def test_a_process_alone_sends_nothing():
    values = torch.ones(3, requires_grad=True)
    assert ALONE.gather(values, 3) is values
    assert ALONE.from_first(lambda: 7) == 7
    assert not ALONE.should_stop()
    ALONE.check_equal([values], "weights")
    with pytest.raises(RunError):
        ALONE.from_first(lambda: _raise(RunError))
    state = torch.get_rng_state()
    ALONE.seed(1)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(("count", "size"), [(5, 2), (1, 2), (128, 3), (0, 4)])
def test_parts_follow_each_other_and_differ_by_one_at_most(count, size):
    parts = [range(count)[share(count, rank, size)] for rank in range(size)]
    assert [place for part in parts for place in part] == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
