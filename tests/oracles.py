"""Slow float64 twins of every method, written from the formulas alone: what the library is held against.

Weights and gradients are flat vectors, a gradient is a function of the weights, and nothing is kept up to date that can
be worked out from the whole history.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from fractions import Fraction

import torch
from torch import Tensor, nn

__all__ = [
    "AESAM",
    "ASAM",
    "GSAM",
    "MSAM",
    "SAM",
    "SGD",
    "VSAM",
    "WSAM",
    "AdamW",
    "AdaptiveMSAM",
    "BiLoRA",
    "FriendlySAM",
    "LookSAM",
    "ReleasedVSAM",
    "Twin",
    "flat",
    "flat_batches",
    "flat_gradient",
    "flat_loss",
    "is_matrix",
    "smooth_network",
]

Gradient = Callable[[Tensor], Tensor]
Base = Callable[[Tensor, Tensor], Tensor]

_SIZES = (6, 8, 8, 4)
_SAMPLES = 64


def smooth_network(seed: int) -> nn.Sequential:
    """A float64 network of tanh units, whose loss `flat_loss` writes out again."""
    generator = torch.Generator().manual_seed(seed)
    network = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return network


def flat(network: nn.Module) -> Tensor:
    """All weights in one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


def is_matrix() -> Tensor:
    """For each coordinate of `smooth_network`, whether it belongs to a tensor of two dimensions."""
    pairs = itertools.pairwise(_SIZES)
    return torch.cat([torch.tensor([True] * a * b + [False] * b) for a, b in pairs])


def flat_batches(seed: int, count: int, size: int = 16) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and labels, drawn again and again from the same few samples."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(_SAMPLES, _SIZES[0], generator=generator, dtype=torch.float64)
    labels = torch.randint(_SIZES[-1], (_SAMPLES,), generator=generator)
    for _ in range(count):
        chosen = torch.randint(_SAMPLES, (size,), generator=generator)
        yield inputs[chosen], labels[chosen]


