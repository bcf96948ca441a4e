"""Measure what a method adds to its passes: time, operators, Python calls, device syncs and memory of a step.

python -m benchmarks.step_cost --workloads mlp,transformer --methods sgd,sam,vsam,peer-sam --out results

The SAMs of pytorch_optimizer run alongside if it is installed. benchmarks/README.md says how everything is measured.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import json
import math
import os
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib import metadata
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

import vsam
from benchmarks.counts import count_step, count_steps, typical
from vsam.lab import models
from vsam.lab.environment import describe_environment
from vsam.lab.methods import find_method
from vsam.lab.report.tables import markdown_table

__all__ = ["BASES", "METHODS", "WORKLOADS", "Base", "Loop", "Method", "Ours", "Plain", "Problem", "Workload", "measure"]

LEARNING_RATE = (
    1e-9  # so small that the weights hardly change: no unit dies, and no buffer becomes subnormal, thus slow
)
WARM_UP = 6  # steps before the first round: every buffer exists, and what happens at every fifth step has happened
FEWEST_ROUNDS = 5
NUM_CLASSES, VOCABULARY = 10, 100
NUM_BATCHES = 7  # prime, so that a method that samples every k-th step does not always see the same batches
EVER = 10**9
ROOT = Path(__file__).resolve().parents[1]

READING = (
    "CPU time of one thread; medians of interleaved rounds, quartiles in brackets. Added: the step minus its passes "
    "and the base's own step, which are timed within it. Best peer: the faster SAM of pytorch_optimizer; the brackets "
    "hold a 95 % interval, and ≈ marks a difference within the noise. ESAM's passes are not like SGD's, so nothing can "
    "be subtracted. Memory: resident, beyond the base alone, in multiples of the parameters."
)


@dataclass(frozen=True)
class Base:
    """A torch optimizer and its options."""

    name: str
    kind: type[Optimizer]
    options: dict[str, Any] = field(default_factory=dict)

    def make(self, parameters: Iterable[Tensor]) -> Optimizer:
        return self.kind(parameters, **{"lr": LEARNING_RATE, **self.options})


BASES = {
    base.name: base
    for base in (
        Base("sgd", torch.optim.SGD, {"momentum": 0.9}),
        Base("sgd-fused", torch.optim.SGD, {"momentum": 0.9, "fused": True}),
        Base("adamw", torch.optim.AdamW),
        Base("adamw-fused", torch.optim.AdamW, {"fused": True}),
    )
}


class Problem:
    """A model in training mode, with batches that it cycles through."""

    def __init__(self, model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> None:
        self.model, self._batches = model, cycle(batches)
        self.next_batch()

    def next_batch(self) -> None:
        self.inputs, self.targets = next(self._batches)

    def forward_backward(self, share: float = 1.0) -> Tensor:
        """Run one pass on a fraction of the batch, without clearing the gradients."""
        count = max(2, math.ceil(share * len(self.inputs)))  # BatchNorm needs two
        loss = functional.cross_entropy(self.model(self.inputs[:count]), self.targets[:count])
        loss.backward()
        return loss

    def losses(self, keep: Tensor | None = None) -> Tensor:
        """The losses per sample that ESAM needs."""
        inputs, targets = (self.inputs, self.targets) if keep is None else (self.inputs[keep], self.targets[keep])
        return functional.cross_entropy(self.model(inputs), targets, reduction="none")


@dataclass(frozen=True)
class Workload:
    """A problem of which every method gets a copy. The first of `burst` steps in a row only warms the caches."""

    name: str
    make_model: Callable[[], nn.Module]
    make_inputs: Callable[[], Tensor]
    burst: int

    def build(self) -> Problem:
        """Build the same weights and batches each time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = self.make_model().train()
            inputs = [self.make_inputs() for _ in range(NUM_BATCHES)]
            return Problem(model, [(batch, torch.randint(0, NUM_CLASSES, (len(batch),))) for batch in inputs])


