"""Measure how often vSAM samples on pure noise: the norms are drawn at random from a fixed distribution.

Both norms are log-normal with a standard deviation of 0.1 in the logarithm, independent from sample to sample. The
mean of relative changes is still above zero, so s climbs: the sampling rate depends on alpha and on the length of the
run. Choose alpha for the length of your run.
"""

import random
from statistics import fmean, stdev

import torch

import vsam


def fraction_sampled(alpha: float, num_steps: int, seed: int, noise: float = 0.1) -> float:
    """The fraction of steps that the rule samples, including the start phase."""
    rule = vsam.Variation(alpha=alpha, start=100, seed=seed)
    draw = random.Random(f"norms {seed}").lognormvariate
    num_samples = 0
    for step in range(1, num_steps + 1):
        was_sampled = bool(rule.before(step))
        if was_sampled:
            psf_norm, grad_norm = torch.tensor([draw(0, noise), draw(0, noise)])
            rule.observe(psf_norm, grad_norm)
            num_samples += 1
        rule.advance(step, was_sampled, was_skipped=False)
    return num_samples / num_steps


def main(
    lengths: tuple[int, ...] = (2_000, 7_820, 78_200), alphas: tuple[float, ...] = (0.05, 0.1, 0.13, 0.2, 1.0)
) -> dict[tuple[float, int], float]:
    print("alpha" + "".join(f"{f'{length} steps':>18}" for length in lengths))
    fractions = {}
    for alpha in alphas:
        line = f"{alpha:<5}"
        for length in lengths:
            runs = [fraction_sampled(alpha, length, seed) for seed in range(3)]
            fractions[alpha, length] = fmean(runs)
            line += f"{f'{fmean(runs):.1%} ± {stdev(runs):.1%}':>18}"
        print(line)
    print("fraction of steps sampled, mean ± standard deviation over 3 seeds")
    return fractions


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
