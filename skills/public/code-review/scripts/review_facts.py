#!/usr/bin/env python3
"""Lists facts for a review of a folder or a unified diff. Standard library only."""
import os
import re
import sys

CODE = re.compile(r"\.(py|js|ts|tsx|jsx|mjs|cjs|go|rs|java|kt|c|h|cc|cpp|hpp|cs|rb|php|sh|sql|swift|scala)$")
TEST = re.compile(r"(^|/)(tests?|__tests__|spec)/|[._-](test|spec)\.|(^|/)test_", re.IGNORECASE)
SKIP = {".git", "node_modules", "dist", "build", "target", "vendor", "__pycache__", ".venv", "venv"}
SECRET = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY|\bAKIA[0-9A-Z]{16}\b|\b(?:api[_-]?key|secret|password|token)\b\s*[:=]\s*['\"][^'\"\s]{12,}['\"])", re.IGNORECASE)
LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|console\.log\(|\bdebugger\b|\bbreakpoint\(\)|\bpdb\.set_trace")
START = re.compile(r"^(\s*)(?:export\s+)?(?:async\s+)?(?:def|function|func|fn|pub fn|(?:public|private|protected|static)\s[\w<>\[\] ]+\()\s*([\w$]*)")


def from_folder(path):
    for place, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in SKIP)
        for name in sorted(names):
            full = os.path.join(place, name)
            if CODE.search(name) and not os.path.islink(full) and os.path.getsize(full) < 2_000_000:
                with open(full, encoding="utf-8", errors="replace") as file:
                    yield os.path.relpath(full, path), list(enumerate(file.read().split("\n"), 1))


def from_diff(path):
    name, lines, number = None, [], 0
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file.read().split("\n"):
            if line.startswith("+++ "):
                if name:
                    yield name, lines
                name, lines = re.sub(r"^b/", "", line[4:].split("\t")[0]), []
            elif match := re.match(r"@@ -\S+ \+(\d+)", line):
                number = int(match.group(1))
            elif line.startswith("+"):
                lines.append((number, line[1:]))
                number += 1
            elif not line.startswith("-"):
                number += 1
    if name and name != "/dev/null":
        yield name, lines


def long_functions(lines):
    found, start = [], None
    for number, text in lines:
        if match := START.match(text):
            if start and number - start[0] > 80:
                found.append((start[0], f"function {start[1] or '?'} has about {number - start[0]} lines"))
            start = (number, match.group(2))
    if start and lines and lines[-1][0] - start[0] > 80:
        found.append((start[0], f"function {start[1] or '?'} has about {lines[-1][0] - start[0]} lines"))
    return found


def main():
    if len(sys.argv) != 2 or not os.path.exists(sys.argv[1]):
        sys.exit("usage: review_facts.py FOLDER or review_facts.py CHANGE.diff")
    folder = os.path.isdir(sys.argv[1])
    files = list(from_folder(sys.argv[1]) if folder else from_diff(sys.argv[1]))
    code = [(name, lines) for name, lines in files if CODE.search(name)]
    tests = [name for name, _ in code if TEST.search(name)]
    total = sum(len(lines) for _, lines in code)
    print(f"{len(code)} code files, {total} {'lines' if folder else 'added lines'}, {len(tests)} of them tests")
    if not folder and code and not tests:
        print("code changed, but no test")
    for name, lines in code:
        if folder and len(lines) > 600:
            print(f"{name}: {len(lines)} lines in one file")
        for number, text in lines:
            if SECRET.search(text):
                print(f"{name}:{number}: possible secret")
            if match := LEFTOVER.search(text):
                print(f"{name}:{number}: leftover {match.group(0)}")
            indent = len(text) - len(text.lstrip(" ")) if not text.startswith("\t") else 4 * (len(text) - len(text.lstrip("\t")))
            if text.strip() and indent >= 28 and not text.lstrip().startswith(("*", "#", "//")):
                print(f"{name}:{number}: nested {indent // 4} levels deep")
        for number, fact in long_functions(lines):
            print(f"{name}:{number}: {fact}")


if __name__ == "__main__":
    main()
