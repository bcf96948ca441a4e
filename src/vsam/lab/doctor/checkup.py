"""Checks of a user's model, loss and optimizer with a few passes and dry steps."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

import vsam
from vsam.lab.doctor.dry_run import DryRun, dry_run
from vsam.lab.doctor.finding import Finding, note, ok, problem
from vsam.lab.errors import UserError
from vsam.lab.subject.subject import Subject, explained, quiet_output
from vsam.rng import RngState

__all__ = ["check_subject", "make_optimizer"]

_LARGE = 1e4  # a larger gradient norm usually comes from a scaled loss
_FEW = 0.5


def check_subject(subject: Subject, optimizer: vsam.SharpnessAware) -> list[Finding]:
    """Everything that a few passes and steps can show; stops at problems that make the rest meaningless."""
    findings = [*_accumulated(subject), *_scaler(subject)]
    subject.clear()
    try:
        findings += _first_pass(subject)
        if any(one.level == "problem" and one.subject == "gradients" for one in findings[-2:]):
            return findings
        findings += _repeatability(subject)
        findings += _model_argument(subject, optimizer)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with explained(subject.file, "a step failed"), quiet_output():
                run = dry_run(subject, optimizer)
    except UserError as error:
        return [*findings, problem("loss", str(error))]
    return [*findings, *_steps(run), *_offset(subject, run), *(note("warning", str(one.message)) for one in said)]


def make_optimizer(subject: Subject, method: str, settings: Mapping[str, Any]) -> vsam.SharpnessAware:
    """The user's own optimizer, or the method wrapped around the base."""
    if subject.optimizer is not None:
        return subject.optimizer
    try:
        made = vsam.create(method, subject.base, model=subject.model, **{"rho": subject.rho, **settings})
    except ValueError as error:
        raise UserError(f"{method}: {error}") from error
    return made


def _accumulated(subject: Subject) -> list[Finding]:
    names = [name for name, one in subject.model.named_parameters() if one.grad is not None]
    if not names:
        return []
    return [
        problem(
            "accumulation",
            f"{_listed(names)} have gradients before the first step. step(closure) rejects gradients accumulated "
            "outside the closure, because the second pass cannot repeat them: loop over the micro-batches inside the "
            "closure (examples/accumulation.py), or call optimizer.zero_grad().",
        )
    ]


def _scaler(subject: Subject) -> list[Finding]:
    for name, value in subject.names.items():
        is_foreign = isinstance(value, torch.amp.GradScaler) and not isinstance(value, vsam.amp.GradScaler)
        if is_foreign and value.is_enabled():
            return [
                problem(
                    "loss scaling",
                    f"{name} is torch's GradScaler, which supports only one pass: use vsam.amp.GradScaler instead.",
                )
            ]
    return []


def _first_pass(subject: Subject) -> list[Finding]:
    """Loss and gradients of one batch."""
    loss = subject.compute(subject.next_batch())
    subject.backward(loss)
    value = float(loss.detach())
    if not torch.isfinite(loss.detach()):
        return [problem("gradients", f"The loss is {value}, but must be finite. Check the data and the weights.")]
    own: dict[Tensor, str] = {one: name for name, one in subject.model.named_parameters()}
    parameters = subject.parameters
    without = [own.get(one, "a parameter") for one in parameters if one.grad is None]
    gradients = [one.grad.float() for one in parameters if one.grad is not None]
    subject.clear()
    if not gradients:
        return [problem("gradients", "No trained parameter gets a gradient: the loss does not depend on any of them.")]
    norm = float(torch.stack([one.norm() for one in gradients]).norm())
    findings = [ok("loss", f"{value:.4g}, gradient norm {norm:.3g}")]
    if norm != norm or norm == float("inf"):
        return [
            problem("gradients", "The gradient is not finite. Such steps are skipped, so nothing would be learned.")
        ]
    if norm == 0:
        return [problem("gradients", "The gradient is zero everywhere: there is no direction to perturb along.")]
    if norm > _LARGE:
        findings.append(
            note(
                "loss scaling",
                f"The gradient norm, {norm:.3g}, looks like that of a scaled loss. Return the unscaled loss, and scale "
                "it with vsam.amp.GradScaler; use the mean over the batch, not the sum.",
            )
        )
    if without:
        findings.append(note("gradients", f"{_listed(without)} get no gradient: this loss does not use them."))
    if not subject.model.training:
        findings.append(note("mode", "model is in eval mode: call model.train() before training."))
    half = {str(one.dtype).removeprefix("torch.") for one in parameters} & {"float16"}
    if half:
        findings.append(
            note("precision", "float16 weights lose small gradients: keep float32 weights and use autocast.")
        )
    return findings


