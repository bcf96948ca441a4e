"""Compare a step of SAM in pytorch_optimizer with ours, and print the table as Markdown, in seconds.

python benchmarks/elsewhere.py

Both are used as their docstrings say, around SGD with momentum. Answers come from running them. The memory is what
benchmarks/step_cost.py has written to benchmarks/results.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytorch_optimizer
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

import vsam
from vsam.lab.report.tables import markdown_table

__all__ = ["LIBRARIES", "QUESTIONS", "Library", "Run", "table"]

RESULTS = Path(__file__).parent / "results"
RHO = 0.05
OPTIONS = {"lr": 0.1, "momentum": 0.9}
Closure = Callable[[], Tensor]


@dataclass(frozen=True)
class Library:
    """Make SAM and LookSAM-5 of one library for a model, and take a step of its loop."""

    sam: Callable[..., Optimizer]
    looksam: Callable[..., Optimizer]
    step: Callable[[Optimizer, Closure], Any]


def _first_pass_outside(optimizer: Optimizer, closure: Closure) -> Any:
    closure()
    return optimizer.step(closure)


THEIRS = Library(
    sam=lambda model, **options: pytorch_optimizer.SAM(model.parameters(), SGD, rho=RHO, **options),
    looksam=lambda model, **options: pytorch_optimizer.LookSAM(model.parameters(), SGD, rho=RHO, k=5, **options),
    step=_first_pass_outside,
)
OURS = Library(
    sam=lambda model, **options: vsam.SAM(SGD(model.parameters(), **options), model=model, rho=RHO),
    looksam=lambda model, **options: vsam.LookSAM(SGD(model.parameters(), **options), model=model, rho=RHO, every=5),
    step=lambda optimizer, closure: optimizer.step(closure),
)
LIBRARIES = {f"pytorch_optimizer {metadata.version('pytorch_optimizer')}": THEIRS, "vsam": OURS}


class Run:
    """A small network in double precision with its batches and a closure as for torch: clear, forward, backward."""

    def __init__(self, make: Callable[..., Optimizer], *layers: nn.Module, **options: float) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 16), *layers, nn.Tanh(), nn.Linear(16, 3)).double()
        self.optimizer = make(self.model, **{**OPTIONS, **options})
        self.batches = [(torch.randn(8, 4).double(), torch.randint(3, (8,))) for _ in range(10)]
        self.losses: list[Tensor] = []

    def closure(self, inputs: Tensor, targets: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(inputs), targets)
        loss.backward()
        self.losses.append(loss.detach())
        return loss

    def go(self, step: Callable[[Optimizer, Closure], Any], first: int = 0, last: int = 10) -> Any:
        """Take the steps on these batches, and return the last one's result."""
        returned = None
        for batch in self.batches[first:last]:
            returned = step(self.optimizer, lambda batch=batch: self.closure(*batch))
        return returned

    def weights(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.model.parameters()]


def _plain(model: nn.Module, **options: float) -> Optimizer:
    return SGD(model.parameters(), **options)


def _by_hand(optimizer: Optimizer, closure: Closure) -> None:
    """SAM as its paper writes it."""
    closure()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    before = [p.detach().clone() for p in parameters]
    norm = torch.stack([p.grad.norm() for p in parameters]).norm()
    with torch.no_grad():
        for p in parameters:
            p += RHO * p.grad / norm
    closure()
    with torch.no_grad():
        for p, weight in zip(parameters, before, strict=True):
            p.copy_(weight)
    optimizer.step()


def _are_equal(ones: list[Tensor], others: list[Tensor]) -> bool:
    return all(map(torch.equal, ones, others))


def _is_sam(library: Library, step: Callable[[Optimizer, Closure], Any]) -> bool:
    run, reference = Run(library.sam), Run(_plain)
    run.go(step)
    reference.go(_by_hand)
    return all(torch.allclose(*pair, rtol=1e-9) for pair in zip(run.weights(), reference.weights(), strict=True))


def computes_sam(library: Library) -> bool:
    """In the documented loop, ten steps give the weights of SAM written out by hand."""
    return _is_sam(library, library.step)


def takes_a_closure_alone(library: Library) -> bool:
    """So they do where `step(closure)` is the whole step, as torch's own optimizers take it."""
    return _is_sam(library, lambda optimizer, closure: optimizer.step(closure))


def puts_weights_back(library: Library) -> bool:
    """Without a learning rate the weights do not change by a bit, although the second pass is elsewhere."""
    run = Run(library.sam, lr=0.0)
    before = run.weights()
    run.go(library.step)
    assert run.losses[0] != run.losses[1]
    return _are_equal(run.weights(), before)


def resumes(library: Library) -> bool:
    """From a checkpoint after four of ten steps, SAM and LookSAM end with the same weights to the bit."""
    answers = []
    for make in (library.sam, library.looksam):
        whole, first, second = Run(make), Run(make), Run(make)
        whole.go(library.step)
        first.go(library.step, last=4)
        file = io.BytesIO()
        torch.save([first.model.state_dict(), first.optimizer.state_dict()], file)
        file.seek(0)
        model, optimizer = torch.load(file, weights_only=True)
        second.model.load_state_dict(model)
        second.optimizer.load_state_dict(optimizer)
        second.go(library.step, first=4)
        answers.append(_are_equal(second.weights(), whole.weights()))
    return all(answers)


