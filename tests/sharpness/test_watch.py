"""A listener that measures while a run trains."""

from typing import Any

import pytest
import torch
from torch import Tensor

import vsam
from curved_net import batches, loss, net
from vsam.sharpness import Watch, measure


def train(every: int | None) -> tuple[Tensor, Any, list[float]]:
    model, given = net(), batches()
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.5), model=model)
    watch = Watch(model, loss, given, every=every or 1, rho=0.1)
    if every is not None:
        optimizer.subscribe(watch)
    tops = []
    for step in range(1, 7):

        def closure(batch: Any = given[step % 3]) -> Tensor:
            value = loss(model, batch)
            value.backward()
            return value

        optimizer.step(closure)
        found = measure(model, loss, given, what="top_eigenvalues").top_eigenvalues
        assert found is not None
        tops.append(found[0].value)
    return model[0].weight.detach(), watch, tops


def test_it_records_every_so_many_steps_what_measure_finds_after_them() -> None:
    _, watch, tops = train(every=2)
    assert [record.step for record in watch.records] == [2, 4, 6]
    assert [record.top_eigenvalue.value for record in watch.records] == pytest.approx([tops[1], tops[3], tops[5]])
    assert all(record.ascent.value > 0 for record in watch.records)
    assert watch.records[-1].loss < watch.records[0].loss


def test_the_run_is_the_same_as_without_it() -> None:
    assert torch.equal(train(every=1)[0], train(every=None)[0])


def test_settings_that_cannot_be_are_explained_at_once() -> None:
    with pytest.raises(ValueError, match="every must be at least 1"):
        Watch(net(), loss, batches(), every=0)
    with pytest.raises(ValueError, match=r"write list\(batches\)"):
        Watch(net(), loss, iter(batches()))
    with pytest.raises(ValueError, match="rho must not be negative"):
        Watch(net(), loss, batches(), rho=-1)
    with pytest.raises(TypeError, match="max_iteration"):
        Watch(net(), loss, batches(), max_iteration=3)
