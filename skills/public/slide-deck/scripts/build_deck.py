#!/usr/bin/env python3
"""Builds slides from Markdown as one HTML file. Standard library only."""
import base64
import html
import mimetypes
import os
import re
import sys

MAX_LINES = 8
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>%(title)s</title><style>
*{box-sizing:border-box}body{margin:0;background:#222;font-family:system-ui,sans-serif;color:#1b2a3a}
section{display:none;width:100vw;height:100vh;padding:6vh 8vw;background:#fff;flex-direction:column;justify-content:center;font-size:3.2vh;line-height:1.45}
section.on{display:flex}h1{font-size:6vh;line-height:1.15;margin:0 0 4vh;color:#123}ul{margin:0;padding-left:1.2em}li{margin:.5em 0}img{max-width:100%%;max-height:60vh;align-self:center}
table{border-collapse:collapse}td,th{border-bottom:1px solid #ccc;padding:.3em .8em;text-align:left}aside{display:none;position:fixed;bottom:0;left:0;right:0;background:#fffbe6;padding:1em 2em;font-size:2.2vh}
body.notes section.on aside{display:block}footer{position:absolute;bottom:2vh;right:3vw;font-size:1.8vh;color:#888}
@media print{@page{size:1600px 900px;margin:0}section{display:flex!important;page-break-after:always}aside{display:none!important}}
</style></head><body>
%(slides)s
<script>
const slides=[...document.querySelectorAll('section')];let at=Math.min(slides.length-1,Math.max(0,Number(location.hash.slice(1))-1||0));
const show=(next)=>{at=Math.min(slides.length-1,Math.max(0,next));slides.forEach((slide,index)=>slide.classList.toggle('on',index===at));location.hash=String(at+1)};
addEventListener('keydown',(event)=>{if(['ArrowRight','PageDown',' '].includes(event.key))show(at+1);if(['ArrowLeft','PageUp'].includes(event.key))show(at-1);if(event.key==='Home')show(0);if(event.key==='End')show(slides.length-1);if(event.key==='n')document.body.classList.toggle('notes')});
addEventListener('click',(event)=>show(at+(event.clientX<innerWidth/3?-1:1)));show(at);
</script></body></html>
"""


def inline(text):
    text = html.escape(text, quote=False)
    text = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    return re.sub(r"\[([^\]]+)\]\((https?://[^)\s]+)\)", r'<a href="\2">\1</a>', text)


def picture(folder, alt, path):
    full = os.path.realpath(os.path.join(folder, path))
    if not full.startswith(os.path.realpath(folder) + os.sep):
        sys.exit(f"{path}: pictures must lie beside the deck")
    if not os.path.isfile(full):
        sys.exit(f"{path}: no such picture")
    kind = mimetypes.guess_type(full)[0] or "application/octet-stream"
    with open(full, "rb") as file:
        data = base64.b64encode(file.read()).decode()
    return f'<img alt="{html.escape(alt, quote=True)}" src="data:{kind};base64,{data}">'


def slide(folder, text):
    parts, items, rows, notes, lines = [], [], [], [], 0

    def flush():
        if items:
            parts.append("<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>")
            items.clear()
        if rows:
            parts.append("<table>" + "".join(rows) + "</table>")
            rows.clear()

    for line in text.strip().split("\n"):
        if match := re.match(r"#+\s+(.*)", line):
            flush()
            parts.append(f"<h1>{inline(match.group(1))}</h1>")
        elif match := re.match(r"Note:\s*(.*)", line):
            notes.append(inline(match.group(1)))
        elif match := re.match(r"!\[([^\]]*)\]\(([^)\s]+)\)\s*$", line):
            flush()
            parts.append(picture(folder, match.group(1), match.group(2)))
        elif match := re.match(r"[-*]\s+(.*)", line):
            items.append(inline(match.group(1)))
            lines += 1
        elif line.startswith("|"):
            if not re.match(r"\|[\s:|-]+$", line):
                tag = "td" if rows else "th"
                rows.append("<tr>" + "".join(f"<{tag}>{inline(cell.strip())}</{tag}>" for cell in line.strip().strip("|").split("|")) + "</tr>")
                lines += 1
        elif line.strip():
            flush()
            parts.append(f"<p>{inline(line)}</p>")
            lines += 1
    flush()
    return "".join(parts), " ".join(notes), lines


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: build_deck.py deck.md OUT.html")
    with open(sys.argv[1], encoding="utf-8") as file:
        head, *texts = re.split(r"^---\s*$", file.read(), flags=re.MULTILINE)
    meta = dict(re.findall(r"^(\w+):\s*(.*)$", head, re.MULTILINE))
    if not meta:
        texts, meta = [head, *texts], {}
    folder = os.path.dirname(os.path.abspath(sys.argv[1]))
    slides = [slide(folder, text) for text in texts if text.strip()]
    if not slides:
        sys.exit("The deck has no slides.")
    title = meta.get("title", "Slides")
    if "title" in meta:
        slides.insert(0, (f"<h1>{inline(title)}</h1><p>{inline(meta.get('author', ''))}</p>", "", 0))
    for number, (body, _, lines) in enumerate(slides, 1):
        if "<h1>" not in body:
            print(f"slide {number} has no title")
        if lines > MAX_LINES:
            print(f"slide {number} is too full: {lines} lines")
    blocks = "\n".join(f"<section>{body}<footer>{number} / {len(slides)}</footer><aside>{notes or 'No notes.'}</aside></section>" for number, (body, notes, _) in enumerate(slides, 1))
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(PAGE % {"title": html.escape(title), "slides": blocks})
    print(f"{sys.argv[2]}: {len(slides)} slides")


if __name__ == "__main__":
    main()
