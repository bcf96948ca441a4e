"""Check this machine, or a model and loss: what looks wrong, and what each method would cost."""

import importlib.metadata
import importlib.util
import inspect
import itertools
import random
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import vsam
from vsam import registry
from vsam._step.parameters import norm_parameters
from vsam._step.replay import RngState
from vsam.lab import data
from vsam.lab.data import Batches
from vsam.lab.environment import choose_device, describe_environment
from vsam.lab.errors import RunError, UserError
from vsam.lab.learner import build_model
from vsam.lab.methods import METHODS
from vsam.lab.methods.build import build_optimizer
from vsam.lab.methods.objective import build_objective
from vsam.lab.plugins import explained, list_plugins, load_file
from vsam.lab.recipes.load import load_recipe
from vsam.lab.train import load_data

__all__ = ["Finding", "Workload", "check_machine", "check_workload", "costs", "read_workload"]

EXAMPLE = """
    model = MyNetwork()
    batches = [(inputs, targets)]

    def loss(model, batch):
        inputs, targets = batch
        return torch.nn.functional.cross_entropy(model(inputs), targets)"""

_OLDEST_TORCH = (2, 6)
_EXTRAS = ("tensorboard", "optuna", "ray", "lightning", "accelerate", "transformers")
_MOST_BATCHES, _DRY_STEPS, _FEWEST_ROUNDS = 4, 3, 5
_LARGE = 1e4  # a larger gradient norm usually comes from a scaled loss
_ESTIMATED = ("ae-sam", "vsam", "vsam-a", "esam")  # they decide during training
_KINDS = ("plain", "sampled")
_USUAL_RISE = 0.05  # the best radii of ResNet-8 raised the loss by 7 to 14 %
_FORWARDS = {"esam": 0.5, "mesa": 0.0}  # another forward pass, and the fraction of a second gradient on top


@dataclass(frozen=True)
class Finding:
    """One finding of a check, and what to do about it.

    Args:
        level: "ok", "note" for what may be intended, "problem" for what makes results wrong or stops training.
        subject: what was checked, in a word or two.
        text: what was found, and what to do.
    """

    level: Literal["ok", "note", "problem"]
    subject: str
    text: str


def check_machine(data_dir: Path | None = None) -> list[Finding]:
    """Check versions, device, threads and datasets."""
    facts = describe_environment(device := choose_device())
    versions = f"vsam {facts['vsam']}, torch {facts['torch']}, Python {facts['python']}, {facts['system']}"
    is_old = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) < _OLDEST_TORCH
    advice = ". vsam needs torch 2.6 or newer: pip install -U torch." if is_old else ""
    extras = [f"{name} {importlib.metadata.version(name)}" for name in _EXTRAS if importlib.util.find_spec(name)]
    is_idle = device.type == "cpu" and torch.version.cuda is not None
    unused = f". torch was built for CUDA {torch.version.cuda}, but found no GPU." if is_idle else ""
    cores, threads = facts["cores"] or 1, facts["threads"]
    too_many = f": more threads than cores slow each other down. Set OMP_NUM_THREADS={cores}."
    described = [one for one in data.describe(data_dir) if one.name != "folder"]
    missing = ", ".join(one.name for one in described if not one.found and not one.damage)
    found = f"found {', '.join(one.name for one in described if one.found) or 'none'}"
    return [
        Finding("problem" if is_old else "ok", "versions", versions + advice),
        Finding("ok", "extras", ", ".join(extras) or "none installed"),
        Finding("note" if is_idle else "ok", "device", f"{facts['device']} ({device.type}){unused}"),
        Finding(
            "problem" if threads > cores else "ok",
            "threads",
            f"{threads} for {cores} cores{too_many if threads > cores else ''}",
        ),
        Finding("ok", "data", f"{found}{missing and f'; not here yet: {missing} (vsam data says how to get them)'}"),
        *(Finding("problem", "data", f"{one.name} is damaged. {one.damage}") for one in described if one.damage),
    ]


