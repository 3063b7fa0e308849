"""Plots as SVG, for reading in a browser; no more than the laboratory needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from operator import itemgetter
from typing import Any, Final

from bmgd.lab.experiment import Experiment, Plot, Rows
from bmgd.lab.scale import Scale, label, scale

COLOURS: Final = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#b8860b", "#5d3a9b", "#444444"),
    *("#8c564b", "#1b7837", "#e7298a", "#7f7f7f"),
)
"""Told apart also by those who see fewer colours (Okabe and Ito's, and some more)."""

POINTS_MOST: Final = 1200
"""Of a longer line only the extremes of every stretch are drawn."""

WIDTH, HEIGHT = 820, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 800, 16, 366
_LEGEND_MOST = 250
_LETTER = 6.4

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Series:
    """One line, or one colour of points or bars."""

    name: str
    points: list[Point]
    colour: str
    hollow: bool


@dataclass(frozen=True, slots=True)
class _Frame:
    """Both axes, and from values to pixels."""

    plot: Plot
    categories: tuple[str, ...]
    x: Scale
    y: Scale
    right: float

    def at(self, point: Point) -> Point:
        x = _LEFT + (self.right - _LEFT) * self.x.at(point[0])
        return x, _BOTTOM - (_BOTTOM - _TOP) * self.y.at(point[1])


def draw(experiment: Experiment, rows: Rows) -> str:
    """The plot of an experiment.

    Args:
        experiment: one that has a plot.
        rows: its rows by name.

    Returns:
        One SVG element, which is also a whole file.
    """
    assert experiment.plot is not None, experiment.name
    return draw_plot(experiment.title, experiment.plot, rows)


def draw_plot(title: str, plot: Plot, rows: Rows) -> str:
    """A plot of rows, whoever made them.

    Args:
        title: of the whole, for who cannot see it.
        plot: what is drawn, and how.
        rows: by name.

    Returns:
        One SVG element, which is also a whole file.
    """
    if plot.where is not None:
        column, value = plot.where
        rows = [row for row in rows if row[column] == value]
    categories = _categories(plot, rows)
    series = _series(plot, rows, categories)
    body = "<text x='40' y='40'>no values to draw</text>"
    if any(each.points for each in series):
        frame = _frame(plot, categories, series)
        marks = {"line": _lines, "scatter": _dots, "bar": _bars}[plot.kind]
        body = "".join([_axes(frame), *marks(frame, series), _legend(frame, series)])
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' "
        f"width='{WIDTH}' height='{HEIGHT}' font-family='system-ui, sans-serif' font-size='12' "
        f"role='img'><title>{escape(title)}</title>"
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='#ffffff'/>{body}</svg>\n"
    )


# --- what is drawn -----------------------------------------------------------------------------


def _categories(plot: Plot, rows: Rows) -> tuple[str, ...]:
    """The texts along the axis in their order; none if it is an axis of numbers."""
    values = [row[plot.x] for row in rows if row[plot.x] is not None]
    if plot.kind != "bar" and not any(isinstance(value, str) for value in values):
        return ()
    return tuple(dict.fromkeys(str(value) for value in values))


def _series(plot: Plot, rows: Rows, categories: Sequence[str]) -> list[_Series]:
    places = {name: i for i, name in enumerate(categories)}
    groups: dict[tuple[str, Any], list[Point]] = {}
    for row in rows:
        for y in plot.ys:
            group = groups.setdefault((y, row[plot.by] if plot.by else None), [])
            point = _point(plot, row, y, places)
            if point is not None:
                group.append(point)
    several = len({group for _, group in groups}) > 1
    measured = [y for y in plot.ys if not _is_published(y)]
    colours: dict[object, str] = {}
    found: list[_Series] = []
    for (y, group), points in groups.items():
        # What is published has the colour of what was measured beside it.
        key = (group if several else None, None if several and len(measured) == 1 else y)
        if several and _is_published(y):
            key = (group, measured[0] if len(measured) > 1 else None)
        colour = colours.setdefault(key, COLOURS[len(colours) % len(COLOURS)])
        parts = [_words(str(group))] if several else []
        parts += [_words(y)] if len(plot.ys) > 1 or not several else []
        ordered = points if categories else sorted(points)
        found.append(_Series(", ".join(parts), ordered, colour, _is_published(y)))
    return [each for each in found if each.points]


def _is_published(y: str) -> bool:
    return y.startswith("published")


def _point(plot: Plot, row: Mapping[str, Any], y: str, places: Mapping[str, int]) -> Point | None:
    x, value = row[plot.x], row[y]
    if x is None or value is None:
        return None
    at = float(places[str(x)]) if places else float(x)
    if (plot.log_x and not places and at <= 0) or (plot.log_y and value <= 0):
        return None
    return at, float(value)


def _frame(plot: Plot, categories: tuple[str, ...], series: Sequence[_Series]) -> _Frame:
    xs = [x for each in series for x, _ in each.points]
    ys = [y for each in series for _, y in each.points]
    if categories:
        x = Scale(-0.5, len(categories) - 0.5, False, tuple(map(float, range(len(categories)))))
    else:
        x = scale(xs, plot.log_x, powers_of_two=True)
    if plot.kind == "bar" and not plot.log_y:
        ys.append(0.0)
    right = _RIGHT - _legend_width(plot, series)
    return _Frame(plot, categories, x, scale(ys, plot.log_y), right)


