"""SAF and MESA under every kind of optimizer keep the promises that apply to a loss."""

import copy
import itertools
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from contract_table import assert_same, set_generators
from trajectory.training import KINDS, LAG, LENGTH, OPTIMIZERS, PLAIN, Training
from vsam.trajectory import MESALoss, SAFLoss

every_kind = pytest.mark.parametrize("kind", KINDS)
every_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS)


@every_kind
@every_optimizer
def test_up_to_the_start_epoch_it_is_plain_training_bit_for_bit(kind: str, optimizer: str) -> None:
    run, plain = Training(kind, optimizer).go(last=PLAIN), Training("plain", optimizer).go(last=PLAIN)
    everything = run.everything()
    del everything["objective"]
    assert_same(everything, plain.everything())
    set_generators(everything["generators"])
    run.go(PLAIN, PLAIN + 3)
    set_generators(everything["generators"])
    plain.go(PLAIN, PLAIN + 3)
    assert not torch.equal(run.model[5].weight, plain.model[5].weight)


@every_kind
@every_optimizer
def test_saved_in_mid_epoch_and_loaded_it_goes_on_bit_for_bit(kind: str, optimizer: str) -> None:
    straight, saved = Training(kind, optimizer), []
    for number in range(LENGTH):
        if number in (PLAIN - 2, PLAIN + 7):
            saved.append((number, straight.save()))
        straight.step(number)
    expected = straight.everything()
    for number, entries in saved:
        assert_same(Training(kind, optimizer).load(entries).go(first=number).everything(), expected)


WAYS: dict[str, Callable] = {"deepcopy": copy.deepcopy, "pickle": lambda run: pickle.loads(pickle.dumps(run))}


@every_kind
@pytest.mark.parametrize("optimizer", ["adamw", "sam", "vsam", "vsam-fused"])
@pytest.mark.parametrize("way", WAYS)
def test_a_copy_goes_on_identically_and_independently(kind: str, optimizer: str, way: str) -> None:
    original = Training(kind, optimizer).go(last=PLAIN + 4)
    before, twin = original.everything(), Training(kind, optimizer)
    twin.model, twin.optimizer, twin.objective = WAYS[way]((original.model, original.optimizer, original.objective))
    set_generators(before["generators"])
    twin.go(first=PLAIN + 4)
    set_generators(before["generators"])
    assert_same(original.everything(), before)
    original.go(first=PLAIN + 4)
    assert_same(twin.everything(), original.everything())


@every_kind
@every_optimizer
def test_the_base_steps_from_the_weights_that_the_step_began_with(kind: str, optimizer: str) -> None:
    run, found = Training(kind, optimizer), []
    base = getattr(run.optimizer, "base", run.optimizer)
    base.register_step_pre_hook(lambda *_: found.append(_weights(run)))
    for number in range(PLAIN + 6):
        before = _weights(run)
        run.step(number)
        assert_same(found[-1], before)


def _weights(run: Training) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in run.model.parameters()]


@every_kind
@every_optimizer
def test_batches_are_counted_once_a_step(kind: str, optimizer: str) -> None:
    """Neither a second pass nor the teacher's leaves a trace in the statistics."""
    assert int(Training(kind, optimizer).go().model[2].num_batches_tracked) == LENGTH


@pytest.mark.parametrize("optimizer", ["sgd", "sam", "vsam", "looksam-5-lion"])
def test_the_memory_holds_the_logits_of_first_passes(optimizer: str) -> None:
    run, seen = Training("saf", optimizer), []
    assert isinstance(run.objective, SAFLoss)
    run.model.register_forward_hook(lambda module, inputs, output: seen.append(output.detach()))
    for number in range(LENGTH):
        seen.clear()
        run.step(number)
        slot = number // 3 % (LAG + 1)
        order = torch.randperm(24, generator=torch.Generator().manual_seed(number // 3))
        assert torch.equal(run.objective.memory.logits[slot, order.chunk(3)[number % 3]], seen[0])


@pytest.mark.parametrize("optimizer", ["sgd", "sam", "vsam", "looksam-5-lion"])
def test_the_teacher_follows_the_weights_that_the_steps_end_with(optimizer: str) -> None:
    run = Training("mesa", optimizer)
    assert isinstance(run.objective, MESALoss)
    averages = _weights(run)
    for number in range(LENGTH):
        run.step(number)
        averages = [0.8 * a + 0.2 * w for a, w in zip(averages, _weights(run), strict=True)]
    for average, parameter in zip(averages, run.objective.teacher.parameters(), strict=True):
        torch.testing.assert_close(parameter.detach(), average)


class _Failure(Exception):
    pass


@every_kind
@pytest.mark.parametrize("optimizer", ["sam", "vsam"])
@pytest.mark.parametrize("at_pass", [1, 2])
def test_a_step_that_failed_and_is_repeated_leaves_no_trace(kind: str, optimizer: str, at_pass: int) -> None:
    undisturbed = Training(kind, optimizer).go().everything()
    run, num_failures = Training(kind, optimizer), 0
    for number in range(LENGTH):
        passes = itertools.count(1)

        def fail(gradient: Tensor, passes=passes) -> None:
            if next(passes) == at_pass:
                raise _Failure

        handle = run.model[1].weight.register_hook(fail)
        try:
            run.step(number)
        except _Failure:
            num_failures += 1
            handle.remove()
            run.step(number)
        handle.remove()
    assert num_failures >= PLAIN
    assert_same(run.everything(), undisturbed)
