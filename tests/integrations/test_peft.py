"""Bi-LoRA follows its equations in every loop, and the model stays an ordinary peft model."""

import copy
import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import accelerate
import pytest
import torch
from accelerate.state import AcceleratorState, GradientState
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint
from transformers import Trainer

import oracles
import vsam
from integrations.tiny import make_arguments, make_dataset, make_model, train
from lightning_net import PACKAGE_WARNINGS, Net, Ordinary, fit, loader, trainer
from lightning_net import batches as lightning_batches
from pages.read import blocks
from peft_net import SIZES, adamw, assert_same, auxiliary, batches, make, momentum, run, weights
from processes import assert_checks_pass
from vsam.integrations.accelerate import Accelerator
from vsam.integrations.transformers import SharpnessAwareTrainer

peft = pytest.importorskip("peft")

from vsam.integrations.peft import BiLoRA  # noqa: E402

IGNORED = "ignore:.*is_gradient_checkpointing:FutureWarning"  # peft's own use of transformers


def trained(num_steps: int = 6, make_base: Any = adamw, **settings: Any) -> tuple[Any, BiLoRA]:
    model = make()
    optimizer = BiLoRA(make_base(model), model=model, **{"rho": 0.1, **settings})
    run(optimizer, model, batches(num_steps))
    return model, optimizer


BASES = {
    "momentum": (momentum, lambda: oracles.SGD(0.05, 0.9, 0.01), lambda: oracles.SGD(0.05, 0.9)),
    "adamw": (adamw, lambda: oracles.AdamW(0.01), lambda: oracles.AdamW(0.01, weight_decay=0.0)),
}


RHO = {"momentum": 0.05, "adamw": 0.5}


@pytest.mark.parametrize(("rslora", "rank"), [(False, None), (True, None), (True, 4)])
@pytest.mark.parametrize("name", list(BASES))
def test_it_follows_the_equations(name: str, rslora: bool, rank: int | None) -> None:
    make_base, first, second = BASES[name]
    model = make(use_rslora=rslora)
    optimizer = BiLoRA(make_base(model), model=model, rho=RHO[name], rank=rank)
    ranks = [3, 2, 3]
    divisors = [[math.sqrt(r) if rslora else r for r in (one, rank or one)] for one in ranks]
    scalings = [(5 / a, 5 / b) for a, b in divisors]
    frozen = [p.detach() for name, p in model.named_parameters() if "base_layer" in name]
    adapters = (
        [p.detach().clone() for p in model.parameters() if p.requires_grad],
        [*map(torch.clone, auxiliary(optimizer))],
    )
    assert [tuple(one.shape) for one in adapters[1]] == [
        shape for r, (a, b) in zip(ranks, pairwise(SIZES), strict=True) for shape in ((rank or r, a), (b, rank or r))
    ]
    twin = oracles.BiLoRA((first(), second()), RHO[name], frozen, scalings)
    norms = []
    for inputs, labels in batches(40):
        run(optimizer, model, [(inputs, labels)])
        twin.step(adapters, inputs, labels)
        own = [p for p in model.parameters() if p.requires_grad]
        torch.testing.assert_close([*own, *auxiliary(optimizer)], [*adapters[0], *adapters[1]], rtol=1e-9, atol=1e-9)
        assert optimizer.norm == pytest.approx(twin.norm(adapters[1]), rel=1e-9, abs=1e-12)
        norms.append(optimizer.norm)
    assert {*twin.was_scaled} == {True, False}
    assert max(norms) == pytest.approx(RHO[name])


def test_without_a_radius_it_is_the_base() -> None:
    model, _ = trained(rho=0.0)
    alone = make()
    run(adamw(alone), alone, batches(6))
    assert all(map(torch.equal, weights(model), weights(alone)))


