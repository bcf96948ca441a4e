"""Looks that tell labels apart."""

from vsam.lab.methods import METHODS
from vsam.lab.report.style import styles_for


def test_every_method_has_a_colour_of_its_own_that_does_not_depend_on_the_others():
    names = [method.name for method in METHODS]
    styles = styles_for(names)
    assert len({style.color for style in styles.values()}) == len(names)
    for name in names:
        assert styles_for(["other", name])[name].color == styles[name].color


def test_many_variants_differ_in_colour_or_dash():
    labels = ["sgd", "sam", *(f"vsam-alpha-{number}" for number in range(40))]
    styles = styles_for(labels)
    assert list(styles) == labels
    assert len({(style.color, style.dash) for style in styles.values()}) == len(labels)


def test_all_methods_and_the_settings_of_the_studies_differ_in_colour_or_marker():
    settings = ("alpha-0.05", "alpha-0.1", "alpha-0.2", "alpha-0.4", "gamma-0", "gamma-0.5", "gamma-0.6", "gamma-0.8")
    labels = [*(method.name for method in METHODS), *(f"vsam-{setting}" for setting in settings)]
    for order in (labels, labels[::-1], sorted(labels)):
        styles = styles_for(order)
        assert len({(style.color, style.marker) for style in styles.values()}) == len(labels)


def test_up_to_66_labels_differ_in_colour_or_marker():
    styles = styles_for([f"vsam-alpha-{number}" for number in range(66)])
    assert len({(style.color, style.marker) for style in styles.values()}) == 66


def test_colours_are_seen_on_white_and_on_near_black():
    for method in METHODS:
        color = styles_for([method.name])[method.name].color
        for background in (1.0, luminance("#14171b")):
            low, high = sorted((luminance(color), background))
            assert (high + 0.05) / (low + 0.05) > 2.2, method.name


def luminance(color):
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
