"""MESA: an EMA teacher that owns nothing of the model and resumes exactly, and a slow reference of the loss."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vsam.quantize import quantize
from vsam.trajectory import MESALoss

NUM_CLASSES = 4


def network(dtype=torch.float32):
    torch.manual_seed(1)
    layers = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, NUM_CLASSES)
    return nn.Sequential(*layers).to(dtype)


def batch(step, dtype=torch.float32):
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(8, 6, generator=generator).to(dtype)
    return inputs, torch.randint(NUM_CLASSES, (8,), generator=generator)


def train(model, criterion, steps, update=lambda: None, dtype=torch.float32):
    """The losses of training with `criterion(logits, labels, inputs, epoch)`, four steps an epoch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    losses = []
    for step in steps:
        torch.manual_seed(1000 + step)
        inputs, labels = batch(step, dtype)
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels, inputs, step // 4)
        loss.backward()
        optimizer.step()
        update()
        losses.append(loss.item())
    return losses


def is_equal(first, second):
    return all(torch.equal(a, b) for a, b in zip(first.values(), second.values(), strict=True))


def test_training_equals_a_float64_twin_written_out():
    dtype, decay, temperature, weight = torch.float64, 0.9, 5.0, 0.8
    model, slow_model = network(dtype), network(dtype)
    mesa = MESALoss(model, decay, temperature, weight, start_epoch=1)
    losses = train(model, mesa, range(24), mesa.update, dtype)

    averages = {name: value.clone() for name, value in slow_model.state_dict().items()}

    def follow():
        for name, value in slow_model.state_dict().items():
            if value.is_floating_point():
                averages[name] = decay * averages[name] + (1 - decay) * value
            else:
                averages[name] = value.clone()

    def criterion(logits, labels, inputs, epoch):
        loss = -logits.log_softmax(1)[range(8), labels].mean()
        if epoch <= 1:
            return loss
        teacher = network(dtype).eval()
        teacher.load_state_dict(averages)
        old = (teacher(inputs).detach() / temperature).softmax(1)
        new = (logits / temperature).softmax(1)
        return loss + weight * temperature**2 * (old * (old / new).log()).sum() / 8

    assert losses == pytest.approx(train(slow_model, criterion, range(24), follow, dtype), rel=1e-9)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_plain_training_up_to_the_start_epoch_bit_for_bit(smoothing):
    model = network()
    mesa = MESALoss(model, decay=0.5, start_epoch=2, label_smoothing=smoothing)
    losses = train(model, mesa, range(16), mesa.update)
    plain = train(network(), lambda z, y, *_: F.cross_entropy(z, y, label_smoothing=smoothing), range(16))
    assert losses[:12] == plain[:12]
    assert losses[12] != plain[12]


def test_the_teacher_follows_weights_and_statistics_from_the_first_step_and_copies_counters():
    model = network()
    mesa = MESALoss(model, decay=0.75)
    start = copy.deepcopy(model.state_dict())
    train(model, mesa, range(1), mesa.update)
    for name, value in mesa.teacher.state_dict().items():
        latest = model.state_dict()[name]
        if value.is_floating_point():
            assert name == "0.bias" or not torch.equal(latest, start[name])  # normalised away: no gradient
            torch.testing.assert_close(value, 0.75 * start[name] + 0.25 * latest)
        else:
            assert torch.equal(value, latest)
            assert value == 1


def test_the_model_is_neither_trained_nor_saved_here():
    model = network()
    mesa = MESALoss(model)
    assert not any(parameter.requires_grad for parameter in mesa.parameters())
    assert {id(p) for p in mesa.parameters()}.isdisjoint({id(p) for p in model.parameters()})
    assert set(mesa.state_dict()) == {f"teacher.{name}" for name in model.state_dict()}
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_teacher_stays_in_eval_mode_and_leaves_the_model_in_training():
    model = network()
    mesa = MESALoss(model).train()
    assert model.training
    assert not any(module.training for module in mesa.teacher.modules())
    mesa.eval()
    assert model.training


def test_the_gradient_flows_through_the_logits_only():
    model = network()
    mesa = MESALoss(model, start_epoch=-1)
    train(model, mesa, range(2), mesa.update)
    inputs, labels = batch(2)
    inputs.requires_grad_()
    logits, seen = torch.randn(8, NUM_CLASSES, requires_grad=True), []
    mesa.teacher.register_forward_hook(lambda *_: seen.append(torch.is_grad_enabled()))
    mesa(logits, labels, inputs, 0).backward()
    assert logits.grad is not None
    assert inputs.grad is None
    assert seen == [False]  # or the teacher's pass would keep its activations