def test_in_the_middle_of_training_everybody_sees_the_primary_adapter_only(tmp_path: Path) -> None:
    model, optimizer = trained()
    inputs = batches(1)[0][0]
    in_training = model(inputs)
    model.eval()
    alone = make()
    alone.load_state_dict(model.state_dict())
    expected = alone.eval()(inputs)
    assert not torch.equal(in_training, expected)
    model.save_pretrained(tmp_path)
    assert {one.name for one in tmp_path.iterdir()} == {"README.md", "adapter_config.json", "adapter_model.safetensors"}
    network = copy.deepcopy(alone).unload()
    with torch.no_grad():
        outputs = [
            model(inputs),
            peft.PeftModel.from_pretrained(copy.deepcopy(network), tmp_path).double().eval()(inputs),
        ]
        copied = copy.deepcopy(model).train()
        outputs += [copied(inputs), copied.merge_and_unload()(inputs)]
        with model.train().disable_adapter():
            assert torch.equal(model(inputs), network(inputs))
    for output in outputs:
        torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12)
    assert list(model.peft_config) == ["default"]
    assert peft.get_peft_model_state_dict(model).keys() == peft.get_peft_model_state_dict(alone).keys()
    assert len([*model.parameters()]) == len([*alone.parameters()])
    assert torch.equal(model(inputs), in_training)
    torch.save(model, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False).train()
    torch.testing.assert_close(loaded(inputs), expected, rtol=1e-12, atol=1e-12)
    optimizer.remove()
    torch.testing.assert_close(model(inputs), expected, rtol=1e-12, atol=1e-12)
    assert [len(group["params"]) for group in optimizer.base.param_groups] == [len([*model.parameters()])]
    run(optimizer.base, model, batches(1))
    run(optimizer, model, batches(1))
    assert optimizer.norm == 0
    BiLoRA(optimizer.base, model=model)


@pytest.mark.parametrize("make_base", [momentum, adamw])
def test_a_saved_state_resumes_to_the_bit(make_base: Any, tmp_path: Path) -> None:
    model, optimizer = trained(4, make_base)
    torch.save([model.state_dict(), optimizer.state_dict()], tmp_path / "checkpoint.pt")
    run(optimizer, model, batches(9)[4:])
    other = make()
    resumed = BiLoRA(make_base(other), model=other, rho=0.1)
    model_state, state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    other.load_state_dict(model_state)
    resumed.load_state_dict(state)
    run(resumed, other, batches(9)[4:])
    assert_same((model, optimizer), (other, resumed))


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    model, optimizer = trained()
    before = weights(model), [*map(torch.clone, auxiliary(optimizer))]
    for state, error in (
        (optimizer.base.state_dict(), "'auxiliary'"),
        (trained(rank=1)[1].state_dict(), "other shapes"),
        ({**optimizer.state_dict(), "param_groups": []}, "group"),
    ):
        with pytest.raises(ValueError, match=error):
            optimizer.load_state_dict(state)
    assert all(map(torch.equal, [*before[0], *before[1]], [*weights(model), *auxiliary(optimizer)]))


def test_closures_and_accumulation_equal_the_loop() -> None:
    """A closure need not clear gradients, and may."""
    expected = trained(4)
    for clears in (False, True):
        model = make().train()
        optimizer = BiLoRA(adamw(model), model=model, rho=0.1)
        for inputs, labels in batches(4):
            halves = [*zip(inputs.split(8), labels.split(8), strict=True)]
            if clears:  # as in Lightning, the last micro-batch only
                optimizer.zero_grad()
                (cross_entropy(model(halves[0][0]), halves[0][1]) / 2).backward()
                halves = halves[1:]

            def closure(halves: Any = halves, model: Any = model) -> Tensor:
                losses = [cross_entropy(model(inputs), labels) / 2 for inputs, labels in halves]
                torch.stack(losses).sum().backward()
                return torch.stack(losses).sum()

            assert optimizer.step(closure) > 0
        torch.testing.assert_close(
            [*weights(model), *auxiliary(optimizer)],
            [*weights(expected[0]), *auxiliary(expected[1])],
            rtol=1e-9,
            atol=1e-9,
        )


def test_a_model_that_fills_its_gradients_with_zeros_is_the_same() -> None:
    model = make().train()
    optimizer = BiLoRA(adamw(model), model=model, rho=0.1)
    for inputs, labels in batches(6):
        model.zero_grad(set_to_none=False)
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    assert_same((model, optimizer), trained())


