"""Golden screens: recorded sessions replayed in a pseudo-terminal, driven by key scripts, dumped as text.

RK_UPDATE_GOLDEN=1 writes the files anew; look at the difference before committing it.
"""
import os
import pathlib
import re

import pytest

GOLDEN = pathlib.Path(__file__).parent / "golden"

CASES = {
    "wide": (200, 60, "session.jsonl", ()),
    "usual": (120, 40, "session.jsonl", ()),
    "small": (80, 24, "session.jsonl", ()),
    "narrow": (50, 16, "session.jsonl", ()),
    "token": (120, 40, "session.jsonl", (":goto 41", "key o")),
    "timeline": (120, 40, "session.jsonl", (":zoom timeline", ":goto 41")),
    "occupancy": (120, 40, "session.jsonl", (":zoom occupancy",)),
    "help": (100, 40, "session.jsonl", ("key ?",)),
    "words": (100, 40, "session.jsonl", ("key ? G",)),
    "tour": (100, 30, "session.jsonl", ("key t l l",)),
    "search": (120, 40, "session.jsonl", ("key /", "type refreshkv", "key Enter")),
    "compare": (120, 40, "compare.jsonl", ()),
    "one-lane": (120, 40, "compare.jsonl", ("key c v",)),
    "ascii": (120, 40, "session.jsonl", ()),
}


@pytest.mark.parametrize("name", CASES)
def test_screen(name, replay, script, tmp_path):
    cols, rows, trace, keys = CASES[name]
    out = tmp_path / "screen.txt"
    t = replay("--keys", script("wait idle", *keys, "wait 50", f":dump {out}", ":quit"), trace=trace, cols=cols, rows=rows,
               env={"LC_ALL": "C"} if name == "ascii" else {})
    assert t.end() == 0
    # what differs from run to run: this process' memory
    got = re.sub(r"(memory +)\S+ \S+  peak \S+ \S+", r"\1(memory)", out.read_text())
    got = re.sub(r"\(memory\) +", "(memory) ", got)
    want = GOLDEN / f"{name}.txt"
    if os.environ.get("RK_UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        want.write_text(got)
    assert got == want.read_text()


def test_the_terminal_shows_what_the_dump_says(replay, script, tmp_path):
    out = tmp_path / "screen.txt"
    t = replay("--keys", script("wait idle", ":pane stride", "wait 200", f":dump {out}", "wait 100"))
    t.wait("the screen is in")
    t.settle(1)
    t.send("s")	# the message goes
    t.send("s")
    t.settle(1)
    seen, dumped = t.text().split("\n"), out.read_text().split("\n")
    assert [a for a in seen[:-1] if "memory" not in a] == [b for b in dumped[:len(seen) - 1] if "memory" not in b]
