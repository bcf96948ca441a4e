"""One step under way, from its first gradient to the one that the base optimizer gets."""

from collections.abc import Iterable
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from vsam import tensors
from vsam.parts import Where
from vsam.records import Sample
from vsam.second_pass import FrozenStatistics, Generators

__all__ = ["Step"]


class Step:
    """The gradients of one step, and the way back from the perturbed weights.

    Args:
        parameters: those that have a gradient now.
        scaler: who had scaled that gradient, if anybody.
    """

    def __init__(self, parameters: list[Tensor], scaler: object = None) -> None:
        self.parameters, self.scaler = parameters, scaler
        self.norms = tensors.norms(self.gradients)
        self.was_sampled = False
        self.is_listened_to = False
        self.watched: list[Tensor] = []
        self.psf: dict[Tensor, Tensor] = {}
        self._plain: dict[Tensor, Tensor] = {}
        self._sharp_norms: list[Tensor] = []
        self._way_back = ExitStack()

    @property
    def gradients(self) -> list[Tensor]:
        """The gradients as they stand."""
        return [_gradient(parameter) for parameter in self.parameters]

    @property
    def grad_norm(self) -> Tensor:
        """‖g‖ over all parameters, of the first pass."""
        return tensors.total(self.norms)

    def all_finite(self) -> Tensor:
        """Whether every gradient of both passes is finite, still on the device."""
        return tensors.all_finite(self.norms + self._sharp_norms)

    def climb(
        self,
        where: Where,
        rhos: dict[Tensor, float],
        kept: Iterable[Tensor],
        model: nn.Module | None,
        begin: Generators | None,
    ) -> None:
        """Move the weights to w + e and get everything ready for the second pass.

        Args:
            where: the part that knows e.
            rhos: the radius of each parameter that may be moved.
            kept: parameters whose plain gradient is needed again; the others' buffers become e.
            model: the network whose statistics are frozen.
            begin: the generators as they were before the first pass.
        """
        self.was_sampled = True
        kept = set(kept)
        are_shared = len({gradient.data_ptr() for gradient in self.gradients}) < len(self.parameters)
        moved = [parameter for parameter in self.parameters if parameter in rhos]
        copied = [parameter for parameter in moved if parameter in kept or are_shared]
        copies = dict(zip(copied, tensors.copies([_gradient(p) for p in copied]), strict=True))
        offsets = [copies[p] if p in copies else tensors.own(_gradient(p)) for p in moved]
        norms = [norm for parameter, norm in zip(self.parameters, self.norms, strict=True) if parameter in rhos]
        where.to_offsets_(offsets, moved, [rhos[p] for p in moved], norms)
        # Weights that are not finite could make the second pass raise, where the step ought to be skipped.
        tensors.zero_unless_(tensors.all_finite(self.norms), offsets)
        self._plain = {p: tensors.own(_gradient(p)) for p in self.parameters if p in kept}
        for parameter in self.parameters:
            parameter.grad = None
        self._way_back.callback(torch.clear_autocast_cache)  # it holds casts of the weights
        self._way_back.callback(tensors.copy_, moved, tensors.copies(moved))
        tensors.add_(moved, offsets)
        self._way_back.callback(FrozenStatistics(model).thaw)
        self._way_back.callback(Generators({p.device for p in self.parameters}).restore)
        if begin is not None:
            begin.restore()
        torch.clear_autocast_cache()

    def descend(self) -> None:
        """Put weights, statistics and generators back; doing it again does nothing."""
        with torch.no_grad():
            self._way_back.close()

    def sharpen(self, parameters: list[Tensor]) -> None:
        """Take in the second gradients and PSF = gs − g; what only one pass gave counts as zero in the other."""
        is_kept_whole = len(self._plain) == len(self.parameters)
        known = set(self.parameters)
        late = [parameter for parameter in parameters if parameter not in known]
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.parameters.extend(late)
        self._sharp_norms = tensors.norms(self.gradients)
        self.psf, self._plain = self._plain, {}
        tensors.negate_(list(self.psf.values()))
        tensors.add_(list(self.psf.values()), [_gradient(parameter) for parameter in self.psf])
        if is_kept_whole:
            self.psf |= {parameter: _gradient(parameter).clone() for parameter in late}

    def psf_norm(self) -> Tensor | None:
        """‖PSF‖ over all parameters, if it is wanted or known without further work."""
        if self.is_listened_to or len(self.watched) == len(self.parameters):
            return tensors.total(tensors.norms(list(self.psf.values())))
        return None

    def sample(self, is_finite: Tensor) -> Sample:
        """The norms over the watched tensors, and whether they count."""
        # Parameters that came late have no norm, and are not watched.
        norms = dict(zip(self.parameters, self.norms, strict=False))
        psf_norm = tensors.total(tensors.norms([self.psf[parameter] for parameter in self.watched]))
        grad_norm = tensors.total([norms[parameter] for parameter in self.watched])
        return Sample(psf_norm, grad_norm, is_finite)


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