class Uncopyable:
    """An object that a hook may refer to and that must not be copied."""

    def __init__(self):
        self.calls = 0

    def count(self, *_):
        self.calls += 1

    def __deepcopy__(self, memo):
        raise AssertionError("a hook was copied")


def test_the_teacher_has_no_hooks_and_the_model_keeps_its_own():
    model, outer = network(), Uncopyable()
    model.register_forward_pre_hook(outer.count)
    model[0].register_forward_hook(outer.count)
    model[1].register_forward_hook(outer.count, always_call=True)
    model[4].register_full_backward_hook(outer.count)
    mesa = MESALoss(model, start_epoch=-1)
    mesa.teacher(batch(0)[0])
    assert outer.calls == 0
    train(model, mesa, range(1), mesa.update)
    assert outer.calls == 4


def test_saved_and_resumed_bit_for_bit():
    model = network()
    mesa = MESALoss(model, decay=0.9, start_epoch=0)
    train(model, mesa, range(6), mesa.update)
    file = io.BytesIO()
    torch.save((model.state_dict(), mesa.state_dict()), file)
    file.seek(0)
    train(model, mesa, range(6, 16), mesa.update)

    states = torch.load(file, weights_only=True)
    resumed = network()
    teacher = MESALoss(resumed, decay=0.9, start_epoch=0)
    resumed.load_state_dict(states[0])
    teacher.load_state_dict(states[1])
    train(resumed, teacher, range(6, 16), teacher.update)
    assert is_equal(resumed.state_dict(), model.state_dict())
    assert is_equal(teacher.state_dict(), mesa.state_dict())


def test_evaluation_is_plain_without_a_pass_of_the_teacher():
    model = network()
    mesa = MESALoss(model, start_epoch=-1).eval()
    _, labels = batch(0)
    logits = torch.randn(8, NUM_CLASSES)
    assert torch.equal(mesa(logits, labels, None, 7), F.cross_entropy(logits, labels))


def test_under_autocast_the_loss_is_float32_and_close():
    model = network()
    mesa = MESALoss(model, decay=0.9, start_epoch=-1)
    train(model, mesa, range(6), mesa.update)
    model.eval()
    inputs, labels = batch(9)
    exact = mesa(model(inputs), labels, inputs, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = mesa(model(inputs), labels, inputs, 1)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=2e-2)


@pytest.mark.parametrize("start_epoch", [-1, 0])
def test_the_teacher_of_a_quantized_model_copies_the_steps_of_the_first_batch(start_epoch):
    """Before it there is nothing to average with. From then on they are averaged like all others."""
    model = quantize(network(), first_last_bits=4)
    mesa = MESALoss(model, decay=0.9, start_epoch=start_epoch)
    train(model, mesa, range(1), mesa.update)
    for layer, follower in ((model[0], mesa.teacher[0]), (model[4], mesa.teacher[4])):
        assert follower.initialised
        assert follower.activation_step.item() == pytest.approx(layer.activation_step.item(), rel=1e-2)
    before = mesa.teacher[4].activation_step.clone()
    train(model, mesa, range(1, 2), mesa.update)
    expected = 0.9 * before + 0.1 * model[4].activation_step
    torch.testing.assert_close(mesa.teacher[4].activation_step, expected.detach())
    train(model, mesa, range(2, 8), mesa.update)


def test_tied_weights_stay_tied_in_the_teacher():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    mesa = MESALoss(model)
    assert mesa.teacher[1].weight is mesa.teacher[0].weight
    mesa.update()


def test_a_copy_of_both_follows_the_copied_model():
    model, mesa = copy.deepcopy((model := network(), MESALoss(model, decay=0.0)))
    with torch.no_grad():
        model[0].weight.fill_(7.0)
    mesa.update()
    assert (mesa.teacher[0].weight == 7.0).all()


def test_models_that_cannot_have_a_teacher_are_refused():
    with pytest.raises(ValueError, match=r"got torch.bfloat16 in 0.weight"):
        MESALoss(network(torch.bfloat16))
    model = nn.Sequential(nn.Linear(3, 3))
    mesa = MESALoss(model)
    model.append(nn.Linear(3, 3))
    with pytest.raises(RuntimeError, match="changed after MESALoss was constructed"):
        mesa.update()
    recurrent = MESALoss(nn.LSTM(6, 4), start_epoch=-1)
    with pytest.raises(ValueError, match="as a tensor, got tuple"):
        recurrent(torch.zeros(8, 4), batch(0)[1], torch.zeros(8, 6), 0)
