#!/usr/bin/env python3
"""Renders a screen of a recorded session as SVG, for the README:

    tests/tui/shot.py OUT.svg [TRACE [KEYS...]]

Each of KEYS is sent to the program as it is, after a pause.  $REFRESHKV is the program.
"""
import html
import os
import sys

from conftest import DATA, PROGRAM, Term

COLS, ROWS, CELL_W, CELL_H, PAD = 120, 40, 8.4, 17, 8
FG, BG = "#d4d7dc", "#16181c"
NAMED = {"black": "#000000", "red": "#cd3131", "green": "#0dbc79", "brown": "#e5e510", "blue": "#2472c8", "magenta": "#bc3fbc",
         "cyan": "#11a8cd", "white": "#e5e5e5"}


def color(name, default):
    return default if name == "default" else NAMED.get(name, f"#{name}")


def runs(row):
    """(first column, text, style) of stretches of one style."""
    x = 0
    while x < COLS:
        style = lambda c: (c.fg, c.bg, c.bold, c.reverse, c.underscore)
        first, s, text = x, style(row[x]), ""
        while x < COLS and style(row[x]) == s:
            text += row[x].data
            x += 1
        yield first, text, s, x - first


def svg(screen):
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{COLS * CELL_W + 2 * PAD:.0f}" height="{ROWS * CELL_H + 2 * PAD}" '
           f'font-family="DejaVu Sans Mono, monospace" font-size="14">',
           f'<rect width="100%" height="100%" rx="6" fill="{BG}"/>']
    for y in range(ROWS):
        for x, text, (fg, bg, bold, reverse, underline), n in runs(screen.buffer[y]):
            ink, ground = color(fg, FG), color(bg, BG)
            if reverse:
                ink, ground = ground, ink
            at, w = PAD + x * CELL_W, n * CELL_W
            if ground != BG:
                out.append(f'<rect x="{at:.1f}" y="{PAD + y * CELL_H}" width="{w:.1f}" height="{CELL_H}" fill="{ground}"/>')
            if text.strip():
                extra = (' font-weight="bold"' if bold else "") + (' text-decoration="underline"' if underline else "")
                out.append(f'<text x="{at:.1f}" y="{PAD + y * CELL_H + 13}" fill="{ink}" xml:space="preserve" textLength="{w:.1f}" '
                           f'lengthAdjust="spacingAndGlyphs"{extra}>{html.escape(text)}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    target, trace, *keys = [*sys.argv[1:], str(DATA / "session.jsonl")][:max(2, len(sys.argv) - 1)]
    env = {"HOME": "/nonexistent", "PATH": os.environ["PATH"], "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "TZ": "UTC",
           "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))}	# where the model is
    t = Term([PROGRAM, "replay", trace, "--speed", "0"], COLS, ROWS, env)
    t.wait("ready")
    for k in keys:
        t.send(k)
        t.settle()
    t.settle(0.5)
    with open(target, "w") as f:
        f.write(svg(t.screen))
    t.close()


if __name__ == "__main__":
    main()