def _statistics(run: Run, names: tuple[str, ...]) -> list[Tensor]:
    return [value for name, value in run.model.state_dict().items() if name.endswith(names)]


def _first_passes_only(run: Run, names: tuple[str, ...]) -> bool:
    first = Run(_plain, nn.BatchNorm1d(16), lr=0.0)
    first.go(lambda optimizer, closure: closure())
    return _are_equal(_statistics(run, names), _statistics(first, names))


def keeps_statistics(library: Library) -> bool:
    """BatchNorm's buffers are those of first passes alone (at a learning rate of zero, so that all passes compare)."""
    run = Run(library.sam, nn.BatchNorm1d(16), lr=0.0)
    run.go(library.step)
    return _first_passes_only(run, ("running_mean", "running_var", "num_batches_tracked"))


def keeps_statistics_by_hand() -> bool:
    """The same with pytorch_optimizer's own helper around the second pass."""
    run = Run(THEIRS.sam, nn.BatchNorm1d(16), lr=0.0)

    def step(optimizer: Optimizer, closure: Closure) -> None:
        closure()
        pytorch_optimizer.disable_running_stats(run.model)
        optimizer.step(closure)
        pytorch_optimizer.enable_running_stats(run.model)

    run.go(step)
    return _first_passes_only(run, ("running_mean", "running_var"))


def repeats_dropout(library: Library) -> bool:
    """Both passes of a step drop the same units."""
    run, masks = Run(library.sam, nn.Dropout(0.5)), []
    run.model[1].register_forward_hook(lambda layer, inputs, output: masks.append(output == 0))
    run.go(library.step)
    return _are_equal(masks[::2], masks[1::2])


def survives_an_exception(library: Library) -> bool:
    """A second pass that raises, as one that runs out of memory, leaves the weights as before the step."""
    run = Run(library.sam)
    before, num_calls = run.weights(), 0

    def closure() -> Tensor:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 2:
            raise MemoryError
        return run.closure(*run.batches[0])

    try:
        library.step(run.optimizer, closure)
    except MemoryError:
        return _are_equal(run.weights(), before)
    raise AssertionError("there was no second pass")


def skips_not_finite(library: Library) -> bool:
    """A batch with a NaN leaves the weights finite."""
    run = Run(library.sam)
    run.batches[0][0][0, 0] = torch.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run.go(library.step, last=1)
    return all(weight.isfinite().all() for weight in run.weights())


def returns_the_loss(library: Library) -> bool:
    """`step` returns the loss of the first pass."""
    run = Run(library.sam)
    returned = run.go(library.step, last=1)
    return returned is not None and torch.equal(returned.detach(), run.losses[0])


def looksam_passes(library: Library) -> str:
    """Passes per step of LookSAM that renews its direction at every fifth."""
    run = Run(library.looksam)
    run.go(library.step)
    return f"{len(run.losses) / len(run.batches):g}"


QUESTIONS: dict[str, Callable[[Library], bool | str]] = {
    "matches a hand-written SAM": computes_sam,
    "restores the weights to the bit after the second pass": puts_weights_back,
    "resumes from a checkpoint to the bit (SAM and LookSAM)": resumes,
    "takes a whole step in `step(closure)`, as torch's optimizers do": takes_a_closure_alone,
    "returns the loss from `step`": returns_the_loss,
    "keeps BatchNorm's statistics out of the second pass": keeps_statistics,
    "drops the same units in both passes (dropout)": repeats_dropout,
    "restores the weights if the second pass raises an exception": survives_an_exception,
    "skips a step whose gradient is NaN": skips_not_finite,
    "passes per step of LookSAM-5": looksam_passes,
}


def _answer(question: Callable[[Library], bool | str], library: Library) -> str:
    answer = question(library)
    text = answer if isinstance(answer, str) else "yes" if answer else "no"
    if question is keeps_statistics and library is THEIRS and text == "no" and keeps_statistics_by_hand():
        return "with its `disable_running_stats`"
    return text


def _memory() -> tuple[str, str, str]:
    """Return the memory that step_cost.py measured."""
    memory = json.loads((RESULTS / "bench/bench.json").read_text(encoding="utf-8"))["memory"]
    extra = {row["method"]: row["extra"] for row in reversed(memory)}
    theirs = f"{extra['peer-sam']:.0f}, or {extra['peer-sam-foreach']:.0f} with `foreach=True`"
    return "extra copies of the parameters in the second pass", theirs, f"{extra['sam']:.0f}"


def table() -> str:
    """The table, as Markdown."""
    rows = [(name, *(_answer(ask, library) for library in LIBRARIES.values())) for name, ask in QUESTIONS.items()]
    return markdown_table([("SAM around SGD", *LIBRARIES), *rows, _memory()], left=3)


if __name__ == "__main__":
    print(table())
