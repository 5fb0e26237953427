#!/usr/bin/env python3
"""Checks a report in Markdown. Prints one line per fault and exits with 1 when there is one."""
import re
import sys


def faults(text):
    lines, found = text.split("\n"), []
    level, last_heading, in_code, body = 0, None, False, True
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            in_code = not in_code
        if in_code:
            body = True
            continue
        heading = re.match(r"(#{1,6})\s+(.*)", line)
        if heading:
            depth = len(heading.group(1))
            if level and depth > level + 1:
                found.append((number, f'heading "{heading.group(2)}" jumps from level {level} to {depth}'))
            if last_heading and not body and depth <= last_heading[1]:
                found.append((last_heading[0], f'section "{last_heading[2]}" is empty'))
            level, last_heading, body = depth, (number, depth, heading.group(2)), False
        elif line.strip():
            body = True
        if re.search(r"\b(TODO|TBD|FIXME|XXX|lorem ipsum)\b", line, re.IGNORECASE):
            found.append((number, "a leftover (TODO, TBD …)"))
        if len(line) > 1200:
            found.append((number, "a paragraph of more than 1,200 characters"))
    if in_code:
        found.append((len(lines), "a code block is not closed"))
    if last_heading and not body:
        found.append((last_heading[0], f'section "{last_heading[2]}" is empty'))
    if not re.search(r"^#\s", text, re.MULTILINE):
        found.append((1, "no title"))
    parts = re.split(r"^#{1,6}\s+Sources\s*$", text, maxsplit=1, flags=re.MULTILINE)
    cited = dict((url, text.count("\n", 0, match.start()) + 1) for match in re.finditer(r"\[citation:[^\]]*\]\(([^)\s]+)\)", parts[0]) for url in [match.group(1)])
    listed = set(re.findall(r"\]\(([^)\s]+)\)", parts[1])) if len(parts) == 2 else set()
    for url, number in cited.items():
        if url not in listed:
            found.append((number, f"cited but not in Sources: {url}"))
    if cited or listed:
        for url in sorted(listed - set(cited)):
            found.append((len(lines), f"in Sources but not cited: {url}"))
    return sorted(found)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check_report.py REPORT.md")
    with open(sys.argv[1], encoding="utf-8") as file:
        found = faults(file.read())
    for number, fault in found:
        print(f"line {number}: {fault}")
    print("no faults" if not found else f"{len(found)} faults")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