@dataclass
class Workload:
    """A model to train, with passes that explain their failures.

    Args:
        name: of the recipe or the file.
        model: the network.
        loss: computes the loss of a batch, without `backward`.
        batches: some, cycled through.
        base: the base optimizer.
        optimizer: the user's sharpness-aware optimizer, if any.
        file: that defines the loss, for errors.
        names: everything that the file defines.
    """

    name: str
    model: nn.Module
    loss: Callable[[Any], Any]
    batches: Sequence[Any]
    base: Optimizer
    optimizer: vsam.SharpnessAware | None = None
    file: str = ""
    names: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._turn = itertools.cycle(self.batches)

    @property
    def rho(self) -> float:
        """The radius that the user chose, or a usual one."""
        usual = 0.01 if type(self.base).__name__.startswith("Adam") else 0.05
        return float(self.optimizer.param_groups[0].get("rho", usual)) if self.optimizer else usual

    @property
    def parameters(self) -> list[Tensor]:
        """The model that the base optimizer trains."""
        return [one for group in self.base.param_groups for one in group["params"] if one.requires_grad]

    @property
    def num_bytes(self) -> int:
        """The size of these parameters, the unit for memory."""
        return sum(one.numel() * one.element_size() for one in self.parameters)

    def next_batch(self) -> Any:
        """Return the next batch, cycling."""
        return next(self._turn)

    def compute(self, batch: Any) -> Tensor:
        """Compute the loss of a batch, which must be a single number that depends on the parameters."""
        with explained(self.file, "loss failed"):
            value = self.loss(batch)
        where = self.file or self.name
        if not isinstance(value, Tensor):
            raise UserError(f"{where}: loss must return a tensor, got {type(value).__name__}.")
        if value.numel() != 1:
            shape = tuple(value.shape)
            raise UserError(f"{where}: loss must return one number, got shape {shape}. Return its mean: .mean().")
        if not value.requires_grad:
            raise UserError(
                f"{where}: loss has no gradient. Compute it from the model's output, without torch.no_grad(), "
                ".detach() or .item(), and keep requires_grad=True for some parameters."
            )
        if any(one.grad is not None for one in self.parameters):
            raise UserError(f"{where}: loss must not call backward(): only return the loss.")
        return value

    def gradients(self, batch: Any) -> tuple[float, list[Tensor | None]]:
        """Return the loss of a batch and its gradients, which are cleared."""
        self.clear()
        loss = self.compute(batch)
        with explained(self.file, "backward failed"):
            loss.backward()  # type: ignore[no-untyped-call]
        found = [one.grad for one in self.parameters]
        self.clear()
        return float(loss.detach()), found

    def clear(self) -> None:
        """Clear all gradients."""
        for one in [*self.model.parameters(), *self.parameters]:
            one.grad = None

    def closure(self, batch: Any) -> Callable[..., Tensor]:
        """Return a closure for an optimizer's `step`. A pass on a part of the batch runs on all of it."""

        def run(share: float = 1.0) -> Tensor:
            loss: Tensor = self.loss(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        return run


def read_workload(
    name: str,
    *,
    method: str | None = None,
    changes: Sequence[str] = (),
    data_dir: Path | None = None,
    device: str | None = None,
) -> Workload:
    """Return what a recipe trains, or a Python file that defines `model` and `loss`, or registers its parts.

    `loss(model, batch)` is called with each of `batches`; without them, `loss(model)` brings its own data.
    `base` and `optimizer` are optional. A file for `--use` is checked with the recipe fashion-mini. Nothing is
    unpickled, and code under `if __name__ == "__main__"` does not run.

    Args:
        name: of the file or the recipe.
        method: around the base, if the file defines no optimizer, by default vsam-budget.
        changes: settings of the method or, for a recipe, of the recipe, as `key=value`.
        data_dir, device: of the recipe.
    """
    path = Path(name)
    if path.suffix != ".py" and path.is_file() and path.suffix != ".toml":
        raise UserError(
            f"{name} is not a Python file: give one that ends in .py and defines model and loss. Checkpoints and "
            f"pickles are not loaded. For example:{EXAMPLE}"
        )
    if path.suffix != ".py":
        return _from_recipe(name, method, changes, data_dir, device)
    module = load_file(name)
    file = str(module.__file__)
    kinds: dict[Literal["method", "model", "data"], str] = {"method": "method", "model": "model", "data": "data.name"}
    own = [(key, one) for kind, key in kinds.items() for one in list_plugins(kind) if one.origin == file]
    if own and not isinstance(vars(module).get("model"), nn.Module):
        named = {key: plugin.name for key, plugin in reversed(own)}  # the first of each kind
        given = [f"{key}={value}" for key, value in named.items()]
        return _from_recipe("fashion-mini", method, [*given, *changes], data_dir, device)
    if device is not None or data_dir is not None:
        raise UserError("--device and --data-dir are only for recipes: a file makes its own model and data.")
    return _from_file(path, file, vars(module), method, _settings(changes))


def _from_recipe(
    name: str, method: str | None, changes: Sequence[str], data_dir: Path | None, device: str | None
) -> Workload:
    recipe = load_recipe(name, changes=[*changes, *([f"method={method}"] if method else [])])
    where = choose_device(device)
    dataset = load_data(recipe, data_dir, where)
    model: Any = build_model(recipe, dataset).to(where)
    if recipe.channels_last:
        model = model.to(memory_format=torch.channels_last)
    network: Any = torch.compile(model) if recipe.compile else model
    batches = Batches.train(dataset, batch_size=recipe.batch, seed=recipe.seed, channels_last=recipe.channels_last)
    optimizer = build_optimizer(model, recipe, recipe.epochs * len(batches))
    base = build_optimizer(model, recipe.updated(method="sgd"), 1)
    if isinstance(optimizer, vsam.SharpnessAware):
        base = optimizer.base
    objective = build_objective(model, recipe, dataset)

    def loss(batch: Any) -> Tensor:
        with torch.autocast(where.type, torch.bfloat16, enabled=recipe.bf16):
            logits = network(batch.images)
        return objective(logits, batch, 0)

    model.train()
    # Without the last batch of an epoch, which may be smaller.
    chosen = list(itertools.islice(batches.epoch(0), min(_MOST_BATCHES, max(1, len(batches) - 1))))
    own = optimizer if isinstance(optimizer, vsam.SharpnessAware) else None
    return Workload(recipe.name, model, loss, chosen, base, own)


def _from_file(path: Path, file: str, names: dict[str, Any], method: str | None, settings: dict[str, Any]) -> Workload:
    model = names.get("model")
    if not isinstance(model, nn.Module):
        other = next((key for key, value in names.items() if isinstance(value, nn.Module)), None)
        got = f"model must be a torch.nn.Module, got {_kind(model)}. " if "model" in names else ""
        hint = f"It has {other}: write model = {other}." if other else f"Write:{EXAMPLE}"
        raise UserError(f"{path}: {got or 'it defines no model. '}{hint}")
    if not any(one.requires_grad for one in model.parameters()):
        raise UserError(f"{path}: model has no parameters to train: keep requires_grad=True for some.")
    loss, batches = _loss(path, file, names, model)
    optimizer = names.get("optimizer")
    if isinstance(optimizer, vsam.SharpnessAware):
        return Workload(path.name, model, loss, batches, optimizer.base, optimizer, file, names)
    base = names.get("base", optimizer)
    if base is None:
        base = torch.optim.SGD((one for one in model.parameters() if one.requires_grad), lr=0.01, momentum=0.9)
    if not isinstance(base, Optimizer):
        which = "base" if "base" in names else "optimizer"
        raise UserError(f"{path}: {which} must be an optimizer instance, got {_kind(base)}.")
    own = set(model.parameters())
    if not any(one in own and one.requires_grad for group in base.param_groups for one in group["params"]):
        raise UserError(f"{path}: the optimizer trains none of model's parameters: give it model.parameters().")
    found = Workload(path.name, model, loss, batches, base, file=file, names=names)
    found.optimizer = _make(found, method or "vsam-budget", settings)
    return found


def _loss(path: Path, file: str, names: Mapping[str, Any], model: nn.Module) -> tuple[Callable[[Any], Any], list[Any]]:
    """Return the loss as a function of a batch, and some batches."""
    loss: Any = names.get("loss")
    if not inspect.isroutine(loss):
        other = next((key for key in names if "loss" in key.lower() and callable(names[key])), None)
        got = f"loss must be a function, got {_kind(loss)}." if "loss" in names else "it defines no loss."
        hint = f" It has {other}: is that it?" if other and "loss" not in names else ""
        raise UserError(f"{path}: {got}{hint} Write:{EXAMPLE}")
    count = sum(one.default is one.empty for one in inspect.signature(loss).parameters.values())
    given = names.get("batches")
    if count != (1 if given is None else 2):
        needs = "model and batch; without batches in the file, only model"
        raise UserError(f"{path}: loss must take {needs}, got {count} arguments. Write:{EXAMPLE}")
    if given is None:
        return (lambda batch: loss(model)), [None]
    with explained(file, "batches failed"):
        made = given() if inspect.isroutine(given) else given
        is_list = isinstance(made, Iterable) and not isinstance(made, Tensor)
        batches = list(itertools.islice(made, _MOST_BATCHES)) if is_list else []
    if not batches:
        raise UserError(f"{path}: batches must be a list or a loader with at least one batch, got {_kind(made)}.")
    return (lambda batch: loss(model, batch)), batches


def _make(workload: Workload, method: str, settings: Mapping[str, Any]) -> vsam.SharpnessAware:
    """Return the method around the base, with usual values of what it needs."""
    usual: dict[str, Any] = {"rho": workload.rho}
    if method == "vsam-budget":
        usual |= {"budget": 0.2}
    elif method in registry.METHODS and "total_steps" in registry.METHODS[method].takes:
        usual |= {"total_steps": 10**4}
    try:
        return vsam.create(method, workload.base, model=workload.model, **usual | dict(settings))
    except ValueError as error:
        raise UserError(str(error) if "no method" in str(error) else f"{method}: {error}") from error


def _settings(changes: Sequence[str]) -> dict[str, Any]:
    """Parse settings of a method: numbers, or else text."""
    found: dict[str, Any] = {}
    for change in changes:
        key, equals, value = (part.strip() for part in change.partition("="))
        if not equals or not key:
            raise UserError(f"--set needs key=value, got {change!r}.")
        try:
            found[key] = float(value) if not value.lstrip("-").isdigit() else int(value)
        except ValueError:
            found[key] = {"true": True, "false": False}.get(value, value)
    return found


def _kind(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def check_workload(workload: Workload) -> list[Finding]:
    """Check everything that a few passes and dry steps can show, until a problem makes the rest meaningless."""
    optimizer = workload.optimizer or _make(workload, "vsam-budget", {})
    findings = _before_training(workload)
    try:
        findings += _first_pass(workload)
        if any(one.level == "problem" and one.subject == "gradients" for one in findings):
            return findings
        findings += [_repeatability(workload), *_model_argument(workload, optimizer)]
        if not any(one.subject == "repeatability" and one.level == "problem" for one in findings):
            findings.append(_radius(workload))
        with warnings.catch_warnings(record=True) as said, explained(workload.file, "a step failed"):
            warnings.simplefilter("always")
            findings += _dry_run(workload, optimizer)
    except UserError as error:
        return [*findings, Finding("problem", "loss", str(error))]
    return [*findings, *(Finding("note", "warning", str(one.message)) for one in said)]


def _before_training(workload: Workload) -> list[Finding]:
    findings = []
    if names := [name for name, one in workload.model.named_parameters() if one.grad is not None]:
        text = (
            f"{_listed(names)} have gradients before the first step. step(closure) rejects gradients accumulated "
            "outside the closure, because the second pass cannot repeat them: loop over the micro-batches inside the "
            "closure (examples/accumulation.py), or call optimizer.zero_grad()."
        )
        findings.append(Finding("problem", "accumulation", text))
    for name, value in workload.names.items():
        is_torchs = isinstance(value, torch.amp.GradScaler) and not isinstance(value, vsam.amp.GradScaler)
        if is_torchs and value.is_enabled():
            text = f"{name} is torch's GradScaler, which supports only one pass: use vsam.amp.GradScaler instead."
            findings.append(Finding("problem", "loss scaling", text))
    if not workload.model.training:
        findings.append(Finding("note", "mode", "model is in eval mode: call model.train() before training."))
    if any(one.dtype == torch.float16 for one in workload.parameters):
        text = "float16 weights lose small gradients: keep float32 weights and use autocast."
        findings.append(Finding("note", "precision", text))
    return findings


def _first_pass(workload: Workload) -> list[Finding]:
    loss, gradients = workload.gradients(workload.next_batch())
    own: dict[Tensor, str] = {one: name for name, one in workload.model.named_parameters()}
    pairs = list(zip(workload.parameters, gradients, strict=True))
    without = [own.get(one, "a parameter") for one, gradient in pairs if gradient is None]
    norms = [gradient.float().norm() for gradient in gradients if gradient is not None]
    norm = float(torch.stack(norms).norm()) if norms else 0.0
    reasons = {
        f"The loss is {loss}, but must be finite. Check the data and the weights.": abs(loss) < float("inf"),
        "No trained parameter gets a gradient: the loss does not depend on any of them.": bool(norms),
        "The gradient is not finite. Such steps are skipped, so nothing would be learned.": norm < float("inf"),
        "The gradient is zero everywhere: there is no direction to perturb along.": norm != 0,
    }
    if wrong := next((text for text, is_right in reasons.items() if not is_right), None):
        return [Finding("problem", "gradients", wrong)]
    findings = [Finding("ok", "loss", f"{loss:.4g}, gradient norm {norm:.3g}")]
    if norm > _LARGE:
        text = (
            f"The gradient norm, {norm:.3g}, looks like that of a scaled loss. Return the unscaled loss, and scale it "
            "with vsam.amp.GradScaler; use the mean over the batch, not the sum."
        )
        findings.append(Finding("note", "loss scaling", text))
    if without:
        findings.append(Finding("note", "gradients", f"{_listed(without)} get no gradient from this loss."))
    return findings


def _repeatability(workload: Workload) -> Finding:
    """Check that a pass from the same weights and random states gives the same gradient."""
    batch, state = workload.next_batch(), RngState({one.device for one in workload.parameters})
    first = workload.gradients(batch)[1]
    state.restore()
    second = workload.gradients(batch)[1]
    pairs = [(one, other) for one, other in zip(first, second, strict=True) if one is not None and other is not None]
    difference = sum(float((one.double() - other.double()).square().sum()) for one, other in pairs)
    size = sum(float(one.double().square().sum()) for one, _ in pairs)
    share = (difference / size) ** 0.5 if size else 0.0
    if share < 1e-3:
        return Finding("ok", "repeatability", "a second pass repeats the random numbers of the first")
    text = (
        f"Two passes over one batch from the same random state differ by {share:.0%} of the gradient: the second pass "
        "cannot repeat the dropout or augmentation of the first, so the PSF is mostly noise. Use the global "
        "generators of torch, NumPy or random instead of your own, or draw random numbers before the closure."
    )
    return Finding("problem", "repeatability", text)


def _radius(workload: Workload) -> Finding:
    """Find the rho of SAM that raises the loss by a usual fraction, to compare the chosen one with."""
    batches = [(torch.ones(1), batch) for batch in workload.batches]  # whose sizes cannot be read off a batch

    def loss(model: nn.Module, batch: tuple[Tensor, Any]) -> Any:
        with explained(workload.file, "loss failed"):
            return workload.loss(batch[1])

    try:
        rho = vsam.sharpness.radius(workload.model, loss, batches, _USUAL_RISE, mode="unchanged")
    except ValueError as error:
        return Finding("note", "radius", str(error))
    return Finding("ok", "radius", f"SAM's rho = {rho:.2g} raises the loss by {_USUAL_RISE:.0%} at these weights")


def _model_argument(workload: Workload, optimizer: vsam.SharpnessAware) -> list[Finding]:
    """Check what goes wrong if the optimizer does not know the model."""
    if optimizer.model is not None:
        return []
    write = f"write vsam.{type(optimizer).__name__}(base, model=model, …)."
    before = {name: one.detach().clone() for name, one in workload.model.named_buffers()}
    workload.compute(workload.next_batch())
    changed = [name for name, one in workload.model.named_buffers() if not torch.equal(one, before[name])]
    modules = workload.model.modules()
    unknown = "The optimizer does not know the model"
    if changed:
        text = f"{unknown}, so the second pass, at perturbed weights, also updates {_listed(changed)}: {write}"
    elif any(isinstance(one, nn.modules.dropout._DropoutNd) and one.p > 0 for one in modules):
        text = f"{unknown}, so without a closure the second pass cannot repeat dropout: {write}"
    else:
        return [Finding("note", "model=", f"{unknown}. Nothing here needs it, but to be safe {write}")]
    return [Finding("problem", "model=", text)]


def _dry_run(workload: Workload, optimizer: vsam.SharpnessAware) -> list[Finding]:
    """Take a few steps, and see how many of the perturbed weights move. They train the model in this process only."""
    if isinstance(optimizer, vsam.ESAM):
        raise UserError("esam needs per-sample losses, but loss gives one number. Choose another --method.")
    norms = norm_parameters(workload.model)
    groups = [group for group in optimizer.param_groups if group.get("perturb", True)]
    chosen = [one for group in groups for one in group["params"] if one.requires_grad]
    chosen = chosen if optimizer.where.only is None else [one for one in chosen if one in norms]
    num_samples, num_skipped = optimizer.num_samples, optimizer.num_skipped
    moved, rises = list[float](), list[float]()
    for _ in range(_DRY_STEPS):
        run, gradients = workload.closure(workload.next_batch()), list[Any]()
        workload.clear()
        weights = [one.detach().clone() for one in chosen]

        def closure(share: float = 1.0, run: Any = run, weights: Any = weights, gradients: Any = gradients) -> Tensor:
            if gradients:  # the second pass
                rows = zip(chosen, weights, gradients, strict=True)
                known = [((one != old)[gradient != 0]).float() for one, old, gradient in rows if gradient is not None]
                moved.append(float(torch.cat(known).mean()))
            loss: Tensor = run()
            gradients += [] if gradients else [None if one.grad is None else one.grad.clone() for one in chosen]
            return loss

        optimizer.step(closure)
        if optimizer.last is not None and optimizer.last.rise is not None:
            rises.append(optimizer.last.rise)
    workload.clear()
    sampled, skipped = optimizer.num_samples - num_samples, optimizer.num_skipped - num_skipped
    text = f"{_DRY_STEPS} dry steps of {type(optimizer).__name__}, {sampled} with a second gradient"
    steps = Finding("ok", "steps", text)
    if skipped:
        steps = Finding("problem", "steps", f"{text}; {skipped} were skipped as non-finite")
    rho = max(group.get("rho", 0.0) for group in optimizer.param_groups)
    if rho == 0:
        text = "rho is 0: this is the base optimizer at the method's cost."
        return [steps, Finding("note", "perturbation", text)]
    dtypes = ", ".join(sorted({str(one.dtype).removeprefix("torch.") for one in chosen}))
    text = f"rho = {rho:g} moves {max(moved, default=0):.0%} of the {dtypes} weights"
    if moved and max(moved) < 0.5:
        text += (
            ": for the rest, the perturbation is lost in rounding. Keep float32 weights and compute in bfloat16 with "
            "torch.autocast, or use a larger rho."
        )
        return [steps, Finding("problem", "perturbation", text)]
    text += f" and raises the loss by {mean(rises):.0%}" if rises else ""
    return [steps, *([Finding("ok", "perturbation", text)] if moved else [])]


def _listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def costs(
    workload: Workload, seconds: float, budget: float = 0.2, advance: Callable[[float], object] = lambda spent: None
) -> tuple[float, list[dict[str, Any]]]:
    """Return the seconds per step of the base optimizer, and a row for every method, cheapest first.

    Steps of the base, of SAM and of vSAM are timed in alternation at a learning rate of 0. The other times follow from
    their passes. All wrap the same base, so this needs no more memory than training with vSAM. A row has the `method`,
    its `cost` in passes per step, the `time` in multiples of the base's, the bytes `kept` between steps and `extra`
    ones in the second pass (None if they depend on the data), and `is_estimate` if it decides during training.

    Args:
        workload: whose steps are timed.
        seconds: how long, at least five rounds.
        budget: the fraction of sampled steps of vsam-budget.
        advance: called with the seconds spent.
    """
    rounds = _time(workload, seconds, advance)
    ratios = {name: median(one[name] / one["base"] for one in rounds) for name in rounds[0]}
    found = []
    for row in METHODS:
        cost = 1 + budget if row.name == "vsam-budget" else row.passes
        memory = [None if one is None else one * workload.num_bytes for one in (row.buffers or (None, None))]
        plain, sampled = (ratios[kind + (" with memory" if memory[0] else "")] for kind in _KINDS)
        time = plain + (cost - 1) * (sampled - plain)
        if row.name in _FORWARDS:
            time = 1 + ratios["forward"] + _FORWARDS[row.name] * (ratios["sampled"] - ratios["plain"])
        elif not row.parts:
            time = 1.0  # the base alone; the time of its loss is not measured
        about = row.name in _ESTIMATED
        keys = ("method", "cost", "time", "kept", "extra", "is_estimate")
        found.append(dict(zip(keys, (row.name, cost, time, *memory, about), strict=True)))
    return median(one["base"] for one in rounds), sorted(found, key=lambda one: one["time"])


def _time(workload: Workload, seconds: float, advance: Callable[[float], object]) -> list[dict[str, float]]:
    """Time every kind of step once per round, so that the machine is equally busy for all."""
    base, rho = workload.base, vsam.GlobalNorm(workload.rho)
    betweens = {"": vsam.Plain(), " with memory": vsam.Decayed()}
    methods = {
        name: vsam.SharpnessAware(base, model=workload.model, when=vsam.Every(2), where=rho, between=between)
        for name, between in betweens.items()
    }

    def turn(kind: str, batch: Any) -> dict[str, float]:
        if kind == "base":

            def step() -> None:
                base.zero_grad()
                workload.closure(batch)()
                base.step()

            return {kind: _timed(workload, step)}
        if kind == "forward":
            with torch.no_grad():
                return {kind: _timed(workload, lambda: workload.loss(batch))}
        optimizer = methods[kind]
        found = {
            name + kind: _timed(workload, lambda: optimizer.step(workload.closure(batch))) for name in reversed(_KINDS)
        }
        if optimizer.num_skipped:
            raise RunError("Steps cannot be timed: a gradient was not finite, so steps were skipped.")
        return found

    order, kinds, spent, rounds = random.Random(0), ["base", "forward", *methods], 0.0, list[dict[str, float]]()
    with _at_rest(workload), explained(workload.file, "training failed"):
        for kind in kinds:  # the first step of each creates its buffers and warms the caches
            turn(kind, workload.next_batch())
        start = time.monotonic()
        while len(rounds) < _FEWEST_ROUNDS or spent < seconds:
            batch, found = workload.next_batch(), dict[str, float]()
            for kind in order.sample(kinds, len(kinds)):
                found |= turn(kind, batch)
            rounds.append(found)
            spent = time.monotonic() - start
            advance(min(spent, seconds))
    return rounds


def _timed(workload: Workload, work: Callable[[], object]) -> float:
    """Clear the gradients, and return the seconds that the work takes, including its work on the device."""
    device = workload.parameters[0].device
    workload.clear()
    wait = torch.get_device_module(device).synchronize if device.type != "cpu" else lambda: None
    wait()
    start = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - start


@contextmanager
def _at_rest(workload: Workload) -> Iterator[None]:
    """Set the learning rate to 0, so that thousands of steps on a few batches leave the weights unchanged."""
    groups = [group for group in workload.base.param_groups if isinstance(group.get("lr"), float | int)]
    rates = [group["lr"] for group in groups]
    for group in groups:
        group["lr"] = 0.0
    try:
        yield
    finally:
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate
        workload.clear()
