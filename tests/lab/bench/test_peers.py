"""Peers are run as they are meant: two passes, and SAM's own gradient where it is SAM."""

import copy

import pytest
import torch

from lab.bench.made import TINY, entry
from vsam.lab.bench.bases import BASES, Base
from vsam.lab.bench.counts import count_calls
from vsam.lab.bench.peers import PEERS

pytest.importorskip("pytorch_optimizer")


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
@pytest.mark.parametrize("base", BASES)
def test_two_passes_per_step(peer, base: str) -> None:
    if peer.refuses_fused and BASES[base].is_fused:
        pytest.skip("refused")
    contestant = peer.make(TINY.build(), peer.base_of(BASES[base]))
    for _ in range(2):
        assert count_calls(contestant.step)["backward pass"] == 2


def test_looksam_renews_its_direction_every_fifth_step() -> None:
    contestant = entry("peer-looksam").make(TINY.build(), BASES["sgd"])
    seen = []
    for _ in range(11):
        before = contestant.num_sampled
        contestant.step()
        seen.append(contestant.num_sampled > before)
        assert ("gv" in next(iter(contestant.optimizer.state.values()))) is True
    assert [number for number, sampled in enumerate(seen) if sampled] == [0, 5, 10]


def test_sam_is_the_same_method_as_ours() -> None:
    fast = Base("fast", torch.optim.SGD, {"lr": 0.1, "momentum": 0.9})
    ours, *peers = (
        entry(name).make(TINY.build(), entry(name).base_of(fast)) for name in ("sam", "peer-sam", "peer-sam-foreach")
    )
    start = copy.deepcopy(ours.problem.model)
    for contestant in (ours, *peers):
        for _ in range(3):
            contestant.step()
    expected = list(ours.problem.model.parameters())
    assert not torch.equal(expected[0], next(start.parameters()))
    for peer in peers:
        torch.testing.assert_close(list(peer.problem.model.parameters()), expected)
