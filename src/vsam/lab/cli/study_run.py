"""What `vsam study` does once its options are checked."""

import json as json_module
import shlex
from collections.abc import Sequence
from pathlib import Path

from vsam.lab.cli.options import resumable, typed_command
from vsam.lab.cli.output import make_console, say
from vsam.lab.cli.progress import make_progress
from vsam.lab.cli.ray import choose_ray_device, trainer
from vsam.lab.errors import UserError
from vsam.lab.files import is_standard_output, make_folder, write_atomically, write_output
from vsam.lab.runs.tensorboard import observer
from vsam.lab.study.estimate import estimate_study
from vsam.lab.study.run import run_study
from vsam.lab.study.study import Outcome, Scale, Study
from vsam.lab.study.write import read_studies, write_study

__all__ = ["compare_with_paper", "run", "show_estimate"]


def show_estimate(
    study: Study, scale: Scale, seeds: int, out: Path, json: Path | None, only: Sequence[str], methods: Sequence[str]
) -> None:
    """Show what the study would take."""
    estimate = estimate_study(study, scale, seeds, out, only=only, methods=methods)
    write_output(json, json_module.dumps(estimate.to_dict(), indent=2) + "\n")
    if is_standard_output(json):
        return
    if study.measure:
        say(f"{study.name} trains no network: it needs one core, and neither data nor a GPU.")
        return
    console = make_console()
    console.print(estimate.table())
    console.print(f"\n{estimate.sentence()}")
    if estimate.missing:
        console.print("Nothing was trained: leave out --dry-run to start.")


def run(
    study: Study,
    scale: Scale,
    seeds: int,
    out: Path,
    json: Path | None,
    *,
    data_dir: Path | None,
    device: str | None,
    ray: str | None,
    workers: int,
    tensorboard: bool,
    **chosen: Sequence[str],
) -> tuple[list[str], list[Path]]:
    """Run, write and show the study; returns the failures, and the folders of damaged runs.

    The arguments are the options of the command; `chosen` are `only` and `methods`.
    """
    outcome: Outcome
    damaged: list[Path] = []
    if study.measure:
        make_folder(out)
        with resumable(), make_progress() as progress:
            outcome = study.measure(scale, out, progress)
    else:
        where, observe = choose_ray_device(device, ray), observer(tensorboard)
        if (estimate := estimate_study(study, scale, seeds, out, **chosen)).missing:
            say(estimate.sentence(), err=True)
        make_folder(out)
        with resumable(), trainer(ray, workers) as train, make_progress() as progress:
            outcome = trained = run_study(
                study, scale, seeds, out, data_dir, where, progress, train=train, observe=observe, **chosen
            )
            damaged = trained.damaged
    content = outcome.to_dict()
    if content["rows"]:
        paths = write_study(outcome, out, typed_command())
        write_output(json, json_module.dumps(content, indent=2) + "\n")
        if not is_standard_output(json):
            _show(outcome, out, paths)
    return outcome.failures, damaged


def _show(outcome: Outcome, out: Path, paths: Sequence[Path]) -> None:
    console = make_console()
    for one in outcome.renderables():
        if isinstance(one, str):
            say(one)
        else:
            console.print(one)
    for path in paths:
        say(path)
    if (out / "runs").exists():
        say(f"Report on all runs: {shlex.join(['vsam', 'report', str(out), '-o', str(out / 'report.html')])}")


def compare_with_paper(out: Path, details: bool, json: Path | None) -> None:
    """Judge the paper's claims by a folder's studies: a tally, one line per claim, and details on request."""
    from vsam.lab.paper.claims import judge, to_markdown
    from vsam.lab.paper.summary import LEGEND, summarise, to_lines
    from vsam.lab.paper.verdicts import to_terminal

    studies = read_studies(out)
    if not studies:
        raise UserError(f"{out} has no study yet. Run vsam study table1 first, or give another folder with --out.")
    verdicts = judge(studies)
    summary = summarise(verdicts)
    write_atomically(out / "claims.md", to_markdown(verdicts))
    write_output(json, json_module.dumps(summary.to_dict(), indent=2, ensure_ascii=False) + "\n")
    if is_standard_output(json):
        return
    console = make_console(160 if details else 120)
    console.print(f"{summary.tally}\n")
    console.print(to_lines(summary))
    console.print(f"\n{LEGEND}")
    if details:
        console.print(to_terminal(verdicts))
    else:
        console.print("For every effect with its interval, add --details or read the file below.")
    say(out / "claims.md")
