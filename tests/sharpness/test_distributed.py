"""A DDP module measures the batches of all ranks."""

from pathlib import Path

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from curved_net import batches, loss, net
from processes import assert_checks_pass
from vsam.sharpness import measure, radius
from vsam.sharpness.measurement import PARTS


def check_the_ranks_find_what_one_process_finds(rank: int, folder: Path) -> None:
    model, given = net(), batches((8, 4, 3))
    expected = measure(model, loss, given, what=PARTS, max_iterations=10)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    wrapped = DistributedDataParallel(model)
    found = measure(wrapped, loss, given[:1] if rank == 0 else given[1:], what=PARTS, max_iterations=10)
    assert (found.num_samples, found.num_batches) == (15, 3)
    assert found.top_eigenvalues is not None
    assert expected.top_eigenvalues is not None
    torch.testing.assert_close(found.top_eigenvalues.values, expected.top_eigenvalues.values)
    for part in ("trace", "ascent", "batch_ascent", "worst", "random"):
        one, other = getattr(found, part), getattr(expected, part)
        assert (one.value, one.error) == pytest.approx((other.value, other.error), rel=1e-6), part
    rises = [radius(wrapped, loss, given[:1] if rank == 0 else given[1:]), radius(model, loss, given)]
    assert rises[0] == pytest.approx(rises[1], rel=1e-9)
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
    loss(wrapped, given[rank]).backward()  # and DDP still trains


@pytest.mark.slow
def test_two_processes(tmp_path: Path) -> None:
    assert_checks_pass(__file__, tmp_path)