def test_the_auxiliary_gradient_is_not_clipped() -> None:
    model = make().train()
    optimizer = BiLoRA(torch.optim.SGD(model.parameters(), lr=0.1), model=model, rho=1.0)
    cross_entropy(model(batches(1)[0][0]), batches(1)[0][1]).backward()
    gradients = [p.grad.clone() for p in optimizer.param_groups[1]["params"]]
    before = [*map(torch.clone, auxiliary(optimizer))]
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    optimizer.step()
    torch.testing.assert_close(auxiliary(optimizer), [b + 0.1 * g for b, g in zip(before, gradients, strict=True)])


def test_a_gradient_that_is_not_finite_skips_the_step() -> None:
    model, optimizer = trained()
    before = copy.deepcopy([weights(model), auxiliary(optimizer), optimizer.state_dict()["state"]])
    optimizer.zero_grad()
    (cross_entropy(model(batches(1)[0][0]), batches(1)[0][1]) * torch.inf).backward()
    with pytest.warns(RuntimeWarning, match="not finite"):
        optimizer.step()
    torch.testing.assert_close(
        [weights(model), auxiliary(optimizer), optimizer.state_dict()["state"]], before, rtol=0, atol=0
    )
    assert optimizer.num_skipped == 1
    model.zero_grad()
    run(optimizer, model, batches(2))
    assert all(parameter.isfinite().all() for parameter in weights(model) + auxiliary(optimizer))


@pytest.mark.parametrize("unscales", [False, True])
def test_a_scaler_changes_nothing_but_the_scale(unscales: bool) -> None:
    """Overflow skips both adapters, although `model.zero_grad()` does not know the auxiliary one."""
    expected = trained(6, momentum)
    model = make().train()
    optimizer = BiLoRA(momentum(model), model=model, rho=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    bad = (torch.full((16, 6), torch.inf, dtype=torch.float64), batches(1)[0][1])
    for inputs, labels in [*batches(6)[:3], bad, *batches(6)[3:]]:
        model.zero_grad()
        scaler.scale(cross_entropy(model(inputs), labels)).backward()
        if unscales:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 512
    torch.testing.assert_close(weights(model), weights(expected[0]), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(auxiliary(optimizer), auxiliary(expected[1]), rtol=1e-9, atol=1e-9)


def test_schedulers_change_both_rates() -> None:
    model = make()
    optimizer = BiLoRA(adamw(model), model=model, lr=0.03)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    run(optimizer, model, batches(1))
    scheduler.step()
    assert [(group["lr"], group["weight_decay"], group["maximize"]) for group in optimizer.param_groups] == [
        (0.005, 0.01, False),
        (0.015, 0.0, True),
    ]
    other = make()
    base = adamw(other)
    torch.optim.lr_scheduler.ExponentialLR(base, 0.5)
    with pytest.raises(ValueError, match="has a scheduler"):
        BiLoRA(base, model=other)


def test_a_tensor_rate_is_not_shared() -> None:
    model = make()
    base = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.01))
    optimizer = BiLoRA(base, model=model)
    torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda _: 0.5, lambda _: 1.0])
    assert [float(group["lr"]) for group in optimizer.param_groups] == pytest.approx([0.005, 0.01])


def test_groups_with_their_own_settings_and_several_bases_have_twins_in_each() -> None:
    rates, models, optimizers = (0.01, 0.16), [], []
    for kind in ("groups", "bases", "names"):
        models.append(make())
        parts = [
            [(n, p) if kind == "names" else p for n, p in models[-1].named_parameters() if part in n]
            for part in ("lora_A", "lora_B")
        ]
        base: Any = [torch.optim.AdamW(part, lr=rate) for part, rate in zip(parts, rates, strict=True)]
        if kind != "bases":
            base = torch.optim.AdamW([{"params": part, "lr": rate} for part, rate in zip(parts, rates, strict=True)])
        optimizers.append(BiLoRA(base, model=models[-1]))
    for model, optimizer in zip(models, optimizers, strict=True):
        run(optimizer, model, batches(5))
        optimizer.load_state_dict(optimizer.state_dict())
        run(optimizer, model, batches(7)[5:])
    for i in (1, 2):
        assert_same((models[0], optimizers[0]), (models[i], optimizers[i]))
    assert [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers] == [
        [0.01, 0.16, 0.01, 0.16],
        [0.01, 0.01, 0.16, 0.16],
        [0.01, 0.16, 0.01, 0.16],
    ]
    assert len(auxiliary(optimizers[0])) == 6


