"""Bi-LoRA, sharpness for the LoRA adapters of peft at one pass per step."""

import math
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn, cast

import torch
import torch.distributed as dist
from peft.tuners.lora import LoraLayer
from peft.tuners.lora.layer import MultiheadAttention, ParamWrapper
from torch import Tensor, nn
from torch.autograd import Variable
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from vsam._step import foreach
from vsam._step.misuse import outermost_caller, warn_caller
from vsam._step.undo import _Deferred, is_used, mark_used, with_own_hooks
from vsam.bases import Joined, bases_of
from vsam.checks import check_base, check_count, check_entries, check_not_negative
from vsam.wrapper import Wrapper

__all__ = ["BiLoRA"]

_ENTRY = "auxiliary"
_LINES = """Write:
    base = torch.optim.AdamW(model.parameters(), lr=2e-4)
    optimizer = BiLoRA(base, model=model)
    scheduler = …(optimizer)
With transformers, pass optimizers=(BiLoRA(base, model=model), None) to its Trainer."""
_LIGHTNING_AMP = tuple(f"{package}.plugins.precision.amp" for package in ("lightning.pytorch", "pytorch_lightning"))


class BiLoRA(Joined):
    """Bi-LoRA: train LoRA adapters together with an auxiliary adapter that climbs the loss.

    `W = W₀ + s₁·B₁A₁ + s₂·B₂A₂`. One backward pass gives both gradients. The base optimizer descends with A₁ and B₁ and
    ascends with A₂ and B₂. After each step, if `c = √Σ‖s₂·B₂A₂‖²` over all layers exceeds `rho`, all A₂ and B₂ are
    multiplied by `√(rho/c)`. At `rho=0` it equals the base optimizer.

    It works in any loop like a plain optimizer. The auxiliary adapter belongs to the optimizer and acts in training
    mode only: evaluation, `model.parameters()`, `save_pretrained` and merging see an ordinary peft model. Clip
    `model.parameters()`, and construct a scheduler after it.

    Args:
        base: a constructed optimizer that trains the adapters and can `maximize`, or a list of them.
        model: a peft model, or a module with one inside.
        rho: ρ, the largest norm of the auxiliary update over all layers, zero or above.
        rank: of the auxiliary adapter; by default that of the primary one in each layer.
        lr: its learning rate; by default that of the primary adapter. Schedulers change both.

    Cost: one pass per step, and memory for a second adapter with its gradient and the base's state.

    Example:
        >>> model = get_peft_model(network, LoraConfig(r=8, target_modules=["query", "value"]))
        >>> base = torch.optim.AdamW(model.parameters(), lr=2e-4)
        >>> optimizer = BiLoRA(base, model=model, rho=0.05)
    """

    def __init__(
        self,
        base: Optimizer | list[Optimizer],
        *,
        model: nn.Module,
        rho: float = 0.05,
        rank: int | None = None,
        lr: float | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ValueError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
        for one in base if isinstance(base, list | tuple) else [base]:
            if not isinstance(one, Optimizer):
                raise ValueError(f"base must be a constructed optimizer, got {type(one).__name__}. {_LINES}")
        self.base = check_base(base)
        for one in bases_of(self.base):
            if isinstance(one, Wrapper):
                raise ValueError(f"base must be an ordinary optimizer, got {type(one).__name__}: methods do not nest.")
        super().__init__(bases_of(self.base))
        self.rho = check_not_negative("rho", rho)
        self.num_skipped = 0
        rank = None if rank is None else check_count("rank", rank, least=1, why="an adapter needs a rank")
        lr = None if lr is None else check_not_negative("lr", lr)
        owned = {parameter for group in self.param_groups for parameter in group["params"]}
        found = list(_adapted_layers(model, owned))
        if not found:
            raise ValueError("model has no LoRA layer that base trains: call peft.get_peft_model() before both.")
        self._adapter = _Adapter([_Auxiliary(layer, name, rank) for layer, name in found])
        twins = dict(pair for part in self._adapter.parts for pair in zip(part.primary, part.parameters, strict=True))
        groups = [(one, _twin(one, group, twins, lr)) for one in self.bases for group in one.param_groups]
        for one, group in groups:
            if group is not None:
                one.add_param_group(group)
        self._handles = [part.layer.register_forward_hook(part, with_kwargs=True) for part in self._adapter.parts]
        weakref.finalize(self, _remove_all, self._handles)

    @property
    def norm(self) -> float:
        """The norm c of the auxiliary update over all layers. Reading it fetches it from the device."""
        return float(self._adapter.norm()) if self._adapter.parts else 0.0

    @with_own_hooks
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step with both adapters. A gradient that is not finite skips it. Return the closure's loss.

        Args:
            closure: computes the loss, calls `backward` and returns the loss. Gradients of the last step are cleared.
        """
        loss = None if closure is None else self._run(closure)
        auxiliary = self._adapter.parameters
        gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        if gradients and auxiliary:
            self._check_used(auxiliary, closure is None)
        try:
            if foreach.are_finite([foreach.norm(gradients)]):
                with _Deferred():
                    super().step()
                    self._adapter.shrink(self.rho)
            else:
                self.num_skipped += 1
                if self.num_skipped == 1:
                    warn_caller("A gradient is not finite: the step is skipped, and later ones without a message.")
        finally:
            mark_used(self)
            for parameter in auxiliary:  # model.zero_grad() would leave it
                parameter.grad = None
        return loss

    def remove(self) -> None:
        """Remove the auxiliary adapter from the model and its groups from the base, at the end of training."""
        _remove_all(self._handles)
        own = set(self._adapter.parameters)
        self._adapter = _Adapter([])
        for base in self.bases:
            base.param_groups[:] = [group for group in base.param_groups if own.isdisjoint(group["params"])]
            for parameter in own:
                base.state.pop(parameter, None)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base optimizer. Its parameters get no auxiliary ones."""
        self.base.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """Return the base optimizer's state and the auxiliary adapter, which model files do not contain."""
        weights = [parameter.detach().clone() for parameter in self._adapter.parameters]
        return {**super().state_dict(), _ENTRY: {"weights": weights, "num_skipped": self.num_skipped}}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume exactly where `state_dict` was taken. A state that does not fit changes nothing."""
        check_entries(state_dict, ["state", "param_groups", _ENTRY])
        check_entries(state_dict[_ENTRY], ["weights", "num_skipped"])
        weights, own = state_dict[_ENTRY]["weights"], self._adapter.parameters
        if [tuple(weight.shape) for weight in weights] != [tuple(parameter.shape) for parameter in own]:
            raise ValueError("state_dict is of another model or rank: its auxiliary adapter has other shapes.")
        super().load_state_dict({name: value for name, value in state_dict.items() if name != _ENTRY})
        for parameter, weight in zip(own, weights, strict=True):
            parameter.copy_(weight)
        self.num_skipped = state_dict[_ENTRY]["num_skipped"]

    def __getstate__(self) -> NoReturn:
        raise TypeError("BiLoRA cannot be copied or pickled, because it acts on its model: save its state_dict().")

    def _run(self, closure: Callable[[], Any]) -> Any:
        """Run the closure on cleared gradients. In Lightning's, hide the auxiliary ones where it clips."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and is_used(parameter.grad):
                    parameter.grad = None
        hidden: list[tuple[Tensor, Tensor | None]] = []
        if type(closure) is partial and getattr(closure.func, "__name__", "") == "_wrap_closure":
            module, optimizer, inner = closure.args
            closure = partial(closure.func, module, optimizer, partial(_hide, inner, self._adapter.parameters, hidden))
        try:
            with torch.enable_grad():
                return closure()
        finally:
            for parameter, gradient in hidden:
                parameter.grad = gradient

    def _check_used(self, auxiliary: list[nn.Parameter], is_without_closure: bool) -> None:
        """Raise if the auxiliary adapter missed the backward pass, or if ranks or clipping were handled wrongly."""
        if all(parameter.grad is None for parameter in auxiliary):
            raise RuntimeError(
                "The auxiliary adapter got no gradient: call model.train() before the forward pass, and construct "
                "BiLoRA before torch.compile."
            )
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1 and self._adapter.group is None:
            raise RuntimeError(
                "BiLoRA averages the auxiliary gradients over the processes of DistributedDataParallel, and model ran "
                "outside of it: wrap it in DistributedDataParallel, the only way to train with several processes."
            )
        if is_without_closure and outermost_caller(_LIGHTNING_AMP) is not None:
            raise RuntimeError(
                "Lightning's 16-mixed would clip the auxiliary gradients too: use precision='bf16-mixed'."
            )


class _Adapter:
    """The auxiliary adapters of all layers.

    Args:
        parts: one per LoRA layer.
    """

    def __init__(self, parts: list["_Auxiliary"]) -> None:
        self.parts = parts
        self.parameters = [parameter for part in parts for parameter in part.parameters]
        self.group: Any = None
        self._is_averaged = True
        for part in parts:
            part.whole = self
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(self._average_at_the_end)  # type: ignore[no-untyped-call]

    def norm(self) -> Tensor:
        """The Frobenius norm of the update over all layers, from r × r Gram matrices."""
        squares = [part.square() for part in self.parts]
        return torch.stack([square.to(squares[0].device) for square in squares]).sum().clamp(min=0).sqrt()

    @torch.no_grad()
    def shrink(self, rho: float) -> None:
        """Multiply all matrices so that the norm is at most `rho`, on the device."""
        if self.parts:
            norm = self.norm()
            factor = torch.where(norm > rho, (rho / norm).sqrt(), torch.ones_like(norm))
            for parameter in self.parameters:
                parameter.mul_(factor.to(parameter))

    @torch.no_grad()
    def join(self) -> None:
        """Start from the weights of the first rank, at the first forward pass inside DDP."""
        module = DistributedDataParallel._active_ddp_module
        if module is not None:
            self.group = module.process_group
            for parameter in self.parameters:
                dist.broadcast(parameter, dist.get_global_rank(self.group, 0), group=self.group)

    def _average_at_the_end(self, _: Tensor) -> None:
        """Average the gradients over ranks once the backward pass ends. DDP does not know them."""
        if self.group is not None and self.group.size() > 1:
            self._is_averaged = False
            Variable._execution_engine.queue_callback(self._average)

    @torch.no_grad()
    def _average(self) -> None:
        if not self._is_averaged:
            self._is_averaged = True
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            dist.all_reduce(flat, group=self.group)
            parts = torch.split(flat / self.group.size(), [*map(Tensor.numel, gradients)])
            for gradient, part in zip(gradients, parts, strict=True):
                gradient.copy_(part.view_as(gradient))


class _Auxiliary:
    """A₂ and B₂ of one LoRA layer: a forward hook that adds them in training mode.

    Args:
        layer: the LoRA layer.
        name: of its primary adapter.
        rank: of A₂ and B₂, or None for that of the primary adapter.
    """

    whole: _Adapter

    def __init__(self, layer: Any, name: str, rank: int | None) -> None:
        self.layer, self.name, self.primary = layer, name, _primary(layer, name)
        first, second = self.primary
        rank = layer.r[name] if rank is None else rank
        self.scaling: float = layer.lora_alpha[name] / (math.sqrt(rank) if layer.use_rslora[name] else rank)
        self.a = nn.Parameter(first.new_empty(rank, first.shape[1]))
        self.b = nn.Parameter(second.new_zeros(second.shape[0], rank))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))  # as peft does
        self.parameters = self.a, self.b

    def square(self) -> Tensor:
        """The squared Frobenius norm of s₂·B₂A₂, the trace of (B₂ᵀB₂)(A₂A₂ᵀ)."""
        wide = torch.float64 if self.a.dtype == torch.float64 else torch.float32
        a, b = self.a.detach().to(wide), self.b.detach().to(wide)
        with torch.autocast(a.device.type, enabled=False):
            return torch.sum((b.mT @ b) * (a @ a.mT)) * self.scaling**2

    def __call__(self, layer: Any, inputs: tuple[Any, ...], named: dict[str, Any], output: Tensor) -> Any:
        """Add the update of the auxiliary adapter to the output of the layer."""
        if not layer.training or layer.disable_adapters or layer.merged or self.name not in layer.active_adapters:
            return None
        self._follow()
        x = (inputs[0] if inputs else named["x"]).to(self.a.dtype)
        update = nn.functional.linear(nn.functional.linear(layer.lora_dropout[self.name](x), self.a), self.b)
        return (output + update * self.scaling).to(output.dtype)

    def _follow(self) -> None:
        """Follow the primary adapter: to its device and dtype, into DDP, and when its gradients are cleared."""
        first = self.primary[0]
        for parameter in self.parameters:
            if parameter.device != first.device or parameter.dtype != first.dtype:
                parameter.data = parameter.data.to(first.device, first.dtype)
            if self.primary[1].grad is None:  # by model.zero_grad(), or after a step that a scaler skipped
                parameter.grad = None
        if self.whole.group is None and dist.is_available() and dist.is_initialized():
            self.whole.join()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial, (_nothing,)  # a copy of the model is an ordinary one


