"""Nets of skorch with our optimizers, against loops by hand."""

import copy
import pickle
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import vsam
from pages.read import ROOT, blocks, sides

pytest.importorskip("skorch")

from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetClassifier, NeuralNetRegressor
from skorch.callbacks import Callback, GradientNormClipping, LRScheduler

from vsam.integrations.skorch import SharpnessAwareNet

INPUTS = torch.randn(80, 6, generator=torch.Generator().manual_seed(0))
TARGETS = (INPUTS[:, 0] * INPUTS[:, 1] > 0).long()
EPOCHS, BATCH = 4, 20
STEPS = EPOCHS * len(INPUTS) // BATCH
NO_METHOD = dict.fromkeys(("optimizer__budget", "optimizer__base", "optimizer__base__momentum"))


class Module(nn.Module):
    def __init__(self, hidden: int = 8) -> None:
        super().__init__()
        layers = (nn.Linear(6, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, 2))
        self.layers = nn.Sequential(*layers)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)

    @property
    def num_batches(self) -> int:
        return int(self.layers[1].num_batches_tracked)


class Net(SharpnessAwareNet, NeuralNetClassifier):
    pass


def make(kind: Callable[..., Any] = Net, **changes: Any) -> Any:
    settings = {
        "criterion": nn.CrossEntropyLoss,
        "optimizer": vsam.VSAM,
        "optimizer__budget": 0.2,
        "optimizer__base": torch.optim.SGD,
        "optimizer__base__momentum": 0.9,
        "lr": 0.1,
        "max_epochs": EPOCHS,
        "batch_size": BATCH,
        "train_split": None,
        "verbose": 0,
    }
    settings |= changes
    return kind(Module, **{name: value for name, value in settings.items() if value is not None or "__" not in name})


def fit(net: Any) -> Any:
    torch.manual_seed(0)
    return net.fit(INPUTS, TARGETS)


def by_hand(make_optimizer: Callable[[nn.Module], vsam.SharpnessAware]) -> tuple[Module, list[float]]:
    torch.manual_seed(0)
    model, losses = Module(), []
    optimizer = make_optimizer(model)
    for _ in range(EPOCHS):
        for inputs, targets in DataLoader(TensorDataset(INPUTS, TARGETS), BATCH):

            def closure(inputs: Tensor = inputs, targets: Tensor = targets) -> Tensor:
                loss = nn.functional.cross_entropy(model(inputs), targets)
                loss.backward()
                return loss

            losses.append(optimizer.step(closure).item())
    return model, losses


