"""Save and load an optimizer with `torch.distributed.checkpoint`."""

import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vsam._step.state import save
from vsam.bases import bases_of, keep_bases
from vsam.optimizer import SharpnessAware
from vsam.parts import Between, Where
from vsam.wrapper import itself


class StatefulOptimizer:
    """An optimizer for `torch.distributed.checkpoint` to save and load, also with another number of processes.

    Torch's own functions save the base optimizer's state. This adds counters, generators and the PSF, sharded like the
    parameters. With the same layout, training resumes bit for bit.

    Args:
        model: the module that is trained: plain, in `DistributedDataParallel`, or sharded by `fully_shard`.
        optimizer: the optimizer of its parameters, also if another package's optimizer wraps it.

    Cost: while saving or loading, one more sharded copy of the PSF.

    Example:
        >>> import torch.distributed.checkpoint as dcp
        >>> state = {"model": get_model_state_dict(model), "optimizer": StatefulOptimizer(model, optimizer)}
        >>> dcp.save(state, checkpoint_id="checkpoint")
        >>> dcp.load(state, checkpoint_id="checkpoint")
        >>> set_model_state_dict(model, state["model"])
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, SharpnessAware):
            optimizer = getattr(optimizer, "optimizer", optimizer)  # inside another package's wrapper
        if not isinstance(optimizer, SharpnessAware):
            got = type(optimizer).__name__
            raise ValueError(f"optimizer must be one of vsam's, got {got}: for others, use get_optimizer_state_dict.")
        if not isinstance(model, nn.Module):
            raise ValueError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
        self.model, self.optimizer = model, itself(optimizer)

    @torch.no_grad()
    def state_dict(self) -> dict[str, Any]:
        """Return the base's state, the PSF by parameter name, and the rest as bytes for `weights_only=True`."""
        optimizer = self.optimizer
        optimizer._abandon()
        optimizer._refresh()
        entry = save(optimizer)
        memory, averages = entry.pop("memory"), entry.pop("averages", {})
        are_fresh = [not base.state for base in bases_of(optimizer.base)]
        base, names = self._base_state()
        known = {"remembered": [names[i] for i in memory], "averaged": [names[i] for i in averages]}
        rest = io.BytesIO()
        torch.save({**entry, **known, "are_fresh": are_fresh}, rest)
        state = {"base": base, "memory": self._complete(memory, names, optimizer.between), "rest": rest.getvalue()}
        if optimizer.where.num_buffers:
            state["averages"] = self._complete(averages, names, optimizer.where)
        return state

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned. A state that does not fit changes nothing."""
        from torch.distributed.checkpoint.state_dict import set_optimizer_state_dict

        optimizer, bases = self.optimizer, bases_of(self.optimizer.base)
        with ExitStack() as undo:
            undo.callback(keep_bases(optimizer.base))
            rest = torch.load(io.BytesIO(state_dict["rest"]), weights_only=True)
            are_fresh = rest.pop("are_fresh")
            known = {"memory": set(rest.pop("remembered")), "averages": set(rest.pop("averaged", ()))}
            set_optimizer_state_dict(self.model, bases, optim_state_dict=state_dict["base"])
            for base, is_fresh in zip(bases, are_fresh, strict=True):
                if is_fresh:
                    base.state.clear()
            _, names = self._base_state()
            for kind, chosen in known.items():
                rest[kind] = {i: state_dict[kind][name] for i, name in enumerate(names) if name in chosen}
            optimizer.load_state_dict({**optimizer.base.state_dict(), optimizer.entry: rest})
            undo.pop_all()

    def _base_state(self) -> tuple[Any, list[str]]:
        """Return what torch saves of the base optimizers, and the names of their parameters in order."""
        from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

        bases = bases_of(self.optimizer.base)
        with _unchanged(bases):
            base: Any = get_optimizer_state_dict(self.model, bases)
        return base, [name for group in base["param_groups"] for name in group["params"]]

    def _complete(self, memory: dict[int, Tensor], names: list[str], part: Between | Where) -> dict[str, Tensor]:
        """Add zeros for the other parameters: a load declares what it expects before it knows what was saved."""
        if not part.num_buffers:
            return {}
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        whole = [memory[i] if i in memory else torch.zeros_like(parameter) for i, parameter in enumerate(parameters)]
        return dict(zip(names, whole, strict=True))


@contextmanager
def _unchanged(bases: list[Optimizer]) -> Iterator[None]:
    """Undo the step without gradients by which torch creates a fresh optimizer's state."""
    groups = [(group, dict(group)) for base in bases for group in base.param_groups]
    gradients = [(parameter, parameter.grad) for group, _ in groups for parameter in group["params"]]
    fresh = [base for base in bases if not base.state]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for group, settings in groups:
            group.clear()
            group.update(settings)
        for base in fresh:
            base.state.clear()
