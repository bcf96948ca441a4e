"""Count the parameter-sized buffers that a step has alive at once, beside the weights."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import vsam
from contract_table import argument

WIDTH = 272  # larger than what LoopWatch copies


class _Buffers(TorchDispatchMode):
    """Counts the storages of at least the parameter's size that were made under it and are alive."""

    def __init__(self, known: list[Tensor]) -> None:
        super().__init__()
        self._known = {tensor.untyped_storage()._cdata for tensor in known}
        self._alive: dict[int, StorageWeakRef] = {}
        self.peak = 0

    @property
    def num_alive(self) -> int:
        self._alive = {key: reference for key, reference in self._alive.items() if not reference.expired()}
        return len(self._alive)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(results):
            if isinstance(tensor, Tensor) and tensor.untyped_storage().nbytes() >= WIDTH * WIDTH * 4:
                storage = tensor.untyped_storage()
                if storage._cdata not in self._known:
                    self._alive[storage._cdata] = StorageWeakRef(storage)
        self.peak = max(self.peak, self.num_alive)
        return results


def _peaks(method: Any, num_steps: int, **options: Any) -> list[tuple[int, int]]:
    """For each step the peak, and what is left after it, with no gradient before the first."""
    model = nn.Linear(WIDTH, WIDTH, bias=False)
    optimizer = method(torch.optim.SGD(model.parameters(), lr=0.1), model=model, **options)
    inputs = torch.randn(4, WIDTH)

    def losses(keep: Tensor | None = None) -> Tensor:
        return model(inputs if keep is None else inputs[keep]).square().mean(dim=1)

    closure = argument("esam" if method is vsam.ESAM else "", losses)
    seen = []
    with _Buffers([model.weight]) as buffers:
        for _ in range(num_steps):
            buffers.peak = 0
            optimizer.step(closure)
            seen.append((buffers.peak, buffers.num_alive))
    return seen


def test_the_base_alone_has_one() -> None:
    """The gradient: the measure itself is right."""
    assert _peaks(vsam.SAM, 4, every=4)[1:] == [(1, 1)] * 3


def test_sam() -> None:
    """A gradient and a copy of the weights. The gradient's buffer serves as e."""
    assert _peaks(vsam.SAM, 3) == [(2, 1)] * 3


def test_asam() -> None:
    """As SAM, and for a moment the weights' sizes and their product with the gradient."""
    assert all(peak <= 4 and left == 1 for peak, left in _peaks(vsam.ASAM, 3))


def test_vsam() -> None:
    """PSF, a copy of the weights, the second gradient, and the last PSF, which a failed step would need again."""
    first, *others = _peaks(vsam.VSAM, 4)
    assert first == (3, 2)
    assert others == [(4, 2)] * 3


def test_vsam_between_samples() -> None:
    """The gradient and the PSF: reusing it takes no further buffer."""
    plain = _peaks(vsam.VSAM, 40, start=1, initial_samples=1, window=40)
    assert plain[-1] in ((2, 2), (4, 2))
    assert (2, 2) in plain


def test_vsam_a_keeps_no_memory() -> None:
    assert all(left == 1 for _, left in _peaks(vsam.VSAM, 3, gamma=0.0))


def test_looksam() -> None:
    """Its direction, the gradients, a copy of the weights, and a product for a moment."""
    for peak, left in _peaks(vsam.LookSAM, 6, every=2):
        assert peak <= 5
        assert left == 2


def test_looksam_that_samples_every_step_is_sam() -> None:
    """There is no step to reuse anything at, so nothing is kept."""
    assert _peaks(vsam.LookSAM, 3, every=1) == _peaks(vsam.SAM, 3)


def test_esam_is_sam() -> None:
    """The subset is a matter of a few numbers."""
    assert _peaks(vsam.ESAM, 3) == _peaks(vsam.SAM, 3)
