#!/usr/bin/env python3
"""A ledger of sources, one JSON line each. Standard library only."""
import argparse
import json
import os
import sys
from urllib.parse import urlsplit, urlunsplit

KINDS = ["primary", "secondary", "opinion"]


def normal(url):
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        sys.exit(f'"{url}" is no web address')
    return urlunsplit((parts.scheme, parts.netloc.lower().removeprefix("www."), parts.path.rstrip("/"), parts.query, ""))


def read(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ledger", default="sources.jsonl")
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("add")
    add.add_argument("--url", required=True)
    add.add_argument("--title", required=True)
    add.add_argument("--claim", required=True)
    add.add_argument("--kind", choices=KINDS, required=True)
    add.add_argument("--date", default="")
    commands.add_parser("list")
    commands.add_parser("check")
    options = parser.parse_args()
    entries = read(options.ledger)
    if options.command == "add":
        url = normal(options.url)
        if any(normal(entry["url"]) == url and entry["claim"] == options.claim for entry in entries):
            sys.exit("This page is in the ledger with this claim already.")
        with open(options.ledger, "a", encoding="utf-8") as file:
            file.write(json.dumps({"url": options.url, "title": options.title, "claim": options.claim, "kind": options.kind, "date": options.date}, ensure_ascii=False) + "\n")
        print(f"{len(entries) + 1} entries")
    elif options.command == "list":
        for title, url in dict.fromkeys((entry["title"].replace("]", ")"), entry["url"]) for entry in entries):
            print(f"- [{title}]({url})")
    else:
        claims = {}
        for entry in entries:
            claims.setdefault(entry["claim"], []).append(entry)
        weak = [claim for claim, found in claims.items() if not any(entry["kind"] == "primary" for entry in found) and len({urlsplit(normal(entry["url"])).netloc for entry in found}) < 2]
        for claim in weak:
            print(f"weak: {claim}")
        print(f"{len(claims)} claims, {len(weak)} weak")
        sys.exit(1 if weak else 0)


if __name__ == "__main__":
    main()