def flat_loss(w: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of `smooth_network` as a function of one vector."""
    values, begin = inputs, 0
    for a, b in itertools.pairwise(_SIZES):
        matrix, bias = w[begin : begin + a * b].view(b, a), w[begin + a * b : begin + a * b + b]
        values = (torch.tanh(values) if begin else values) @ matrix.T + bias
        begin += a * b + b
    picked = values[torch.arange(len(labels)), labels]
    return (values.exp().sum(dim=1).log() - picked).mean()


def flat_gradient(w: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    """The gradient of `flat_loss` at `w`."""
    w = w.detach().requires_grad_()
    with torch.enable_grad():
        return torch.autograd.grad(flat_loss(w, inputs, labels), w)[0]


class SGD:
    """w ← w − lr·b with b ← momentum·b + g + decay·w."""

    def __init__(self, lr: float, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        self.velocity: Tensor | float = 0.0

    def __call__(self, w: Tensor, g: Tensor) -> Tensor:
        self.velocity = self.momentum * self.velocity + g + self.weight_decay * w
        return w - self.lr * self.velocity


class AdamW:
    """Loshchilov and Hutter's algorithm 2, with torch's decay lr·λ·w."""

    def __init__(self, lr: float, betas: tuple[float, float] = (0.9, 0.999), weight_decay: float = 0.01) -> None:
        self.lr, self.betas, self.weight_decay = lr, betas, weight_decay
        self.first: Tensor | float = 0.0
        self.second: Tensor | float = 0.0
        self.t = 0

    def __call__(self, w: Tensor, g: Tensor) -> Tensor:
        b1, b2 = self.betas
        self.t += 1
        self.first = b1 * self.first + (1 - b1) * g
        self.second = b2 * self.second + (1 - b2) * g * g
        first, second = self.first / (1 - b1**self.t), self.second / (1 - b2**self.t)
        return w - self.lr * self.weight_decay * w - self.lr * first / (second**0.5 + 1e-8)


class Twin:
    """A method. `direction` returns the base's gradient, `sampled` is the whole history."""

    def __init__(self, base: Base, rho: float | Tensor) -> None:
        self.base, self.rho = base, rho
        self.sampled: list[bool] = []
        self.grad_norm: float = 0.0
        self.psf_norm: float | None = None
        self.in_force: tuple[float | None, ...] = (None, None, None)  # s, ĉ_var, ĉ_norm

    def step(self, w: Tensor, gradient: Gradient) -> Tensor:
        """The next weights."""
        g = gradient(w)
        self.grad_norm, self.psf_norm = float(g.norm()), None
        return self.base(w, self.direction(w, g, gradient))

    def direction(self, w: Tensor, g: Tensor, gradient: Gradient) -> Tensor:
        raise NotImplementedError

    def sharp(self, w: Tensor, g: Tensor, gradient: Gradient) -> Tensor:
        """SAM: the gradient at w + e, e = ρ·g / (‖g‖ + 1e-12). ρ may differ between coordinates."""
        gs = gradient(w + self.rho * g / (g.norm() + 1e-12))
        self.psf_norm = float((gs - g).norm())
        return gs

    @property
    def age(self) -> int | None:
        """Steps since the last sample."""
        return self.sampled[::-1].index(True) if True in self.sampled else None


class SAM(Twin):
    """SAM, SAM-k (step 1 samples, then every k-th), and late SAM, which samples from step `first` on."""

    def __init__(self, base: Base, rho: float | Tensor, every: int = 1, first: int = 1) -> None:
        super().__init__(base, rho)
        self.every, self.first = every, first

    def direction(self, w: Tensor, g: Tensor, gradient: Gradient) -> Tensor:
        number = len(self.sampled) + 1
        self.sampled.append(number >= self.first and (number - 1) % self.every == 0)
        return self.sharp(w, g, gradient) if self.sampled[-1] else g


class ASAM(Twin):
    """e = ρ·t²g / (‖t g‖ + 1e-12), t = |w| + η on matrices and 1 elsewhere."""

    def __init__(self, base: Base, rho: float | Tensor, eta: float, is_matrix: Tensor) -> None:
        super().__init__(base, rho)
        self.eta, self.is_matrix = eta, is_matrix

    def direction(self, w: Tensor, g: Tensor, gradient: Gradient) -> Tensor:
        self.sampled.append(True)
        t = torch.where(self.is_matrix, w.abs() + self.eta, 1.0)
        gs = gradient(w + self.rho * t * t * g / ((t * g).norm() + 1e-12))
        self.psf_norm = float((gs - g).norm())
        return gs


class FriendlySAM(Twin):
    """e = ρ·d / (‖d‖ + 1e-12), d = g − σ·m, with m the average of all gradients before, weighted by powers of λ."""

    def __init__(self, base: Base, rho: float | Tensor, sigma: float, decay: float, every: int = 1) -> None:
        super().__init__(base, rho)
        self.sigma, self.decay, self.every = sigma, decay, every
        self.history: list[Tensor] = []

    def direction(self, w: Tensor, g: Tensor, gradient: Gradient) -> Tensor:
        self.sampled.append(len(self.sampled) % self.every == 0)
        d = g - self.sigma * self.average() if self.history else g
        self.history.append(g)
        if not self.sampled[-1]:
            return g
        gs = gradient(w + self.rho * d / (d.norm() + 1e-12))
        self.psf_norm = float((gs - g).norm())
        return gs

    def average(self) -> Tensor:
        """λⁿ⁻¹·g₁ + (1 − λ)·Σ λⁿ⁻ⁱ·gᵢ over i = 2 … n."""
        n = len(self.history)
        rest = [(1 - self.decay) * self.decay ** (n - i) * g for i, g in enumerate(self.history, start=1) if i > 1]
        return torch.stack([self.decay ** (n - 1) * self.history[0], *rest]).sum(dim=0)


class MSAM(Twin):
    """MSAM: the only gradient is at w + sign·ρ·v / (‖v‖ + 1e-12), v the base's momentum. `every` mixes in SAM."""

    def __init__(self, base: "SGD | AdamW", rho: float, sign: int, sam_rho: float = 0.0, every: int = 0) -> None:
        super().__init__(base, sam_rho)
        self.offset, self.every = sign * rho, every

    def step(self, w: Tensor, gradient: Gradient) -> Tensor:
        number = len(self.sampled)
        self.sampled.append(bool(self.every) and number % self.every == 0)
        if self.sampled[-1]:
            return self.base(w, self.sharp(w, gradient(w), gradient))
        v = self.base.first if isinstance(self.base, AdamW) else self.base.velocity  # type: ignore[union-attr]
        t = self.units(w)
        return self.base(w, gradient(w + self.offset * t * t * v / ((t * v).norm() + 1e-12) if number else w))

    def units(self, w: Tensor) -> Tensor:
        """The units of the radius, per coordinate."""
        return torch.ones_like(w)


class AdaptiveMSAM(MSAM):
    """MSAM with e = −ρ·t²v / (‖t v‖ + 1e-12), t = |w| + η on matrices and 1 elsewhere."""

    def __init__(self, base: "SGD | AdamW", rho: float, eta: float, is_matrix: Tensor) -> None:
        super().__init__(base, rho, sign=-1)
        self.eta, self.is_matrix = eta, is_matrix

    def units(self, w: Tensor) -> Tensor:
        """t."""
        return torch.where(self.is_matrix, w.abs() + self.eta, 1.0)


class GSAM(Twin):
    """gs − α·(g − (⟨g, gs⟩/‖gs‖²)·gs) at a sample."""

    def __init__(self, base: Base, rho: float | Tensor, alpha: float, every: int = 1) -> None:
        super().__init__(base, rho)
        self.alpha, self.every = alpha, every

    def direction(self, w: Tensor, g: Tensor, gradient: Gradient) -> Tensor:
        self.sampled.append(len(self.sampled) % self.every == 0)
        if not self.sampled[-1]:
            return g
        gs = self.sharp(w, g, gradient)
        return gs - self.alpha * (g - (g @ gs) / (gs @ gs) * gs)


class WSAM(Twin):
    """g + (γ/(1 − γ))·(gs − g) at a sample."""

    def __init__(self, base: Base, rho: float | Tensor, gamma: float, every: int = 1) -> None:
        super().__init__(base, rho)
        self.gamma, self.every = gamma, every

    def direction(self, w: Tensor, g: Tensor, gradient: Gradient) -> Tensor:
        self.sampled.append(len(self.sampled) % self.every == 0)
        return g + self.gamma / (1 - self.gamma) * (self.sharp(w, g, gradient) - g) if self.sampled[-1] else g


class BiLoRA:
    """Adapters on frozen matrices, `W₀ + s₁·B₁A₁ + s₂·B₂A₂`, and tanh between them.

    The first ones descend, the second ones ascend. If √Σ‖s₂·B₂A₂‖² exceeds ρ, all A₂ and B₂ are scaled by √(ρ/c).

    Args:
        bases: of the first and the second adapters, without weight decay for the second.
        rho: ρ.
        frozen: W₀ of each layer.
        scalings: s₁ and s₂ of each layer.
    """

    def __init__(
        self, bases: tuple[Base, Base], rho: float, frozen: list[Tensor], scalings: list[tuple[float, float]]
    ) -> None:
        self.bases, self.rho, self.frozen, self.scalings = bases, rho, frozen, scalings
        self.was_scaled: list[bool] = []

    def step(self, adapters: tuple[list[Tensor], list[Tensor]], inputs: Tensor, labels: Tensor) -> None:
        """Move [A, B, A, B, …] of both adapters."""
        leaves = [[one.detach().clone().requires_grad_() for one in adapter] for adapter in adapters]
        with torch.enable_grad():
            values = inputs
            for i, matrix in enumerate(self.frozen):
                for scaling, adapter in zip(self.scalings[i], leaves, strict=True):
                    matrix = matrix + scaling * adapter[2 * i + 1] @ adapter[2 * i]
                values = (torch.tanh(values) if i else values) @ matrix.T
            loss = (values.exp().sum(dim=1).log() - values[torch.arange(len(labels)), labels]).mean()
        for sign, base, adapter, leaf in zip((1, -1), self.bases, adapters, leaves, strict=True):
            gradient = torch.cat([one.flatten() for one in torch.autograd.grad(loss, leaf, retain_graph=True)])
            moved = base(torch.cat([one.flatten() for one in adapter]), sign * gradient)
            for one, part in zip(adapter, moved.split([one.numel() for one in adapter]), strict=True):
                one.copy_(part.view_as(one))
        c = self.norm(adapters[1])
        self.was_scaled.append(c > self.rho)
        if c > self.rho:
            for one in adapters[1]:
                one.mul_((self.rho / c) ** 0.5)

    def norm(self, second: list[Tensor]) -> float:
        """√Σ‖s₂·B₂A₂‖² of the dense matrices."""
        updates = [scaling * second[2 * i + 1] @ second[2 * i] for i, (_, scaling) in enumerate(self.scalings)]
        return sum(float(one.square().sum()) for one in updates) ** 0.5


class LookSAM(Twin):
    """LookSAM: gs at every k-th step, otherwise g + λ·(‖g‖/‖gv‖)·gv with the last gv = gs − (⟨gs, g⟩/‖g‖²)·g."""

    def __init__(self, base: Base, rho: float | Tensor, every: int, scale: float) -> None:
        super().__init__(base, rho)
        self.every, self.scale = every, scale
        self.gv: Tensor | None = None

    def direction(self, w: Tensor, g: Tensor, gradient: Gradient) -> Tensor:
        self.sampled.append(len(self.sampled) % self.every == 0)
        if self.sampled[-1]:
            gs = self.sharp(w, g, gradient)
            gv = gs - (gs @ g) / (g @ g) * g
            self.gv = gv if gv.norm() > 1e-12 * gs.norm() else None
            return gs
        return g if self.gv is None else g + self.scale * g.norm() / self.gv.norm() * self.gv


class AESAM(Twin):
    """AE-SAM: sample iff x = ‖g‖² ≥ μ + c·σ, with the new μ and σ. c goes from `high` to `low`."""

    def __init__(
        self, base: Base, rho: float | Tensor, total: int, delta: float = 0.9, low: float = -1.0, high: float = 1.0
    ) -> None:
        super().__init__(base, rho)
        self.total, self.delta, self.low, self.high = total, delta, low, high
        self.mean = self.variance = 0.0

    def direction(self, w: Tensor, g: Tensor, gradient: Gradient) -> Tensor:
        x, t = float(g @ g), min(len(self.sampled), self.total)
        self.mean = x if not self.sampled else self.delta * self.mean + (1 - self.delta) * x
        self.variance = self.delta * self.variance + (1 - self.delta) * (x - self.mean) ** 2
        c = t / self.total * self.low + (1 - t / self.total) * self.high
        self.sampled.append(not self.sampled or x >= self.mean + c * self.variance**0.5)
        return self.sharp(w, g, gradient) if self.sampled[-1] else g


class VSAM(Twin):
    """vSAM as the paper prints it. `watched` is the number of last coordinates in its norms."""

    def __init__(
        self,
        base: Base,
        rho: float | Tensor,
        *,
        watched: int,
        alpha: float,
        gamma: float,
        window: int,
        slices: int,
        start: int,
        initial_samples: float = 1,
        min_samples: float = 1,
        max_rate: float = 0.8,
        seed: int = 0,
    ) -> None:
        super().__init__(base, rho)
        self.watched, self.alpha, self.gamma, self.start = watched, alpha, gamma, start
        self.window, self.slices, self.min_samples = window, slices, min_samples
        self.highest = float(Fraction(str(max_rate)) * window)
        self.draws = random.Random(seed)
        self.s, self.change_var, self.change_norm = float(initial_samples), None, None
        self.n: list[float] = []
        self.r: list[float] = []
        self.psf: Tensor | None = None

    def direction(self, w: Tensor, g: Tensor, gradient: Gradient) -> Tensor:
        i = len(self.sampled) + 1
        self.begin(i)
        self.in_force = (self.s, self.change_var, self.change_norm)
        self.sampled.append(i <= self.start or self.draw(i))
        if self.sampled[-1]:
            result = self.sharp(w, g, gradient)
            self.psf = result - g
            self.n.append(float(self.psf[-self.watched :].norm()))
            self.r.append(self.n[-1] / float(g[-self.watched :].norm()))
            self.forget()
        else:
            result = self.reuse(g)
        self.end(i)
        return result

    def begin(self, i: int) -> None:
        """Draw and update before the decision."""

    def draw(self, i: int) -> bool:
        """Bernoulli(p), halted when the window that began behind the last multiple of N is full."""
        first = (i - 1) // self.window * self.window
        if sum(self.sampled[first:]) + 1 > self.highest:
            return False
        return self.draws.random() >= 1 - self.s / self.window

    def end(self, i: int) -> None:
        """Algorithm 1, lines 11 to 13."""
        if i > self.start and i % self.window == 0:
            self.update()

    def forget(self) -> None:
        """A new PSF has full weight."""

    def reuse(self, g: Tensor) -> Tensor:
        """g + γ^(i − i*)·PSF."""
        if self.psf is None:
            return g
        return g + self.gamma**self.age * self.psf

    def update(self) -> None:
        """Equation 14, if there are N values of v and of r."""
        if len(self.n) >= 2 * self.window - 1:
            self.change_var, self.change_norm = self.changes()
            s = self.s * (1 + self.alpha * self.change_var + self.alpha * self.change_norm)
            self.s = min(max(s, self.min_samples), self.highest)

    def changes(self) -> tuple[float, float]:
        """Equations 8 to 13 over the whole history's end."""
        num_samples, size = len(self.n), self.window
        ends = range(num_samples - size + 1, num_samples + 1)
        return mean_change([self.v(self.n[end - size : end]) for end in ends]), mean_change(self.r[-size:])

    def v(self, values: list[float]) -> float:
        """Equation 8."""
        size, ordered = self.window // self.slices, sorted(values)
        parts = [ordered[j * size : (j + 1) * size] for j in range(self.slices)]
        return sum(sum((x - sum(part) / size) ** 2 for x in part) / size for part in parts) / self.slices


class ReleasedVSAM(VSAM):
    """vSAM as the authors' program computes it."""

    def __init__(self, base: Base, rho: float | Tensor, **settings: float) -> None:
        super().__init__(base, rho, **settings)  # type: ignore[arg-type]
        self.highest = int(self.highest)
        self.used, self.h = 1, 0.0

    def begin(self, i: int) -> None:
        if i > self.start and (i - self.start) % self.window == 0:
            self.update()
            self.used = 0

    def draw(self, i: int) -> bool:
        quota, left = int(self.s), self.window - (i - self.start) % self.window
        is_drawn = self.used < quota and self.draws.random() >= 1 - self.s / self.window
        is_sampled = is_drawn or left <= quota - self.used
        self.used += is_sampled
        return is_sampled

    def end(self, i: int) -> None:
        pass

    def forget(self) -> None:
        self.h = 1.0

    def reuse(self, g: Tensor) -> Tensor:
        if self.psf is None or self.h <= self.gamma**6:
            return g
        self.h *= self.gamma
        return g + self.h * self.psf

    def changes(self) -> tuple[float, float]:
        change_var, change_norm = super().changes()
        return max(-1.0, min(1.0, change_var)), max(-1.0, min(1.0, change_norm))


def mean_change(values: list[float]) -> float:
    """Return the mean of (xᵢ − xᵢ₋₁)/xᵢ₋₁. A denominator of zero counts as no change."""
    changes = [(new - old) / old if old else 0.0 for old, new in itertools.pairwise(values)]
    return sum(changes) / len(changes)
