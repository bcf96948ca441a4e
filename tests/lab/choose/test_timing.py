"""Steps are timed in turns, at rest: the weights stay where they are."""

import pytest
import torch

from lab.helpers import CPU, quick_recipe
from lab.subject.files import write
from vsam.lab.choose.timing import FEWEST_ROUNDS, time_passes
from vsam.lab.errors import RunError
from vsam.lab.subject import read_file, read_recipe_subject


def test_a_sampled_step_takes_two_passes_and_nothing_is_trained(tmp_path, monkeypatch):
    subject = read_file(write(tmp_path))
    loss, passes = subject.loss, []

    def counted(batch):
        passes.append(1)
        return loss(batch)

    subject.loss = counted
    monkeypatch.setattr("vsam.lab.choose.timing.time.perf_counter", lambda: len(passes))  # a clock that counts passes
    before, spent = [one.detach().clone() for one in subject.parameters], []
    times = time_passes(subject, 0.2, spent.append)
    assert (times.base, times.forward) == (1, 1)
    assert (times.sampled, times.plain) == (2, 1)
    assert (times.sampled_with_memory, times.plain_with_memory) == (2, 1)
    assert times.rounds == len(spent) >= FEWEST_ROUNDS
    assert 0 < max(spent) <= 0.2
    assert all(torch.equal(one, old) for one, old in zip(subject.parameters, before, strict=True))
    assert subject.base.param_groups[0]["lr"] == 0.01
    assert all(one.grad is None for one in subject.parameters)


def test_a_recipe_is_timed_with_its_own_base():
    subject = read_recipe_subject(quick_recipe("optimizer=adamw", "lr=0.002"), None, CPU)
    assert subject.base_code == "base = torch.optim.AdamW(model.parameters(), lr=0.002, weight_decay=0.001)"
    assert subject.total_steps == "12"
    assert time_passes(subject, 0.01).rounds == FEWEST_ROUNDS


def test_steps_that_are_skipped_are_not_timed(tmp_path):
    subject = read_file(write(tmp_path, ("targets)", "targets) * float('nan')")))
    with (
        pytest.warns(RuntimeWarning, match="not finite"),
        pytest.raises(RunError, match=r"a gradient was not finite.* Run vsam doctor"),
    ):
        time_passes(subject, 0.01)
