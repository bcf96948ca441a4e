"""What changes gradients, weights or the data between the calls of a loop, or in its closure, is noticed."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

import vsam
from vsam._step import loop_watch

METHODS: dict[str, Callable[..., vsam.SharpnessAware]] = {"sam": vsam.SAM, "vsam": vsam.VSAM, "gsam": vsam.GSAM}


class Run:
    """A model and micro-batches of it."""

    def __init__(self, method: str = "sam", gives_model: bool = True) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        base = SGD(self.model.parameters(), lr=0.1)
        self.optimizer = METHODS[method](base, model=self.model if gives_model else None)
        self.batches = torch.randn(4, 5, 3)

    def backward(self, *batches: int) -> None:
        for batch in batches:
            self.model(self.batches[batch]).square().mean().backward()

    def weights(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.model.parameters()]

    def step(
        self,
        first: Callable[[], object] = lambda: None,
        second: Callable[[], object] = lambda: None,
        batches: tuple[tuple[int, ...], tuple[int, ...]] = ((0,), (0,)),
    ) -> None:
        self.optimizer.zero_grad()
        self.backward(*batches[0])
        first()
        assert self.optimizer.perturb()
        self.backward(*batches[1])
        second()
        self.optimizer.step()

    def clip(self) -> None:
        nn.utils.clip_grad_norm_(self.model.parameters(), 1e-3)


def said(action: Callable[[], object]) -> list[str]:
    """The warnings of an action."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("method", METHODS)
def test_clipping_by_hand_is_said_once_and_only_where_there_is_a_psf(method: str) -> None:
    run = Run(method)
    assert said(run.step) == []
    first, again = ([word for word in said(lambda: run.step(second=run.clip)) if "clip" in word] for _ in range(2))
    assert [len(first), len(again)] == [method != "sam", 0]
    assert run.optimizer.num_samples == 3


@pytest.mark.parametrize("method", METHODS)
def test_the_clipped_gradient_is_the_one_that_steps(method: str) -> None:
    run = Run(method)
    before = run.weights()
    said(lambda: run.step(second=run.clip))
    moved = sum(float((b - a).square().sum()) for a, b in zip(before, run.weights(), strict=True)) ** 0.5
    assert moved == pytest.approx(0.1 * 1e-3, rel=0.01) if method != "gsam" else moved < 0.01


SAME: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((0,), (0,)), ((0, 1, 2), (0, 1, 2)), ((0, 0), (0, 0))]
OTHER: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((0, 1, 2), (2,)), ((0, 1), (0, 1, 2)), ((0,), (0, 0))]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("batches", SAME, ids=str)
def test_the_same_number_of_micro_batches_is_fine(method: str, batches: tuple[tuple[int, ...], ...]) -> None:
    run = Run(method)
    for _ in range(3):
        assert said(lambda: run.step(batches=batches)) == []  # type: ignore[arg-type]
    assert run.optimizer.num_samples == 3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("num_before", [0, 2])
@pytest.mark.parametrize("batches", OTHER, ids=str)
def test_fewer_or_more_micro_batches_are_an_error_at_every_step(
    method: str, num_before: int, batches: tuple[tuple[int, ...], ...]
) -> None:
    run = Run(method)
    for _ in range(num_before):
        run.step(batches=((0, 1), (0, 1)))
    for _ in range(2):
        before = run.weights()
        with pytest.raises(RuntimeError, match="micro-batches") as caught:
            run.step(batches=batches)  # type: ignore[arg-type]
        for count in map(len, batches):
            assert str(count) in str(caught.value)
        assert all(map(torch.equal, run.weights(), before))
        assert run.optimizer.num_samples == num_before
    assert said(run.step) == []


def test_the_advice_shows_a_closure_over_micro_batches() -> None:
    run = Run()
    with pytest.raises(RuntimeError, match=r"(?s)def closure\(\).*in micro_batches"):
        run.step(batches=((0, 1), (1,)))


@pytest.mark.parametrize("gives_model", [True, False])
def test_a_second_pass_without_a_backward_is_an_error(gives_model: bool) -> None:
    run = Run(gives_model=gives_model)
    before = run.weights()
    with pytest.raises(RuntimeError, match="No parameter has a gradient"):
        run.step(batches=((0, 1), ()))
    assert all(map(torch.equal, run.weights(), before))


def test_gradients_that_are_added_by_hand_in_both_passes_are_no_micro_batches() -> None:
    """For example weight decay added to the gradients. SAM uses the gradients as they are."""
    run = Run()

    def add() -> None:
        for parameter in run.model.parameters():
            assert parameter.grad is not None
            parameter.grad.add_(parameter.detach(), alpha=0.1)

    assert said(lambda: run.step(add, add)) == []


