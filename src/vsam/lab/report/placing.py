"""Names beside points so that they hide neither each other nor the points."""

import math
from collections.abc import Mapping, Sequence

__all__ = ["MORE_SIDES", "SIDES", "Side", "place"]

Point = tuple[float, float]
Side = tuple[float, float]
_Box = tuple[float, float, float, float]

# The side of the point that the name stands on: across and up, from -1 to 1.
SIDES: tuple[Side, ...] = ((1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1), (0, -1), (1, 0), (-1, 0))
# The same, and halfway between for whoever can write there.
MORE_SIDES: tuple[Side, ...] = (*SIDES, (0.5, 1), (-0.5, 1), (0.5, -1), (-0.5, -1))
_ROUNDS = 3  # names that were placed early make room for later ones
_MARK = 0.8  # half the size of a point, in gaps
_CLEAR = 1.4  # how many times as far other points must be from a name
_LEAST = 4.0  # square pixels that nobody sees


def place(
    points: Sequence[Point],
    bars: Sequence[Point],
    sizes: Sequence[Point],
    frame: Point,
    gap: float = 7,
    sides: Sequence[Side] = SIDES,
) -> list[Side | None]:
    """A side for the name of each point, or None where a name would hide something.

    Names avoid error bars where they can, and are left out rather than be over a point or another name, or seem to be
    another point's.

    Args:
        points: where they are, from the lower left corner, in pixels; first those that have a name.
        bars: how far the error bars of each reach, across and up.
        sizes: width and height of each name.
        frame: width and height of the picture that names must not leave.
        gap: between a point and its name, at least 0.
        sides: to choose among.
    """
    lines: list[_Box] = []
    for (x, y), (across, up) in zip(points, bars, strict=True):
        lines += [(x - across, y - 2, x + across, y + 2), (x - 2, y - up, x + 2, y + up)]
    choices = []
    for point, size in zip(points, sizes, strict=False):
        boxes = {side: _box(point, size, side, gap) for side in sides}
        others = [other for other in points if other is not point]
        choices.append({side: box for side, box in boxes.items() if _is_clear(box, point, others)})
    half = _MARK * gap
    names = _Names(choices, [(x - half, y - half, x + half, y + half) for x, y in points], lines, frame)
    for _ in range(_ROUNDS):
        for number in range(len(sizes)):
            names.choose(number)
    return names.without_collisions()


class _Names:
    """The names that are placed so far, and what they should not hide.

    Args:
        choices: the box of each name on each side of its point that it may stand on.
        marks: the boxes of all points, in the same order.
        lines: the boxes of the error bars.
        frame: width and height of the picture.
    """

    def __init__(
        self,
        choices: Sequence[Mapping[Side, _Box]],
        marks: Sequence[_Box],
        lines: Sequence[_Box],
        frame: Point,
    ) -> None:
        self._choices, self._marks, self._lines, self._frame = choices, marks, lines, frame
        self._chosen: dict[int, Side] = {}

    def choose(self, number: int) -> None:
        """Put a name where it hides least, if it has any place."""

        def cost(side: Side) -> float:
            return self._hidden(number, side) + _total(self._choices[number][side], self._lines)

        if self._choices[number]:
            self._chosen[number] = min(self._choices[number], key=cost)

    def without_collisions(self) -> list[Side | None]:
        """The sides after the names that hide most are gone, one after the other, until nothing is hidden."""
        dropped = []
        while self._chosen:
            hidden = {number: self._hidden(number, side) for number, side in self._chosen.items()}
            worst = max(hidden, key=lambda number: hidden[number])
            if hidden[worst] <= _LEAST:
                break
            dropped.append(worst)
            del self._chosen[worst]
        for number in reversed(dropped):  # others that are gone may have left room
            free = [side for side in self._choices[number] if self._hidden(number, side) <= _LEAST]
            if free:
                self._chosen[number] = free[0]
        return [self._chosen.get(number) for number in range(len(self._choices))]

    def _hidden(self, number: int, side: Side) -> float:
        """What a name covers of points and other names, and more for what is cut off by the frame."""
        box = self._choices[number][side]
        names = [self._choices[other][chosen] for other, chosen in self._chosen.items() if other != number]
        outside = (box[2] - box[0]) * (box[3] - box[1]) - _overlap(box, (0, 0, *self._frame))
        return _total(box, [*self._marks[:number], *self._marks[number + 1 :], *names]) + 3 * outside


def _box(point: Point, size: Point, side: Side, gap: float) -> _Box:
    (x, y), (width, height) = point, size
    left = x + side[0] * gap - width * (1 - side[0]) / 2
    bottom = y + side[1] * gap - height * (1 - side[1]) / 2
    return left, bottom, left + width, bottom + height


def _is_clear(box: _Box, point: Point, others: Sequence[Point]) -> bool:
    """Whether a name is much nearer to its own point than to any other."""
    return all(_CLEAR * _distance(box, point) <= _distance(box, other) for other in others)


def _distance(box: _Box, point: Point) -> float:
    across = max(box[0] - point[0], point[0] - box[2], 0)
    up = max(box[1] - point[1], point[1] - box[3], 0)
    return math.hypot(across, up)


def _total(box: _Box, others: Sequence[_Box]) -> float:
    return sum(_overlap(box, other) for other in others)


def _overlap(one: _Box, other: _Box) -> float:
    across = min(one[2], other[2]) - max(one[0], other[0])
    up = min(one[3], other[3]) - max(one[1], other[1])
    return max(across, 0) * max(up, 0)