def _repeatability(subject: Subject) -> list[Finding]:
    """Whether a pass is repeatable: the same gradient from the same weights and RNG state."""
    batch, state = subject.next_batch(), RngState({one.device for one in subject.parameters})
    first = _gradients(subject, batch)
    state.restore()
    second = _gradients(subject, batch)
    if len(first) != len(second):
        return [note("repeatability", "Two passes over one batch give gradients to different parameters.")]
    difference = float(sum((one - other).square().sum() for one, other in zip(first, second, strict=True)))
    size = float(sum(one.square().sum() for one in first))
    share = (difference / size) ** 0.5 if size else 0.0
    if share < 1e-3:
        return [ok("repeatability", "a second pass repeats the dropout and other random numbers of the first")]
    return [
        problem(
            "repeatability",
            f"Two passes over one batch from the same RNG state differ by {share:.0%} of the gradient: the second pass "
            "cannot repeat the dropout or augmentation of the first, so the PSF is mostly noise. Use the global "
            "generators of torch, NumPy or random instead of your own, or draw random numbers before the closure.",
        )
    ]


def _gradients(subject: Subject, batch: Any) -> list[Tensor]:
    subject.clear()
    subject.backward(subject.compute(batch))
    found = [one.grad.detach().double().cpu() for one in subject.parameters if one.grad is not None]
    subject.clear()
    return found


def _model_argument(subject: Subject, optimizer: vsam.SharpnessAware) -> list[Finding]:
    """What goes wrong if the optimizer does not know the model."""
    if optimizer.model is not None:
        return []
    write = f"write vsam.{type(optimizer).__name__}(base, model=model, …)"
    before = {name: one.detach().clone() for name, one in subject.model.named_buffers()}
    subject.compute(subject.next_batch())
    changed = [name for name, one in subject.model.named_buffers() if not torch.equal(one, before[name])]
    if changed:
        return [
            problem(
                "model=",
                f"The optimizer does not know the model, so the second pass, at perturbed weights, also updates "
                f"{_listed(changed)}: {write}.",
            )
        ]
    has_dropout = any(isinstance(one, nn.modules.dropout._DropoutNd) and one.p > 0 for one in subject.model.modules())
    if has_dropout:
        why = "In a loop without a closure, the second pass cannot repeat dropout unless the optimizer knows the model"
        return [problem("model=", f"{why}: {write}.")]
    return [note("model=", f"The optimizer does not know the model. Nothing here needs it, but to be safe {write}.")]


def _steps(run: DryRun) -> list[Finding]:
    if run.num_skipped:
        return [problem("steps", f"{run.num_skipped} of {run.num_steps} dry steps were skipped as non-finite.")]
    return [ok("steps", f"{run.num_steps} dry steps of {run.method}, {run.num_samples} with a second gradient")]


def _offset(subject: Subject, run: DryRun) -> list[Finding]:
    """Whether the perturbation moves the weights at all."""
    if run.moved is None:
        return []
    dtypes = ", ".join(sorted({str(one.dtype).removeprefix("torch.") for one in subject.parameters}))
    text = f"rho = {run.rho:g} moves {run.moved:.0%} of the {dtypes} weights"
    if run.moved >= _FEW:
        return [ok("perturbation", text)]
    if run.rho == 0:
        return [note("perturbation", "rho is 0: this is the base optimizer at the method's price.")]
    return [
        problem(
            "perturbation",
            f"{text}: for the rest, the perturbation is lost in rounding. Keep float32 weights and compute in bfloat16 "
            "with torch.autocast, or use a larger rho.",
        )
    ]


def _listed(names: list[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
