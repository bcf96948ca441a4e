"""Every image shape gives logits, and every parameter a gradient."""

import pytest
import torch

from vsam.lab import models

SHAPES = [(1, 28, 28), (3, 32, 32), (3, 64, 64), (2, 33, 47), (3, 1, 1)]
SMALL = ["resnet18", "resnet8", "wrn10-1", "pyramidnet8-9", "mobilenet-25"]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", models.names())
def test_logits_of_any_image_shape(name: str, shape: tuple[int, int, int]) -> None:
    with torch.device("meta"):
        logits = models.build(name, num_classes=7, in_channels=shape[0])(torch.empty(4, *shape))
    assert logits.shape == (4, 7)


@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
@pytest.mark.parametrize("name", SMALL)
def test_logits_are_finite(name: str, shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    model = models.build(name, in_channels=shape[0])
    logits = model(torch.randn(2, *shape))
    assert logits.shape == (2, 10)
    assert logits.isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("name", models.names())
def test_every_parameter_gets_a_gradient(name: str) -> None:
    torch.manual_seed(0)
    model = models.build(name)
    logits = model(torch.randn(4, 3, 16, 16))
    torch.nn.functional.cross_entropy(logits, torch.arange(4)).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.any(), parameter_name


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_few_steps_learn_a_batch(name: str) -> None:
    torch.manual_seed(0)
    model = models.build(name)
    images, labels = torch.randn(8, 3, 16, 16), torch.arange(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert min(losses) < 0.5 * losses[0]
