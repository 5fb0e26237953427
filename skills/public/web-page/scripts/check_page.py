#!/usr/bin/env python3
"""Checks a single-file web page. Prints one line per fault and exits with 1 when there is one."""
import re
import sys
from html.parser import HTMLParser

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.faults, self.open, self.ids, self.targets, self.labels, self.fields = [], [], set(), [], set(), []
        self.title, self.language, self.viewport, self.level = "", False, False, 0

    def fault(self, text):
        self.faults.append((self.getpos()[0], text))

    def handle_starttag(self, tag, pairs):
        attributes = dict(pairs)
        if tag not in VOID:
            self.open.append((tag, self.getpos()[0]))
        if identifier := attributes.get("id"):
            if identifier in self.ids:
                self.fault(f'id "{identifier}" is there twice')
            self.ids.add(identifier)
        if tag == "html":
            self.language = bool(attributes.get("lang"))
        if tag == "meta" and attributes.get("name") == "viewport":
            self.viewport = True
        if tag == "img" and "alt" not in attributes:
            self.fault("a picture without alt")
        if match := re.fullmatch(r"h([1-6])", tag):
            depth = int(match.group(1))
            if self.level and depth > self.level + 1:
                self.fault(f"headings jump from h{self.level} to h{depth}")
            self.level = depth
        if tag == "label" and attributes.get("for"):
            self.labels.add(attributes["for"])
        if tag in ("input", "select", "textarea") and attributes.get("type") not in ("hidden", "submit", "button"):
            inside = any(name == "label" for name, _ in self.open)
            if not inside and not attributes.get("aria-label"):
                self.fields.append((self.getpos()[0], attributes.get("id")))
        if tag in ("script", "img", "iframe", "source", "video", "audio", "embed") and re.match(r"(https?:)?//", attributes.get("src") or ""):
            self.fault(f"{tag} comes from another server: {attributes['src'][:80]}")
        if tag == "link" and attributes.get("rel") in ("stylesheet", "preload", "icon") and re.match(r"(https?:)?//", attributes.get("href") or ""):
            self.fault(f"link comes from another server: {attributes['href'][:80]}")
        if tag == "a" and (attributes.get("href") or "").startswith("#") and len(attributes["href"]) > 1:
            self.targets.append((self.getpos()[0], attributes["href"][1:]))

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        if self.open and self.open[-1][0] == tag:
            self.open.pop()
        elif any(name == tag for name, _ in self.open):
            while self.open[-1][0] != tag:
                name, line = self.open.pop()
                if name not in ("p", "li", "td", "th", "tr", "option", "dt", "dd"):
                    self.faults.append((line, f"<{name}> is not closed"))
            self.open.pop()
        else:
            self.fault(f"</{tag}> closes nothing")

    def handle_data(self, data):
        if self.open and self.open[-1][0] == "title":
            self.title += data
        if self.open and self.open[-1][0] == "style" and re.search(r"url\(\s*['\"]?(https?:)?//|@import", data):
            self.fault("a style comes from another server")


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check_page.py PAGE.html")
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    page = Page()
    page.feed(text)
    page.close()
    if not text.lstrip().lower().startswith("<!doctype html"):
        page.faults.append((1, "no <!doctype html>"))
    for missing, what in ((page.language, "no lang on <html>"), (page.title.strip(), "no title"), (page.viewport, "no viewport"), (page.level, "no heading")):
        if not missing:
            page.faults.append((1, what))
    page.faults += [(line, f"link to #{name}, which is not there") for line, name in page.targets if name not in page.ids]
    page.faults += [(line, "a field without a label") for line, name in page.fields if name not in page.labels]
    for line, fault in sorted(page.faults):
        print(f"line {line}: {fault}")
    print("no faults" if not page.faults else f"{len(page.faults)} faults")
    sys.exit(1 if page.faults else 0)


if __name__ == "__main__":
    main()
