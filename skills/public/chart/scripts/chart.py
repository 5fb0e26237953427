#!/usr/bin/env python3
"""Draws a chart of a CSV file as SVG. Standard library only."""
import argparse
import csv
import html
import math
import sys

COLOURS = ["#2f6f9f", "#d1762c", "#3f8f5f", "#a5435a", "#6a5aa8", "#8a7a2f"]
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 50, 60


def number(text, where):
    try:
        return float(text.replace("\u00a0", "").replace(" ", "").replace(",", ".") if text.count(",") == 1 and "." not in text else text.replace(",", ""))
    except (ValueError, AttributeError):
        sys.exit(f'{where}: "{text}" is no number')


def read(path, x, ys):
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        sys.exit(f"{path} has no rows.")
    for column in [x, *ys]:
        if column not in rows[0]:
            sys.exit(f'{path} has no column "{column}". Columns: {", ".join(rows[0])}')
    labels = [row[x] for row in rows]
    return labels, {y: [number(row[y], f"row {at}, column {y}") for at, row in enumerate(rows, 2)] for y in ys}


def steps(low, high, count=5):
    if low == high:
        high = low + 1
    raw = (high - low) / count
    unit = 10 ** math.floor(math.log10(raw))
    size = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw)
    start = math.floor(low / size) * size
    marks = []
    while start < high + size * 0.999:
        marks.append(round(start, 10))
        start += size
    return marks


def text(x, y, words, anchor="middle", size=12, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" {more}>{html.escape(str(words))}</text>'


def axes(options, marks, place):
    parts = []
    for mark in marks:
        y = place(mark)
        parts.append(f'<line x1="{LEFT}" x2="{options.width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(text(LEFT - 8, y + 4, f"{mark:g}", "end"))
    if options.unit:
        parts.append(text(LEFT - 8, TOP - 12, options.unit, "end"))
    return parts


def legend(options, names):
    if len(names) < 2:
        return []
    parts, x = [], LEFT
    for at, name in enumerate(names):
        parts.append(f'<rect x="{x}" y="{options.height - 18}" width="10" height="10" fill="{COLOURS[at % len(COLOURS)]}"/>')
        parts.append(text(x + 15, options.height - 9, name, "start"))
        x += 30 + 7 * len(name)
    return parts


def plain(options, labels, series):
    values = [value for column in series.values() for value in column]
    low = min(0, *values) if options.kind == "bar" else min(values)
    marks = steps(low, max(0, *values) if options.kind == "bar" else max(values))
    inner, bottom = options.width - LEFT - RIGHT, options.height - BOTTOM
    place = lambda value: bottom - (value - marks[0]) / (marks[-1] - marks[0]) * (bottom - TOP)
    parts = axes(options, marks, place)
    if options.kind == "scatter":
        xs = [number(label, "the x column") for label in labels]
        across = steps(min(xs), max(xs))
        at_x = lambda value: LEFT + (value - across[0]) / (across[-1] - across[0]) * inner
        parts += [text(at_x(mark), bottom + 18, f"{mark:g}") for mark in across]
        for index, (name, column) in enumerate(series.items()):
            for x, value in zip(xs, column):
                parts.append(f'<circle cx="{at_x(x):.1f}" cy="{place(value):.1f}" r="4" fill="{COLOURS[index % len(COLOURS)]}" fill-opacity="0.7"><title>{html.escape(name)}: {x:g}, {value:g}</title></circle>')
        return parts + legend(options, list(series))
    slot = inner / len(labels)
    every = max(1, math.ceil(len(labels) * 60 / inner))
    for at, label in enumerate(labels):
        if at % every == 0:
            parts.append(text(LEFT + slot * (at + 0.5), bottom + 18, label[:18]))
    for index, (name, column) in enumerate(series.items()):
        colour = COLOURS[index % len(COLOURS)]
        if options.kind == "bar":
            width = slot * 0.8 / len(series)
            for at, value in enumerate(column):
                x = LEFT + slot * at + slot * 0.1 + width * index
                y, zero = place(value), place(0)
                parts.append(f'<rect x="{x:.1f}" y="{min(y, zero):.1f}" width="{width:.1f}" height="{abs(zero - y):.1f}" fill="{colour}"><title>{html.escape(labels[at])}, {html.escape(name)}: {value:g}</title></rect>')
        else:
            points = " ".join(f"{LEFT + slot * (at + 0.5):.1f},{place(value):.1f}" for at, value in enumerate(column))
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
            for at, value in enumerate(column):
                parts.append(f'<circle cx="{LEFT + slot * (at + 0.5):.1f}" cy="{place(value):.1f}" r="3" fill="{colour}"><title>{html.escape(labels[at])}, {html.escape(name)}: {value:g}</title></circle>')
    return parts + legend(options, list(series))


def pie(options, labels, series):
    (name, column), *more = series.items()
    if more:
        sys.exit("A pie shows one column; give one --y.")
    if any(value < 0 for value in column) or sum(column) <= 0:
        sys.exit("A pie needs positive numbers.")
    total, angle, parts = sum(column), -math.pi / 2, []
    centre, middle = options.width * 0.36, (options.height + TOP) / 2
    radius = min(options.width * 0.3, (options.height - TOP) / 2 - 10)
    for at, value in enumerate(column):
        turn = min(value / total, 0.99999) * 2 * math.pi
        x1, y1 = centre + radius * math.cos(angle), middle + radius * math.sin(angle)
        angle += turn
        x2, y2 = centre + radius * math.cos(angle), middle + radius * math.sin(angle)
        share = f"{labels[at]}: {value:g} ({value / total:.1%})"
        parts.append(f'<path d="M {centre:.1f} {middle:.1f} L {x1:.1f} {y1:.1f} A {radius:.1f} {radius:.1f} 0 {int(turn > math.pi)} 1 {x2:.1f} {y2:.1f} Z" fill="{COLOURS[at % len(COLOURS)]}" stroke="#fff"><title>{html.escape(share)}</title></path>')
        y = TOP + 20 + at * 22
        parts.append(f'<rect x="{options.width * 0.7:.1f}" y="{y - 10}" width="12" height="12" fill="{COLOURS[at % len(COLOURS)]}"/>')
        parts.append(text(options.width * 0.7 + 18, y, share, "start"))
    return parts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--kind", choices=["bar", "line", "scatter", "pie"], required=True)
    parser.add_argument("--x", required=True)
    parser.add_argument("--y", action="append", required=True)
    parser.add_argument("--title", default="")
    parser.add_argument("--unit", default="")
    parser.add_argument("--out", required=True)
    parser.add_argument("--width", type=int, default=800)
    parser.add_argument("--height", type=int, default=450)
    options = parser.parse_args()
    labels, series = read(options.data, options.x, options.y)
    parts = pie(options, labels, series) if options.kind == "pie" else plain(options, labels, series)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{options.width}" height="{options.height}" viewBox="0 0 {options.width} {options.height}" font-family="sans-serif" role="img" aria-label="{html.escape(options.title, quote=True)}">'
    with open(options.out, "w", encoding="utf-8") as file:
        file.write("\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', text(options.width / 2, 28, options.title, size=18, more='font-weight="bold"'), *parts, "</svg>\n"]))
    print(f"{options.out}: {options.kind} of {len(labels)} points, {len(series)} series")


if __name__ == "__main__":
    main()