def _mlp(depth: int = 51, width: int = 16) -> nn.Module:
    layers: list[nn.Module] = []
    for number in range(depth):
        linear = nn.Linear(width, NUM_CLASSES if number == depth - 1 else width)
        nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")  # or its gradients would become subnormal
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class _Mean(nn.Module):
    def forward(self, hidden: Tensor) -> Tensor:
        return hidden.mean(dim=1)


def _transformer(width: int = 64, depth: int = 4) -> nn.Module:
    layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=4 * width, dropout=0.1, batch_first=True)
    encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
    return nn.Sequential(nn.Embedding(VOCABULARY, width), encoder, _Mean(), nn.Linear(width, NUM_CLASSES))


def _images() -> Tensor:
    """Return a batch as in training."""
    return torch.randn(64, 3, 32, 32)


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("mlp", _mlp, lambda: torch.randn(8, 16), burst=3),
        Workload("mlp-64", lambda: _mlp(width=64), lambda: torch.randn(8, 64), burst=3),
        Workload("transformer", _transformer, lambda: torch.randint(0, VOCABULARY, (8, 16)), burst=3),
        Workload("transformer-128", lambda: _transformer(128), lambda: torch.randint(0, VOCABULARY, (8, 16)), burst=3),
        Workload("resnet20", lambda: models.build("resnet20", NUM_CLASSES), lambda: torch.randn(8, 3, 32, 32), burst=2),
        Workload("resnet20-64", lambda: models.build("resnet20", NUM_CLASSES), _images, burst=2),
        Workload("resnet18", lambda: models.build("resnet18", NUM_CLASSES), lambda: torch.randn(4, 3, 32, 32), burst=1),
    )
}


class Loop:
    """A training loop with one optimizer and its own copy of the problem."""

    optimizer: Any
    num_sampled = 0

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def step(self) -> None:
        """Take one training step, as in the method's documentation."""
        raise NotImplementedError


class Plain(Loop):
    """The base optimizer alone: the reference, which can be run in two halves."""

    def __init__(self, problem: Problem, base: Base) -> None:
        super().__init__(problem)
        self.optimizer = base.make(problem.model.parameters())

    def take_pass(self) -> None:
        self.problem.next_batch()
        self.optimizer.zero_grad()
        self.problem.forward_backward()

    def step(self) -> None:
        self.take_pass()
        self.optimizer.step()


class Ours(Loop):
    """A method of this library with a closure."""

    def __init__(self, problem: Problem, base: Base, make: Callable[..., vsam.SharpnessAware], **options: Any) -> None:
        super().__init__(problem)
        self.optimizer = make(base.make(problem.model.parameters()), model=problem.model, **options)

    def step(self) -> None:
        self.problem.next_batch()
        is_esam = isinstance(self.optimizer, vsam.ESAM)
        self.optimizer.step(self.problem.losses if is_esam else self.problem.forward_backward)

    @property
    def num_sampled(self) -> int:
        return int(self.optimizer.num_samples)


class Theirs(Loop):
    """pytorch_optimizer's SAM, LookSAM and FriendlySAM: backward runs first, and the closure is the second pass."""

    def __init__(self, problem: Problem, base: Base, method: str, **options: Any) -> None:
        super().__init__(problem)
        kind = getattr(importlib.import_module("pytorch_optimizer"), method)
        model = (problem.model,) if method == "WSAM" else ()
        own = {"lr": LEARNING_RATE, **base.options, **options}
        self.optimizer = kind(*model, problem.model.parameters(), base.kind, **own)
        self._num_steps, self._every = 0, options.get("k", 1)

    def step(self) -> None:
        self.num_sampled += self._num_steps % self._every == 0  # LookSAM runs both passes at every step
        self._num_steps += 1
        self.problem.next_batch()
        self.optimizer.zero_grad()
        self.first_pass()
        self.optimizer.step(self.problem.forward_backward)

    def first_pass(self) -> None:
        self.problem.forward_backward()


class TheirWSAM(Theirs):
    """Runs both passes itself."""

    def first_pass(self) -> None:
        pass