def states_are_equal(net: Any, other: nn.Module) -> bool:
    pairs = zip(net.module_.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_a_net_trains_as_a_loop_by_hand_and_counts_every_batch_once() -> None:
    net = fit(make())
    model, losses = by_hand(
        lambda model: vsam.VSAM(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model=model, budget=0.2)
    )
    assert states_are_equal(net, model)
    assert net.module_.num_batches == STEPS
    assert net.optimizer_.num_samples == 4
    assert [row["train_loss"] for row in net.history[-1]["batches"]] == losses[-len(INPUTS) // BATCH :]


def test_the_base_is_sgd_unless_another_is_given_and_keeps_its_groups() -> None:
    net = make(optimizer__base=None, optimizer__base__momentum=None).initialize()
    assert type(net.optimizer_.base) is torch.optim.SGD
    groups = [("layers.0.*", {"lr": 0.3, "perturb": False})]
    net = make(optimizer__base=torch.optim.AdamW, optimizer__base__momentum=None, optimizer__param_groups=groups)
    optimizer = net.initialize().optimizer_
    assert type(optimizer.base) is torch.optim.AdamW
    assert [(len(group["params"]), group["lr"]) for group in optimizer.param_groups] == [(2, 0.3), (4, 0.1)]


def test_an_ordinary_optimizer_is_left_alone() -> None:
    settings = {"optimizer": torch.optim.SGD, "optimizer__momentum": 0.9, **NO_METHOD}
    assert states_are_equal(fit(make(**settings)), fit(make(NeuralNetClassifier, **settings)).module_)


@pytest.mark.parametrize(
    ("method", "settings"), [(vsam.SAM, {"optimizer__last": 0.25}), (vsam.AESAM, {}), (vsam.MSAM, {})]
)
def test_methods_get_the_length_of_the_run(method: type, settings: dict[str, Any]) -> None:
    optimizer = fit(make(optimizer=method, optimizer__budget=None, **settings)).optimizer_
    if method is vsam.SAM:
        assert optimizer.when.total_steps == STEPS
        assert optimizer.num_samples == STEPS // 4
    elif method is vsam.AESAM:
        assert optimizer.when.total_steps == STEPS


def test_partial_fit_and_explicit_epochs_count() -> None:
    net = make(optimizer=vsam.SAM, optimizer__budget=None, optimizer__last=0.5).initialize()
    net.partial_fit(INPUTS, TARGETS, epochs=2)
    net.partial_fit(INPUTS, TARGETS, epochs=2)
    assert net.optimizer_.when.total_steps == 8
    assert net.optimizer_.num_samples == 4 + 8


def test_the_length_of_a_resumed_run_counts_the_steps_before(tmp_path: Path) -> None:
    settings = {"optimizer": vsam.SAM, "optimizer__budget": None, "optimizer__last": 0.5}
    fit(make(**settings)).save_params(f_optimizer=tmp_path / "optimizer.pt")
    net = make(**settings).initialize()
    net.load_params(f_optimizer=tmp_path / "optimizer.pt")
    net.partial_fit(INPUTS, TARGETS)
    assert net.optimizer_.when.total_steps == 2 * STEPS
    assert net.optimizer_.num_samples == STEPS // 2 + STEPS


def test_data_of_unknown_length_train() -> None:
    class Stream(IterableDataset):
        def __iter__(self) -> Any:
            return zip(INPUTS, TARGETS, strict=True)

    net = make()
    net.fit(Stream(), None)
    assert net.module_.num_batches == STEPS


class Count(Callback):
    def __init__(self) -> None:
        self.num_calls = 0

    def on_grad_computed(self, net: Any, **kwargs: Any) -> None:
        assert not net.is_second_pass
        self.num_calls += 1


def test_callbacks_see_the_first_pass_only() -> None:
    net = fit(make(callbacks=[("count", Count())], optimizer=vsam.SAM, optimizer__budget=None))
    assert dict(net.callbacks_)["count"].num_calls == STEPS
    assert net.optimizer_.num_samples == STEPS
    assert not net.is_second_pass


def test_a_clipping_callback_is_refused_and_max_grad_norm_clips() -> None:
    with pytest.raises(ValueError, match="optimizer__max_grad_norm"):
        fit(make(callbacks=[GradientNormClipping(1.0)]))
    net = fit(make(optimizer__max_grad_norm=1e-6, optimizer__base__momentum=None))
    torch.manual_seed(0)
    start = Module()
    moved = [(a - b).norm() for a, b in zip(net.module_.parameters(), start.parameters(), strict=True)]
    assert max(moved) <= 1e-6 * 0.1 * STEPS * 1.01


def test_a_scheduler_of_skorch_sets_the_learning_rate() -> None:
    policy = LRScheduler(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)
    net = fit(make(callbacks=[policy]))
    assert net.optimizer_.base.param_groups[0]["lr"] == pytest.approx(0.1 / 2**EPOCHS)


def test_copies_keep_their_own_model_and_continue_alike() -> None:
    net = fit(make())
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert copied.optimizer_.model is copied.module_
        runs = []
        for one in (copied, copy.deepcopy(net)):
            torch.manual_seed(1)
            runs.append(one.partial_fit(INPUTS, TARGETS).module_)
        assert all(torch.equal(a, b) for a, b in zip(runs[0].parameters(), runs[1].parameters(), strict=True))


def test_a_saved_net_resumes_to_the_bit(tmp_path: Path) -> None:
    files = {"f_params": str(tmp_path / "weights"), "f_optimizer": str(tmp_path / "optimizer")}
    net = fit(make())
    net.save_params(**files)
    other = make().initialize()
    other.load_params(**files)
    for one in (net, other):
        torch.manual_seed(1)
        one.partial_fit(INPUTS, TARGETS)
    assert states_are_equal(net, other.module_)
    assert net.optimizer_.num_samples == other.optimizer_.num_samples


def test_a_grid_search_reaches_settings_of_both_optimizers() -> None:
    grid = {"optimizer__rho": [0.01, 0.1], "optimizer__base__momentum": [0.5], "optimizer__budget": [0.5]}
    search = GridSearchCV(make(max_epochs=1), grid, cv=2, error_score="raise")
    best = search.fit(INPUTS.numpy(), TARGETS.numpy()).best_estimator_.optimizer_
    assert best.param_groups[0]["momentum"] == 0.5
    assert best.param_groups[0]["rho"] in (0.01, 0.1)
    assert best.when.budget == 0.5


def test_settings_that_come_too_late_are_refused() -> None:
    net = make().initialize()
    net.set_params(optimizer__rho=0.2, lr=0.3, optimizer__param_groups__0__lr=0.4, max_epochs=2)
    assert (net.optimizer_.where.rho, net.optimizer_.param_groups[0]["rho"]) == (0.05, 0.2)
    for name in ("optimizer__budget", "optimizer__base__momentum"):
        with pytest.raises(ValueError, match=rf"clone\(net\)\.set_params\({name}"):
            net.set_params(**{name: 0.5})
    assert clone(net).set_params(optimizer__budget=0.5).initialize().optimizer_.when.budget == 0.5


def test_criteria_with_a_state_are_part_of_the_model() -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(1)

        def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return (self.norm(outputs) - targets).square().mean()

    class Regressor(SharpnessAwareNet, NeuralNetRegressor):
        pass

    net = Regressor(
        nn.Linear,
        module__in_features=6,
        module__out_features=1,
        criterion=Centred,
        optimizer=vsam.SAM,
        train_split=None,
        verbose=0,
        max_epochs=3,
    )
    net.fit(INPUTS, INPUTS[:, :1])
    assert int(net.criterion_.norm.num_batches_tracked) == net.optimizer_.last.step == 3


def test_a_net_without_the_mixin_is_refused_with_the_lines_to_write() -> None:
    with pytest.raises(ValueError, match=r"class Net\(SharpnessAwareNet, NeuralNetClassifier\)"):
        fit(make(NeuralNetClassifier, optimizer__base=None, optimizer__base__momentum=None))

    def without_model(groups: Any, lr: float) -> vsam.SharpnessAware:
        return vsam.SAM(torch.optim.SGD(groups, lr=lr))

    for kind in (NeuralNetClassifier, Net):
        with pytest.raises(RuntimeError, match="SharpnessAwareNet"):
            fit(make(kind, optimizer=without_model, **NO_METHOD))


def test_settings_of_the_base_in_the_wrong_place_show_the_right_one() -> None:
    with pytest.raises(ValueError, match=r"momentum.*optimizer__base__momentum"):
        make(optimizer__momentum=0.9).initialize()


def test_esam_is_refused() -> None:
    with pytest.raises(ValueError, match="per-sample"):
        make(optimizer=vsam.ESAM, optimizer__budget=None).initialize()


def test_both_sides_of_the_page_train() -> None:
    page = "docs/loops/skorch.md"
    (diff,) = blocks(page, "diff")
    names: dict[str, Any] = {}
    for script in sides(diff.text):
        names = {"torch": torch, "Module": Module, "inputs": INPUTS, "targets": TARGETS}
        names |= {"NeuralNetClassifier": NeuralNetClassifier, "GridSearchCV": GridSearchCV}
        exec(script, names)
        assert names["net"].module_.num_batches == EPOCHS
    assert names["net"].optimizer_.num_samples == 1
    for block in blocks(page, "python"):
        exec(block.text, names)
    assert set(names["search"].best_params_) == {"optimizer__rho", "optimizer__base__weight_decay"}


def test_the_example_samples_a_fifth_of_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    losses, optimizer = runpy.run_path(str(ROOT / "examples" / "skorch_net.py"), run_name="example")["main"]()
    assert losses[-1] < 0.6 * losses[0]
    assert optimizer.num_samples == 32
    assert "32 second gradients in 160 steps" in capsys.readouterr().out
