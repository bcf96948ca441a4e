"""The map's figure: gain against overfitting."""

from statistics import fmean

from matplotlib.figure import Figure

from research.map.numbers import CHEAP, COMPARED, NAMES, Numbers
from vsam.lab.report.figures import PALETTE, drawing_style
from vsam.lab.statistics import Interval

__all__ = ["draw"]

FAMILIES = {"resnet8": ("ResNet, SGD", 1), "resnet20": ("ResNet, SGD", 1), "vit": ("ViT, AdamW", 2)}
FINE_TUNED = ("fine-tuned, AdamW", 4)
"""Legend labels and palette indices."""
HEIGHTS = (4, -10, 12, -18)
"""Of the numbers beside their dots, in points: neighbours do not overlap."""


def draw(content: Numbers) -> Figure:
    """Draw gain against overfitting for SAM, for twice the epochs of the base, and for each cheaper method."""
    rows = content["settings"]
    with drawing_style():
        figure = Figure(figsize=(3.7, 7.4), layout="constrained")
        places = [["sam", "sam"], ["long", "long"], CHEAP[:2], CHEAP[2:]]
        panels = figure.subplot_mosaic(places, sharex=True, height_ratios=[1.6, 1.2, 1, 1])
        means = [row["methods"][name]["gain"]["mean"] for row in rows for name in COMPARED]
        margin = 0.2 * (max(means) - min(means)) + 0.5
        for name, axes in panels.items():
            axes.axhline(0, lw=1, color="#1d2126")
            for number, row in enumerate(rows, start=1):
                gain, x = row["methods"][name]["gain"], row["base"]["gap"]
                color = PALETTE[FAMILIES.get(row["model"], FINE_TUNED)[1]][0]
                axes.plot([x, x], [gain["low"], gain["high"]], lw=0.8, color=color)
                face = color if Interval(**gain).is_decided else "white"
                axes.plot(x, gain["mean"], "o", color=color, mfc=face, ms=3.5 if name in CHEAP else 5, zorder=3)
                if name == "sam":
                    place = (2, HEIGHTS[number % len(HEIGHTS)])
                    box = {"fc": "white", "lw": 0, "pad": 0.2, "alpha": 0.8}
                    text = {"textcoords": "offset points", "fontsize": 7.5, "zorder": 2.1, "bbox": box}
                    axes.annotate(str(number), (x, gain["mean"]), place, **text)
            passes = fmean(row["methods"][name]["passes"] for row in rows)
            separator = "\n" if name in CHEAP else ": "
            axes.set_title(f"{NAMES[name]}{separator}{passes:.1f} passes", loc="left", fontsize=8.5)
            axes.set_ylim(min(means) - margin, max(means) + margin)
        panels["sam"].tick_params(labelbottom=True)
        panels["sam"].set_ylabel("gain over the tuned base, points")
        for color, words in sorted({(PALETTE[place][0], words) for words, place in (*FAMILIES.values(), FINE_TUNED)}):
            panels["sam"].plot([], [], "o", color=color, ms=5, label=words)
        figure.legend(loc="outside upper left", ncols=3, fontsize=8, frameon=False, handletextpad=0.1, columnspacing=1)
        figure.supxlabel("training minus test accuracy of the base, points", fontsize=8.5)
    return figure