class TheirGSAM(Loop):
    """Wraps a constructed base and receives the batch."""

    def __init__(self, problem: Problem, base: Base) -> None:
        super().__init__(problem)
        library = importlib.import_module("pytorch_optimizer")
        inner = base.make(problem.model.parameters())
        constant = torch.optim.lr_scheduler.ConstantLR(inner, factor=1.0)
        radius = library.ProportionScheduler(constant, max_lr=LEARNING_RATE, max_value=0.05, min_value=0.05)
        self.optimizer = library.GSAM(problem.model.parameters(), inner, problem.model, radius)

    def step(self) -> None:
        self.num_sampled += 1
        self.problem.next_batch()
        self.optimizer.set_closure(functional.cross_entropy, self.problem.inputs, self.problem.targets)
        self.optimizer.step()


@dataclass(frozen=True)
class Method:
    """A method that can be timed.

    Args:
        name: on the command line.
        kind: its training loop.
        options: of the loop.
        passes: gradient passes of a plain and of a sampled step, None if they are not like SGD's.
        keeps: report only steps of this kind (True: sampled).
        base_options: more options of the base, for a peer that sets them itself.
    """

    name: str
    kind: Callable[..., Loop]
    options: dict[str, Any] = field(default_factory=dict)
    passes: tuple[int, int] | None = (1, 2)
    keeps: bool | None = None
    base_options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_peer(self) -> bool:
        return self.name.startswith("peer-")

    def base(self, base: Base) -> Base:
        own = {**base.options, **self.base_options}
        return Base("-".join([base.name, *self.base_options]), base.kind, own)

    def make(self, problem: Problem, base: Base) -> Loop:
        return self.kind(problem, self.base(base), **self.options)


def _ours(name: str, make: Any, passes: tuple[int, int] | None = (1, 2), keeps: Any = None, **options: Any) -> Method:
    return Method(name, Ours, {"make": make, **options}, passes, keeps)


def _theirs(name: str, kind: Any = Theirs, base_options: dict[str, Any] | None = None, **options: Any) -> Method:
    return Method(name, kind, options, passes=(2, 2), base_options=base_options or {})


# Each vSAM twice, always sampling and almost never, so that each round has a step of both kinds.
METHODS = (
    Method("sgd", Plain),
    _ours("sam", vsam.SAM),
    _ours("sam-5", vsam.SAM, every=5),
    _ours("asam", vsam.ASAM),
    _ours("looksam-5", vsam.LookSAM, every=5),
    _ours("ae-sam", vsam.AESAM, total_steps=EVER, high=0.0),
    _ours("esam", vsam.ESAM, passes=None),
    _ours("vsam", vsam.VSAM, keeps=True, start=EVER),
    _ours("vsam", vsam.VSAM, keeps=False, start=2),
    _ours("vsam-a", vsam.VSAM, keeps=True, gamma=0.0, start=EVER),
    _ours("vsam-a", vsam.VSAM, keeps=False, gamma=0.0, start=2),
    _ours("vsam-budget", vsam.VSAM, keeps=True, budget=1.0),
    _ours("vsam-budget", vsam.VSAM, keeps=False, budget=1 / EVER),
    _ours("sam-part", vsam.SAM, passes=None, share=0.1),
    _ours("msam", vsam.MSAM, passes=(1, 1)),
    _theirs("peer-sam", method="SAM"),
    _theirs("peer-sam-foreach", base_options={"foreach": True}, method="SAM"),  # it passes foreach=True on to its base
    _theirs("peer-looksam", method="LookSAM", k=5),
    _theirs("peer-gsam", TheirGSAM),
    _theirs("peer-friendly", method="FriendlySAM"),
    _theirs("peer-wsam", TheirWSAM, method="WSAM"),
)
NAMES = tuple(dict.fromkeys(method.name for method in METHODS))
BEST_PEERS = ("peer-sam", "peer-sam-foreach")


