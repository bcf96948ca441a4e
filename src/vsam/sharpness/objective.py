"""The mean loss over batches as a function of the weights: its values, gradients and Hessian-vector products."""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from vsam._step.replay import RngState
from vsam.distributed.ranks import Ranks
from vsam.sharpness.results import Estimate
from vsam.sharpness.session import devices_of, unwrapped

Loss = Callable[[nn.Module, Any], Tensor]
"""`loss(model, batch)`: the mean loss of a batch."""

Progress = Callable[[str, int, int], object]
"""`progress(stage, done, total)`, called after each pass over the batches."""


class Losses(NamedTuple):
    """The losses of this rank's batches at one point, and their mean over the samples of all ranks."""

    each: Tensor
    sizes: Tensor
    mean: float
    num_samples: int
    num_batches: int


class Objective:
    """The mean loss over batches around the current weights, L(w + t ⊙ u), as a function of one flat vector u.

    Args:
        model: the network, possibly wrapped.
        loss: `loss(model, batch)`, the mean loss of a batch.
        batches: iterated once per pass.
        rewind: called before each pass, to restore generators and buffers.
        weights: the parameters that u moves. None for all trainable ones.
        eta: adaptive form: t = |w| + η on tensors of two or more dimensions, 1 on the others. None for t = 1 on all.

    Cost: two copies of the parameters. Memory does not depend on the number of batches.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        batches: Iterable[Any],
        rewind: Callable[[], None],
        weights: Sequence[nn.Parameter] | None = None,
        eta: float | None = None,
    ) -> None:
        self.model, self._loss, self._batches, self.rewind = unwrapped(model), loss, batches, rewind
        self._groups = Ranks(model, [], "global").groups
        self._weights = _trainable(self.model) if weights is None else list(weights)
        is_double = any(weight.dtype is torch.float64 for weight in self._weights)
        self._device, self._dtype = self._weights[0].device, torch.float64 if is_double else torch.float32
        self._start = self.flat(self._weights)
        self._scale = None if eta is None else self.flat([_unit(weight.detach(), eta) for weight in self._weights])
        self.size, self._epsilon = self._start.numel(), torch.finfo(self._dtype).eps
        self._generator = torch.Generator()
        self.report: Callable[[int, int], object] = _silent

    def stage(self, generator: torch.Generator, report: Callable[[int, int], object] | None = None) -> Self:
        """Return the objective with a generator for `random` and a function that is told the passes done and in all."""
        own = copy.copy(self)
        own._generator, own.report = generator, report or _silent
        return own

    def value(self, offset: Tensor | None = None) -> Losses:
        """Return the loss at an offset from the weights, without gradients."""
        with self._at(offset), torch.no_grad():
            found = [(self._call(batch).detach(), size) for size, batch in self._pass()]
        return self._losses(found)

    def gradient(self, offset: Tensor | None = None) -> tuple[Losses, Tensor]:
        """Return the loss and its gradient at an offset."""
        found, total = [], torch.zeros_like(self._start)
        with self._at(offset):
            for size, batch in self._pass():
                loss = self._call(batch)
                total.add_(self.flat(self._gradients(loss)), alpha=size)
                found.append((loss.detach(), size))
        losses = self._losses(found)
        return losses, self._scaled(self._total(total) / losses.num_samples)

    def product(self, vector: Tensor) -> Tensor:
        """Return the Hessian at the weights times a vector."""
        parts, total, samples = self._parts(self._scaled(vector)), torch.zeros_like(self._start), 0
        for size, batch in self._pass():
            gradients = self._gradients(self._call(batch), create_graph=True)
            curved = [(one, part) for one, part in zip(gradients, parts, strict=True) if one.requires_grad]
            if curved:
                outputs, along = zip(*curved, strict=True)
                products = torch.autograd.grad(outputs, self._weights, along, materialize_grads=True)
                total.add_(self.flat(products), alpha=size)
            samples += size
        count = self._total(torch.tensor([samples], dtype=torch.float64)).item()
        product = self._scaled(self._total(total) / count)
        if not bool(product.isfinite().all()):
            raise ValueError("A Hessian-vector product is not finite: measure weights from before training diverged.")
        return product

    def each_batch(self, rho: float) -> tuple[Losses, Losses]:
        """Return each batch's loss at the weights, and at a distance rho along its own gradient."""
        before, after = [], []
        for size, batch in self._pass():
            state = RngState(devices_of(self.model))
            loss = self._call(batch)
            direction = self._scaled(self.flat(self._gradients(loss)))
            before.append((loss.detach(), size))
            state.restore()  # the same dropout in both
            with self._at(direction * (rho / (direction.norm() + 1e-12))), torch.no_grad():
                after.append((self._call(batch).detach(), size))
        return self._losses(before), self._losses(after)

    def rise(self, before: Losses, after: Losses) -> Estimate:
        """Return how much higher the loss is after than before, with its standard error over batches.

        With a single batch, the error is the rounding error. The difference counts as converged if it exceeds rounding.
        """
        value, rounding = after.mean - before.mean, self._epsilon * (abs(after.mean) + abs(before.mean))
        error, kind = rounding, "rounding (one batch)"
        if before.num_batches > 1:
            squares = self._total(((after.each - before.each - value).square() @ before.sizes).reshape(1))
            error = max(rounding, math.sqrt(squares.item() / before.num_samples / (before.num_batches - 1)))
            kind = f"standard error over {before.num_batches} batches"
        return Estimate(value, error, math.isfinite(value) and abs(value) > rounding, kind)

    def random(self) -> Tensor:
        """Return a vector of independent normal numbers, the same on all devices and ranks."""
        return torch.randn(self.size, generator=self._generator, dtype=self._dtype).to(self._device)

    def with_weights(self, vector: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return each parameter with its part of a flat vector."""
        return list(zip([weight.detach() for weight in self._weights], self._parts(vector), strict=True))

    def _pass(self) -> Iterator[tuple[int, Any]]:
        self.rewind()
        for batch in self._batches:
            size = _batch_size(batch)
            if size is None:
                got = type(batch).__name__
                raise ValueError(f"A batch must hold a tensor whose first dimension counts the samples, got {got}.")
            yield size, batch

    def _call(self, batch: Any) -> Tensor:
        loss = self._loss(self.model, batch)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            got = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise ValueError(f"loss(model, batch) must return the mean loss as a tensor with one element, got {got}.")
        return loss.reshape(())

    def _gradients(self, loss: Tensor, create_graph: bool = False) -> tuple[Tensor, ...]:
        if not loss.requires_grad:
            raise ValueError("loss(model, batch) does not depend on the measured parameters: call the model it gets.")
        return torch.autograd.grad(loss, self._weights, create_graph=create_graph, materialize_grads=True)

    @contextmanager
    def _at(self, offset: Tensor | None) -> Iterator[None]:
        """Move the weights to an offset, and back afterwards."""
        if offset is not None:
            self._set(self._start + self._scaled(offset))
        yield
        if offset is not None:
            self._set(self._start)

    @torch.no_grad()
    def _set(self, values: Tensor) -> None:
        for weight, part in zip(self._weights, self._parts(values), strict=True):
            weight.copy_(part)
        torch.clear_autocast_cache()  # which holds half-precision casts of the old weights

    def _scaled(self, vector: Tensor) -> Tensor:
        return vector if self._scale is None else vector * self._scale

    def flat(self, tensors: Iterable[Tensor]) -> Tensor:
        """Return tensors of the shapes of the weights as one flat vector."""
        return torch.cat([tensor.detach().reshape(-1).to(self._device, self._dtype) for tensor in tensors])

    def _parts(self, vector: Tensor) -> list[Tensor]:
        pieces = torch.split(vector, [weight.numel() for weight in self._weights])
        return [piece.view(weight.shape).to(weight) for piece, weight in zip(pieces, self._weights, strict=True)]

    def _losses(self, found: list[tuple[Tensor, int]]) -> Losses:
        if not found:
            raise ValueError("batches is empty: pass at least one batch.")
        each = torch.stack([loss for loss, _ in found]).double().cpu()
        sizes = torch.tensor([size for _, size in found], dtype=torch.float64)
        sums = torch.tensor([float(sizes.sum()), float(each @ sizes), len(found)], dtype=torch.float64)
        samples, loss, batches = self._total(sums).tolist()
        return Losses(each, sizes, loss / samples, int(samples), int(batches))

    def _total(self, tensor: Tensor) -> Tensor:
        """Return the sum over the ranks of a DDP module, or with one process the tensor itself."""
        for group in self._groups:
            own = tensor.to(self._device)
            torch.distributed.all_reduce(own, group=group)
            tensor = own.to(tensor.device)
        return tensor


def _silent(done: int, total: int) -> None:
    """Report no progress."""


def _unit(weight: Tensor, eta: float) -> Tensor:
    return weight.abs() + eta if weight.ndim > 1 else torch.ones_like(weight)


def _trainable(model: nn.Module) -> list[nn.Parameter]:
    found = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not found:
        raise ValueError("model has no trainable parameters: unfreeze what you want to measure with requires_grad_().")
    for name, parameter in found.items():
        if type(parameter) is not nn.Parameter and hasattr(parameter, "placements"):
            raise ValueError(f"{name} is sharded (DTensor), which is not supported: measure a gathered copy.")
        if parameter.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"{name} is {parameter.dtype}, too coarse for rho: measure copy.deepcopy(model).float().")
    return list(found.values())


def _batch_size(batch: Any) -> int | None:
    """Return the length of the first tensor in a batch that has one."""
    if isinstance(batch, Tensor):
        return len(batch) if batch.ndim else None
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    return next((size for size in map(_batch_size, parts) if size is not None), None)
