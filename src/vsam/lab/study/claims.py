"""The paper's claims, each judged by our studies."""

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from vsam.lab.errors import UserError
from vsam.lab.methods import find_method
from vsam.lab.report.tables import markdown_table
from vsam.lab.statistics import Interval, difference, mean_interval
from vsam.lab.study.paper import PAIRS, STEPS, Published, published
from vsam.lab.text import for_markdown

__all__ = [
    "LEGEND",
    "STUDIES",
    "Verdict",
    "about",
    "judge",
    "judged",
    "more",
    "overview",
    "read_studies",
    "to_dict",
    "to_markdown",
]

STUDIES = ("table1", "ablation", "alpha", "gamma", "norms", "lsq")
"""If a method is in several studies of a group, the one with the most seeds counts. Of ties, the first of these."""

Word = Literal["supported", "not supported", "contradicted", "undecided", "not run"]
Rule = Callable[[Interval], Word]
Row = Mapping[str, Any]
Table = Mapping[str, Published]

FEWEST_SEEDS = 3  # with fewer, nothing is decided
# No margin was chosen after looking at the effect that it judges.
_SHARE_OF_GAIN = 0.25  # of SAM's gain over SGD: how far vSAM may differ and still be "as accurate as SAM"
_LEAST_GAIN = 0.5  # points; the paper's smallest gain of SAM over SGD is 0.49
_FASTER, _FASTER_QUANTIZED = 40, 50  # percent, as the paper claims; its own numbers are 35 to 51, and 54 and 65
_FASTER_MARGIN = 15.0
_LIKE_COST = 0.05  # of SAM-5's passes per step
_LEAST_RISE = 2.0  # points of the steps per doubling of α, a tenth of the paper's
_LEAST_GROWTH = 5.0  # percent of ‖PSF‖

LEGEND = (
    "for, against, open: settings whose 95 % interval over seeds (Student's t, paired by seed where they are shared) "
    "agrees with the claim, excludes it, or does neither, e.g. fewer than 3 seeds, or tiny runs. 'About the same' "
    "needs an interval inside a margin fixed beforehand. Numbers in the column 'paper' are the paper's, never ours. "
    "Not judged: that γ hardly changes the speed, because no margin was fixed; lemma 2, which no run could contradict."
)


class NotRun(Exception):
    """A claim needs a run that does not exist. The message says which."""


@dataclass(frozen=True)
class Group:
    """The rows of one model on one dataset with one recipe at one scale, by study. Quantized runs are apart."""

    name: str
    scale: str
    pair: tuple[str, str]
    is_quantized: bool
    rows: dict[str, list[Row]] = field(default_factory=dict)

    def row(self, method: str) -> Row:
        """Return the row of a method with the recipe's own settings."""
        rows = [row for study in STUDIES for row in self.rows.get(study, ()) if row["method"] == method]
        plain = [row for row in rows if row.get("alpha") is None and row.get("gamma") is None]
        if not plain:
            raise NotRun(f"no row for {method}")
        return max(plain, key=lambda row: len(row["seed_list"]))

    def varied(self, name: str) -> list[Row]:
        """Return the rows of the α or γ study."""
        return [row for row in self.rows.get(name, ()) if row.get(name) is not None]

    def margin(self) -> tuple[float | None, str]:
        """Return a quarter of SAM's gain over SGD in this group, if there is one, and a description of it."""
        try:
            gain = difference(_by_seed(self.row("sam")), _by_seed(self.row("sgd")))
        except NotRun:
            return None, "no margin: SAM's gain over SGD was not measured here"
        if gain is None or gain.n < FEWEST_SEEDS or not gain.low > 0:
            return None, "no margin: SAM was not shown to beat SGD here"
        margin = _SHARE_OF_GAIN * gain.mean
        return margin, f"margin {margin:.2f} points, a quarter of SAM's gain over SGD"

    def with_other_gammas(self) -> "list[Group]":
        """Return a copy for each γ of the γ study other than the recipe's, with that row in place of vSAM's."""
        others = [row for row in self.varied("gamma") if row.get("label") != "vsam"]
        kept = {
            study: [row for row in rows if row["method"] != "vsam"]
            for study, rows in self.rows.items()
            if study not in ("alpha", "gamma")
        }
        return [
            replace(
                self,
                name=f"{self.name}, γ = {row['gamma']:g}, one of {len(others) + 1} tried",
                rows={**kept, "table1": [{**row, "gamma": None}, *kept.get("table1", [])]},
            )
            for row in others
        ]


