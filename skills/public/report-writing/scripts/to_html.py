#!/usr/bin/env python3
"""Turns a report in Markdown into one HTML page that prints well. Standard library only; covers what reports use."""
import html
import re
import sys

STYLE = """body{max-width:46rem;margin:3rem auto;padding:0 1rem;font:16px/1.6 Georgia,serif;color:#222}
h1,h2,h3{line-height:1.25;font-family:system-ui,sans-serif}h2{margin-top:2.2em;border-bottom:1px solid #ddd;padding-bottom:.2em}
table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid #ccc;padding:.3em .6em;text-align:left}
code,pre{font:14px ui-monospace,monospace;background:#f5f5f5}pre{padding:.8em;overflow:auto}
blockquote{margin:1em 0;padding-left:1em;border-left:3px solid #ccc;color:#555}img{max-width:100%}
@media print{body{margin:0;max-width:none}h2{page-break-after:avoid}}"""


def safe(url):
    return html.escape(url, quote=True) if re.match(r"(https?:|mailto:|#|[\w./-]+$)", url) else "#"


def inline(text):
    codes = []
    text = re.sub(r"`([^`]+)`", lambda match: codes.append(match.group(1)) or f"\0{len(codes) - 1}\0", text)
    text = html.escape(text, quote=False)
    text = re.sub(r"!\[([^\]]*)\]\(([^)\s]+)\)", lambda m: f'<img alt="{m.group(1)}" src="{safe(html.unescape(m.group(2)))}">', text)
    text = re.sub(r"\[citation:([^\]]*)\]\(([^)\s]+)\)", lambda m: f'<sup><a href="{safe(html.unescape(m.group(2)))}" title="{m.group(1)}">[source]</a></sup>', text)
    text = re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", lambda m: f'<a href="{safe(html.unescape(m.group(2)))}">{m.group(1)}</a>', text)
    text = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)
    text = re.sub(r"(?<!\w)[*_]([^*_]+)[*_](?!\w)", r"<em>\1</em>", text)
    return re.sub("\0(\\d+)\0", lambda m: f"<code>{html.escape(codes[int(m.group(1))])}</code>", text)


def convert(text):
    out, lines, at = [], text.split("\n"), 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("```"):
            end = next((i for i in range(at + 1, len(lines)) if lines[i].startswith("```")), len(lines))
            out.append("<pre>" + html.escape("\n".join(lines[at + 1 : end])) + "</pre>")
            at = end + 1
        elif match := re.match(r"(#{1,6})\s+(.*)", line):
            depth = len(match.group(1))
            out.append(f"<h{depth}>{inline(match.group(2))}</h{depth}>")
            at += 1
        elif line.startswith("|") and at + 1 < len(lines) and re.match(r"\|[\s:|-]+$", lines[at + 1]):
            cells = lambda row, tag: "<tr>" + "".join(f"<{tag}>{inline(cell.strip())}</{tag}>" for cell in row.strip().strip("|").split("|")) + "</tr>"
            rows, end = [cells(line, "th")], at + 2
            while end < len(lines) and lines[end].startswith("|"):
                rows.append(cells(lines[end], "td"))
                end += 1
            out.append("<table>" + "".join(rows) + "</table>")
            at = end
        elif re.match(r"\s*([-*]|\d+\.)\s", line):
            tag, items = ("ol" if re.match(r"\s*\d", line) else "ul"), []
            while at < len(lines) and (match := re.match(r"\s*(?:[-*]|\d+\.)\s+(.*)", lines[at])):
                items.append(match.group(1))
                at += 1
                while at < len(lines) and re.match(r"\s{2,}\S", lines[at]) and not re.match(r"\s*([-*]|\d+\.)\s", lines[at]):
                    items[-1] += " " + lines[at].strip()
                    at += 1
            out.append(f"<{tag}>" + "".join(f"<li>{inline(item)}</li>" for item in items) + f"</{tag}>")
        elif line.startswith(">"):
            out.append(f"<blockquote>{inline(line.lstrip('> '))}</blockquote>")
            at += 1
        elif line.strip():
            block = [line]
            while at + 1 < len(lines) and lines[at + 1].strip() and not re.match(r"(#|>|\||```|\s*([-*]|\d+\.)\s)", lines[at + 1]):
                at += 1
                block.append(lines[at])
            out.append(f"<p>{inline(' '.join(block))}</p>")
            at += 1
        else:
            at += 1
    return "\n".join(out)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: to_html.py REPORT.md OUT.html")
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    title = re.search(r"^#\s+(.*)", text, re.MULTILINE)
    page = f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title.group(1) if title else "Report")}</title><style>{STYLE}</style></head><body>\n{convert(text)}\n</body></html>\n'
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(page)
    print(sys.argv[2])


if __name__ == "__main__":
    main()
