"""The ring of logits: which epoch is recalled, what counts as written, and how large it may be."""

import logging
import os

import pytest
import torch

from vsam.trajectory import LogitMemory, SAFLoss


def rows(*values):
    return torch.tensor(values, dtype=torch.float32)[:, None].expand(-1, 2).contiguous()


def test_recalls_exactly_the_epoch_of_the_lag():
    memory = LogitMemory(num_examples=3, num_classes=2, lag=2)
    everyone = torch.arange(3)
    for epoch in range(7):
        old, known = memory.recall(everyone, epoch)
        assert known.tolist() == [epoch >= 2] * 3
        if epoch >= 2:
            assert torch.equal(old, rows(*(10.0 * (epoch - 2) + i for i in range(3))))
        memory.record(rows(*(10.0 * epoch + i for i in range(3))), everyone, epoch)


def test_a_sample_left_out_in_that_epoch_is_unknown():
    memory = LogitMemory(num_examples=3, num_classes=2, lag=1)
    memory.record(rows(1, 2, 3), torch.arange(3), epoch=0)
    memory.record(rows(4, 5), torch.tensor([0, 2]), epoch=2)
    _, known = memory.recall(torch.arange(3), epoch=3)
    assert known.tolist() == [True, False, True]


def test_nothing_is_known_before_the_first_epoch():
    memory = LogitMemory(num_examples=2, num_classes=2, lag=5)
    for epoch in range(5):
        assert not memory.recall(torch.arange(2), epoch)[1].any()


def test_the_first_write_of_an_epoch_counts():
    memory = LogitMemory(num_examples=2, num_classes=2, lag=1)
    memory.record(rows(1), torch.tensor([0]), epoch=0)
    memory.record(rows(8, 9), torch.tensor([0, 1]), epoch=0)
    assert torch.equal(memory.recall(torch.arange(2), epoch=1)[0], rows(1, 9))


def test_of_equal_indices_in_a_batch_the_first_counts():
    memory = LogitMemory(num_examples=1000, num_classes=2, lag=1)
    generator = torch.Generator().manual_seed(0)
    indices = torch.randint(1000, (20_000,), generator=generator)
    memory.record(rows(*range(20_000)), indices, epoch=0)
    firsts = {}
    for position, index in enumerate(indices.tolist()):
        firsts.setdefault(index, position)
    old, known = memory.recall(indices, epoch=1)
    assert known.all()
    assert old[:, 0].tolist() == [firsts[index] for index in indices.tolist()]


def test_logits_that_are_not_finite_are_unknown():
    memory = LogitMemory(num_examples=2, num_classes=2, lag=1)
    memory.record(torch.tensor([[1.0, float("inf")], [1.0, 2.0]]), torch.arange(2), epoch=0)
    old, known = memory.recall(torch.arange(2), epoch=1)
    assert known.tolist() == [False, True]
    assert old.isfinite().all()


def test_size_is_exact_and_announced(caplog):
    with caplog.at_level(logging.INFO, logger="vsam.trajectory.memory"):
        saf = SAFLoss(num_examples=50_000, num_classes=100, lag=3)
    state = saf.state_dict().values()
    assert saf.memory_bytes == 50_000 * 4 * (100 + 1) * 4
    assert saf.memory_bytes == sum(tensor.numel() * tensor.element_size() for tensor in state)
    assert "50000 examples over 4 epochs: 80.8 MB on cpu" in caplog.text


def test_what_does_not_fit_is_refused_before_it_is_allocated():
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with pytest.raises(RuntimeError, match=r"needs [\d,.]+ MB, but cpu has .* MESALoss"):
        SAFLoss(num_examples=physical // 1000, num_classes=1000)


def test_what_does_not_fit_is_refused_when_it_is_moved():
    with torch.device("meta"):
        saf = SAFLoss(num_examples=10**10, num_classes=1000)
    with pytest.raises(RuntimeError, match="but cpu has"):
        saf.to_empty(device="cpu")
    with torch.device("meta"):
        small = SAFLoss(num_examples=10, num_classes=3)
    assert small.to_empty(device="cpu").memory.logits.device.type == "cpu"