@dataclass(frozen=True)
class Verdict:
    """The verdict of one group of runs on a claim.

    Args:
        claim: in a sentence.
        group: the runs it was judged on, by name.
        scale: tiny, small or paper, empty if it was not run.
        paper: the paper's number, marked as the paper's.
        effect: ours, with its interval over seeds, if any.
        unit: of the effect.
        verdict: the word.
        reason: why.
    """

    claim: str
    group: str
    scale: str
    paper: str
    effect: Interval | None
    unit: str
    verdict: Word
    reason: str

    @property
    def ours(self) -> str:
        """The effect in words, or a dash."""
        if self.effect is None:
            return "–"
        how = "paired seeds" if self.effect.is_paired else "seeds"
        ends = f"{self.effect.low:+.2f} to {self.effect.high:+.2f}"
        return f"{self.effect.mean:+.2f} ({ends}) {self.unit}, n = {self.effect.n} {how}"


def more(margin: float | None, than: float = 0.0) -> Rule:
    """Return the rule for "is larger": the whole interval decides, never the mean.

    supported: it is above `than` and reaches the margin. contradicted: it is below. not supported: it ends below the
    margin, which excludes an effect worth mentioning. Else undecided. Without a yardstick, margin is None.
    """

    def rule(found: Interval) -> Word:
        if found.high < than:
            return "contradicted"
        if margin is not None and found.high < than + margin:
            return "not supported"
        return "supported" if found.low > than else "undecided"

    return rule


def about(centre: float, margin: float | None, *, or_more: bool = False) -> Rule:
    """Return the rule for "is about": only an interval inside the margin is support.

    supported: it is within centre ± margin, or above with `or_more`. contradicted: it is below that. not supported: it
    is above, or below the centre but not within the margin. Else undecided. Without a margin nothing is supported.
    """

    def rule(found: Interval) -> Word:
        if margin is not None:
            if centre - margin < found.low and found.high < centre + margin:
                return "supported"
            if found.high <= centre - margin:
                return "contradicted"
            if found.low >= centre + margin:
                return "supported" if or_more else "not supported"
        return "not supported" if found.high < centre else "undecided"

    return rule


Measured = tuple[Interval | None, Rule, str]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    Args:
        sentence: the claim.
        study: whose groups are always reported. Others are if they have everything it needs.
        unit: of the effect.
        paper: the paper's own effect, from a table of the study, or its words.
        measure: our effect in a group, the rule that decides, and why.
        by_gamma: judge vSAM also with each γ of the γ study.
        note: on the paper's number.
    """

    sentence: str
    study: str
    unit: str
    paper: Callable[[Table], float | None] | str
    measure: Callable[[Group], Measured]
    by_gamma: bool = False
    note: str = ""

    def words(self, pair: tuple[str, str]) -> str:
        """Return the paper's effect for a pair of model and data, or else for all that it has."""
        if isinstance(self.paper, str):
            return f"paper: {self.paper}"
        pairs = [*PAIRS, ("mobilenet", "cifar10")]
        tables = {one: table for one in pairs if (table := published(self.study, *one))}
        found = [self.paper(table) for one, table in tables.items() if pair not in tables or one == pair]
        values = [round(value, 2) for value in found if value is not None]
        digits = 0 if "faster" in self.unit else 2
        low, high = f"{min(values):+.{digits}f}", f"{max(values):+.{digits}f}"
        span = low if len(values) == 1 else f"{low} to {high}"
        return f"paper: {span} {self.unit}" + (f", {len(values)} pairs" if len(values) > 1 else "") + self.note


