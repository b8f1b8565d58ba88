"""Names that cannot steer a page, numbers that are never overstated; marks and colours that can be read."""

from __future__ import annotations

import math
import re

import pytest

from plmix_dist.display.marks import (
    COMPONENTS,
    Html,
    _contrast,
    _luminance,
    bar,
    columns,
    component_colour,
    count,
    curve,
    dots,
    figure,
    heat_colour,
    interval,
    label,
    percent,
    plain_label,
    seconds_in_words,
    stacked,
    text_on,
    times,
)


def test_label__cannot_steer_a_page() -> None:
    assert plain_label("tea\n\u202eeta") == "tea\\n\\u202eeta"
    assert plain_label("0123456789", longest=5) == "01...89"
    assert label("<script>") == "<bdi>&lt;script&gt;</bdi>"
    assert (
        plain_label("\U0001f468\u200d\U0001f469") == "\U0001f468\u200d\U0001f469"
    )  # joiners belong to pictures of people
    assert Html("<b>tea</b>").__html__() == "<b>tea</b>"


@pytest.mark.parametrize(
    ("value", "words"), [(12345.0, "12,345"), (0.5, "0.5"), (math.nan, "unknown"), (math.inf, "unknown"), (0.0, "0")]
)
def test_count(value: float, words: str) -> None:
    assert count(value) == words


@pytest.mark.parametrize(
    ("share", "digits", "words"),
    [
        (0.421, 0, "42\xa0%"),
        (0.421, 1, "42.1\xa0%"),
        (0.0001, 0, "<1\xa0%"),
        (0.9999, 0, ">99\xa0%"),
        (0.9999, 1, ">99.9\xa0%"),
        (1.0, 0, "100\xa0%"),
        (0.0, 0, "0\xa0%"),
        (math.nan, 0, "unknown"),
    ],
)
def test_percent__neither_none_nor_all_where_it_only_comes_close(share: float, digits: int, words: str) -> None:
    assert percent(share, digits) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(-417000.25, "-417,000"), (0.123456789, "0.123457"), (3.0, "3"), (math.nan, ""), (1e15, "1e+15")],
)
def test_figure(value: float, words: str) -> None:
    assert figure(value) == words


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (3.14, "3.1 times as many"),
        (250.0, "250 times as many"),
        (1e9, "over 1,000 times as many"),
        (1.02, "about as many"),
        (1.3, "30\xa0% more"),
        (0.25, "4 times fewer"),
        (0.9, "10\xa0% fewer"),
        (0.0, "over 1,000 times fewer"),
    ],
)
def test_times(ratio: float, words: str) -> None:
    assert times(ratio) == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0042, "4 ms"), (3.14, "3.1 s"), (75, "75 s"), (300, "5 min"), (9000, "2.5 h")]
)
def test_seconds_in_words(seconds: float, words: str) -> None:
    assert seconds_in_words(seconds) == words


def test_colours() -> None:
    assert component_colour(0) == component_colour(8) == "#0072b2"
    assert len({component_colour(number) for number in range(8)}) == 8
    assert [heat_colour(share) for share in (-1.0, 0.0, 0.5, 1.0)] == ["#b35806", "#b35806", "#f5f5f5", "#08519c"]
    assert (_luminance("#000000"), _luminance("#ffffff")) == (0.0, 1.0)
    assert _contrast("#000000", "#ffffff") == _contrast("#ffffff", "#000000") == 21.0
    assert (text_on("#08519c"), text_on("#f5f5f5")) == ("#ffffff", "#000000")
    assert all(_contrast(text_on(colour), colour) >= 4.5 for colour in COMPONENTS)  # WCAG 2, level AA


def test_bar__is_as_long_as_its_share() -> None:
    assert 'width="25%" height="10" y="4" rx="2" fill="#0072b2"' in bar(0.25, "#0072b2")
    assert 'width="100%" height="10" y="4" rx="2" fill' in bar(1.5, "#0072b2")
    assert 'aria-label="a &lt;b&gt;"' in bar(0.5, "#0072b2", "a <b>")
    assert 'aria-hidden="true"' in bar(0.5, "#0072b2")


def test_interval__a_line_only_where_one_is_known() -> None:
    drawn = interval(0.5, 0.4, 0.6, "#0072b2")
    assert 'cx="50%"' in drawn
    assert 'x1="40%" x2="60%"' in drawn
    for low, high in ((None, None), (math.nan, 0.6), (0.4, math.inf)):
        assert "stroke-linecap" not in interval(0.5, low, high, "#0072b2")


def test_stacked__each_part_begins_where_the_one_before_ends() -> None:
    drawn = stacked([0.5, 0.3, 0.2])
    assert re.findall(r'x="([\d.]+)%" width="([\d.]+)%"', drawn) == [("0", "50"), ("50", "30"), ("80", "20")]
    assert re.findall(r'fill="(#\w+)"', drawn) == list(COMPONENTS[:3])


def test_columns__the_largest_is_as_high_as_there_is_room() -> None:
    drawn = columns([1.0, 2.0, 0.0, 1.0], "#0072b2", height=57)
    assert re.findall(r'y="([\d.]+)" height="([\d.]+)"', drawn) == [
        ("29.0", "28.0"),
        ("1.0", "56.0"),
        ("57.0", "0.0"),
        ("29.0", "28.0"),
    ]
    assert re.findall(r'<rect x="([\d.]+)%"', drawn) == ["0", "25", "50", "75"]


def test_curve__least_at_the_bottom_largest_at_the_top() -> None:
    assert 'points="0,40 100,0"' in curve([1.0, 2.0])
    assert 'points="0,20 50,40 100,0"' in curve([2.0, 1.0, 3.0])
    assert 'points="0,40 100,0"' in curve([1.0, math.nan, 2.0])
    assert 'y1="20" y2="20"' in curve([1.0, 3.0], level=2.0)
    assert 'points="0,40 100,40"' in curve([7.0])
    assert curve([]) == curve([math.nan]) == ""


@pytest.mark.parametrize(("n_filled", "n_all", "expected"), [(2, 3, (2, 1)), (0, 0, (0, 0)), (100, 400, (32, 96))])
def test_dots(n_filled: int, n_all: int, expected: tuple[int, int]) -> None:
    drawn = dots(n_filled, n_all, "#0072b2")
    assert (drawn.count('class="yes"'), drawn.count('class="no"')) == expected


def test_curve__of_many_points_goes_to_its_end() -> None:
    mark = curve([float(value) for value in range(801)])
    assert mark.partition('points="')[2].partition('"')[0].endswith(" 100,0")