def test_other_layers_and_saved_modules_train_as_without_it() -> None:
    """Modules to save have no auxiliary part, and neither have layers that the base does not train."""
    model = make(target_modules=["0", "2"], modules_to_save=["4"])
    chosen = [p for n, p in model.named_parameters() if ".2." not in n and p.requires_grad]
    optimizer = BiLoRA(torch.optim.AdamW(chosen, lr=0.01), model=model)
    before = weights(model)
    run(optimizer, model, batches(3))
    changed = [n for (n, p), old in zip(model.named_parameters(), before, strict=True) if not torch.equal(p, old)]
    assert changed == [n for n, p in model.named_parameters() if any(p is one for one in chosen)]
    assert len(changed) == 3
    assert len(auxiliary(optimizer)) == 2


def test_it_follows_the_model_to_its_type() -> None:
    model = make(is_float64=False)
    optimizer = BiLoRA(adamw(model), model=model)
    model.double()
    run(optimizer, model, batches(3))
    assert {one.dtype for one in auxiliary(optimizer)} == {torch.float64}
    half = make(is_float64=False).bfloat16().train()
    optimizer = BiLoRA(adamw(half), model=half, rho=0.01)
    for inputs, labels in batches(20):
        half.zero_grad()
        cross_entropy(half(inputs.bfloat16()).float(), labels).backward()
        optimizer.step()
    assert optimizer.norm == pytest.approx(0.01, rel=0.02)


def test_autocast_does_not_round_the_norm() -> None:
    ends = []
    for is_inside in (False, True):
        model = make(is_float64=False).train()
        optimizer = BiLoRA(adamw(model), model=model, rho=0.1)
        for inputs, labels in batches(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                cross_entropy(model(inputs.float()), labels).backward()
                if is_inside:
                    optimizer.step()
            if not is_inside:
                optimizer.step()
        ends.append((model, optimizer))
    assert_same(*ends)


def test_an_error_or_an_interrupt_leaves_both_as_they_were() -> None:
    model, optimizer = trained()
    before = [*weights(model), *map(torch.clone, auxiliary(optimizer))]

    def closure() -> Tensor:
        cross_entropy(model(batches(1)[0][0]), batches(1)[0][1]).backward()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(closure)
    assert all(map(torch.equal, before, weights(model) + auxiliary(optimizer)))
    run(optimizer, model, batches(8)[6:])
    assert_same((model, optimizer), trained(8))


@pytest.mark.parametrize("rho", [None, math.inf, math.nan, -0.1, "0.1"])
def test_a_radius_must_be_a_number(rho: Any) -> None:
    model = make()
    base = adamw(model)
    with pytest.raises(ValueError, match="rho must"):
        BiLoRA(base, model=model, rho=rho)
    assert len(base.param_groups) == 1


def conv() -> Any:
    return peft.get_peft_model(nn.Sequential(nn.Conv2d(1, 2, 3)), peft.LoraConfig(target_modules=["0"]))


def embedding() -> Any:
    return peft.get_peft_model(nn.Sequential(nn.Embedding(4, 2)), peft.LoraConfig(target_modules=["0"]))


def two_active() -> Any:
    model = make()
    model.add_adapter("other", peft.LoraConfig(target_modules=["0"]))
    model.base_model.set_adapter(["default", "other"])
    return model


def half_trained() -> Any:
    model = make()
    model.base_model.model[0].lora_A["default"].requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (partial(make, use_dora=True), "variant DoraLinearVariant"),
        (conv, "LoRA on Conv2d"),
        (embedding, "LoRA on Embedding"),
        (two_active, "trains 2 adapters at once"),
        (half_trained, "only one of lora_A and lora_B"),
        (lambda: nn.Linear(2, 2), "no LoRA layer"),
    ],
)
def test_models_that_it_does_not_support_are_refused_by_name(build: Callable[[], Any], error: str) -> None:
    model = build()
    base = adamw(nn.ParameterList([p for p in model.parameters() if p.requires_grad]))
    with pytest.raises(ValueError, match=error):
        BiLoRA(base, model=model)
    assert len(base.param_groups) == 1


