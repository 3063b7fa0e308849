"""Plots: what is drawn where."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from bmgd.lab.experiment import Plot
from bmgd.lab.scale import label, scale
from bmgd.lab.svg import POINTS_MOST, draw
from tests.unit.lab.sample import sample

SVG = "{http://www.w3.org/2000/svg}"


def drawn(plot: Plot, rows: list[dict[str, object]]) -> ElementTree.Element:
    return ElementTree.fromstring(draw(sample(plot=plot), rows))


def texts(root: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}text")]


def test_scale_has_round_ticks_around_its_values() -> None:
    axis = scale([3.0, 97.0], log=False)
    assert axis.ticks == (0, 20, 40, 60, 80, 100)
    assert axis.at(50) == 0.5


def test_scale_of_one_value_is_not_empty() -> None:
    for log in (False, True):
        axis = scale([4.0], log)
        assert axis.low < axis.high
        assert 0 <= axis.at(4.0) <= 1


def test_scale_of_logarithms_has_powers() -> None:
    assert scale([16, 4096], log=True, powers_of_two=True).ticks == tuple(
        2.0**k for k in range(4, 13)
    )
    tens = scale([0.02, 50], log=True)
    assert [round(tick, 9) for tick in tens.ticks] == [0.01, 0.1, 1, 10, 100]
    assert tens.at(1) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.5, "0.5"), (4096, "4096"), (2**31, "2e9"), (0.0001, "1e-4"), (250_000, "250000")],
)
def test_label_is_short(value: float, text: str) -> None:
    assert label(value) == text


def test_label_of_a_large_power_of_two() -> None:
    assert label(2**31, powers_of_two=True) == "2^31"


def test_draw_has_a_line_per_column_and_names_them() -> None:
    rows: list[dict[str, object]] = [
        {"root": i, "square": i * i, "published": i * i + 1} for i in range(1, 9)
    ]
    root = drawn(Plot(x="root", ys=("square", "published"), x_label="the root"), rows)
    assert {"square", "published", "the root"} <= set(texts(root))
    hollow = [c for c in root.iter(f"{SVG}circle") if c.get("fill") == "none"]
    assert len(hollow) == 8 + 1
    assert "Squares & <their> roots" in [each.text for each in root.iter(f"{SVG}title")]


def test_draw_has_a_colour_per_group_and_keeps_all_within_the_frame() -> None:
    rows: list[dict[str, object]] = [
        {"root": i, "square": i * k, "parity": name}
        for k, name in ((1, "one"), (5, "five"), (9, "nine"))
        for i in range(1, 60)
    ]
    root = drawn(Plot(x="root", ys=("square",), by="parity", log_y=True), rows)
    assert [text for text in texts(root) if text in ("one", "five", "nine")] == [
        "one",
        "five",
        "nine",
    ]
    paths = [p.get("d", "") for p in root.iter(f"{SVG}path") if p.get("stroke-width") == "1.6"]
    assert len(paths) == 3
    places = [(float(x), float(y)) for d in paths for x, y in re.findall(r"([\d.]+) ([\d.]+)", d)]
    assert all(72 <= x <= 760 and 16 <= y <= 366 for x, y in places)


def test_draw_takes_only_the_rows_that_it_is_to() -> None:
    rows: list[dict[str, object]] = [{"root": i, "square": i, "parity": i % 2} for i in range(20)]
    root = drawn(Plot(x="root", ys=("square",), kind="scatter", where=("parity", 1)), rows)
    assert len(list(root.iter(f"{SVG}circle"))) == 10


def test_draw_leaves_out_what_a_logarithm_cannot_show_and_what_is_missing() -> None:
    rows: list[dict[str, object]] = [
        {"root": i, "square": value} for i, value in enumerate([0, None, 5, 7], start=1)
    ]
    root = drawn(Plot(x="root", ys=("square",), kind="scatter", log_y=True), rows)
    assert len(list(root.iter(f"{SVG}circle"))) == 2


def test_draw_bars_stand_on_zero_by_category() -> None:
    rows: list[dict[str, object]] = [
        {"parity": "odd", "square": 3.0, "published": 4.0},
        {"parity": "even", "square": 6.0, "published": None},
    ]
    root = drawn(Plot(x="parity", ys=("square", "published"), kind="bar"), rows)
    bars = [each for each in root.iter(f"{SVG}rect") if each.get("fill") != "#ffffff"]
    assert len(bars) == 3
    assert {"odd", "even"} <= set(texts(root))
    heights = sorted(float(each.get("height", "0")) for each in bars)
    assert heights[2] == pytest.approx(2 * heights[0], abs=0.2)
    feet = {round(float(e.get("y", "0")) + float(e.get("height", "0")), 1) for e in bars}
    assert feet == {366.0}


def test_draw_thins_a_long_line_and_keeps_its_extremes() -> None:
    rows: list[dict[str, object]] = [{"root": i, "square": i % 100} for i in range(50_000)]
    rows[31_234]["square"] = 1000
    root = drawn(Plot(x="root", ys=("square",)), rows)
    path = next(p.get("d", "") for p in root.iter(f"{SVG}path") if p.get("stroke-width") == "1.6")
    ys = [float(y) for _, y in re.findall(r"([\d.]+) ([\d.]+)", path)]
    assert len(ys) <= POINTS_MOST
    assert min(ys) == 16.0


def test_draw_without_values_says_so() -> None:
    plot = Plot(x="root", ys=("square",))
    assert "no values to draw" in draw(replace(sample(), plot=plot), [])
