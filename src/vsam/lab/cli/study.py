"""`vsam study`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from vsam.lab.cli import complete
from vsam.lab.cli.compare import method_names
from vsam.lab.cli.names import SCALES, STUDIES
from vsam.lab.cli.options import DataDir, Device, JsonFile, Out, TensorBoard, Use, check_seeds, folder, option
from vsam.lab.cli.output import check_runs
from vsam.lab.cli.ray import Ray, Workers
from vsam.lab.errors import UserError
from vsam.lab.files import check_output

__all__ = ["fill_ray", "study"]


def study(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help=f"{', '.join(STUDIES)}.", autocompletion=complete.studies),
    ] = None,
    scale: Annotated[
        str,
        option(
            "--scale",
            "tiny (seconds), small (hours on two cores) or paper (about 1,000 GPU hours for table1).",
            complete.scales,
        ),
    ] = "small",
    out: Out = None,
    seeds: Annotated[
        int | None, option("--seeds", "Number of seeds. Default: as before, else 3 (tiny 1, frontier 5, trials 1).")
    ] = None,
    only: Annotated[
        list[str] | None, option("--only", "Run only this part, e.g. cifar10-small.", metavar="PART")
    ] = None,
    methods: Annotated[
        str, option("--methods", "Run only these methods: comma-separated names.", complete.methods)
    ] = "all",
    dry_run: Annotated[
        bool, option("--dry-run", "Only show what would be trained, and its time and disk space.")
    ] = False,
    compare_paper: Annotated[
        bool, option("--compare-paper", "Show which of the paper's claims the studies in FOLDER support.")
    ] = False,
    details: Annotated[bool, option("--details", "With --compare-paper: every effect, interval and reason.")] = False,
    ray: Ray = None,
    workers: Workers = 1,
    json: JsonFile = None,
    use: Use = None,
    data_dir: DataDir = None,
    device: Device = None,
    tensorboard: TensorBoard = False,
) -> None:
    """Run a study, such as a table or figure of the paper.

    Trains what is missing, then writes numbers, tables and figures. Rerun the same command to resume. Use --dry-run
    first to see what a long study takes.
    """
    _check(name, scale, seeds, compare_paper, details, dry_run, json)
    from vsam.lab.cli.study_run import compare_with_paper, run, show_estimate
    from vsam.lab.study.plan import STUDIES as KNOWN
    from vsam.lab.study.study import SCALES as KNOWN_SCALES
    from vsam.lab.study.write import check_scale, seeds_before

    chosen = next(known for known in KNOWN_SCALES if known == scale)
    target = folder(out) or Path("studies") / chosen
    check_output(json)
    failures: list[str] = []
    damaged: list[Path] = []
    if name is not None:
        check_scale(target, name, chosen)
        given = {"--seeds": seeds, "--only": only, "--ray": ray, "--data-dir": data_dir, "--device": device}
        given |= {"--workers": workers > 1, "--methods": methods != "all", "--tensorboard": tensorboard}
        if KNOWN[name].measure and any(given.values()):
            option = next(option for option, value in given.items() if value)
            raise UserError(f"{option} does nothing for {name}, which trains no network. Leave it out.")
        count = seeds or max(KNOWN[name].seeds_at(chosen), seeds_before(target, name))
        named = () if methods == "all" else tuple(method_names(methods))
        runs = {"only": tuple(only or ()), "methods": named}
        if dry_run:
            return show_estimate(KNOWN[name], chosen, count, target, json, **runs)
        failures, damaged = run(
            KNOWN[name],
            chosen,
            count,
            target,
            json,
            data_dir=data_dir,
            device=device,
            ray=ray,
            workers=workers,
            tensorboard=tensorboard,
            **runs,
        )
    if compare_paper:
        compare_with_paper(target, details, json)
    check_runs(failures, damaged)
    return None


def _check(
    name: str | None,
    scale: str,
    seeds: int | None,
    compare_paper: bool,
    details: bool,
    dry_run: bool,
    json: Path | None,
) -> None:
    """Reject invalid options before torch is imported."""
    if scale not in SCALES:
        raise UserError(f"--scale must be one of {', '.join(SCALES)}, got {scale!r}.")
    if name is None and not compare_paper:
        raise UserError(f"Name a study ({', '.join(STUDIES)}), or give --compare-paper.")
    if name is not None and name not in STUDIES:
        raise UserError(f"There is no study {name!r}. Known: {', '.join(STUDIES)}.")
    if seeds is not None:
        check_seeds(seeds)
    if details and not compare_paper:
        raise UserError("--details is for --compare-paper: give both, or leave it out.")
    if compare_paper and dry_run:
        raise UserError("--compare-paper needs finished runs, and --dry-run trains none: give only one.")
    if compare_paper and name is not None and json is not None:
        raise UserError("--json writes a study or the paper's claims, not both: run vsam study --compare-paper alone.")


def fill_ray(arguments: Sequence[str]) -> list[str]:
    """Insert the default address after a bare `--ray`, which the option parser cannot do."""
    filled = []
    for i, argument in enumerate(arguments):
        filled.append(argument)
        following = arguments[i + 1] if i + 1 < len(arguments) else "-"
        if argument == "--ray" and (following.startswith("-") or following in STUDIES):
            filled.append("local")
    return filled