class NoMaximize(torch.optim.Optimizer):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Nothing."""


def test_calls_that_cannot_be_right_are_refused() -> None:
    model = make()
    with pytest.raises(ValueError, match=r"NoMaximize has not"):
        BiLoRA(NoMaximize(model.parameters()), model=model)
    with pytest.raises(ValueError, match="got SAM: methods do not nest"):
        BiLoRA(vsam.SAM(adamw(model), model=model), model=model)
    with pytest.raises(ValueError, match=r"got dict\. Write:(.|\n)*optimizers=\(BiLoRA\(base, model=model\), None\)"):
        BiLoRA([{"params": [*model.parameters()]}], model=model)  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"must be a torch\.nn\.Module"):
        BiLoRA(adamw(model), model=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rank must be at least 1"):
        BiLoRA(adamw(model), model=model, rank=0)
    optimizer = BiLoRA(adamw(model), model=model)
    with pytest.raises(ValueError, match=r"call remove\(\)"):
        BiLoRA(adamw(model), model=model)
    with pytest.raises(ValueError, match="BiLoRA: methods do not nest"):
        vsam.SAM(optimizer, model=model)
    with pytest.raises(TypeError, match="cannot be copied"):
        copy.deepcopy(optimizer)
    cross_entropy(model.eval()(batches(1)[0][0]), batches(1)[0][1]).backward()
    with pytest.raises(RuntimeError, match=r"call model\.train\(\)"):
        optimizer.step()
    del optimizer
    BiLoRA(adamw(model), model=model)  # the hooks went with the optimizer


def tiny(**changes: Any) -> Any:
    model = make_model(dropout=0.1)
    settings = {"task_type": "SEQ_CLS", "r": 2, "lora_dropout": 0.1, "target_modules": ["query", "value"], **changes}
    return peft.get_peft_model(model, peft.LoraConfig(**settings))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


@pytest.mark.slow
@pytest.mark.filterwarnings(IGNORED)
@pytest.mark.parametrize("kind", [Trainer, SharpnessAwareTrainer])
def test_trainers_clip_schedule_save_and_resume(kind: type[Trainer], tmp_path: Path) -> None:
    """A resumed run ends with the same weights to the bit, and checkpoints hold the primary adapter only."""
    ends = []
    for resume in (None, str(tmp_path / "checkpoint-2")):
        model = tiny()
        optimizer = BiLoRA(sgd(model), model=model, rho=0.3)
        run = train(tmp_path, model, optimizer, kind, resume, save_strategy="steps", save_steps=2)
        ends.append((model, optimizer))
        assert run.state.global_step == 4
        assert optimizer.param_groups[1]["lr"] == run.optimizer.param_groups[1]["lr"] == 0  # linear decay
        assert 0 < optimizer.norm <= 0.3001
    assert_same(*ends)
    saved = peft.utils.load_peft_weights(str(tmp_path / "checkpoint-2"))
    assert len(saved) == len([p for p in model.parameters() if p.requires_grad])


@pytest.mark.slow
@pytest.mark.filterwarnings(IGNORED)
def test_a_trainer_equals_the_loop_and_evaluates_the_primary_adapter(tmp_path: Path) -> None:
    def prepare() -> Any:
        model = tiny(lora_dropout=0.0).double()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        return model, BiLoRA(sgd(model), model=model, rho=0.3)

    model, optimizer = prepare()
    changes: dict[str, Any] = {"lr_scheduler_type": "constant", "eval_strategy": "steps", "eval_steps": 1}
    changes["max_grad_norm"] = 0.2
    run = train(tmp_path, model, optimizer, Trainer, options={"eval_dataset": make_dataset(8)}, **changes)
    other, by_hand = prepare()
    other.train()
    dataset = make_dataset()
    for start in range(0, 32, 8):
        for first in (start, start + 4):
            batch = {name: torch.stack([one[name] for one in dataset[first : first + 4]]) for name in dataset[0]}
            other(**batch).loss.backward()  # whose mean the Trainer takes for a sum
        nn.utils.clip_grad_norm_(other.parameters(), 0.2)
        by_hand.step()
        other.zero_grad()
    own, others = weights(model) + auxiliary(optimizer), weights(other) + auxiliary(by_hand)
    torch.testing.assert_close(own, others, rtol=1e-7, atol=1e-9)
    batch = {name: torch.stack([one[name] for one in make_dataset(8)]) for name in dataset[0]}
    optimizer.remove()
    evaluated = [entry["eval_loss"] for entry in run.state.log_history if "eval_loss" in entry]
    assert evaluated[-1] == pytest.approx(model.eval()(**batch).loss.item(), rel=1e-5)


@pytest.mark.parametrize("is_reentrant", [False, True])
def test_checkpointing_activations_changes_nothing(is_reentrant: bool) -> None:
    """The first forward pass of the reentrant kind runs without gradients, and both run the layers again."""
    ends = []
    for checkpoints in (False, True):
        model = make(lora_dropout=0.2).train()
        optimizer = BiLoRA(adamw(model), model=model, rho=0.1)
        torch.manual_seed(1)
        for inputs, labels in batches(4):
            optimizer.zero_grad()
            inputs.requires_grad_()
            outputs = checkpoint(model, inputs, use_reentrant=is_reentrant) if checkpoints else model(inputs)
            cross_entropy(outputs, labels).backward()
            optimizer.step()
        ends.append((model, optimizer))
    assert_same(*ends)


class _WithLoRA:
    """A Lightning module whose linear layers have LoRA. Construct it with the function that makes its optimizer."""

    def __init__(self, make: Any) -> None:
        super().__init__(make)
        config = peft.LoraConfig(r=2, target_modules=["0", "3"])
        self.network = peft.get_peft_model(self.network, config)


class OrdinaryLoRA(_WithLoRA, Ordinary): ...


class NetLoRA(_WithLoRA, Net): ...


def bi_lora(base: torch.optim.Optimizer, model: nn.Module) -> BiLoRA:
    return BiLoRA(base, model=model, rho=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [OrdinaryLoRA, NetLoRA])
class TestLightning:
    pytestmark = PACKAGE_WARNINGS

    def test_it_equals_the_loop_with_clipping_and_accumulation(self, kind: Any) -> None:
        torch.manual_seed(0)
        module = fit(kind(bi_lora), accumulate_grad_batches=2, gradient_clip_val=0.1)
        torch.manual_seed(0)
        other = kind(bi_lora).train()
        by_hand = other.configure_optimizers()
        for i in range(0, 8, 2):
            by_hand.zero_grad()
            for points, labels in lightning_batches()[i : i + 2]:
                (cross_entropy(other.network(points), labels) / 2).backward()
            nn.utils.clip_grad_norm_(other.parameters(), 0.1)
            by_hand.step()
        torch.testing.assert_close(
            weights(module) + auxiliary(module.optimizer), weights(other) + auxiliary(by_hand), rtol=1e-6, atol=1e-7
        )
        assert by_hand.norm > 0.01

    def test_a_checkpoint_resumes_to_the_bit(self, kind: Any, tmp_path: Path) -> None:
        ends = []
        for resume in (None, tmp_path / "checkpoint.ckpt"):
            torch.manual_seed(0)
            module = kind(bi_lora)
            if resume is None:
                first = kind(bi_lora)
                first.load_state_dict(module.state_dict())
                torch.manual_seed(1)
                runner = trainer(max_epochs=1)
                runner.fit(first, loader())
                runner.save_checkpoint(tmp_path / "checkpoint.ckpt")
            torch.manual_seed(1)
            trainer(max_epochs=2).fit(module, loader(), ckpt_path=resume, weights_only=True)
            ends.append((module, module.optimizer))
        assert_same(*ends)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [accelerate.Accelerator, Accelerator])
def test_accelerators_accumulate_clip_and_resume(kind: Any, tmp_path: Path) -> None:
    def prepare() -> Any:
        AcceleratorState._reset_state(True)
        GradientState._reset_state()
        accelerator = kind(cpu=True, gradient_accumulation_steps=2)
        model = make()
        optimizer = BiLoRA(momentum(model), model=model, rho=0.1)
        return accelerator, model, optimizer, *accelerator.prepare(model.train(), optimizer)

    def go(accelerator: Any, prepared: Any, stepper: Any, found: Any) -> None:
        for inputs, labels in found:
            with accelerator.accumulate(prepared):
                accelerator.backward(cross_entropy(prepared(inputs), labels))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(prepared.parameters(), 0.1)
                stepper.step()
                stepper.zero_grad()

    accelerator, model, optimizer, prepared, stepper = prepare()
    go(accelerator, prepared, stepper, batches(8)[:4])
    accelerator.save_state(tmp_path)
    go(accelerator, prepared, stepper, batches(8)[4:])
    other = make().train()
    by_hand = BiLoRA(momentum(other), model=other, rho=0.1)
    for i in range(0, 8, 2):
        for inputs, labels in batches(8)[i : i + 2]:
            (cross_entropy(other(inputs), labels) / 2).backward()
        nn.utils.clip_grad_norm_(other.parameters(), 0.1)
        by_hand.step()
        other.zero_grad()
    assert_same((model, optimizer), (other, by_hand))
    accelerator, other, resumed, prepared, stepper = prepare()
    accelerator.load_state(tmp_path)
    go(accelerator, prepared, stepper, batches(8)[4:])
    assert_same((model, optimizer), (other, resumed))


@pytest.mark.slow
@pytest.mark.parametrize("compiles_first", [False, True])
def test_a_compiled_model_trains_the_same(compiles_first: bool) -> None:
    torch._dynamo.reset()
    model = make()
    compiled = torch.compile(model, backend="eager") if compiles_first else None
    optimizer = BiLoRA(adamw(model), model=model, rho=0.1)
    run(optimizer, torch.compile(model, backend="eager") if compiled is None else compiled, batches(6))
    assert_same((model, optimizer), trained())


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path: Path) -> None:
    assert_checks_pass(str(Path(__file__).with_name("peft_two_processes.py")), tmp_path)


def test_the_card() -> None:
    (block,) = blocks("docs/methods/bi-lora.md", "python")
    names: dict[str, Any] = {}
    exec(block.text, names)
    assert set(names["checkpoint"]["optimizer"]) == {"state", "param_groups", "auxiliary"}
    assert names["optimizer"].norm == 0  # removed
    assert names["optimizer"].param_groups[0]["lr"] < 1e-3


@pytest.mark.slow
@pytest.mark.filterwarnings(IGNORED)
@pytest.mark.filterwarnings(*(mark.args[0] for mark in PACKAGE_WARNINGS))
def test_the_page_on_loops(tmp_path: Path) -> None:
    loop, transformers, lightning = blocks("docs/loops/lora.md", "python")
    names: dict[str, Any] = {"torch": torch, "model": make()}
    exec(loop.text, names)
    run(names["optimizer"], names["model"], batches(3))
    assert names["optimizer"].norm > 0
    names = {"torch": torch, "BiLoRA": BiLoRA, "model": tiny(), "dataset": make_dataset()}
    exec(transformers.text, names | {"arguments": make_arguments(tmp_path)})
    names = {"torch": torch, "BiLoRA": BiLoRA, "LightningModule": OrdinaryLoRA}
    exec(lightning.text, names)
    module = fit(names["Net"](None))
    assert isinstance(module.optimizers().optimizer, BiLoRA)
