"""What looks wrong in a user's file is found, and nothing in a file that is right."""

import pytest

import vsam
from lab.subject.files import write
from vsam.lab.doctor import check_subject, make_optimizer
from vsam.lab.errors import UserError
from vsam.lab.subject import read_file

OPTIMIZER = "import vsam\noptimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1){})\n"
LOSS = "return nn.functional.cross_entropy(model(inputs), targets)"
OWN_GENERATOR = """
class Noise(nn.Module):
    generator = torch.Generator()

    def forward(self, values):
        return values * (torch.rand(values.shape, generator=self.generator) > 0.5)


model = nn.Sequential(nn.Linear(20, 8), Noise(), nn.Linear(8, 4))
"""


def findings(path, method="vsam", **settings):
    subject = read_file(path)
    return check_subject(subject, make_optimizer(subject, method, settings))


def found(level, *arguments, **settings):
    return {one.subject: one.text for one in findings(*arguments, **settings) if one.level == level}


def test_nothing_is_wrong_with_a_file_that_is_right(tmp_path):
    said = findings(write(tmp_path))
    assert {one.level for one in said} == {"ok"}
    assert [one.subject for one in said] == ["loss", "repeatability", "steps", "perturbation"]
    assert said[2].text == "3 dry steps of VSAM, 3 with a second gradient"


def test_batch_norm_needs_the_model(tmp_path):
    said = found("problem", write(tmp_path, more=OPTIMIZER.format("")))
    assert "also updates 1.running_mean, 1.running_var, 1.num_batches_tracked: " in said["model="]
    assert "write vsam.SAM(base, model=model, …)" in said["model="]
    assert not found("problem", write(tmp_path, more=OPTIMIZER.format(", model=model")))


def test_dropout_needs_the_model_in_a_loop_without_closure(tmp_path):
    path = write(tmp_path, ("nn.BatchNorm1d(32), ", ""), more=OPTIMIZER.format(""))
    assert "cannot repeat dropout unless the optimizer knows the model" in found("problem", path)["model="]
    plain = [("nn.BatchNorm1d(32), ", ""), ("nn.Dropout(0.2), ", "")]
    assert "Nothing here needs it" in found("note", write(tmp_path, *plain, more=OPTIMIZER.format("")))["model="]


def test_noise_from_a_generator_of_its_own_cannot_be_repeated(tmp_path):
    said = found("problem", write(tmp_path, more=OWN_GENERATOR))
    assert "cannot repeat the dropout or augmentation of the first" in said["repeatability"]


def test_accumulated_gradients_and_another_scaler_are_found(tmp_path):
    more = "loss(model, batches[0]).backward()\nscaler = torch.amp.GradScaler('cpu')\n"
    said = found("problem", write(tmp_path, more=more))
    assert said["accumulation"].startswith("0.weight, 0.bias, 1.weight and 3 more have gradients before the")
    assert said["loss scaling"].startswith(
        "scaler is torch's GradScaler, which supports only one pass: use vsam.amp.GradScaler"
    )
    assert not found("problem", write(tmp_path, more="import vsam\nscaler = vsam.amp.GradScaler('cpu')\n"))


def test_a_scaled_loss_is_noted(tmp_path):
    path = write(tmp_path, (LOSS, f"{LOSS} * 65536"))
    assert "looks like that of a scaled loss" in found("note", path)["loss scaling"]


@pytest.mark.parametrize(
    ("changes", "more", "subject", "text"),
    [
        ((LOSS, f"{LOSS} * float('nan')"), "", "gradients", "The loss is nan, but must be finite."),
        ((LOSS, f"{LOSS} * 0"), "", "gradients", "The gradient is zero everywhere"),
        ((LOSS, f"{LOSS}.detach()"), "", "loss", "loss has no gradient"),
        ((LOSS, LOSS.replace("targets)", "targets, reduction='none')")), "", "loss", "must return one number"),
    ],
    ids=["nan", "zero", "detached", "vector"],
)
def test_no_useful_gradient_is_a_problem(tmp_path, changes, more, subject, text):
    assert text in found("problem", write(tmp_path, changes, more=more))[subject]


def test_parameters_without_a_gradient_are_named(tmp_path):
    more = "model.spare = nn.Linear(2, 2)\nmodel.forward = lambda x: nn.Sequential(*list(model)[:5])(x)\n"
    assert found("note", write(tmp_path, more=more))["gradients"].startswith("spare.weight, spare.bias get no gradient")


def test_bfloat16_weights_that_do_not_move_are_found(tmp_path):
    more = "model.bfloat16()\nbatches = [(x.bfloat16(), y) for x, y in batches]\n"
    path = write(tmp_path, ("(0.2)", "(0.0)"), more=more)
    said = found("problem", path, rho=1e-4)["perturbation"]
    assert "of the bfloat16 weights: for the rest, the perturbation is lost in rounding" in said
    assert "perturbation" in found("ok", path, rho=0.5)
    assert "perturbation" in found("ok", write(tmp_path), rho=1e-4)


def test_a_model_in_evaluation_mode_is_noted(tmp_path):
    assert "eval mode" in found("note", write(tmp_path, more="model.eval()\n"))["mode"]


def test_methods_and_settings_that_do_not_fit_are_refused(tmp_path):
    subject = read_file(write(tmp_path))
    with pytest.raises(UserError, match=r"sam: rho must not be negative"):
        make_optimizer(subject, "sam", {"rho": -1})
    with pytest.raises(UserError, match=r"vsam has no setting 'gama'"):
        make_optimizer(subject, "vsam", {"gama": 1})
    assert "esam needs per-sample losses" in found("problem", write(tmp_path), "esam")["loss"]


@pytest.mark.parametrize("method", [name for name in vsam.list_methods() if name != "esam"])
def test_every_method_takes_its_dry_steps(tmp_path, method):
    needed = {"ae-sam": {"total_steps": 9}, "vsam-budget": {"budget": 0.5, "total_steps": 9}}
    assert not found("problem", write(tmp_path), method, **needed.get(method, {}))


WARNING = """
import warnings

plain = loss


def loss(model, batch):
    warnings.warn("mind this")
    return plain(model, batch)
"""


def test_warnings_of_the_steps_are_shown(tmp_path):
    with pytest.warns(UserWarning, match="mind this"):
        assert found("note", write(tmp_path, more=WARNING))["warning"] == "mind this"
