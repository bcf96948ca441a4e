"""What is remembered of the last sample for the steps until the next one, parameter by parameter."""

from torch import Tensor

from vsam import tensors
from vsam.parts import Between
from vsam.step import Step

__all__ = ["Memory", "remember", "reuse"]

Memory = dict[Tensor, Tensor]


def remember(between: Between, step: Step, last: Memory, is_finite: Tensor | None) -> Memory:
    """Return what `between` makes of the step's PSF, in the PSF's own buffers.

    Args:
        between: the part that reuses it.
        step: a sampled one.
        last: what was remembered so far, which stays if the step turns out not to be finite.
        is_finite: whether it is, still on the device; None if it is known to be.
    """
    memory = [step.psf[parameter] for parameter in step.parameters]
    between.remember(memory, step.gradients, step.grad_norm)
    # Two finite gradients may differ by more than their type can hold.
    tensors.zero_unless_(tensors.all_finite(tensors.norms(memory)), memory)
    if is_finite is not None:
        tensors.select_(is_finite, memory, [last.get(parameter) for parameter in step.parameters])
    return step.psf


def reuse(between: Between, step: Step, memory: Memory, age: int | None) -> None:
    """Let `between` change the plain gradients of a step that is not sampled.

    Args:
        between: the part that reuses the memory.
        step: the plain step.
        memory: what `remember` returned last.
        age: of the memory at the step before, 0 right after its sample; None while no sample has counted.
    """
    if age is None:
        return
    known = [parameter for parameter in step.parameters if parameter in memory]
    gradients = [parameter.grad for parameter in known if parameter.grad is not None]
    between.reuse_(gradients, [memory[parameter] for parameter in known], age + 1, step.grad_norm)
