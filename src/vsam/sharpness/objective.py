"""The mean loss over batches as a function of the weights: its values, gradients and Hessian-vector products."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vsam.ranks import Ranks
from vsam.rng import RngState
from vsam.sharpness.losses import Losses
from vsam.sharpness.session import devices_of, unwrapped

__all__ = ["Loss", "Objective", "Progress", "batch_size"]

Loss = Callable[[nn.Module, Any], Tensor]
"""`loss(model, batch)`: the mean loss of a batch."""

Progress = Callable[[str, int, int], object]
"""`progress(stage, done, total)`, called after each pass over the batches."""


class Objective:
    """The mean loss over batches around the current weights, L(w + t ⊙ u), as a function of one flat vector u.

    Args:
        model: the network, possibly wrapped.
        loss: `loss(model, batch)`, the mean loss of a batch.
        batches: iterated once per pass.
        rewind: called before each pass, to restore generators and buffers.
        names: which parameters u moves; None for all trainable ones.
        eta: adaptive form: t = |w| + η on tensors of two or more dimensions, 1 on the others; None for t = 1 on all.

    Cost: two copies of the parameters; memory does not depend on the number of batches.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        batches: Iterable[Any],
        rewind: Callable[[], None],
        names: Iterable[str] | None = None,
        eta: float | None = None,
    ) -> None:
        self.model, self._loss, self._batches, self._rewind = unwrapped(model), loss, batches, rewind
        self._groups = Ranks(model, [], "global").groups
        self._weights = _chosen(self.model, names)
        self._shapes = [weight.shape for weight in self._weights]
        wide = torch.float64 if any(weight.dtype is torch.float64 for weight in self._weights) else torch.float32
        self.device, self.dtype = self._weights[0].device, wide
        self._start = self._flat([weight.detach() for weight in self._weights])
        self._scale = None if eta is None else self._flat([_unit(w.detach(), eta) for w in self._weights])
        self.size, self.epsilon = self._start.numel(), torch.finfo(wide).eps

    def value(self, offset: Tensor | None = None) -> Losses:
        """The loss at an offset from the weights, without gradients."""
        with self._at(offset), torch.no_grad():
            found = [(self._call(batch).detach(), size) for size, batch in self._pass()]
        return self._losses(found)

    def gradient(self, offset: Tensor | None = None) -> tuple[Losses, Tensor]:
        """The loss and its gradient at an offset."""
        found, total = [], torch.zeros_like(self._start)
        with self._at(offset):
            for size, batch in self._pass():
                loss = self._call(batch)
                total.add_(self._flat(self._gradients(loss)), alpha=size)
                found.append((loss.detach(), size))
        losses = self._losses(found)
        return losses, self._scaled(self._total(total) / losses.num_samples)

    def product(self, vector: Tensor) -> Tensor:
        """The Hessian at the weights times a vector."""
        parts, total, samples = self._parts(self._scaled(vector)), torch.zeros_like(self._start), 0
        for size, batch in self._pass():
            gradients = self._gradients(self._call(batch), create_graph=True)
            curved = [
                (gradient, part) for gradient, part in zip(gradients, parts, strict=True) if gradient.requires_grad
            ]
            if curved:
                outputs, along = (list(side) for side in zip(*curved, strict=True))
                products = torch.autograd.grad(outputs, self._weights, along, materialize_grads=True)
                total.add_(self._flat(products), alpha=size)
            samples += size
        count = self._total(torch.tensor([samples], dtype=torch.float64)).item()
        product = self._scaled(self._total(total) / count)
        if not bool(product.isfinite().all()):
            raise ValueError(
                "A Hessian-vector product is not finite at these weights: measure weights from before training "
                "diverged."
            )
        return product

    def each_batch(self, rho: float) -> tuple[Losses, Losses]:
        """Each batch's loss at the weights, and at a distance rho along its own gradient."""
        before, after = [], []
        for size, batch in self._pass():
            state = RngState(devices_of(self.model))
            loss = self._call(batch)
            direction = self._scaled(self._flat(self._gradients(loss)))
            before.append((loss.detach(), size))
            state.restore()  # the same dropout in both
            with self._at(direction * (rho / (direction.norm() + 1e-12))), torch.no_grad():
                after.append((self._call(batch).detach(), size))
        return self._losses(before), self._losses(after)

    def random(self, generator: torch.Generator) -> Tensor:
        """A vector of independent normal numbers, the same on all devices and ranks."""
        return torch.randn(self.size, generator=generator, dtype=self.dtype).to(self.device)

    def with_weights(self, vector: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Each parameter with its part of a flat vector."""
        return list(zip([weight.detach() for weight in self._weights], self._parts(vector), strict=True))

    def _pass(self) -> Iterator[tuple[int, Any]]:
        self._rewind()
        for batch in self._batches:
            yield batch_size(batch), batch

    def _call(self, batch: Any) -> Tensor:
        loss = self._loss(self.model, batch)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            got = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise ValueError(
                f"loss(model, batch) must return the batch's mean loss as a tensor with one element, got {got}."
            )
        return loss.reshape(())

    def _gradients(self, loss: Tensor, create_graph: bool = False) -> tuple[Tensor, ...]:
        if not loss.requires_grad:
            raise ValueError(
                "loss(model, batch) does not depend on the measured parameters: call the model that it is passed, "
                "without torch.no_grad()."
            )
        return torch.autograd.grad(loss, self._weights, create_graph=create_graph, materialize_grads=True)

    @contextmanager
    def _at(self, offset: Tensor | None) -> Iterator[None]:
        """Move the weights to an offset, and back afterwards: other objectives start from them."""
        if offset is not None:
            self._move(offset)
        yield
        if offset is not None:
            self._move(None)

    def _move(self, offset: Tensor | None) -> None:
        values = self._start if offset is None else self._start + self._scaled(offset)
        with torch.no_grad():
            for weight, part in zip(self._weights, self._parts(values), strict=True):
                weight.copy_(part)
        torch.clear_autocast_cache()  # which holds half-precision casts of the old weights

    def _scaled(self, vector: Tensor) -> Tensor:
        return vector if self._scale is None else vector * self._scale

    def _flat(self, tensors: Iterable[Tensor]) -> Tensor:
        return torch.cat([tensor.detach().reshape(-1).to(self.device, self.dtype) for tensor in tensors])

    def _parts(self, vector: Tensor) -> list[Tensor]:
        pieces = torch.split(vector, [shape.numel() for shape in self._shapes])
        pairs = zip(pieces, self._shapes, self._weights, strict=True)
        return [piece.view(shape).to(weight) for piece, shape, weight in pairs]

    def _losses(self, found: list[tuple[Tensor, int]]) -> Losses:
        if not found:
            raise ValueError("batches is empty: pass at least one batch.")
        return Losses([loss for loss, _ in found], [size for _, size in found], self._total)

    def _total(self, tensor: Tensor) -> Tensor:
        """The sum over the ranks of a DDP module; with one process the tensor itself."""
        for group in self._groups:
            own = tensor.to(self.device)
            torch.distributed.all_reduce(own, group=group)
            tensor = own.to(tensor.device)
        return tensor


def _chosen(model: nn.Module, names: Iterable[str] | None) -> list[nn.Parameter]:
    known = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    found = known if names is None else {name: known[name] for name in names}
    if not found:
        raise ValueError("model has no trainable parameters: unfreeze what you want to measure with requires_grad_().")
    for name, parameter in found.items():
        if type(parameter) is not nn.Parameter and hasattr(parameter, "placements"):
            raise ValueError(f"{name} is sharded (DTensor), which is not supported: measure a gathered copy.")
        if parameter.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"{name} is {parameter.dtype}, in which a step of rho is lost to rounding: measure a copy in single "
                "precision, copy.deepcopy(model).float()."
            )
    return list(found.values())


def _unit(weight: Tensor, eta: float) -> Tensor:
    return weight.abs() + eta if weight.ndim > 1 else torch.ones_like(weight)


def batch_size(batch: Any) -> int:
    """The number of samples in a batch: the length of its first tensor."""
    first = next(_tensors(batch), None)
    if first is None:
        raise ValueError(
            f"A batch must hold a tensor whose first dimension counts the samples, got {type(batch).__name__}: batches "
            "are weighted by their size."
        )
    return len(first)


def _tensors(batch: Any) -> Iterator[Tensor]:
    if isinstance(batch, Tensor):
        if batch.ndim:
            yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from _tensors(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from _tensors(value)