@dataclass(frozen=True)
class Turn:
    """CPU seconds of one turn: the step and, right beside it, a pass and a step of the base alone.

    `outside` is the part of the step outside its passes and the base's own step, None if they cannot be separated.
    `clearing` is the part of the base's pass outside forward and backward.
    """

    sampled: bool
    step: float
    outside: float | None
    base_pass: float
    base_step: float
    clearing: float

    @property
    def to_base(self) -> float:
        return self.step / (self.base_pass + self.base_step)

    def added(self, passes: int) -> float:
        """The step minus its passes and the base's own step, as a multiple of the base's whole step."""
        if self.outside is not None:
            rest = self.outside - passes * self.clearing
        else:
            rest = self.step - passes * self.base_pass - self.base_step
        return rest / (self.base_pass + self.base_step)


class Stopwatch:
    """Time what runs inside a loop's step: its passes and the base optimizer's own step."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.inside, self.num_passes = loop, 0.0, 0
        optimizer, problem = loop.optimizer, loop.problem
        base = vars(optimizer).get("base") or vars(optimizer).get("base_optimizer") or optimizer
        problem.forward_backward = self._timed(problem.forward_backward, 1)
        base.step = self._timed(base.step, 0)

    def _timed(self, function: Callable[..., Any], num_passes: int) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            start = time.thread_time()
            result = function(*arguments)
            self.inside += time.thread_time() - start
            self.num_passes += num_passes
            return result

        return timed

    def time(self, function: Callable[[], Any]) -> tuple[float, float | None]:
        """Return the time of a call, and the part of it which is not inside, None if no pass was seen."""
        self.inside, self.num_passes = 0.0, 0
        start = time.thread_time()
        function()
        elapsed = time.thread_time() - start
        return elapsed, elapsed - self.inside if self.num_passes else None


@contextmanager
def single_thread() -> Iterator[None]:
    """Compute with one thread, and without garbage collection in the middle of a step."""
    num_threads, was_enabled = torch.get_num_threads(), gc.isenabled()
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        torch.set_num_threads(num_threads)
        if was_enabled:
            gc.enable()


def time_rounds(
    workload: Workload, base: Base, methods: Sequence[Method], rounds: int, seconds: float
) -> list[list[Turn]]:
    """Return the turns of each method. All take turns in every round, in a new random order."""
    shuffle = random.Random(0)
    bases = {own.name: own for own in (method.base(base) for method in methods)}
    references = {name: Stopwatch(Plain(workload.build(), own)) for name, own in bases.items()}
    seats = [(Stopwatch(method.make(workload.build(), base)), references[method.base(base).name]) for method in methods]
    turns: list[list[Turn]] = [[] for _ in methods]
    with single_thread():
        for watch, reference in seats:
            for _ in range(WARM_UP):
                watch.loop.step()
                reference.loop.step()
        start = time.monotonic()
        for number in range(rounds):
            if number >= FEWEST_ROUNDS and time.monotonic() - start > seconds:
                break
            for place in shuffle.sample(range(len(seats)), len(seats)):
                turns[place] += _take_turn(*seats[place], workload.burst, reference_first=shuffle.random() < 0.5)
            gc.collect()
    return turns


def _take_turn(watch: Stopwatch, reference: Stopwatch, burst: int, reference_first: bool) -> list[Turn]:
    """Return a turn for each kind of step that occurred."""

    def time_reference() -> tuple[float, float, float]:
        times = []
        for _ in range(burst):
            whole, clearing = reference.time(reference.loop.take_pass)
            times.append((whole, reference.time(reference.loop.optimizer.step)[0], clearing))
        base_pass, base_step, clearing = (median(column) for column in zip(*(times[1:] or times), strict=True))
        return base_pass, base_step, clearing

    before = time_reference() if reference_first else None
    steps = []
    for _ in range(burst):
        count = watch.loop.num_sampled
        step, outside = watch.time(watch.loop.step)
        steps.append((watch.loop.num_sampled > count, step, outside))
    alone = before or time_reference()
    turns = []
    for kind in dict.fromkeys(sampled for sampled, _, _ in steps[1:] or steps):
        own = [one for one in steps[1:] or steps if one[0] is kind]
        outsides = [outside for _, _, outside in own if outside is not None]
        turns.append(Turn(kind, median(one[1] for one in own), median(outsides) if outsides else None, *alone))
    return turns


def _medians(values: Sequence[float]) -> Any:
    return np.median(np.random.default_rng(0).choice(values, (1000, len(values))), axis=1)


def _spread(values: Sequence[float], scale: float = 1.0) -> dict[str, Any]:
    low, middle, high = (scale * np.percentile(values, [25, 50, 75])).tolist()
    interval = (scale * np.percentile(_medians(values), [2.5, 97.5])).tolist()
    return {"median": middle, "low": low, "high": high, "interval": interval}


def _ratio(values: Sequence[float], others: Sequence[float]) -> dict[str, Any]:
    """Return the ratio of two medians, and its 95 % interval, which is None if the divisor may be zero."""
    divisors = _medians(others)
    interval = None if divisors.min() <= 0 else np.percentile(_medians(values) / divisors, [2.5, 97.5]).tolist()
    is_ranked = interval is not None and not interval[0] <= 1 <= interval[1]
    return {"value": median(values) / median(others), "interval": interval, "ranked": is_ranked}


def make_rows(
    where: tuple[str, str], methods: Sequence[Method], turns: Sequence[Sequence[Turn]]
) -> list[dict[str, Any]]:
    """Return a row for each method and kind of step that occurred at least twice."""
    rows, added = [], {}
    for method, taken in zip(methods, turns, strict=True):
        for kind in (True, False):
            own = [turn for turn in taken if turn.sampled is kind]
            if method.keeps not in (None, kind) or len(own) < 2:
                continue
            row = dict(zip(("workload", "base"), where, strict=True))
            row |= {"method": method.name, "kind": "sampled" if kind else "plain", "num_turns": len(own)}
            row |= {"step_ms": _spread([turn.step for turn in own], 1e3)}
            row |= {"to_base": _spread([turn.to_base for turn in own]), "added_ms": None, "added_to_best_peer": None}
            if method.passes is not None:
                unit = median(turn.base_pass + turn.base_step for turn in own)
                added[method.name, row["kind"]] = [unit * turn.added(method.passes[kind]) for turn in own]
                row["added_ms"] = _spread(added[method.name, row["kind"]], 1e3)
            rows.append(row)
    best = min((values for (name, _), values in added.items() if name in BEST_PEERS), key=median, default=None)
    for row in rows:
        values = added.get((row["method"], row["kind"]))
        if best is not None and values is not None and row["method"] != "sgd":
            row["added_to_best_peer"] = _ratio(values, best)
    return rows


def count(workload: Workload, base: Base, methods: Sequence[Method]) -> list[dict[str, Any]]:
    """Return the counts of every method's typical steps, and what they add to the passes and the base's step."""
    found = []
    with single_thread():
        for method in methods:
            one, other = (Plain(workload.build(), method.base(base)) for _ in range(2))
            for loop in (one, other, one, other):
                loop.step()
            halves = (
                count_step(one.take_pass, other.take_pass),
                count_step(one.optimizer.step, other.optimizer.step),
            )
            steps = count_steps(lambda method=method: method.make(workload.build(), base), num_steps=6)
            for kind in (True, False):
                counts = typical(steps, kind)
                if counts is not None and method.keeps in (None, kind):
                    added = counts.beyond(method.passes[kind], *halves) if method.passes else None
                    where = {"workload": workload.name, "base": base.name, "method": method.name}
                    where["kind"] = "sampled" if kind else "plain"
                    found.append({**where, "counts": asdict(counts), "added": added and asdict(added)})
    return found


USUAL, HUGE = (4096, 4096, 8), (20_000, 25_000, 3)  # rows, columns and steps; huge: 500 million weights in one tensor


def measure_memory(method: str, base: str, size: tuple[int, int, int]) -> dict[str, float]:
    """Return a method's kept and peak memory in multiples of the parameters, measured by a process of its own."""
    command = [sys.executable, "-m", "benchmarks.step_cost", "--memory-of", method, "--base", base]
    command += ["--size", ",".join(map(str, size))]
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise RuntimeError(f"Measuring the memory of {method} failed: {reason[0]}")
    return json.loads(done.stdout)


