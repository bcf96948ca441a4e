"""A run minimises cross entropy with the recipe's smoothing, or the loss of its method."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lab.helpers import CPU, quick_recipe
from vsam.lab.data import Batch
from vsam.lab.methods import METHODS
from vsam.lab.methods.objective import build_objective
from vsam.lab.train import load_data

LOGITS = torch.randn(4, 10, generator=torch.Generator().manual_seed(0))
BATCH = Batch(torch.zeros(4, 1, 28, 28), torch.tensor([3, 1, 4, 1]), torch.arange(4))


def objective(*changes):
    recipe = quick_recipe(*changes)
    return build_objective(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), recipe, load_data(recipe, None, CPU))


@pytest.mark.parametrize("method", [method.name for method in METHODS])
def test_only_trajectory_losses_remember(method):
    assert list(objective(f"method={method}").state_dict()) == ([method] if method in ("saf", "mesa") else [])


def test_smoothing_takes_its_share_from_the_target():
    shares = torch.full((4, 10), 0.1 / 9)
    shares[range(4), BATCH.labels] = 0.9
    own = objective("method=sgd", "label_smoothing=0.1")
    assert own(LOGITS, BATCH, 0) == pytest.approx(float(F.cross_entropy(LOGITS, shares)), rel=1e-5)
    assert own.per_sample(LOGITS, BATCH.labels).mean() == pytest.approx(float(own(LOGITS, BATCH, 0)), rel=1e-5)


@pytest.mark.parametrize("method", ["saf", "mesa"])
def test_what_is_remembered_is_loaded(method):
    changes = (f"method={method}", f"{method}.start_epoch=0", "epochs=3")
    first, second = objective(*changes), objective(*changes)
    for epoch in range(3):
        first(LOGITS + epoch, BATCH, epoch)
        first.after_step()
    second.load_state_dict(first.state_dict())
    for one, other in zip(first.modules().values(), second.modules().values(), strict=True):
        for left, right in zip(one.state_dict().values(), other.state_dict().values(), strict=True):
            assert torch.equal(torch.as_tensor(left), torch.as_tensor(right))
