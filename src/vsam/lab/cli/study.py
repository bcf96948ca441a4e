"""`vsam study`."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vsam.lab.cli.options import DataDir, Device, Out, Use, folder, resumable, typed_command
from vsam.lab.cli.progress import make_progress
from vsam.lab.errors import RunError, UserError
from vsam.lab.files import make_folder, write_atomically
from vsam.lab.runs.environment import choose_device
from vsam.lab.study.plan import STUDIES
from vsam.lab.study.run import Train, run_study
from vsam.lab.study.study import SCALES, SEEDS, Outcome, Scale, Study
from vsam.lab.study.write import check_scale, read_studies, seeds_before, write_study

__all__ = ["fill_ray", "study"]


def study(
    name: Annotated[str | None, typer.Argument(metavar="|".join(STUDIES), help="Which study.")] = None,
    scale: Annotated[str, typer.Option("--scale", help="tiny (seconds), small (two cores), paper (a GPU).")] = "small",
    out: Out = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", help="How many seeds. Default: as before; at first 3, tiny 1.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="PART", help="Run only this part, e.g. cifar10-small.")
    ] = None,
    compare_paper: Annotated[
        bool, typer.Option("--compare-paper", help="Say which of the paper's claims the studies in FOLDER support.")
    ] = False,
    ray: Annotated[
        str | None, typer.Option("--ray", metavar="[ADDRESS]", help="Run the cells as Ray tasks, here or on a cluster.")
    ] = None,
    use: Use = None,
    data_dir: DataDir = None,
    device: Device = None,
) -> None:
    """Run a table or figure of the paper: train what is missing, then write numbers, tables and figures."""
    if scale not in SCALES:
        raise UserError(f"--scale must be one of {', '.join(SCALES)}, got {scale!r}.")
    if name is None and not compare_paper:
        raise UserError(f"Name a study ({', '.join(STUDIES)}), or give --compare-paper.")
    if name is not None and name not in STUDIES:
        raise UserError(f"There is no study {name!r}. Known: {', '.join(STUDIES)}.")
    if seeds is not None and seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {seeds}.")
    chosen: Scale = next(known for known in SCALES if known == scale)
    target = folder(out) or Path("studies") / chosen
    failures: list[str] = []
    if name is not None:
        make_folder(target)
        check_scale(target, name, chosen)
        options = {"--seeds": seeds, "--only": only, "--ray": ray, "--data-dir": data_dir, "--device": device}
        given = [option for option, value in options.items() if value]
        if STUDIES[name].measure and given:
            raise UserError(f"{given[0]} does nothing for {name}, which trains no network. Leave it out.")
        count = seeds or max(SEEDS[chosen], seeds_before(target, name))
        failures = _run(STUDIES[name], chosen, count, target, data_dir, device, only or [], ray)
    if compare_paper:
        _compare(target)
    if failures:
        raise RunError("These runs are not finished:\n  " + "\n  ".join(failures))


def _run(
    study: Study,
    scale: Scale,
    seeds: int,
    out: Path,
    data_dir: Path | None,
    device: str | None,
    only: list[str],
    ray: str | None,
) -> list[str]:
    outcome: Outcome
    if study.measure:
        with resumable(), make_progress() as progress:
            outcome = study.measure(scale, out, progress)
    else:
        chosen = choose_device(device)
        parts = [part.name for part in study.plan(scale, seeds, out / "runs")]
        if unknown := [part for part in only if part not in parts]:
            raise UserError(f"{study.name} has no part {unknown[0]!r} at scale {scale}. Parts: {', '.join(parts)}.")
        with resumable(), _trainer(ray) as train, make_progress() as progress:
            outcome = run_study(study, scale, seeds, out, data_dir, chosen, progress, only=only, train=train)
    if outcome.to_dict()["rows"]:
        _show(outcome, out, write_study(outcome, out, typed_command()))
    return outcome.failures


@contextmanager
def _trainer(ray: str | None) -> Iterator[Train | None]:
    if ray is None:
        yield None
        return
    from vsam.lab.study.ray_tasks import ray_trainer

    with ray_trainer(ray) as train:
        yield train


def _show(outcome: Outcome, out: Path, paths: Sequence[Path]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    for one in outcome.renderables():
        if isinstance(one, str):
            typer.echo(one)
        else:
            console.print(one)
    for path in paths:
        typer.echo(path)
    if (out / "runs").exists():
        typer.echo(f"See it all: {shlex.join(['vsam', 'report', str(out), '-o', str(out / 'report.html')])}")


def _compare(out: Path) -> None:
    from vsam.lab.paper.claims import judge, to_markdown
    from vsam.lab.paper.claims import to_terminal as claims_to_terminal

    studies = read_studies(out)
    if not studies:
        raise UserError(f"{out} holds no study yet. Run vsam study table1 first, or name another folder with --out.")
    verdicts = judge(studies)
    Console(width=None if sys.stdout.isatty() else 160).print(claims_to_terminal(verdicts))
    write_atomically(out / "claims.md", to_markdown(verdicts))
    typer.echo(out / "claims.md")


def fill_ray(arguments: Sequence[str]) -> list[str]:
    """Give `--ray` its address where it stands alone, which the option parser cannot."""
    filled = []
    for i, argument in enumerate(arguments):
        filled.append(argument)
        following = arguments[i + 1] if i + 1 < len(arguments) else "-"
        if argument == "--ray" and (following.startswith("-") or following in STUDIES):
            filled.append("local")
    return filled