def memory_rows(methods: Sequence[Method], base: str, size: tuple[int, int, int]) -> list[dict[str, Any]]:
    """Return every method's memory beyond the base alone: its buffers, and the peak on top of them."""
    alone, rows = measure_memory("sgd", base, size), []
    for name in dict.fromkeys(method.name for method in methods if method.name != "sgd"):
        own = measure_memory(name, base, size)
        kept, peak = (own[key] - alone[key] for key in ("kept", "peak"))
        row = {"method": name, "kept": kept, "extra": peak - kept, "promise": find_method(name).buffers}
        rows.append({**row, "parameter_bytes": 4 * size[0] * size[1]})
    return rows


def read_status(name: str) -> int:
    """Return a line of /proc/self/status in bytes: VmRSS is resident memory now, VmHWM its peak."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _measure_own_memory(name: str, base: Base, size: tuple[int, int, int]) -> dict[str, float]:
    """Train one large layer on a batch of two, whose tensors the C library gives back as soon as they are freed."""
    method = next(method for method in METHODS if method.name == name)  # of vSAM's two, the one that samples

    def train(rows: int, columns: int) -> Loop:
        batch = (torch.randn(2, columns), torch.zeros(2, dtype=torch.long))
        loop = method.make(Problem(nn.Linear(columns, rows, bias=False), [batch]), base)
        for _ in range(size[2]):
            loop.step()
        return loop

    torch.set_num_threads(1)
    train(8, 8)  # loads everything that is loaded on first use
    gc.collect()
    before, unit = read_status("VmRSS"), 4 * size[0] * size[1]
    alive = train(*size[:2])
    found = {"kept": (read_status("VmRSS") - before) / unit, "peak": (read_status("VmHWM") - before) / unit}
    del alive
    return found


def peers_version() -> str | None:
    """Return the version of pytorch_optimizer, None if it is missing or older than 4.1."""
    if importlib.util.find_spec("pytorch_optimizer") is None:
        return None
    version = metadata.version("pytorch_optimizer")
    return version if tuple(int(part) for part in version.split(".")[:2]) >= (4, 1) else None


def measure(options: argparse.Namespace) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the rows of each measurement with its name: times, counts or memory."""
    chosen = [method for method in METHODS if method.name in options.methods]
    if peers_version() is None:
        chosen = [method for method in chosen if not method.is_peer]
    for name in options.workloads:
        for base in (BASES[base] for base in options.base):
            print(f"{name}, {base.name}", file=sys.stderr, flush=True)
            is_fused = base.options.get("fused", False)  # torch does not allow it together with foreach
            own = [method for method in chosen if not (is_fused and method.base_options)]
            turns = time_rounds(WORKLOADS[name], base, own, options.rounds, options.seconds)
            yield "times", make_rows((name, base.name), own, turns)
            yield "counts", count(WORKLOADS[name], base, own)
    base = next((name for name in options.base if not BASES[name].options.get("fused")), "sgd")
    for is_wanted, size in ((options.memory, USUAL), (options.huge, HUGE)):
        if is_wanted and Path("/proc/self/status").exists():
            print(f"memory, {size[0] * size[1]:,} weights", file=sys.stderr, flush=True)
            yield "memory", memory_rows(chosen, base, size)


