"""The terminal: it is found as it was left, whatever happens; sizes, locales, colours, keys."""
import os
import re
import signal
import subprocess
import termios
import time

import pytest


def restored(t):
    """Cooked, back on the main screen, cursor on, no bracketed paste, no mouse."""
    fresh = os.openpty()
    assert termios.tcgetattr(t.fd) == termios.tcgetattr(fresh[1])	# all that `stty -a` shows
    for fd in fresh:
        os.close(fd)
    last = lambda on, off: t.raw.rfind(on) <= t.raw.rfind(off)
    assert last(b"\x1b[?1049h", b"\x1b[?1049l")
    assert last(b"\x1b[?25l", b"\x1b[?25h")
    assert last(b"\x1b[?2004h", b"\x1b[?2004l")
    mouse = re.findall(rb"\x1b\[\?[0-9;]*1000[0-9;]*([hl])", t.raw)
    assert not mouse or mouse[-1] == b"l"


@pytest.mark.parametrize("sig", ["TERM", "HUP", "SEGV", "ABRT"])
def test_signals_leave_the_terminal_as_it_was(chat, sig):
    t = chat()
    t.wait("Type a question")
    a = termios.tcgetattr(t.fd)
    assert not a[3] & termios.ECHO and not a[3] & termios.ICANON
    t.kill(getattr(signal, "SIG" + sig))
    assert t.end() == -getattr(signal, "SIG" + sig)
    restored(t)


def test_quitting_leaves_the_terminal_as_it_was(chat):
    t = chat()
    t.wait("Type a question")
    t.send("\x04")	# Ctrl-D on an empty line
    assert t.end() == 0
    restored(t)


def test_q_quits_only_where_nothing_is_typed(chat):
    t = chat()
    t.wait("Type a question")
    t.send("q")
    t.wait("▸ q")
    t.send("\x15")	# Ctrl-U
    t.settle()
    t.send("\x1b")
    t.wait("q quit")
    t.send("q")
    assert t.end() == 0


def test_ctrl_c_once_stops_twice_quits(chat):
    t = chat("-n", "3000", pace=50)
    t.wait("Type a question")
    t.send("hello\r")
    t.wait("writing")
    t.send("\x03")
    t.wait("Ctrl-C once more")
    t.wait("ready")
    assert "hello" in t.text()
    t.send("\x03")
    assert t.end() == 0


def test_esc_answers_at_once(chat):
    t = chat("-n", "3000", pace=50)
    t.wait("Type a question")
    t.send("hello\r")
    t.wait("writing")
    start = time.monotonic()
    t.send("\x1b")
    t.wait("ready")
    assert time.monotonic() - start < 1	# 25 ms to tell Esc from Alt, a frame, the step that was running


def test_resize_storm(replay):
    t = replay()
    t.wait("ready")
    for cols, rows in [(1, 1), (300, 100), (2, 50), (80, 3), (24, 6), (23, 6), (100, 30), (120, 40)] * 4:
        t.resize(cols, rows)
        t.settle(0.02)
    t.wait(lambda s: "Effective stride" in s and "ready" in s)
    t.resize(20, 5)
    t.wait("have 20x5")
    assert "need 24x6" in t.text()
    t.resize(100, 30)
    t.wait("Conversation")
    t.send("q")
    assert t.end() == 0


def test_resize_storm_while_a_reply_runs(chat):
    t = chat("-n", "3000", "-p", "hello", pace=100)
    t.wait("writing")
    for cols, rows in [(1, 1), (300, 100), (40, 10), (80, 24), (61, 19), (120, 40)] * 4:
        t.resize(cols, rows)
        t.settle(0.02)
    t.wait(lambda s: "Effective stride" in s and "writing" in s)
    t.send("\x1b")
    t.wait(lambda s: "ready" in s.split("\n")[0])
    t.send("\x04")
    assert t.end() == 0
    restored(t)


def test_suspend_resize_foreground(term, script, tmp_path):
    # a shell with job control, as a user has it
    from .conftest import DATA, PROGRAM
    t = term("--norc", "--noprofile", "-i", program="/bin/bash", env={"PS1": "sh> "})
    t.wait("sh>")
    t.send(f"{PROGRAM} replay {DATA / 'session.jsonl'} --speed 0\n")
    t.wait("Effective stride")
    t.send("\x1a")
    t.wait("Stopped")
    t.send("stty -a | grep -c -- ' echo '\n")
    t.settle(0.5)
    t.resize(90, 30)
    t.send("fg\n")
    t.wait(lambda s: "Effective stride" in s and "Conversation" in s)
    assert all(len(line) <= 90 for line in t.text().split("\n"))
    t.send("q")
    t.wait("sh>")


