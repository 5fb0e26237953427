#!/usr/bin/env python3
"""Runs SQL over tables in files (CSV, TSV, JSON Lines, SQLite). Standard library only; the files are only read."""
import argparse
import csv
import os
import re
import sqlite3
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from describe import kind_of, rows_of  # noqa: E402


def name_of(path):
    name = re.sub(r"\W+", "_", os.path.splitext(os.path.basename(path))[0]).strip("_")
    return f"t_{name}" if not name or name[0].isdigit() else name


def typed(value):
    if value is None:
        return None
    text = str(value).strip()
    kind = kind_of(text)
    if kind == "missing":
        return None
    return int(text) if kind == "integer" else float(text) if kind == "number" else text


def load(base, path):
    rows = list(rows_of(path))
    if not rows:
        sys.exit(f"{path} has no rows.")
    columns = list(dict.fromkeys(str(name) for row in rows for name in row))
    quoted = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
    base.execute(f'CREATE TABLE "{name_of(path)}" ({quoted})')
    places = ", ".join("?" * len(columns))
    base.executemany(
        f'INSERT INTO "{name_of(path)}" VALUES ({places})', ([typed(row.get(column)) for column in columns] for row in rows)
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--sql", required=True)
    parser.add_argument("--csv", help="write the whole result here")
    parser.add_argument("--limit", type=int, default=50, help="rows to print")
    options = parser.parse_args()
    base = sqlite3.connect(":memory:")
    for path in options.files:
        if path.endswith((".sqlite", ".db")):
            base.execute("ATTACH DATABASE ? AS " + name_of(path), (path,))
        else:
            load(base, path)
    try:
        cursor = base.execute(options.sql)
    except sqlite3.Error as error:
        tables = [row[0] for row in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        sys.exit(f"SQL error: {error}. Tables: {', '.join(tables)}")
    names = [column[0] for column in cursor.description or []]
    rows = cursor.fetchall()
    if options.csv:
        with open(options.csv, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([names, *rows])
    print("| " + " | ".join(names) + " |\n|" + " --- |" * len(names))
    for row in rows[: options.limit]:
        print("| " + " | ".join("" if value is None else f"{value:g}" if isinstance(value, float) else str(value).replace("|", "/") for value in row) + " |")
    if len(rows) > options.limit:
        print(f"\n… {len(rows) - options.limit} more rows")


if __name__ == "__main__":
    main()
