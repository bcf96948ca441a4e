"""Names that do not hide each other."""

from vsam.lab.report.placing import MORE_SIDES, SIDES, place

FRAME = (300.0, 200.0)


def boxes(points, sizes, sides, gap):
    found = []
    for (x, y), (width, height), (across, up) in zip(points, sizes, sides, strict=False):
        left, bottom = x + across * gap - width * (1 - across) / 2, y + up * gap - height * (1 - up) / 2
        found.append((left, bottom, left + width, bottom + height))
    return found


def covers(box, point):
    return box[0] < point[0] < box[2] and box[1] < point[1] < box[3]


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
    points, sizes, gap = [(224.0, 100.0), (290.0, 100.0)], [(45.0, 12.0)] * 2, 6.0
    sides = place(points, [(0.0, 0.0)] * 2, sizes, FRAME, gap)
    one, other = boxes(points, sizes, sides, gap)
    assert sides[0] == SIDES[0]
    assert not overlap(one, other)


def test_names_avoid_points_that_have_none():
    hollow = (130.0, 112.0)
    [side] = place([(100.0, 100.0), hollow], [(0.0, 0.0)] * 2, [(45.0, 12.0)], FRAME, 6.0)
    [box] = boxes([(100.0, 100.0)], [(45.0, 12.0)], [side], 6.0)
    assert not covers(box, hollow)
    assert side != place([(100.0, 100.0)], [(0.0, 0.0)], [(45.0, 12.0)], FRAME, 6.0)[0]


def test_a_name_is_left_out_rather_than_written_over_something():
    points = [(100.0 + 12 * column, 60.0 + 12 * row) for column in range(4) for row in range(4)]
    sizes, gap = [(60.0, 12.0)] * 16, 6.0
    sides = place(points, [(0.0, 0.0)] * 16, sizes, FRAME, gap)
    kept = [(point, side) for point, side in zip(points, sides, strict=True) if side is not None]
    assert 0 < len(kept) < 16
    found = boxes([point for point, _ in kept], sizes, [side for _, side in kept], gap)
    for number, box in enumerate(found):
        assert not any(covers(box, point) for point in points)
        assert not any(overlap(box, other) for other in found[number + 1 :])


def test_a_name_that_is_wider_than_the_picture_is_left_out():
    assert place([(100.0, 100.0)], [(0.0, 0.0)], [(400.0, 12.0)], FRAME) == [None]


def test_a_name_does_not_stand_beside_another_point():
    points, sizes, gap = [(100.0, 100.0), (100.0, 112.0)], [(45.0, 12.0)] * 2, 6.0
    lower, upper = place(points, [(0.0, 0.0)] * 2, sizes, FRAME, gap)
    assert lower[1] < 0 < upper[1]


def test_more_sides_leave_room_for_more_names():
    points = [(100.0, 100.0), (135.0, 100.0), (170.0, 100.0), (205.0, 100.0), (100.0, 130.0), (170.0, 125.0)]
    sizes = [(60.0, 12.0)] * len(points)
    few, many = (
        sum(side is not None for side in place(points, [(0.0, 0.0)] * len(points), sizes, FRAME, 6.0, sides))
        for sides in (SIDES[:2], MORE_SIDES)
    )
    assert few < many