def _adapted_layers(model: nn.Module, owned: set[nn.Parameter]) -> Iterator[tuple[Any, str]]:
    """Yield each LoRA layer that is trained, with the name of its adapter. Raise if its kind is not supported."""
    for path, layer in model.named_modules():
        if not isinstance(layer, LoraLayer):
            continue
        parts = {part for key, p in cast(nn.Module, layer).named_parameters() if p in owned for part in key.split(".")}
        names = [name for name in layer.active_adapters if name in parts]
        if any(isinstance(hook, _Auxiliary) for hook in vars(layer)["_forward_hooks"].values()):
            raise ValueError("model already has an auxiliary adapter: call remove() on its BiLoRA first.")
        if len(names) > 1:
            raise ValueError(f"{path} trains {len(names)} adapters at once: activate one with model.set_adapter().")
        for name in names:
            if name in layer.lora_variant:
                kind = type(layer.lora_variant[name]).__name__
                raise ValueError(f"{path} is LoRA of the variant {kind}: BiLoRA needs plain LoRA, without use_dora.")
            is_linear = name in layer.lora_A and isinstance(layer.lora_A[name], nn.Linear)
            if not is_linear or isinstance(layer, MultiheadAttention | ParamWrapper):
                kind = type(layer.get_base_layer()).__name__
                raise ValueError(f"{path} is LoRA on {kind}: BiLoRA needs linear layers in target_modules only.")
            if not owned.issuperset(_primary(layer, name)):
                raise ValueError(f"base trains only one of lora_A and lora_B of {path}: BiLoRA needs both.")
            yield layer, name