# --- axes and legend ---------------------------------------------------------------------------


def _axes(frame: _Frame) -> str:
    plot, parts = frame.plot, []
    for tick in frame.y.ticks:
        _, y = frame.at((frame.x.low, tick))
        parts.append(
            f"<path d='M{_LEFT} {y:.1f}H{frame.right}' stroke='#e3e3e3'/>"
            f"<text x='{_LEFT - 8}' y='{y + 4:.1f}' text-anchor='end'>{label(tick)}</text>"
        )
    every = -(-len(frame.categories) * 60 // int(frame.right - _LEFT)) if frame.categories else 1
    for number, tick in enumerate(frame.x.ticks):
        if number % max(every, 1):
            continue
        x, _ = frame.at((tick, frame.y.low))
        text = frame.categories[number] if frame.categories else label(tick, plot.log_x)
        parts.append(
            f"<path d='M{x:.1f} {_BOTTOM}v5' stroke='#444444'/>"
            f"<text x='{x:.1f}' y='{_BOTTOM + 19}' text-anchor='middle'>{escape(text)}</text>"
        )
    x_label = escape(plot.x_label or _words(plot.x))
    y_label = escape(plot.y_label or ", ".join(_words(y) for y in plot.ys))
    middle = (_TOP + _BOTTOM) / 2
    parts.append(
        f"<path d='M{_LEFT} {_TOP}V{_BOTTOM}H{frame.right}' stroke='#444444' fill='none'/>"
        f"<text x='{(_LEFT + frame.right) / 2:.0f}' y='{HEIGHT - 10}' text-anchor='middle'>"
        f"{x_label}</text>"
        f"<text transform='translate(16 {middle:.0f}) rotate(-90)' text-anchor='middle'>"
        f"{y_label}</text>"
    )
    return "".join(parts)


def _legend_width(plot: Plot, series: Sequence[_Series]) -> float:
    if len(series) < 2:
        return 0.0
    letters = max(len(name) for name in (_words(plot.by or ""), *(s.name for s in series)))
    return min(_LEGEND_MOST, 36 + _LETTER * letters)


def _legend(frame: _Frame, series: Sequence[_Series]) -> str:
    if len(series) < 2:
        return ""
    x, y = frame.right + 18, _TOP + 8.0
    parts = []
    if frame.plot.by:
        parts.append(
            f"<text x='{x - 4:.0f}' y='{y + 4:.1f}'>{escape(_words(frame.plot.by))}:</text>"
        )
        y += 20
    step = min(20.0, (_BOTTOM - y) / len(series))
    letters = int((_RIGHT - x) / _LETTER)
    for each in series:
        parts.append(_marker((x, y), each))
        name = each.name if len(each.name) <= letters else each.name[: letters - 1] + "…"
        parts.append(f"<text x='{x + 12:.0f}' y='{y + 4:.1f}'>{escape(name)}</text>")
        y += step
    return "".join(parts)


def _words(name: str) -> str:
    return name.replace("_", " ")


# --- marks -------------------------------------------------------------------------------------


def _lines(frame: _Frame, series: Sequence[_Series]) -> list[str]:
    parts = []
    for each in series:
        places = [frame.at(point) for point in _thinned(each.points)]
        if not each.hollow:
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
            style = f"stroke='{each.colour}' stroke-width='1.6' fill='none'"
            parts.append(f"<path d='M{path}' {style} stroke-linejoin='round'/>")
        if each.hollow or len(places) <= 40:
            parts.extend(_marker(place, each) for place in places)
    return parts


def _dots(frame: _Frame, series: Sequence[_Series]) -> list[str]:
    return [_marker(frame.at(p), each) for each in series for p in _thinned(each.points)]


def _bars(frame: _Frame, series: Sequence[_Series]) -> list[str]:
    slot = (frame.right - _LEFT) / max(len(frame.categories), 1)
    width = 0.8 * slot / len(series)
    floor = frame.y.low if frame.y.log else max(frame.y.low, min(0.0, frame.y.high))
    parts = []
    for number, each in enumerate(series):
        for point in each.points:
            x, y = frame.at(point)
            _, zero = frame.at((point[0], floor))
            left = x - 0.4 * slot + number * width
            look = "fill='none' stroke" if each.hollow else "fill"
            parts.append(
                f"<rect x='{left:.1f}' y='{min(y, zero):.1f}' width='{max(width - 1, 0.5):.1f}' "
                f"height='{abs(zero - y):.1f}' {look}='{each.colour}'/>"
            )
    return parts


def _marker(place: Point, each: _Series) -> str:
    x, y = place
    if each.hollow:
        return (
            f"<circle cx='{x:.1f}' cy='{y:.1f}' r='5' fill='none' stroke='{each.colour}' "
            "stroke-width='1.8'/>"
        )
    return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='2.6' fill='{each.colour}'/>"


def _thinned(points: Sequence[Point]) -> list[Point]:
    """The lowest and the highest point of every stretch, in order of x."""
    if len(points) <= POINTS_MOST:
        return list(points)
    stretch = -(-len(points) * 2 // POINTS_MOST)
    kept: list[Point] = []
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        kept.extend(sorted({min(part, key=itemgetter(1)), max(part, key=itemgetter(1))}))
    return kept
