"""Measure how much of what SAM adds are the bare kernels that its promises need: `python -m benchmarks.floor`."""

from __future__ import annotations

import argparse
import gc
import random
import time
from statistics import quantiles
from typing import Any

import torch
from torch import Tensor

from benchmarks.step_cost import (
    BASES,
    METHODS,
    WARM_UP,
    WORKLOADS,
    Base,
    Loop,
    Plain,
    Problem,
    Stopwatch,
    single_thread,
)

__all__ = ["Bare", "main", "measure"]

RHO = 0.05
BURST = 3  # steps in a row, of which the first only warms the caches, as in step_cost.py


class Bare(Loop):
    """The kernels of a guarded SAM step and nothing else: no check, no undo, no counter, single precision only."""

    def __init__(self, problem: Problem, base: Base) -> None:
        super().__init__(problem)
        self.parameters: list[Tensor] = list(problem.model.parameters())
        self.optimizer = base.make(self.parameters)
        self.flat = [parameter.detach().view(-1) for parameter in self.parameters]
        self.buffer = torch.cat(self.flat)
        self.copies = [*torch.split(self.buffer, [*map(Tensor.numel, self.flat)])]
        self.one = torch.ones(())

    def take_pass(self) -> list[Any]:
        """Clear the gradients, run forward and backward, return the gradients."""
        for parameter in self.parameters:
            parameter.grad = None
        self.problem.forward_backward()
        return [parameter.grad for parameter in self.parameters]

    def step(self) -> None:
        """Norm, copy of the weights, move, undo, finiteness of the second gradient, and the base's step."""
        self.problem.next_batch()
        first = self.take_pass()
        norm = torch.linalg.vector_norm(torch._C._nn.flatten_dense_tensors(first))
        torch.cat(self.flat, out=self.buffer)
        rest = {"weight_decay": 0.0, "momentum": 0.0, "dampening": 0.0, "nesterov": False, "is_first_step": False}
        with torch.no_grad():
            torch._fused_sgd_(self.parameters, first, [], lr=RHO / float(norm), maximize=True, **rest)
        del first
        second = self.take_pass()
        torch._foreach_copy_(self.flat, self.copies)
        flag = torch.zeros(())
        torch._amp_foreach_non_finite_check_and_unscale_(second, flag, self.one)
        if not flag:
            self.optimizer.step()


def measure(workload: str, seconds: float) -> dict[str, list[float]]:
    """Quartiles of what each adds to its passes and the base's step, in microseconds, in interleaved turns."""
    base, problem = BASES["sgd"], WORKLOADS[workload].build
    loops: dict[str, Loop] = {"base alone": Plain(problem(), base), "bare kernels": Bare(problem(), base)}
    loops |= {one.name: one.make(problem(), base) for one in METHODS if one.name in ("sam", "peer-sam-foreach")}
    watches = {name: Stopwatch(loop) for name, loop in loops.items()}
    outside: dict[str, list[float]] = {name: [] for name in watches}
    shuffle, start = random.Random(0), time.monotonic()
    with single_thread():
        for watch in watches.values():
            for _ in range(WARM_UP):
                watch.loop.step()
        while time.monotonic() - start < seconds or len(next(iter(outside.values()))) < 4:
            for name in shuffle.sample(list(watches), len(watches)):
                times = [watches[name].time(watches[name].loop.step)[1] for _ in range(BURST)]
                outside[name] += [own for own in times[1:] if own is not None]
            gc.collect()
    found = {name: [1e6 * own for own in quantiles(values, n=4)] for name, values in outside.items()}
    clearing = found.pop("base alone")  # what surrounds a pass: the next batch and zero_grad
    return {
        name: [own - 2 * less for own, less in zip(values, clearing, strict=True)] for name, values in found.items()
    }


def main() -> None:
    """Print the table for the workloads that have goals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="per workload (default: 60)")
    seconds = parser.parse_args().seconds
    for workload in ("mlp", "transformer"):
        found = measure(workload, seconds)
        for name, (low, middle, high) in found.items():
            ratios = [one / other for one, other in zip((low, middle), found["peer-sam-foreach"], strict=False)]
            print(
                f"{workload:12} {name:20} adds {middle:6.0f} µs ({low:.0f} to {high:.0f}), "
                f"peer = 1: {ratios[1]:.2f} by the median, {ratios[0]:.2f} by the lower quartile"
            )


if __name__ == "__main__":
    main()
