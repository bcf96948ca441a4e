"""Small networks in double precision whose Hessian can be written out."""

import torch
from torch import Tensor, nn

__all__ = ["batches", "dense", "loss", "net"]


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def batches(sizes: tuple[int, ...] = (8, 8, 3), seed: int = 1) -> list[tuple[Tensor, Tensor]]:
    """Of different sizes, so that a mean of means would be wrong."""
    generator = torch.Generator().manual_seed(seed)
    draw = {"generator": generator}
    return [(torch.randn(n, 4, dtype=torch.float64, **draw), torch.randint(3, (n,), **draw)) for n in sizes]  # type: ignore[arg-type]


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def dense(model: nn.Module, given: list[tuple[Tensor, Tensor]]) -> tuple[float, Tensor, Tensor]:
    """Loss, gradient and Hessian over all samples at once, by the trainable parameters."""
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    own = dict(model.named_parameters())
    whole = (torch.cat([inputs for inputs, _ in given]), torch.cat([targets for _, targets in given]))

    def of(vector: Tensor) -> Tensor:
        parts = torch.split(vector, [own[name].numel() for name in names])
        values = {name: part.view(own[name].shape) for name, part in zip(names, parts, strict=True)}
        logits = torch.func.functional_call(model, values, (whole[0],))
        return nn.functional.cross_entropy(logits, whole[1])

    start = torch.cat([own[name].detach().reshape(-1) for name in names])
    gradient = torch.func.grad(of)(start)
    hessian: Tensor = torch.autograd.functional.hessian(of, start)  # type: ignore[no-untyped-call]
    return of(start).item(), gradient, hessian
