"""SAF: plain at first, then a slow reference's loss. It is recorded once, resumes exactly, and checks indices."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vsam.trajectory import SAFLoss

NUM_EXAMPLES, NUM_CLASSES = 24, 4


def data(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(NUM_EXAMPLES, 6, generator=generator).to(dtype)
    return inputs, torch.randint(NUM_CLASSES, (NUM_EXAMPLES,), generator=generator)


def network(dtype=torch.float32):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, NUM_CLASSES)).to(dtype)


def batches(epoch, size=7):
    """A shuffled epoch without its last samples, so that some are left out each time."""
    order = torch.randperm(NUM_EXAMPLES, generator=torch.Generator().manual_seed(100 + epoch))
    return [order[start : start + size] for start in range(0, NUM_EXAMPLES - size + 1, size)]


def train(model, criterion, epochs, dtype=torch.float32):
    """The losses of plain gradient descent with `criterion(logits, labels, indices, epoch)`."""
    inputs, labels = data(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    losses = []
    for epoch in epochs:
        for indices in batches(epoch):
            optimizer.zero_grad()
            loss = criterion(model(inputs[indices]), labels[indices], indices, epoch)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


class Twin:
    """SAF with a dictionary for a memory and loops for sums."""

    def __init__(self, lag, temperature, weight, start_epoch, smoothing):
        self.seen = {}
        self.settings = lag, temperature, weight, start_epoch, smoothing

    def __call__(self, logits, labels, indices, epoch):
        lag, temperature, weight, start_epoch, smoothing = self.settings
        total = 0
        for row, label, index in zip(logits, labels, indices.tolist(), strict=True):
            log_probabilities = row - row.exp().sum().log()
            target = torch.full_like(row, smoothing / len(row))
            target[label] += 1 - smoothing
            total = total - (target * log_probabilities).sum()
            old = self.seen.get((epoch - lag, index))
            if epoch > start_epoch and old is not None:
                old = (old / temperature).exp() / (old / temperature).exp().sum()
                new = (row / temperature).exp() / (row / temperature).exp().sum()
                total = total + weight * temperature**2 * (old * (old / new).log()).sum()
            self.seen[epoch, index] = row.detach().clone()
        return total / len(logits)


@pytest.mark.parametrize(("lag", "start_epoch"), [(3, 5), (1, -1), (4, 1)])
def test_training_equals_a_slow_float64_twin(lag, start_epoch):
    saf = SAFLoss(NUM_EXAMPLES, NUM_CLASSES, lag, 5.0, 0.3, start_epoch, label_smoothing=0.1).double()
    model, slow_model = network(torch.float64), network(torch.float64)
    losses = train(model, saf, range(12), torch.float64)
    slow = train(slow_model, Twin(lag, 5.0, 0.3, start_epoch, 0.1), range(12), torch.float64)
    assert losses == pytest.approx(slow, rel=1e-9)
    plain = train(network(torch.float64), Twin(lag, 5.0, 0.0, start_epoch, 0.1), range(12), torch.float64)
    assert losses[-1] != pytest.approx(plain[-1], rel=1e-3)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_plain_training_up_to_the_start_epoch_bit_for_bit(smoothing):
    saf = SAFLoss(NUM_EXAMPLES, NUM_CLASSES, lag=2, start_epoch=4, label_smoothing=smoothing)
    model, plain_model = network(), network()
    losses = train(model, saf, range(6))
    plain = train(plain_model, lambda z, y, *_: F.cross_entropy(z, y, label_smoothing=smoothing), range(6))
    steps = len(batches(0))
    assert losses[: 5 * steps] == plain[: 5 * steps]
    assert losses[5 * steps] != plain[5 * steps]


def test_the_memory_comes_from_the_first_of_two_passes():
    saf = SAFLoss(NUM_EXAMPLES, NUM_CLASSES, lag=1, start_epoch=0)
    labels, indices = torch.tensor([0, 1]), torch.tensor([5, 3])
    clean, perturbed = torch.randn(2, 2, NUM_CLASSES)
    saf(clean, labels, indices, 0)
    saf(perturbed, labels, indices, 0)
    old, known = saf.memory.recall(indices, 1)
    assert known.all()
    assert torch.equal(old, clean)


def test_evaluation_is_plain_and_leaves_no_trace():
    saf = SAFLoss(NUM_EXAMPLES, NUM_CLASSES, lag=1, start_epoch=0)
    labels, indices = torch.tensor([0, 1]), torch.tensor([5, 3])
    logits = torch.randn(2, NUM_CLASSES)
    saf(torch.randn(2, NUM_CLASSES), labels, indices, 0)
    before = copy.deepcopy(saf.state_dict())
    saf.eval()
    for given in (None, indices):
        assert torch.equal(saf(logits, labels, given, 1), F.cross_entropy(logits, labels))
    saf.train()
    with torch.no_grad():
        assert saf(logits, labels, indices, 1) > F.cross_entropy(logits, labels)
    assert all(torch.equal(value, before[name]) for name, value in saf.state_dict().items())


def test_saved_in_mid_epoch_and_resumed_bit_for_bit():
    def run(saves_at):
        model, saf = network(), SAFLoss(NUM_EXAMPLES, NUM_CLASSES, lag=2, start_epoch=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        inputs, labels = data()
        step = 0
        for epoch in range(6):
            for indices in batches(epoch):
                if step == saves_at:
                    file = io.BytesIO()
                    torch.save((model.state_dict(), saf.state_dict()), file)
                    file.seek(0)
                    model, saf = network(), SAFLoss(NUM_EXAMPLES, NUM_CLASSES, lag=2, start_epoch=1)
                    states = torch.load(file, weights_only=True)
                    model.load_state_dict(states[0])
                    saf.load_state_dict(states[1])
                    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
                optimizer.zero_grad()
                saf(model(inputs[indices]), labels[indices], indices, epoch).backward()
                optimizer.step()
                step += 1
        return [*model.state_dict().values(), *saf.state_dict().values()]

    expected, resumed = run(saves_at=None), run(saves_at=3 * 4 + 2)
    assert all(torch.equal(a, b) for a, b in zip(expected, resumed, strict=True))


def test_a_memory_of_other_sizes_is_not_loaded():
    with pytest.raises(RuntimeError, match="size mismatch"):
        SAFLoss(NUM_EXAMPLES, NUM_CLASSES, lag=2).load_state_dict(SAFLoss(NUM_EXAMPLES, NUM_CLASSES).state_dict())


def test_under_autocast_the_loss_is_float32_and_close():
    inputs, labels = data()
    model, indices = network(), torch.arange(NUM_EXAMPLES)
    saf = SAFLoss(NUM_EXAMPLES, NUM_CLASSES, lag=1, start_epoch=0)
    saf(3 * model(inputs), labels, indices, 0)
    exact = saf(model(inputs), labels, indices, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = saf(model(inputs), labels, indices, 1)
        saf(model(inputs), labels, indices, 2)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=1e-2)
    assert saf.memory.recall(indices, 3)[1].all()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_any_integers_and_repeated_ones_are_indices(dtype):
    saf = SAFLoss(NUM_EXAMPLES, NUM_CLASSES, lag=1, start_epoch=-1)
    logits, labels, indices = torch.randn(3, NUM_CLASSES), torch.tensor([0, 1, 0]), torch.tensor([2, 9, 2])
    saf(logits, labels, indices.to(dtype), 0)
    assert torch.equal(saf.memory.recall(indices, 1)[0], logits[[0, 1, 0]])


@pytest.mark.parametrize(
    ("indices", "reason"),
    [
        (None, "got NoneType: .* example's index"),
        ([0, 1], "got list"),
        (torch.tensor([0.0, 1.0]), r"must be integers .*, got torch.float32"),
        (torch.tensor([True, False]), "got torch.bool"),
        (torch.tensor([0]), r"one index per example, 2, got shape \(1,\)"),
        (torch.tensor([[0, 1]]), r"got shape \(1, 2\)"),
        (torch.tensor([0, -1]), "must be between 0 and 23 .*, got -1"),
        (torch.tensor([24, 0]), "must be between 0 and 23 .*, got 24"),
    ],
)
def test_wrong_indices_are_refused_with_the_reason_at_once(indices, reason):
    saf = SAFLoss(NUM_EXAMPLES, NUM_CLASSES)
    with pytest.raises(ValueError, match=reason):
        saf(torch.zeros(2, NUM_CLASSES), torch.tensor([0, 1]), indices, 0)
    assert (saf.memory.epochs == -1).all()


def test_logits_of_another_number_of_classes_are_refused():
    saf = SAFLoss(NUM_EXAMPLES, NUM_CLASSES)
    with pytest.raises(ValueError, match="examples × 4 classes"):
        saf(torch.zeros(2, 5), torch.tensor([0, 1]), torch.tensor([0, 1]), 0)