def _primary(layer: Any, name: str) -> tuple[nn.Parameter, nn.Parameter]:
    return layer.lora_A[name].weight, layer.lora_B[name].weight


def _twin(base: Optimizer, group: dict[str, Any], twins: dict[Any, Any], lr: float | None) -> dict[str, Any] | None:
    """Return a group that ascends, without weight decay and otherwise with the settings of the primary one, if any."""
    parameters = [twins[parameter] for parameter in group["params"] if parameter in twins]
    if not parameters:
        return None
    if "maximize" not in group:
        name = type(base).__name__
        raise ValueError(f"base must have maximize=, with which the auxiliary adapter ascends; {name} has not.")
    if "initial_lr" in group:
        raise ValueError(f"base has a scheduler, which would leave out the auxiliary adapter. {_LINES}")
    settings = {name: value for name, value in group.items() if name not in ("params", "param_names")}
    rate = settings["lr"] if lr is None else lr
    settings |= {"lr": rate.clone() if isinstance(rate, Tensor) else rate, "maximize": not group["maximize"]}
    if "weight_decay" in group:
        settings["weight_decay"] = 0.0
    if "param_names" in group:
        names = zip(group["param_names"], group["params"], strict=True)
        parameters = [(f"auxiliary.{name}", twins[parameter]) for name, parameter in names if parameter in twins]
    return {"params": parameters, **settings}


def _hide(inner: Callable[[], Any], parameters: list[nn.Parameter], hidden: list[tuple[Tensor, Tensor | None]]) -> Any:
    """Run a closure, and take away the gradients of the parameters."""
    result = inner()
    for parameter in parameters:
        hidden.append((parameter, parameter.grad))
        parameter.grad = None
    return result


def _remove_all(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()


def _nothing(*_: object) -> None:
    """Add nothing."""
