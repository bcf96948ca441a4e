"""Names that do not hide each other."""

from vsam.lab.report.placing import SIDES, place

FRAME = (300.0, 200.0)


def boxes(points, sizes, sides, gap):
    found = []
    for (x, y), (width, height), (across, up) in zip(points, sizes, sides, strict=True):
        left, bottom = x + across * gap - width * (1 - across) / 2, y + up * gap - height * (1 - up) / 2
        found.append((left, bottom, left + width, bottom + height))
    return found


def overlap(one, other):
    return min(one[2], other[2]) > max(one[0], other[0]) and min(one[3], other[3]) > max(one[1], other[1])


def test_names_of_near_points_do_not_overlap_and_stay_inside():
    points = [(150.0, 100.0), (158.0, 104.0), (290.0, 195.0), (5.0, 5.0), (150.0, 130.0)]
    sizes, gap = [(45.0, 12.0)] * 5, 6.0
    sides = place(points, [(0.0, 0.0)] * 5, sizes, FRAME, gap)
    found = boxes(points, sizes, sides, gap)
    for number, box in enumerate(found):
        assert 0 <= box[0] <= box[2] <= FRAME[0]
        assert 0 <= box[1] <= box[3] <= FRAME[1]
        assert not any(overlap(box, other) for other in found[number + 1 :])


def test_names_avoid_error_bars():
    points, sizes = [(100.0, 100.0), (160.0, 112.0)], [(30.0, 10.0)] * 2
    without = place(points, [(0.0, 0.0)] * 2, sizes, FRAME)
    beside = place(points, [(0.0, 0.0), (50.0, 0.0)], sizes, FRAME)
    assert without[0] == SIDES[0]
    assert beside[0] == SIDES[1]


def test_a_name_gives_way_to_the_one_before():
    points, sizes, gap = [(100.0, 100.0), (140.0, 100.0)], [(45.0, 12.0)] * 2, 6.0
    sides = place(points, [(0.0, 0.0)] * 2, sizes, FRAME, gap)
    one, other = boxes(points, sizes, sides, gap)
    assert sides[0] == SIDES[0]
    assert not overlap(one, other)
