"""Draw the way of a step: python docs/draw_step.py writes docs/figures/step.svg."""

from pathlib import Path

WIDTH, LEFT, RIGHT, MIDDLE = 540, 10, 350, 95
SAMPLED, PLAIN, BOTH = "#dbe9f6", "#e8f2e2", "#f4f1e8"
TITLES = {SAMPLED: "#1f4e79", PLAIN: "#2e5a1c", BOTH: "#4d4426"}


def box(x: int, y: int, width: int, height: int, fill: str, title: str, *lines: str) -> str:
    """A rectangle with a bold line and smaller ones below it."""
    texts = [f'<text x="{x + 10}" y="{y + 20}" class="title" fill="{TITLES[fill]}">{title}</text>']
    texts += [f'<text x="{x + 10}" y="{y + 39 + 17 * i}">{line}</text>' for i, line in enumerate(lines)]
    rectangle = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="#888"/>'
    return "\n".join([rectangle, *texts])


def arrow(x: int, y: int, to_x: int, to_y: int, label: str = "") -> str:
    """A line with a head, and a word beside it."""
    line = f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="#444" stroke-width="1.5" marker-end="url(#head)"/>'
    side = "end" if to_x < x else "start"
    shift = -8 if to_x < x else 8
    return line + (
        f'<text x="{(x + to_x) // 2 + shift}" y="{(y + to_y) // 2}" text-anchor="{side}">{label}</text>'
        if label
        else ""
    )


def draw() -> str:
    """The whole picture."""
    parts = [
        box(MIDDLE, 10, 350, 48, BOTH, "1  when: before the gradient", "yes, no, or “ask me after the gradient”"),
        arrow(270, 58, 270, 76),
        box(MIDDLE, 76, 350, 48, BOTH, "2  closure(): the first pass, at w", "gives g and the loss that step returns"),
        arrow(270, 124, 270, 142),
        box(MIDDLE, 142, 350, 48, BOTH, "3  when: after the gradient", "only if it asked for it, as AE-SAM does"),
        arrow(200, 190, 170, 222, "sampled step"),
        arrow(400, 190, 430, 222, "plain step"),
        box(LEFT, 222, 320, 48, SAMPLED, "4  where: e from g", "for SAM, e = ρ · g / ‖g‖"),
        arrow(170, 270, 170, 284),
        box(
            LEFT,
            284,
            320,
            65,
            SAMPLED,
            "5  w → w + e",
            "weights, buffers and random numbers are",
            "noted first, so that they can come back",
        ),
        arrow(170, 349, 170, 363),
        box(
            LEFT,
            363,
            320,
            65,
            SAMPLED,
            "6  closure(): the second pass, at w + e",
            "gives gs: same batch, same dropout masks,",
            "BatchNorm’s statistics do not count it",
        ),
        arrow(170, 428, 170, 442),
        box(LEFT, 442, 320, 48, SAMPLED, "7  w + e → w, bit for bit", "PSF = gs − g"),
        arrow(170, 490, 170, 504),
        box(
            LEFT,
            504,
            320,
            65,
            SAMPLED,
            "8  between: at a sample",
            "the base gets gs (or a mix of g and gs);",
            "what is to be reused is remembered",
        ),
        box(
            RIGHT,
            222,
            180,
            99,
            PLAIN,
            "4′  between",
            "the base gets g, or g",
            "and a fading copy",
            "of the last PSF:",
            "g + γ^age · PSF",
        ),
        '<path d="M440 321 V 598" stroke="#444" stroke-width="1.5" fill="none" marker-end="url(#head)"/>',
        arrow(170, 569, 170, 598),
        box(
            LEFT,
            598,
            520,
            48,
            BOTH,
            "9  all gradients finite?",
            "if not, the step is skipped: weights, base and memory stay as they were",
        ),
        arrow(270, 646, 270, 660),
        box(LEFT, 660, 520, 48, BOTH, "10  base.step()", "SGD, AdamW, Muon … with its own momentum and weight decay"),
        arrow(270, 708, 270, 722),
        box(
            LEFT,
            722,
            520,
            48,
            BOTH,
            "11  the record goes to whoever listens; when takes the step in",
            "step returns the loss of the first pass",
        ),
        '<text x="10" y="795">An exception anywhere before 10 puts everything back as it was before 1.</text>',
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 806" width="{WIDTH}" height="806" role="img">'
    title = "<title>The way of a step, from the decision to the record</title>"
    style = "<style>text{font:13.5px sans-serif;fill:#222} .title{font-weight:bold;font-size:14.5px}</style>"
    marker = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#444"/></marker></defs>'
    )
    background = f'<rect width="{WIDTH}" height="806" fill="white"/>'
    return "\n".join([head, title, style, marker, background, *parts, "</svg>\n"])


if __name__ == "__main__":
    (Path(__file__).parent / "figures" / "step.svg").write_text(draw(), encoding="utf-8")
