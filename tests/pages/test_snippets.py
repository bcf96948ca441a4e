"""Every Python snippet of the README and the pages runs, in the order of its page. Exceptions are listed."""

import copy
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import vsam
from pages.read import PAGES, ROOT, Block, blocks, sides

LANGUAGES = {"python", "diff", "sh", "bash", "toml", "text"}

ELSEWHERE = {
    ("docs/coming-from.md", "diff"): ("tests/pages/test_coming_from.py", 5),
    ("docs/design.md", "python"): ("tests/pages/test_design.py", 1),  # compared with the source
    ("docs/loops/transformers.md", "python"): ("tests/integrations/test_loop_pages.py", 5),
    ("docs/loops/transformers.md", "diff"): ("tests/integrations/test_loop_pages.py", 1),
    ("docs/loops/accelerate.md", "python"): ("tests/integrations/test_loop_pages.py", 2),
    ("docs/loops/accelerate.md", "diff"): ("tests/integrations/test_loop_pages.py", 2),
    ("docs/loops/lightning.md", "python"): ("tests/integrations/test_lightning_pages.py", 2),
    ("docs/loops/lightning.md", "diff"): ("tests/integrations/test_lightning_pages.py", 3),
    ("docs/loops/distributed.md", "python"): ("tests/distributed/test_ddp.py", 4),
    ("docs/loops/distributed.md", "diff"): ("tests/distributed/test_ddp.py", 2),  # one of them in test_fsdp2.py
    ("docs/loops/timm.md", "diff"): ("tests/pages/test_timm.py", 1),
    ("docs/loops/torchrun.md", "diff"): ("tests/pages/test_commands.py", 1),
    ("docs/loops/skorch.md", "python"): ("tests/integrations/test_skorch.py", 1),
    ("docs/loops/skorch.md", "diff"): ("tests/integrations/test_skorch.py", 1),
    ("docs/loops/lora.md", "python"): ("tests/integrations/test_peft.py", 3),
    ("docs/methods/bi-lora.md", "python"): ("tests/integrations/test_peft.py", 1),
    ("docs/methods/lsq.md", "python"): ("tests/quantize/test_documentation.py", 1),
    ("docs/methods/mesa.md", "python"): ("tests/trajectory/test_documentation.py", 1),
    ("docs/methods/saf.md", "python"): ("tests/trajectory/test_documentation.py", 1),
    ("docs/your-own.md", "python"): ("tests/lab/test_plugins.py", 1),
}
"""Pages whose snippets need packages or processes: which test runs them, and how many there are. A new one must be
added to that test before the number is raised."""

EXEMPT = {
    ("CONTRIBUTING.md", '"my-method": lambda'): "a line to add to a table of the tests, not a statement",
}
"""Snippets that nothing runs, by their page and how they begin, and why."""

LABELS = {"docs/loops/plain.md": 6}
"""Number of diffs of each page that runs here."""


