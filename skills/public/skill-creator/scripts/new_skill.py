#!/usr/bin/env python3
"""Makes the folder of a new skill."""
import argparse
import json
import os
import re
import sys

BODY = """# {title}

1. What to find out first.
2. What to do, step by step.
3. How to check the result.
4. What to hand over.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--description", required=True)
    parser.add_argument("--out", default=".")
    options = parser.parse_args()
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", options.name) or len(options.name) > 64:
        sys.exit("The name must be lower-case words joined by single hyphens, at most 64 characters.")
    if re.search(r"[<>]", options.description) or len(options.description) > 1024:
        sys.exit("The description may have at most 1024 characters, and no < or >.")
    folder = os.path.join(options.out, options.name)
    if os.path.exists(folder):
        sys.exit(f"{folder} exists already.")
    os.makedirs(os.path.join(folder, "scripts"))
    with open(os.path.join(folder, "SKILL.md"), "w", encoding="utf-8") as file:
        head = f"---\nname: {options.name}\ndescription: {json.dumps(options.description, ensure_ascii=False)}\nversion: \"0.1\"\n---\n"
        file.write(head + BODY.format(title=options.name.replace("-", " ").capitalize()))
    print(folder)


if __name__ == "__main__":
    main()