def page(found: dict[str, list[dict[str, Any]]], command: str, facts: dict[str, Any]) -> str:
    """Return a Markdown page with all tables."""
    where = ("workload", "base", "method", "step")
    times = [(*where, "turns", "step ms", "base alone = 1", "added ms", "best peer = 1")]
    for row in found["times"]:
        spreads = (_words(row["step_ms"]), _words(row["to_base"]), _words(row["added_ms"]))
        times.append((*_where(row), str(row["num_turns"]), *spreads, _ranked(row["added_to_best_peer"])))
    names = ("operators", "calls", "syncs")
    counts = [(*where, "passes", *names, *(f"{name} added" for name in names[:2]))]
    for row in found["counts"]:
        own, added = row["counts"], row["added"] or {}
        numbers = [own["passes"], *(own[name] for name in names), *(added.get(name, "–") for name in names[:2])]
        counts.append((*_where(row), *map(str, numbers)))
    memory = [("method", "MiB of parameters", "kept", "+ at the peak", "promised")]
    for row in found["memory"]:
        promise = "{} + {}".format(*row["promise"]) if row["promise"] else "–"
        size = f"{row['parameter_bytes'] / 2**20:,.0f}"
        memory.append((row["method"], size, f"{abs(row['kept']):.2f}", f"{row['extra']:.2f}", promise))
    head = f"# What a step costs\n\n`{command}`\n\n{json.dumps(facts)}\n\n{READING}\n"
    tables = [("Time", times, 4), ("Counts", counts, 4), ("Memory", memory, 1)]
    shown = [f"## {title}\n\n{markdown_table(lines, left)}" for title, lines, left in tables if len(lines) > 1]
    return "\n".join([head, *shown])