def judge(studies: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
    """Return a verdict for every claim of the paper and every group of runs that has data for it.

    Args:
        studies: by name, each as in its JSON file: `scale` and `rows`.
    """
    try:
        groups = _collect(studies)
        return [verdict for claim in _CLAIMS for verdict in _judge(claim, groups)]
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if isinstance(error, UserError):
            raise
        said = f"{type(error).__name__}: {error}"
        raise UserError(f"The studies cannot be judged, because a row is damaged ({said}). Rerun them.") from error


def _collect(studies: Mapping[str, Mapping[str, Any]]) -> list[Group]:
    groups: dict[tuple[Any, ...], Group] = {}
    for name in (name for name in studies if name in STUDIES):
        for row in studies[name]["rows"]:
            older = str(row.get("label", "")).endswith("-full-precision")
            if row.get("role", "") == "full-precision source" or older:  # quantized runs start from it
                continue
            noise = f" with {100 * row['noise']:.0f} % wrong labels" if row.get("noise") else ""
            setting = f"{row['model']} on {row['data']}{noise}, {row['steps']:,} steps"
            title = f"{row['recipe']} ({setting})" if row.get("recipe") else setting
            scale, pair = str(studies[name].get("scale", "")), (row["model"], row["data"])
            key = (name == "lsq", scale, title)
            rows = groups.setdefault(key, Group(title, scale, pair, name == "lsq")).rows.setdefault(name, [])
            if any(_identity(row) == _identity(other) for other in rows):
                raise UserError(f"Study {name} has two rows for {row['method']} on {title}: keep one of them.")
            rows.append(row)
    return list(groups.values())


def _identity(row: Row) -> tuple[Any, ...]:
    return row["method"], row.get("alpha"), row.get("gamma")


def _judge(claim: Claim, groups: Sequence[Group]) -> list[Verdict]:
    verdicts, missing = [], []
    if claim.by_gamma:
        groups = [each for group in groups for each in (group, *group.with_other_gammas())]
    for group in groups:
        if group.is_quantized != (claim.study == "lsq"):
            continue
        words = claim.words(group.pair if group.scale == "paper" else ("", ""))
        head = (claim.sentence, group.name, group.scale, words)
        try:
            found, rule, reason = claim.measure(group)
        except NotRun as error:
            missing.append(str(error))
            if claim.study in group.rows:
                verdicts.append(Verdict(*head, None, claim.unit, "not run", str(error)))
        else:
            word, why = _decide(rule, found, group.scale)
            verdicts.append(Verdict(*head, found, claim.unit, word, "; ".join(filter(None, [why, reason]))))
    reason = "; ".join(dict.fromkeys(missing)) or f"needs vsam study {claim.study}"
    absent = Verdict(claim.sentence, "–", "", claim.words(("", "")), None, claim.unit, "not run", reason)
    return verdicts or [absent]


def _decide(rule: Rule, found: Interval | None, scale: str) -> tuple[Word, str]:
    """Apply a rule, unless there is too little data."""
    if found is None or found.n < FEWEST_SEEDS:
        return "undecided", f"fewer than {FEWEST_SEEDS} seeds"
    if found.high - found.low <= 1e-9 * max(abs(found.mean), 1e-3):
        return "undecided", "no spread over seeds, so the interval means nothing"
    if scale == "tiny":
        return "undecided", "tiny runs test the program, not the claim"
    return rule(found), ""


def _by_seed(row: Row, key: str = "accuracies") -> dict[int, Any]:
    """Return a row's values by seed, without those that are missing."""
    seeds, values = row["seed_list"], row.get(key) or []
    if values and (len(seeds) != len(values) or len(set(seeds)) != len(seeds)):
        raise UserError(f"The row of {row['method']} needs one value of {key} for each seed. Rerun the study.")
    return {seed: value for seed, value in zip(seeds, values, strict=False) if value is not None}


def _share(row: Row) -> float:
    """Return the second gradients per step."""
    return float(row["samples"] / row["steps"])


def _percent(*rows: Row) -> str:
    texts = []
    for row in rows:
        varied = next((f" with {sign} = {row[key]:g}" for key, sign in _SIGNS.items() if row.get(key) is not None), "")
        texts.append(f"{row['method']} sampled {100 * _share(row):.0f} % of the steps{varied}")
    return ", ".join(texts)


_SIGNS = {"alpha": "α", "gamma": "γ"}


def _sam_beats_sgd(group: Group) -> Measured:
    found = difference(_by_seed(group.row("sam")), _by_seed(group.row("sgd")))
    return found, more(_LEAST_GAIN), f"margin {_LEAST_GAIN} points"


def _as_accurate_as_sam(group: Group) -> Measured:
    """If SAM has no gain over SGD, matching SAM means nothing, and the claim cannot be supported."""
    found = difference(_by_seed(group.row("vsam")), _by_seed(group.row("sam")))
    margin, words = group.margin()
    return found, about(0.0, margin, or_more=True), words


def _above(ours: str, theirs: str) -> Callable[[Group], Measured]:
    return lambda group: _difference(group, group.row(ours), group.row(theirs))


def _difference(group: Group, ours: Row, theirs: Row) -> Measured:
    margin, words = group.margin()
    return difference(_by_seed(ours), _by_seed(theirs)), more(margin), f"{_percent(ours, theirs)}; {words}"


def _above_sam_5_at_like_cost(group: Group) -> Measured:
    """The vSAM of all α and γ whose passes per step are closest to SAM-5's is chosen by cost, never by accuracy."""
    theirs = group.row("sam-5")
    candidates = [*group.varied("alpha"), *group.varied("gamma")]
    try:
        candidates.insert(0, group.row("vsam"))
    except NotRun:
        if not candidates:
            raise
    ours = min(candidates, key=lambda row: abs(_share(row) - _share(theirs)))
    if abs(_share(ours) - _share(theirs)) > _LIKE_COST * (1 + _share(theirs)):
        raise NotRun(f"no vSAM run costs about as much as SAM-5; in the closest, {_percent(ours, theirs)}")
    return _difference(group, ours, theirs)


def _fewer_samples_than_ae_sam(group: Group) -> Measured:
    theirs, ours = rows = group.row("ae-sam"), group.row("vsam")
    shares = [{s: 100 * count / row["steps"] for s, count in _by_seed(row, "samples_each").items()} for row in rows]
    return difference(*shares), more(None), _percent(ours, theirs)


def _speedup(rule: Rule, words: str = "") -> Callable[[Group], Measured]:
    def measure(group: Group) -> Measured:
        group.row("sam")
        ratios = _by_seed(group.row("vsam"), "speed_to_sam_each")
        if not ratios:
            raise NotRun("vSAM and SAM shared too few turns to compare their speeds")
        found = mean_interval([100 * (ratio - 1) for ratio in ratios.values()])
        return found, rule, words + _percent(group.row("vsam"))

    return measure


def _over_alpha(key: str, margin: float | None) -> Callable[[Group], Measured]:
    """The slope over log₂ α, seed by seed. It needs rises between at least half of the neighbouring values of α."""

    def measure(group: Group) -> Measured:
        rows = sorted((row for row in group.varied("alpha") if row["alpha"] > 0), key=lambda row: float(row["alpha"]))
        if len(rows) < 3:
            raise NotRun("fewer than three values of α above 0")
        factor, name = (100 / rows[0]["steps"], "samples") if key == "samples_each" else (1.0, "accuracy")
        by_row = [_by_seed(row, key) for row in rows]
        doublings = [math.log2(row["alpha"]) for row in rows]
        seeds = sorted(set.intersection(*(set(values) for values in by_row)))
        lines = ([factor * values[seed] for values in by_row] for seed in seeds)
        found = mean_interval([statistics.linear_regression(doublings, line).slope for line in lines])
        rises = sum(low.get(name, 0) < high.get(name, 0) for low, high in pairwise(rows))
        words = f"{name}: {rises} of {len(rows) - 1} steps from one α to the next rise"
        rule = more(margin)
        few = name == "samples" and 2 * rises < len(rows) - 1
        return found, (lambda one: "not supported" if few and rule(one) == "supported" else rule(one)), words

    return measure


def _psf_grows(group: Group) -> Measured:
    """Judge SAM's runs, which compute the PSF at every step, or vSAM's if there are none."""
    rows = [row for row in group.rows.get("norms", ()) if row.get("psf_norms") and row["method"] in ("sam", "vsam")]
    if not rows:
        raise NotRun("no row of vsam study norms with the norms of SAM or vSAM")
    row = min(rows, key=lambda row: str(row["method"]) != "sam")
    known = [[value for value in norms if value] for norms in _by_seed(row, "psf_norms").values()]
    known = [norms for norms in known if len(norms) >= 4]
    logs = [math.log(statistics.fmean(n[-(len(n) // 4) :]) / statistics.fmean(n[: len(n) // 4])) for n in known]
    found = mean_interval(logs)
    if found is not None:  # the ratios were averaged as logarithms
        middle, low, high = (100 * math.expm1(min(value, 700.0)) for value in (found.mean, found.low, found.high))
        found = Interval(middle, low, high, found.n)
    course = [statistics.fmean(one) for one in zip(*((n[0], min(n), n[-1]) for n in known), strict=True)]
    words = "first window {:.2g}, lowest {:.2g}, last {:.2g}; ".format(*course) if course else ""
    text = f"in runs of {row['method']}, last quarter against first; {words}margin {_LEAST_GROWTH:.0f} %"
    return found, more(_LEAST_GROWTH), text


def _gap(ours: str, theirs: str) -> Callable[[Table], float | None]:
    """Return the paper's own difference, or for methods that it did not run, the difference to the number it quotes."""
    return lambda table: (
        table[ours].accuracy - table.get(theirs, table.get(f"{theirs}-published", table[ours])).accuracy
    )


def _faster(table: Table) -> float | None:
    return (table["vsam"].of_sam or 100) - 100


def _saved(table: Table) -> float | None:
    return 100 * ((table["ae-sam-published"].samples or 0) - (table["vsam"].samples or 0)) / STEPS


def _slope(value: Callable[[Published], float]) -> Callable[[Table], float | None]:
    def slope(table: Table) -> float:
        rows = [(math.log2(float(name)), value(row)) for name, row in table.items() if name != "sam"]
        return statistics.linear_regression(*zip(*rows, strict=True)).slope

    return slope


def _better(ours: str, theirs: str, sentence: str = "{} is more accurate than {}.", study: str = "table1") -> Claim:
    names = (find_method(one).title for one in (ours, theirs))
    note = ", theirs quoted from their paper" if theirs in ("mesa", "ae-sam") else ""
    return Claim(sentence.format(*names), study, "points", _gap(ours, theirs), _above(ours, theirs), note=note)


_EQUAL = ("points", _gap("vsam", "sam"), _as_accurate_as_sam)
_UNSTATED = ", setting not stated"
_CLAIMS = (
    replace(_better("sam", "sgd"), measure=_sam_beats_sgd),
    Claim("vSAM is as accurate as SAM.", "table1", *_EQUAL, by_gamma=True),
    Claim(
        f"vSAM trains about {_FASTER} % faster than SAM.",
        "table1",
        "% faster",
        _faster,
        _speedup(about(_FASTER, _FASTER_MARGIN), f"margin {_FASTER_MARGIN:.0f} %; "),
    ),
    *(_better("vsam", one) for one in ("sgd", "sam-5", "sam-10", "looksam-5", "esam", "saf", "mesa", "ae-sam")),
    Claim(
        "vSAM is more accurate than SAM-5 at similar cost.",
        "alpha",
        "points",
        lambda table: table["0.1"].accuracy - published("table1", "wrn28-10", "cifar100")["sam-5"].accuracy,
        _above_sam_5_at_like_cost,
    ),
    Claim(
        "vSAM takes fewer second gradients than AE-SAM.",
        "table1",
        "points of the steps",
        _saved,
        _fewer_samples_than_ae_sam,
    ),
    Claim(
        "The number of samples grows with α.",
        "alpha",
        "points of the steps per doubling of α",
        _slope(lambda row: 100 * (row.samples or 0) / STEPS),
        _over_alpha("samples_each", _LEAST_RISE),
    ),
    Claim(
        "The accuracy grows with α.",
        "alpha",
        "points per doubling of α",
        _slope(lambda row: row.accuracy),
        _over_alpha("accuracies", None),
    ),
    _better("vsam-a", "sam-5", "Sampling where it matters helps: {} is more accurate than {}.", "ablation"),
    replace(
        _better("vsam", "vsam-a", "Reusing the PSF helps: {} is more accurate than {}.", "ablation"), by_gamma=True
    ),
    Claim("‖PSF‖ grows over training.", "norms", "%", "grows in a figure, no numbers", _psf_grows),
    Claim("With LSQ at 4 bits vSAM is as accurate as SAM.", "lsq", *_EQUAL, note=_UNSTATED),
    Claim(
        f"With LSQ at 4 bits vSAM trains more than {_FASTER_QUANTIZED} % faster than SAM.",
        "lsq",
        "% faster",
        _faster,
        _speedup(more(None, than=_FASTER_QUANTIZED)),
        note=_UNSTATED,
    ),
)


def overview(verdicts: Sequence[Verdict]) -> tuple[str, list[list[str]]]:
    """Return a tally in a sentence, and the verdict table: a line per claim below its headings.

    A claim's verdict is that of more than half of the settings in which it was run, else `mixed` if some support it,
    `not supported` if some are against it and none supports it, `undecided` if none decides it.
    """
    lines, words = [["verdict", "claim", "paper", "for", "against", "open"]], []
    for claim in dict.fromkeys(verdict.claim for verdict in verdicts):
        own = [verdict for verdict in verdicts if verdict.claim == claim]
        run = [verdict.verdict for verdict in own if verdict.verdict != "not run"]
        num_for, num_open = run.count("supported"), run.count("undecided")
        num_against = len(run) - num_for - num_open
        words.append(_word(run, num_for, num_against))
        paper = own[0].paper.removeprefix("paper: ")
        lines.append([words[-1], claim, paper, str(num_for), str(num_against), str(num_open)])
    counts = ", ".join(f"{count} {word}" for word, count in Counter(words).most_common())
    return f"{len(words)} claims of the paper, judged by our runs: {counts}.", lines


def _word(run: Sequence[Word], num_for: int, num_against: int) -> str:
    if not run or set(run) == {"undecided"}:
        return "undecided" if run else "not run"
    if 2 * num_for > len(run):
        return "supported"
    if 2 * run.count("contradicted") > len(run):
        return "contradicted"
    return "mixed" if num_for and 2 * num_against <= len(run) else "not supported"


def to_markdown(verdicts: Sequence[Verdict]) -> str:
    """Return a page with the verdict table, and every setting with its effect and reason."""
    sentence, table = overview(verdicts)
    lines = [["claim", "run", "paper", "ours, 95 % interval", "verdict", "why"]]
    for one in verdicts:
        run = f"{one.group}, {one.scale} scale" if one.scale else one.group
        lines.append([one.claim, run, one.paper.removeprefix("paper: "), one.ours, one.verdict, one.reason])
    shown = [markdown_table([list(map(for_markdown, line)) for line in some], left=6) for some in (table, lines)]
    head = f"# The paper's claims and our runs\n\n{sentence}\n\n## overview\n\n{shown[0]}\n{for_markdown(LEGEND)}\n"
    return f"{head}\n## one by one\n\n{shown[1]}"


def read_studies(folder: Path, names: Sequence[str] = STUDIES) -> dict[str, dict[str, Any]]:
    """Return the studies in a folder by name. Other files are ignored."""
    found = {}
    for path in (folder / f"{name}.json" for name in names):
        if not path.exists():
            continue
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{path} cannot be read: {error}. Delete it, or rerun its study.") from error
        if not isinstance(content, dict) or not {"study", "scale", "rows"} <= content.keys():
            raise UserError(f"{path} is not a study's file. Delete it, or rerun its study.")
        found[path.stem] = content
    return found


def judged(folder: Path) -> tuple[str, list[list[str]]] | None:
    """Return the tally and the verdict table of a folder's studies, or None if it has none."""
    studies = read_studies(folder)
    return overview(judge(studies)) if studies else None


def to_dict(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return everything in plain types: the tally, and each claim with the verdicts of its settings."""
    sentence, (heads, *lines) = overview(verdicts)
    by_claim = [dict(zip(heads, line, strict=True)) for line in lines]
    own = [[asdict(one) for one in verdicts if one.claim == row["claim"]] for row in by_claim]
    claims = [{**row, "verdicts": some} for row, some in zip(by_claim, own, strict=True)]
    return {"tally": sentence, "claims": claims}
