#!/usr/bin/env python3
"""Checks the folder of a skill, and packs it as a .skill archive with --pack. Standard library only."""
import argparse
import os
import re
import sys
import zipfile

KEYS = {"name", "description", "license", "allowed-tools", "required-secrets", "secrets-autonomous", "metadata", "compatibility", "version", "author"}
PROGRAMS = (b"\x7fELF", b"MZ", b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe")


def files_of(folder):
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        for name in sorted(names):
            if not name.startswith("."):
                yield os.path.join(place, name)


def faults(folder):
    found, path = [], os.path.join(folder, "SKILL.md")
    if not os.path.isfile(path):
        return ["there is no SKILL.md"]
    with open(path, encoding="utf-8") as file:
        text = file.read().replace("\r\n", "\n")
    head = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    if not head:
        return ["SKILL.md must begin with a head between two lines of ---"]
    keys = dict(re.findall(r"^([\w-]+):[ \t]*(.*)$", head.group(1), re.MULTILINE))
    name, description = keys.get("name", "").strip("\"'"), keys.get("description", "").strip("\"'")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) or len(name) > 64:
        found.append("name must be lower-case words joined by single hyphens")
    elif name != os.path.basename(os.path.abspath(folder)):
        found.append(f'the folder should be called "{name}"')
    if not description or len(description) > 1024 or re.search(r"[<>]", description):
        found.append("description must have 1 to 1024 characters, without < and >")
    value = keys.get("description", "")
    if ": " in value and value[:1] not in "\"'|>":
        found.append("description has a colon and needs quotes")
    if "use " not in description.lower() and "when" not in description.lower():
        found.append("description should say when to use the skill")
    found += [f'the key "{key}" is not known' for key in keys if key not in KEYS]
    body = text[head.end() :]
    if len(body.strip()) < 80:
        found.append("the instructions are very short")
    if body.count("\n") > 300:
        found.append("the instructions are long: move parts into references/")
    for mention in sorted(set(re.findall(r"\b((?:scripts|references|templates|assets)/[\w./-]*\w)", body))):
        if not os.path.exists(os.path.join(folder, mention)):
            found.append(f"SKILL.md names {mention}, which is not there")
    for file in files_of(folder):
        inside = os.path.relpath(file, folder)
        if os.path.islink(file):
            found.append(f"{inside} is a link")
            continue
        if os.path.basename(file) == "SKILL.md" and inside != "SKILL.md":
            found.append(f"{inside}: only one SKILL.md is allowed")
        with open(file, "rb") as opened:
            if opened.read(4).startswith(PROGRAMS):
                found.append(f"{inside} is a program; bring scripts only")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--pack", metavar="OUT.skill")
    options = parser.parse_args()
    found = faults(options.folder)
    for fault in found:
        print(fault)
    if found:
        sys.exit(f"{len(found)} faults")
    print("no faults")
    if options.pack:
        name = os.path.basename(os.path.abspath(options.folder))
        with zipfile.ZipFile(options.pack, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in files_of(options.folder):
                archive.write(file, os.path.join(name, os.path.relpath(file, options.folder)))
        print(options.pack)


if __name__ == "__main__":
    main()