def surroundings() -> dict[str, Any]:
    """The names that a reader of the pages has."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    base = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return {
        "torch": torch,
        "vsam": vsam,
        "model": model,
        "base": base,
        "optimizer": vsam.VSAM(base, model=model),
        "criterion": nn.CrossEntropyLoss(),
        "epochs": 1,
        "inputs": torch.randn(6, 4),
        "targets": torch.randint(3, (6,)),
        "loader": [(torch.randn(6, 4), torch.randint(3, (6,))) for _ in range(5)],
    }


def on_this_machine(text: str) -> str:
    return text.replace('"cuda"', '"cpu"').replace("torch.float16", "torch.bfloat16")


def is_exempt(block: Block) -> bool:
    return any(block.page == page and block.text.startswith(begin) for page, begin in EXEMPT)


def run(block: Block, names: dict[str, Any]) -> None:
    """Run a snippet. An error names the page and the line."""
    code = "\n" * (block.line - 1) + on_this_machine(block.text)
    exec(compile(code, str(ROOT / block.page), "exec"), names)


HERE = [
    page
    for page in PAGES
    if (page, "python") not in ELSEWHERE and any(not is_exempt(block) for block in blocks(page, "python"))
]


@pytest.mark.parametrize("page", HERE)
def test_python_on_a_page_runs_in_its_order(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some of them write
    names = surroundings()
    for block in blocks(page, "python"):
        if not is_exempt(block):
            run(block, names)
    assert "optimizer" in names


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_its_language_and_is_run_or_listed(page: str) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block}: {block.language}"
        if block.language == "python":
            compile(block.text if not is_exempt(block) else f"{{{block.text}}}", str(block), "exec")
        elif block.language == "toml":
            tomllib.loads(block.text)
    for language in ("python", "diff"):
        count = len(blocks(page, language))
        if (page, language) in ELSEWHERE:
            test, number = ELSEWHERE[page, language]
            assert count == number, f"{page} has {count} blocks of {language}; {test} runs {number}"
            assert (ROOT / test).is_file()
        elif language == "diff" and count:
            assert count == LABELS.get(page), f"{page} has {count} diffs that nobody runs"


def test_no_exemption_is_left_over() -> None:
    for page, begin in EXEMPT:
        assert any(block.text.startswith(begin) for block in blocks(page, "python"))
    assert {page for page, _ in ELSEWHERE} <= set(PAGES)


def test_the_guide_keeps_its_promises_on_clipping_and_scaling() -> None:
    names = surroundings()
    for block in blocks("docs/using.md", "python"):
        run(block, names)
        if "max_grad_norm" in block.text:
            break
    optimizer, criterion, model = names["optimizer"], names["criterion"], names["model"]
    inputs, targets = names["loader"][0]

    def closure() -> Any:
        loss = 1_000 * criterion(model(inputs), targets)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert nn.utils.get_total_norm([p.grad for p in model.parameters()]) == pytest.approx(1.0, rel=1e-4)
    assert names["scaler"].get_scale() == 2.0**16


PLAIN_LOOPS = blocks("docs/loops/plain.md", "diff")


def test_the_closure_on_the_page_is_the_closure_example() -> None:
    after = {line.strip() for line in sides(PLAIN_LOOPS[0].text)[1].splitlines()}
    example = {line.strip() for line in (ROOT / "examples" / "closure.py").read_text().splitlines()}
    assert {line for line in after if not line.startswith("scheduler =")} <= example


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_snippet_samples_every_fifth_step(page: str) -> None:
    names = surroundings()
    run(blocks(page, "python")[0], names)
    assert (names["optimizer"].last.step, names["optimizer"].num_samples) == (len(names["loader"]), 1)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning")  # ignite imports it
@pytest.mark.parametrize("block", PLAIN_LOOPS, ids=str)
def test_both_sides_of_the_diffs_for_plain_loops_train(block: Block) -> None:
    ignite = pytest.importorskip("ignite.engine") if "ignite" in block.text else None
    for script in sides(on_this_machine(block.text)):
        names = surroundings() | {"ignite": ignite and SimpleNamespace(engine=ignite)}
        del names["optimizer"]
        weights = [layer.weight.clone() for layer in names["model"] if isinstance(layer, nn.Linear)]
        exec(script, names)
        layers = [layer for layer in names["model"] if isinstance(layer, nn.Linear)]
        assert not any(torch.equal(weight, layer.weight) for weight, layer in zip(weights, layers, strict=True))
    num_steps = len(names["loader"])
    assert names["optimizer"].last.step == num_steps
    assert names["optimizer"].num_samples == num_steps // 5


def test_first_steps_print_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in blocks("docs/first-steps.md", "python"):
        run(block, names)
    shown = capsys.readouterr().out
    assert "200 second gradients in 200 steps" in shown
    assert "\n1.2\n" in shown
    assert names["losses"][-1] < 0.5 * names["losses"][0]


def test_the_page_on_parts_runs_and_its_parts_resume() -> None:
    names: dict[str, Any] = {}
    for block in blocks("docs/writing-a-part.md", "python"):
        run(block, names)
    optimizer, losses, closure = names["optimizer"], names["losses"], names["closure"]
    assert losses[-1] < 0.5 * losses[0]
    assert 20 < optimizer.num_samples < 100
    for part in (optimizer.when, optimizer.where, optimizer.between):
        assert repr(eval(repr(part), names)) == repr(part)
    optimizer.when.threshold = names["parts"]["when"].threshold = 0.95  # so that the ratio crosses it from now on
    resumed = vsam.SharpnessAware(torch.optim.SGD(names["model"].parameters(), lr=0.0), **names["parts"])
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    weights = [parameter.detach().clone() for parameter in names["model"].parameters()]
    followed = [followed_by(optimizer, closure, is_saved=False)]
    for parameter, weight in zip(names["model"].parameters(), weights, strict=True):
        parameter.data.copy_(weight)
    followed.append(followed_by(resumed, closure, is_saved=True))
    assert followed[0] == followed[1]


def followed_by(optimizer: vsam.SharpnessAware, closure: Any, is_saved: bool) -> list[tuple[float, int]]:
    """The next steps' losses and samples, with a state saved before each or not, which must not matter."""
    seen = []
    for _ in range(40):
        if is_saved:
            optimizer.state_dict()
        seen.append((optimizer.step(closure).item(), optimizer.num_samples))
    return seen