@pytest.mark.parametrize("env", [{"LC_ALL": "C"}, {"LC_ALL": None, "LC_CTYPE": None, "LANG": "C"}])
def test_without_utf8_everything_is_ascii(replay, env):
    t = replay(env=env)
    t.wait("ready")
    t.settle()
    assert t.text().isascii()
    assert not re.search(rb"[\x80-\xff]", t.raw)


def test_lc_ctype_alone_is_enough_for_utf8(replay):
    t = replay(env={"LC_ALL": None, "LANG": None, "LC_CTYPE": "C.UTF-8"})
    t.wait("ready")
    assert "─" in t.text()


COLOR = rb"\x1b\[[0-9;]*(3[0-8]|4[0-8]|9[0-7]|10[0-7])(;[0-9;]*)?m"


def test_no_color(replay):
    t = replay(env={"NO_COLOR": "1"})
    t.wait("ready")
    assert not re.search(COLOR, t.raw.replace(b"\x1b[39;49m", b""))


def test_color_options(replay):
    t = replay("--color", "always", env={"NO_COLOR": "1"})
    t.wait("ready")
    assert re.search(COLOR, t.raw)
    t = replay("--color", "never")
    t.wait("ready")
    assert not re.search(COLOR, t.raw.replace(b"\x1b[39;49m", b""))


@pytest.mark.parametrize("name", ["xterm", "vt100", "linux", "tmux-256color", "screen"])
def test_other_terminals(replay, name):
    # On "linux" ncurses loads libgpm and unloads it again: what that leaks (10 bytes) no suppression can name.
    t = replay(env={"TERM": name, "ASAN_OPTIONS": "detect_leaks=0" if name == "linux" else ""})
    t.wait("ready")
    t.send("q")
    assert t.end() == 0


@pytest.mark.parametrize("name,says", [("dumb", "cannot show a screen"), ("no-such-terminal", "not in the terminal database"), ("", "cannot show")])
def test_terminals_that_cannot(replay, name, says):
    t = replay(env={"TERM": name})
    assert t.end() == 1
    assert says in t.text()
    assert b"\x1b[" not in t.raw


def test_errors_before_the_screen_leave_the_terminal_alone(term):
    t = term("chat", "-m", "/nonexistent.gguf")
    assert t.end() == 3
    assert "nonexistent" in t.text()
    assert b"\x1b" not in t.raw


def test_document_from_a_pipe_keys_from_the_terminal(chat, tmp_path):
    doc = tmp_path / "doc.txt"
    doc.write_text("A short document.\n")
    t = chat(stdin=doc)
    t.wait("standard input is the document")
    t.send("what?\r")
    t.wait(lambda s: "what?" in s and ("writing" in s or "ready" in s))
    t.wait("ready")
    t.send("\x04")
    assert t.end() == 0


def test_not_a_terminal_is_said(tiny):
    from .conftest import PROGRAM
    r = subprocess.run([PROGRAM, "chat", "-m", tiny], capture_output=True, stdin=subprocess.DEVNULL)
    assert r.returncode == 2 and b"refreshkv run" in r.stderr and b"\x1b" not in r.stdout + r.stderr


def test_wide_characters_stay_aligned(chat):
    t = chat()
    t.wait("Type a question")
    t.send("漢字 and 👍 and e\u0301 end")
    t.wait("漢")
    # the divider between the columns stands in one column of the emulator
    at = {line.find("│") for line in (l for l in t.screen.display[2:-1])}
    columns = {x for y in range(2, 38) for x in range(120) if t.screen.buffer[y][x].data == "│" and x > 40}
    assert len(columns) == 1, (columns, at)


def test_the_terminal_going_away_ends_the_program(chat):
    t = chat()
    t.wait("Type a question")
    os.close(t.fd)
    end = time.monotonic() + 20
    while True:
        pid, st = os.waitpid(t.pid, os.WNOHANG)
        if pid:
            break
        assert time.monotonic() < end
        time.sleep(0.05)
    t.status = 0
    t.fd = os.open("/dev/null", os.O_RDONLY)
