"""Names beside points so that they hide neither each other nor the points."""

from collections.abc import Sequence

__all__ = ["SIDES", "place"]

Point = tuple[float, float]
_Box = tuple[float, float, float, float]

# The side of the point that the name stands on: across and up, -1, 0 or 1.
_ROUNDS = 3  # names that were placed early make room for later ones
SIDES = ((1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1), (0, -1), (1, 0), (-1, 0))


def place(
    points: Sequence[Point], bars: Sequence[Point], sizes: Sequence[Point], frame: Point, gap: float = 7
) -> list[tuple[int, int]]:
    """A side for the name of each point, one of `SIDES`, with little overlap.

    Args:
        points: where they are, from the lower left corner, in pixels.
        bars: how far the error bars of each reach, across and up.
        sizes: width and height of each name.
        frame: width and height of the picture that names must not leave.
        gap: between a point and its name, at least 0.
    """
    taken: list[_Box] = [(x - gap, y - gap, x + gap, y + gap) for x, y in points]
    for (x, y), (across, up) in zip(points, bars, strict=True):
        taken += [(x - across, y - 2, x + across, y + 2), (x - 2, y - up, x + 2, y + up)]
    both = zip(points, sizes, strict=True)
    choices = [{side: _box(point, size, side, gap) for side in SIDES} for point, size in both]
    chosen: dict[int, tuple[int, int]] = {}
    for _ in range(_ROUNDS):
        for number, boxes in enumerate(choices):
            names = [choices[other][side] for other, side in chosen.items() if other != number]
            others = [*taken[:number], *taken[number + 1 :], *names]
            chosen[number] = min(SIDES, key=lambda side: _cost(boxes[side], others, frame))
    return list(chosen.values())


def _box(point: Point, size: Point, side: Point, gap: float) -> _Box:
    (x, y), (width, height) = point, size
    left = x + side[0] * gap - width * (1 - side[0]) / 2
    bottom = y + side[1] * gap - height * (1 - side[1]) / 2
    return left, bottom, left + width, bottom + height


def _cost(box: _Box, others: Sequence[_Box], frame: Point) -> float:
    inside = _overlap(box, (0, 0, *frame))
    outside = (box[2] - box[0]) * (box[3] - box[1]) - inside
    return sum(_overlap(box, other) for other in others) + 3 * outside


def _overlap(one: _Box, other: _Box) -> float:
    across = min(one[2], other[2]) - max(one[0], other[0])
    up = min(one[3], other[3]) - max(one[1], other[1])
    return max(across, 0) * max(up, 0)
