"""The trajectory loss against a float64 twin written out, and its gradient in closed form."""

import math

import pytest
import torch

from vsam.trajectory import MESALoss, SAFLoss, trajectory_loss


def twin(logits, old, temperature, known):
    """Sum by sum, class by class, in Python's own float64."""

    def softmax(row):
        exponentials = [math.exp(z / temperature - max(row) / temperature) for z in row]
        return [e / sum(exponentials) for e in exponentials]

    total = 0.0
    for row, old_row, is_known in zip(logits.tolist(), old.tolist(), known, strict=True):
        pairs = zip(softmax(old_row), softmax(row), strict=True)
        total += sum(p * math.log(p / q) for p, q in pairs) if is_known else 0.0
    return temperature**2 * total / len(logits)


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    logits, old = (6 * torch.randn(7, 5, dtype=torch.float64, generator=generator) for _ in range(2))
    return logits.requires_grad_(), old


@pytest.mark.parametrize("temperature", [1.0, 5.0])
def test_value_equals_the_twin(batch, temperature):
    logits, old = batch
    known = [True, False, True, True, False, True, True]
    loss = trajectory_loss(logits, old, temperature, torch.tensor(known))
    assert loss.item() == pytest.approx(twin(logits, old, temperature, known), rel=1e-12)
    everyone = trajectory_loss(logits, old, temperature)
    assert everyone.item() == pytest.approx(twin(logits, old, temperature, [True] * 7), rel=1e-12)


def test_gradient_equals_the_closed_form_and_ignores_the_unknown(batch):
    logits, old = batch
    known = torch.tensor([True, False, True, True, True, True, True])
    trajectory_loss(logits, old.requires_grad_(), 5.0, known).backward()
    expected = 5.0 * ((logits / 5).softmax(1) - (old / 5).softmax(1)) / 7 * known[:, None]
    torch.testing.assert_close(logits.grad, expected.detach(), rtol=1e-12, atol=1e-15)
    assert old.grad is None


def test_gradient_equals_finite_differences(batch):
    logits, old = batch
    assert torch.autograd.gradcheck(lambda z: trajectory_loss(z, old, 5.0), logits)


def test_low_precision_logits_are_compared_in_float32(batch):
    logits, old = (tensor.detach().bfloat16() for tensor in batch)
    loss = trajectory_loss(logits, old, 5.0)
    assert loss.dtype == torch.float32
    exact = trajectory_loss(logits.double(), old.double(), 5.0)
    torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=0)


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match="same shape"):
        trajectory_loss(torch.zeros(4, 3), torch.zeros(1, 3), 5.0)
    with pytest.raises(ValueError, match="must be a matrix"):
        trajectory_loss(torch.zeros(4), torch.zeros(4), 5.0)


def test_without_a_weight_it_is_the_plain_loss_bit_for_bit():
    model, labels, indices = torch.nn.Linear(6, 5), torch.tensor([0, 3, 1]), torch.arange(3)
    saf, mesa = SAFLoss(3, 5, lag=1, weight=0.0, start_epoch=-1), MESALoss(model, weight=0.0, start_epoch=-1)
    for epoch in range(3):
        inputs = torch.randn(3, 6)
        losses = (
            torch.nn.functional.cross_entropy(model(inputs), labels),
            saf(model(inputs), labels, indices, epoch),
            mesa(model(inputs), labels, inputs, epoch),
        )
        assert losses[0] == losses[1] == losses[2]
        gradients = [torch.autograd.grad(loss, model.weight)[0] for loss in losses]
        assert torch.equal(gradients[1], gradients[0])
        assert torch.equal(gradients[2], gradients[0])


def test_the_defaults_are_the_published_ones():
    saf, mesa = SAFLoss(4, 3), MESALoss(torch.nn.Linear(2, 3))
    assert (saf.memory.lag, saf.temperature, saf.weight, saf.start_epoch, saf.label_smoothing) == (3, 5.0, 0.3, 5, 0.0)
    assert len(saf.memory.logits) == 4
    assert (mesa.decay, mesa.temperature, mesa.weight) == (0.9995, 5.0, 0.8)
    assert (mesa.start_epoch, mesa.label_smoothing) == (5, 0.0)


@pytest.mark.parametrize("epoch", [-1, 1.0, True, None, "2", math.nan])
def test_an_epoch_is_a_whole_number_from_zero(epoch):
    saf = SAFLoss(4, 3)
    with pytest.raises(ValueError, match=f"^epoch must be (at least 0|an integer), got {epoch!r}"):
        saf(torch.zeros(1, 3), torch.tensor([0]), torch.tensor([0]), epoch)
