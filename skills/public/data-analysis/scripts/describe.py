#!/usr/bin/env python3
"""Describes a table: columns, types, missing values, ranges, frequent values. Standard library only."""
import argparse
import collections
import csv
import json
import statistics
import sys
from datetime import datetime

MISSING = {"", "na", "n/a", "null", "none", "nan", "-"}


def rows_of(path):
    """Yields dictionaries; the format follows the name and the first line."""
    with open(path, newline="", encoding="utf-8-sig", errors="replace") as file:
        if path.endswith((".jsonl", ".ndjson")):
            for number, line in enumerate(file, 1):
                if line.strip():
                    try:
                        value = json.loads(line)
                    except ValueError as error:
                        sys.exit(f"{path}, line {number}: no JSON ({error})")
                    yield value if isinstance(value, dict) else {"value": value}
            return
        sample = file.read(65536)
        file.seek(0)
        try:
            dialect = csv.Sniffer().sniff(sample, delimiters=",;\t|")
        except csv.Error:
            dialect = csv.excel
        yield from csv.DictReader(file, dialect=dialect)


def kind_of(text):
    if text.lower() in MISSING:
        return "missing"
    for kind, read in (("integer", int), ("number", float)):
        try:
            read(text.replace("_", "x"))
            return kind
        except ValueError:
            pass
    for form in ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%d.%m.%Y", "%m/%d/%Y"):
        try:
            datetime.strptime(text[:19], form)
            return "date"
        except ValueError:
            pass
    return "text"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows to read at most")
    options = parser.parse_args()
    columns, seen, count, duplicates = {}, set(), 0, 0
    for row in rows_of(options.file):
        if count >= options.rows:
            break
        count += 1
        mark = hash(json.dumps(row, sort_keys=True, default=str))
        duplicates += mark in seen
        seen.add(mark)
        for name, value in row.items():
            text = "" if value is None else str(value).strip()
            column = columns.setdefault(str(name), {"kinds": collections.Counter(), "values": collections.Counter(), "numbers": []})
            kind = kind_of(text)
            column["kinds"][kind] += 1
            if kind != "missing" and (len(column["values"]) < 10_000 or text in column["values"]):
                column["values"][text] += 1
            if kind in ("integer", "number"):
                column["numbers"].append(float(text))
    if count == 0:
        sys.exit(f"{options.file} has no rows.")
    print(f"# {options.file}\n\n{count} rows, {len(columns)} columns, {duplicates} duplicate rows\n")
    print("| column | types | missing | distinct | range or most frequent |\n| --- | --- | --- | --- | --- |")
    for name, column in columns.items():
        column["kinds"].pop("missing", None)
        # Rows of JSON Lines may lack a key.
        missing = count - sum(column["kinds"].values())
        kinds = ", ".join(f"{kind} ({number})" for kind, number in column["kinds"].most_common())
        numbers = column["numbers"]
        if numbers and len(numbers) >= sum(column["kinds"].values()) * 0.9:
            detail = f"{min(numbers):g} … {max(numbers):g}, mean {statistics.fmean(numbers):g}, median {statistics.median(numbers):g}"
        else:
            detail = ", ".join(f"{value[:40]} ({number})" for value, number in column["values"].most_common(5))
        print(f"| {name} | {kinds or 'none'} | {missing} | {len(column['values'])} | {detail.replace('|', '/')} |")


if __name__ == "__main__":
    main()