@pytest.mark.parametrize("gives_model", [True, False])
@pytest.mark.parametrize("leaves", ["zero_grad", "state_dict", "step(closure)"])
def test_weights_written_at_the_perturbed_point_are_said_when_the_step_is_abandoned(
    gives_model: bool, leaves: str
) -> None:
    run = Run(gives_model=gives_model)
    before = run.weights()
    run.backward(0)
    assert run.optimizer.perturb()
    with torch.no_grad():
        run.model[1].bias.add_(1)  # type: ignore[union-attr, operator]
    leave: Callable[[], object] = {
        "zero_grad": run.optimizer.zero_grad,
        "state_dict": run.optimizer.state_dict,
        "step(closure)": lambda: run.optimizer.step(lambda: run.backward(0)),
    }[leaves]
    assert ["written" in word for word in said(leave)] == [True]
    if leaves != "step(closure)":
        assert all(map(torch.equal, run.weights(), before))


@pytest.mark.parametrize("method", METHODS)
def test_abandoning_a_step_whose_weights_nobody_wrote_to_says_nothing(method: str) -> None:
    run = Run(method)
    for _ in range(2):
        before = run.weights()
        run.backward(0)
        assert run.optimizer.perturb()
        assert said(run.optimizer.zero_grad) == []
        assert all(map(torch.equal, run.weights(), before))
        run.step()


@pytest.mark.parametrize("ending", ["done", "abandoned", "failed", "deleted"])
def test_nothing_is_left_on_the_model_and_its_parameters(ending: str) -> None:
    run = Run("vsam")
    before = set(vars(run.model))
    run.backward(0)
    assert run.optimizer.perturb()
    run.backward(*{"failed": (0, 1)}.get(ending, (0,)))
    if ending == "done":
        run.optimizer.step()
    elif ending == "abandoned":
        run.optimizer.zero_grad()
    elif ending == "failed":
        with pytest.raises(RuntimeError, match="micro-batches"):
            run.optimizer.step()
    else:
        del run.optimizer
    assert set(vars(run.model)) == before
    assert not any(getattr(parameter, "_post_accumulate_grad_hooks", None) for parameter in run.model.parameters())


@pytest.mark.parametrize("change", ["a new tensor", "in place", "none"])
def test_a_plain_step_clips_the_gradients_as_they_are_when_it_steps(change: str) -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = vsam.SharpnessAware(SGD([weight], lr=1.0), when=vsam.Every(2), max_grad_norm=2.0)
    for step in range(2):
        before = weight.detach().clone()
        optimizer.zero_grad()
        weight.sum().backward()
        if optimizer.perturb():
            weight.sum().backward()
        elif change == "in place":
            weight.grad.mul_(5)  # type: ignore[union-attr]
        elif change == "a new tensor":
            weight.grad = torch.full((2,), 5.0)
        optimizer.step()
        expected = 1.0 if step == 0 or change == "none" else 2**0.5  # of length 2, which 5 and 5 are clipped to
        torch.testing.assert_close(before - weight.detach(), torch.full((2,), expected))