def _where(row: dict[str, Any]) -> tuple[str, ...]:
    return row["workload"], row["base"], row["method"], row["kind"]


def _words(spread: dict[str, Any] | None) -> str:
    return "–" if spread is None else "{median:.2f} ({low:.2f}–{high:.2f})".format(**spread)


def _ranked(ratio: dict[str, Any] | None) -> str:
    if ratio is None or ratio["interval"] is None:
        return "–" if ratio is None else "noise"
    low, high = ratio["interval"]
    return f"{'' if ratio['ranked'] else '≈ '}{ratio['value']:.2f} ({low:.2f}–{high:.2f})"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options. Names are tuples, and `all` means all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def some(known: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
        def names(text: str) -> tuple[str, ...]:
            chosen = tuple(known) if text == "all" else tuple(text.split(","))
            if unknown := set(chosen) - set(known):
                raise argparse.ArgumentTypeError(f"unknown {min(unknown)!r}; known: all, {', '.join(known)}")
            return chosen

        return names

    parser.add_argument("--workloads", type=some(WORKLOADS), default=tuple(WORKLOADS), help="comma-separated, or all")
    parser.add_argument("--methods", type=some(NAMES), default=NAMES, help=f"of {', '.join(NAMES)}")
    parser.add_argument("--base", type=some(BASES), default=("sgd", "sgd-fused"), help=f"of {', '.join(BASES)}")
    parser.add_argument("--rounds", type=int, default=200, help="at most, per workload and base")
    parser.add_argument("--seconds", type=float, default=120.0, help="of timing per workload and base")
    parser.add_argument("--no-memory", dest="memory", action="store_false", help="skip the memory")
    parser.add_argument("--huge", action="store_true", help="also one tensor of 500 million weights (14 GiB)")
    parser.add_argument("--out", type=Path, help="folder for step_cost.json and step_cost.md")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=lambda text: tuple(map(int, text.split(","))), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> None:
    """Measure, print the page, and write it. An interrupt keeps the measurements so far."""
    options = parse()
    if options.memory_of:
        print(json.dumps(_measure_own_memory(options.memory_of, BASES[options.base[0]], options.size)))
        return
    found: dict[str, list[dict[str, Any]]] = {"times": [], "counts": [], "memory": []}
    try:
        for name, rows in measure(options):
            found[name] += rows
    except KeyboardInterrupt:
        print("Interrupted: the rest was not measured.", file=sys.stderr)
    command = shlex.join(["python", "-m", "benchmarks.step_cost", *sys.argv[1:]])
    facts = {**describe_environment(torch.device("cpu")), "threads": 1, "pytorch_optimizer": peers_version()}
    text = page(found, command, facts)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        record = {"command": command, "environment": facts, **found}
        (options.out / "step_cost.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        (options.out / "step_cost.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
