"""The loops of other packages: each module needs the package it is named after. `import vsam` needs none of them.

What their users should write is registered here, without importing them.
"""

import sys
from functools import partial
from typing import Any

from vsam._step.misuse import Advice, outermost_caller, register_advice

_LIGHTNING = (
    "In Lightning, write class Net(SharpnessAwareModule, LightningModule), with SharpnessAwareModule from "
    "vsam.integrations.lightning. In manual optimisation and with Fabric, pass step() a closure, or call perturb() "
    "after backward. For 16-mixed, Fabric needs plugins=MixedPrecision(…, scaler=vsam.amp.GradScaler(device))."
)

_TRANSFORMERS = (
    "The Trainer of transformers runs one pass per step: write vsam.integrations.transformers.SharpnessAwareTrainer(…) "
    "in place of Trainer(…), or put SharpnessAwareMixin before a user-defined trainer. There, settings of the base "
    'optimizer come from TrainingArguments, or from {"base": (torch.optim.SGD, {"lr": …})} in optimizer_cls_and_kwargs.'
)

_ACCELERATE = (
    "With accelerate, call vsam.integrations.accelerate.step(accelerator, optimizer, [closure]), or import Accelerator "
    "from vsam.integrations.accelerate and call optimizer.perturb() after accelerator.backward(loss)."
)

_SKORCH = (
    "In skorch, write class Net(SharpnessAwareNet, NeuralNetClassifier), with SharpnessAwareNet from "
    "vsam.integrations.skorch, and Net(Module, optimizer=vsam.VSAM, optimizer__budget=0.2, "
    "optimizer__base=torch.optim.SGD, optimizer__base__momentum=0.9)."
)


def _from_lightning(closure: partial[Any], optimizer: Any) -> Any:
    from vsam.integrations.lightning_closure import adapted

    return adapted(closure, optimizer)


def _check_micro_batches(optimizer: Any) -> None:
    """Raise if accelerate's own optimizer called with accumulation on, because it skips the other micro-batches."""
    state = sys.modules.get("accelerate.state")
    if state is None or state.GradientState._shared_state.get("plugin_kwargs", {}).get("num_steps", 1) == 1:
        return
    if outermost_caller(("accelerate.optimizer",)) is not None:
        raise RuntimeError(
            f"accelerate calls step(closure) at the last micro-batch only: the others would be dropped. {_ACCELERATE}"
        )


def _check_model(optimizer: Any) -> None:
    """Raise if a net of skorch trains without `model=`: its BatchNorm would count both passes."""
    if optimizer.model is None and outermost_caller(("skorch",)) is not None:
        raise RuntimeError(f"The optimizer of this net has no model=, so BatchNorm would count both passes. {_SKORCH}")


for _package in ("lightning", "pytorch_lightning"):
    register_advice(_package, Advice(_LIGHTNING, adapt=_from_lightning))
register_advice("transformers", Advice(_TRANSFORMERS, constructs=True))
register_advice("accelerate", Advice(_ACCELERATE, constructs=True, check_first_step=_check_micro_batches))
register_advice("skorch", Advice(_SKORCH, constructs=True, check_first_step=_check_model))