class ClosureRun(Run):
    """A loop whose closure changes the gradients after its backward passes."""

    def steps(self, change: Callable[[Tensor], object], num_batches: int = 1, num_steps: int = 3) -> list[str]:
        """The warnings of some steps that change every gradient."""

        def closure() -> None:
            self.backward(*range(num_batches))
            for parameter in self.model.parameters():
                assert parameter.grad is not None
                change(parameter)

        return said(lambda: [self.optimizer.step(closure) for _ in range(num_steps)])

    def clip_to(self, fraction: float) -> Callable[[Tensor], object]:
        """Clip all gradients, at the first of them, to a fraction of the norm that they have at first."""
        first, *_ = parameters = list(self.model.parameters())
        self.backward(0)
        norm = fraction * float(nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
        self.model.zero_grad()
        return lambda parameter: parameter is first and nn.utils.clip_grad_norm_(parameters, norm)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("num_batches", [1, 3])
def test_clipping_in_a_closure_is_said_once_and_only_where_there_is_a_psf(method: str, num_batches: int) -> None:
    run = ClosureRun(method)
    found = run.steps(run.clip_to(0.5), num_batches)
    assert len(found) == (method != "sam")
    assert all("max_grad_norm=" in message for message in found)


def replace(parameter: Tensor, gradient: Tensor) -> None:
    parameter.grad = gradient


CLIPS: dict[str, Callable[[Tensor], object]] = {
    "by value": lambda p: nn.utils.clip_grad_value_([p], 1e-3),
    "each by norm": lambda p: nn.utils.clip_grad_norm_([p], 1e-3),
    "out of place": lambda p: replace(p, p.grad / p.grad.norm()),  # type: ignore[operator, union-attr]
}
NO_CLIPS: dict[str, Callable[[Tensor], object]] = {
    "not reached": lambda p: nn.utils.clip_grad_norm_([p], 1e3),
    "value not reached": lambda p: nn.utils.clip_grad_value_([p], 1e3),
    "averaged": lambda p: p.grad.div_(3),  # type: ignore[union-attr]
    "averaged out of place": lambda p: replace(p, p.grad / 3),  # type: ignore[operator]
    "decayed": lambda p: p.grad.add_(p.detach(), alpha=0.1),  # type: ignore[union-attr]
    "scaled and back": lambda p: p.grad.mul_(1 / 1024).mul_(1024),  # type: ignore[union-attr]
    "masked": lambda p: p.grad.view(-1)[1:].zero_(),  # type: ignore[union-attr]
    "dropped": lambda p: setattr(p, "grad", None) if p.ndim == 1 else None,
    "read": lambda p: p.grad.norm(),  # type: ignore[union-attr]
}


@pytest.mark.parametrize("kind", CLIPS)
def test_other_ways_to_clip_in_a_closure_are_said_too(kind: str) -> None:
    assert len(ClosureRun("vsam").steps(CLIPS[kind])) == 1


@pytest.mark.parametrize("kind", NO_CLIPS)
@pytest.mark.parametrize("num_batches", [1, 3])
def test_what_does_not_clip_in_a_closure_says_nothing(kind: str, num_batches: int) -> None:
    assert ClosureRun("vsam").steps(NO_CLIPS[kind], num_batches) == []


@pytest.mark.parametrize("hook", ["register_hook", "register_post_accumulate_grad_hook"])
def test_a_hook_may_clip(hook: str) -> None:
    run = ClosureRun("vsam")

    def clip_(parameter: Tensor) -> None:
        nn.utils.clip_grad_value_([parameter], 1e-3)

    for parameter in run.model.parameters():
        if hook == "register_hook":
            parameter.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
        else:
            parameter.register_post_accumulate_grad_hook(clip_)
    assert run.steps(lambda parameter: None, num_batches=2) == []


def test_clipping_at_plain_steps_says_nothing() -> None:
    run = ClosureRun("vsam")
    run.optimizer.when = vsam.Every(4)
    clip, samples = run.clip_to(0.5), []
    for _ in range(5):
        will_sample = run.optimizer.will_sample
        samples.append(will_sample)
        change = (lambda parameter: None) if will_sample and len(samples) < 5 else clip
        assert len(run.steps(change, num_steps=1)) == (len(samples) == 5)
    assert samples == [True, False, False, False, True]


def test_a_closure_that_fails_leaves_no_hook() -> None:
    run = ClosureRun("vsam")

    def fail(parameter: Tensor) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        run.steps(fail)
    assert not any(getattr(parameter, "_post_accumulate_grad_hooks", None) for parameter in run.model.parameters())


@pytest.mark.parametrize("gives_model", [True, False])
def test_perturb_at_every_micro_batch_is_an_error_that_zero_grad_undoes(gives_model: bool) -> None:
    run = Run(gives_model=gives_model)
    before = run.weights()
    run.backward(0)
    assert run.optimizer.perturb()
    run.backward(0)
    run.backward(1)
    with pytest.raises(RuntimeError, match="called again without step"):
        run.optimizer.perturb()
    run.optimizer.zero_grad()
    assert all(map(torch.equal, run.weights(), before))
    run.step()


def test_without_a_model_micro_batches_are_counted_too() -> None:
    run = Run(gives_model=False)
    run.step(batches=((0, 1), (0, 1)))
    run.backward(3)  # not wanted
    run.step(batches=((0, 1), (1, 0)))
    before = run.weights()
    with pytest.raises(RuntimeError, match="2 backward passes and the second one 1"):
        run.step(batches=((0, 1), (1,)))
    run.optimizer.zero_grad()
    assert all(map(torch.equal, run.weights(), before))
    run.step(batches=((0,), (0,)))


class Fed(Run):
    """The model gets tensors that the loop keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = [*torch.randn(4, 5, 3).unbind()]

    def forward(self, *tensors: Tensor) -> None:
        for tensor in tensors:
            self.model(tensor).square().mean().backward()

    def run(self, first: list[Tensor], second: list[Tensor]) -> None:
        self.optimizer.zero_grad()
        self.forward(*first)
        assert self.optimizer.perturb()
        self.forward(*second)
        self.optimizer.step()


def test_a_second_pass_over_as_many_other_micro_batches_is_an_error() -> None:
    run = Fed()
    a, b, c, d = run.kept
    before = run.weights()
    for other in ([b, b], [a, a], [b, c], [c, d], [c.clone(), a]):
        with pytest.raises(RuntimeError, match="other micro-batches than the first"):
            run.run([a, b], other)
    run.optimizer.zero_grad()
    assert all(map(torch.equal, run.weights(), before))


def test_the_same_micro_batches_in_another_order_or_made_anew_are_fine() -> None:
    run = Fed()
    a, b, c, _ = run.kept
    for same in ([a, b], [b, a], [a.clone(), b.clone()], [b, a.clone()]):
        run.run([a, b], same)
    run.run([a, a], [a, a])
    run.run([a], [b])  # without accumulation, the gradient at w + e may be one of other data
    run.optimizer.zero_grad()
    run.model(c)  # a loss that was thrown away
    for _ in range(2_000):
        run.model(c.clone())
    run.forward(a, b)
    assert run.optimizer.perturb()
    run.forward(a, b)
    run.optimizer.step()
    assert run.optimizer.num_samples == 7


def test_sparse_and_changed_inputs_are_compared_by_what_they_are() -> None:
    run = Fed()
    a, b, *_ = run.kept
    for _ in range(2):
        run.optimizer.zero_grad()
        run.forward(a, b)
        for tensor in (a, b):
            tensor.mul_(2)  # the same tensors all the same
        assert run.optimizer.perturb()
        run.forward(a, b)
        run.optimizer.step()
    graph = torch.eye(5).to_sparse()
    network = nn.Linear(3, 2)

    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, features: Tensor, graph: Tensor) -> Tensor:
            return self.network(torch.sparse.mm(graph, features))

    model: Any = Graph()
    optimizer = vsam.SAM(SGD(model.parameters(), lr=0.1), model=model)
    for tensors in ([a, b], [a, b]):
        for tensor in tensors:
            model(tensor, graph=graph).sum().backward()
        assert optimizer.perturb()
        for tensor in tensors:
            model(tensor, graph=graph).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_inputs_that_are_made_anew_are_fine() -> None:
    class Padded(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs.to_padded_tensor(0.0))

    model = Padded(3, 2)
    optimizer = vsam.SAM(SGD(model.parameters(), lr=0.1), model=model)
    for _ in range(2):
        optimizer.zero_grad()
        kept = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
        model(kept).sum().backward()
        assert optimizer.perturb()
        model(torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])).sum().backward()
        optimizer.step()


def test_one_batch_augmented_anew_is_fine_if_the_watched_parameter_is_unused() -> None:
    run = Fed()
    a, b, c, d = run.kept
    unused, used = run.model
    used_alone = SGD([*unused.parameters(), *used.parameters()], lr=0.1)
    run.model.forward = lambda inputs: used(inputs)  # type: ignore[method-assign]
    run.optimizer = vsam.SAM(used_alone, model=run.model)
    run.run([a], [b])
    with pytest.raises(RuntimeError, match="other micro-batches than the first"):
        run.run([a, b], [c, d])
    run.optimizer.zero_grad()


@pytest.mark.parametrize("clip", [lambda p: nn.utils.clip_grad_norm_([p], 1e3), lambda p: p.grad.div_(3)])
@pytest.mark.parametrize("factors", [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0), (1.0, torch.inf)])
def test_a_gradient_of_zeros_or_infinities_says_nothing_of_clipping(clip: Any, factors: tuple[float, float]) -> None:
    run = ClosureRun("vsam")
    given = iter(factors)

    def closure() -> None:
        (run.model(run.batches[0]).sum() * next(given)).backward()
        for parameter in run.model.parameters():
            clip(parameter)

    assert not any("clipped" in message for message in said(lambda: run.optimizer.step(closure)))


def test_a_watch_that_an_interrupt_lost_leaves_no_hook() -> None:
    weight = nn.Parameter(torch.ones(2))
    watch = loop_watch._Backwards(weight)
    weight.sum().backward()
    weight.sum().backward()
    assert watch.count == 2
    del watch  # nobody has called remove()
    assert not weight._post_accumulate_grad_hooks  # type: ignore[attr-defined]


def test_gradients_of_two_tasks_that_a_closure_adds_up_are_no_clipping() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)  # the gradient of its bias is (a, -a), whatever is added
    optimizer = vsam.VSAM(SGD(model.parameters(), lr=0.1), model=model)
    tasks = [(torch.randn(5, 3), torch.randint(2, (5,))) for _ in range(2)]

    def closure() -> None:
        found: list[list[Tensor]] = []
        for inputs, targets in tasks:
            model.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            found.append([p.grad for p in model.parameters() if p.grad is not None])
        for parameter, first, second in zip(model.parameters(), *found, strict=True):
            parameter.grad = first + second

    assert said(lambda: [optimizer.step(closure) for _ in range(5)]) == []
