"""Traces from the command line: record, replay, statistics and exports of real sessions of a tiny and of the default model."""
import csv
import hashlib
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import time
import xml.etree.ElementTree

import pytest

BIN = os.environ.get("REFRESHKV", "./refreshkv")
MODEL = os.environ.get("RK_MODEL", "")
ROOT = pathlib.Path(__file__).parent.parent.parent
TEXT = (ROOT / "docs" / "handbook.md").read_text()[:1200]

pytestmark = pytest.mark.skipif(not pathlib.Path(MODEL).is_file(), reason="no model: set RK_MODEL")


def run(*args, status=0, **kw):
    p = subprocess.run([BIN, *map(str, args)], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, **kw)
    assert p.returncode == status, p.stderr
    return p


def record(tmp, name, *args, command="run"):
    doc = tmp / "doc.txt"
    doc.write_text(TEXT)
    path = tmp / name
    p = run(command, "-m", MODEL, "-f", doc, "-p", "What is this about?", "--threads", 1, "--trace", path, *args)
    return path, p


@pytest.fixture(scope="module")
def shadowed(tmp_path_factory):
    """A reply with shadow and positions, and what `run` printed."""
    tmp = tmp_path_factory.mktemp("run")
    return record(tmp, "a.jsonl", "-n", 48, "--trace-shadow", "--trace-positions", "--trace-prompt")


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Three lanes on the same tokens, compressed, and the JSON of `compare`."""
    tmp = tmp_path_factory.mktemp("compare")
    path, p = record(tmp, "b.jsonl.zst", "-n", 40, "--follow", "first", "--policy", "vanilla", "--policy", "refreshkv", "--policy", "h2o",
                     "--json", command="compare")
    return path, json.loads(p.stdout)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_replay_prints_what_run_printed(shadowed):
    path, live = shadowed
    again = run("replay", path)
    assert again.stdout == live.stdout
    kept = [line for line in live.stderr.splitlines() if not line.startswith("peak memory")]
    assert again.stderr.splitlines() == kept
    assert run("replay", "-q", path).stderr == ""


def test_header_names_what_was_run(shadowed):
    path, _ = shadowed
    head = lines(path)[0]
    assert head["schema"] == "refreshkv-trace" and head["version"] == 1 and head["command"] == "run"
    assert head["model"]["sha256"] == hashlib.sha256(pathlib.Path(MODEL).read_bytes()).hexdigest()
    assert head["document"]["sha256"] == hashlib.sha256(TEXT.encode()).hexdigest()
    ids = head["prompt"]["ids"]
    assert head["prompt"]["sha256"] == hashlib.sha256(b"".join(i.to_bytes(4, "little") for i in ids)).hexdigest()
    start = next(e for e in lines(path)[1:] if e["ev"] == "start")
    assert start["n_prompt"] == len(ids)
    assert head["policies"] == start["policies"] and head["policies"][0].startswith("refreshkv:")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", head["started"])


def test_lines_follow_the_schema(shadowed):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "docs" / "trace.schema.json").read_text())
    check = jsonschema.Draft202012Validator(schema)
    check.check_schema(schema)
    seen = set()
    for line in lines(shadowed[0]):
        assert list(check.iter_errors(line)) == []
        seen.add(line.get("ev", "header"))
    assert seen >= {"header", "start", "prefill", "token", "step", "occupancy", "positions", "shadow", "end", "idle"}
    for wrong in ({"ev": "token", "lane": 0, "t": 1}, {"ev": "what", "lane": 0, "t": 1}, {"ev": "idle", "lane": 9, "t": 1}, {}):
        assert not check.is_valid(wrong)


def test_a_token_takes_at_most_700_bytes(tmp_path):
    path, _ = record(tmp_path, "a.jsonl", "-n", 64, "--trace-shadow")
    n_token = sum('"ev":"token"' in line[:20] for line in path.read_text().splitlines())
    size = sum(len(line) + 1 for line in path.read_text().splitlines() if re.match(r'{"ev":"(token|step|shadow|occupancy)"', line))
    assert n_token >= 10 and size / n_token <= 700


def test_stats_equal_what_compare_printed(compared):
    path, live = compared
    stats = json.loads(run("stats", "--json", path).stdout)
    assert [p["policy"] for p in stats["policies"]] == [lane["policy"] for lane in live["lanes"]]
    for got, want in zip(stats["policies"], live["lanes"]):
        for key in ("ratio", "kl", "same_top1", "ms_per_token", "bytes_read_per_step", "bytes_vanilla_per_step", "effective_stride"):
            assert got[key] == pytest.approx(want[key], rel=1e-6) if want[key] is not None else got[key] is None, key
        assert got["tokens"] == len(want["ids"])
        full = [sum(layer in step for step in want["full_layers_per_step"]) for layer in range(len(got["effective_stride_per_layer"]))]
        assert got["effective_stride_per_layer"] == [pytest.approx(want["steps"] / n, rel=1e-6) if n else None for n in full]
    assert stats["policies"][0]["ratio"] == 1


def test_stats_take_files_together(compared, shadowed):
    both = json.loads(run("stats", "--json", "--window", 16, compared[0], compared[0], shadowed[0]).stdout)
    one = json.loads(run("stats", "--json", "--window", 16, compared[0]).stdout)
    assert both["policies"][0]["tokens"] == 2 * one["policies"][0]["tokens"]
    assert both["policies"][0]["ppl"] == pytest.approx(one["policies"][0]["ppl"], rel=1e-6)
    assert [w["from"] for w in one["policies"][1]["ratio_over_position"]] == list(range(0, one["policies"][1]["tokens"], 16))
    table = run("stats", compared[0], shadowed[0]).stdout
    assert "Effective stride per layer" in table and "Perplexity ratio over position" in table


def test_windows_of_ppl_are_sessions(tmp_path):
    text = tmp_path / "t.txt"
    text.write_text(TEXT * 2)
    path = tmp_path / "p.jsonl"
    p = run("ppl", "-m", MODEL, "-f", text, "-c", 100, "--eval", 20, "--offset", "0,60", "--policy", "refreshkv", "--threads", 1,
            "--json", "-", "--trace", path)
    live = json.loads(p.stdout)["summary"]
    stats = json.loads(run("stats", "--json", path).stdout)["policies"]
    assert [s["tokens"] for s in stats] == [40, 40]
    assert stats[1]["ppl"] == pytest.approx(live["refreshkv"]["ppl"], rel=1e-6)
    assert stats[1]["ratio"] == pytest.approx(live["refreshkv"]["ratio"], rel=1e-6)
    assert stats[1]["effective_stride"] == pytest.approx(live["refreshkv"]["effective_stride"], rel=1e-6)


def test_existing_files_are_kept(tmp_path):
    (tmp_path / "a.jsonl").write_text("precious")
    p = run("run", "-m", MODEL, "-p", "Hi", "-n", 1, "--trace", tmp_path / "a.jsonl", status=2)
    assert "--force" in p.stderr and p.stdout == ""
    assert (tmp_path / "a.jsonl").read_text() == "precious"
    run("run", "-m", MODEL, "-p", "Hi", "-n", 1, "--threads", 1, "--trace", tmp_path / "a.jsonl", "--force")
    assert lines(tmp_path / "a.jsonl")[-1]["ev"] == "idle"
    assert "need --trace" in run("run", "-m", MODEL, "-p", "Hi", "--trace-positions", status=2).stderr


def test_a_full_disk_ends_the_recording_only():
    p = run("run", "-m", MODEL, "-p", "Hi", "-n", 8, "--threads", 1, "--trace", "/dev/full")
    assert p.stdout.strip() != ""
    assert p.stderr.count("recording stopped: /dev/full: No space left on device") == 1


def test_a_killed_recording_can_be_read(tmp_path):
    doc = tmp_path / "doc.txt"
    doc.write_text(TEXT)
    path = tmp_path / "a.jsonl.zst"
    p = subprocess.Popen([BIN, "run", "-m", MODEL, "-f", doc, "-p", "Tell me everything.", "-n", "5000", "--temp", "1", "--threads", "1",
                          "--trace", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    p.stdout.read(40)	# some of the reply is there
    time.sleep(0.2)
    p.send_signal(signal.SIGKILL)
    p.wait()
    again = run("replay", path)
    assert len(again.stdout) >= 20 and "the end is missing" in again.stderr and "ended by: unfinished" in again.stderr


def test_newer_and_foreign_files_are_refused(tmp_path, shadowed):
    text = shadowed[0].read_text()
    newer = tmp_path / "newer.jsonl"
    newer.write_text(text.replace('"version":1', '"version":7', 1))
    assert f"{newer}:1: refreshkv-trace version 7" in run("replay", newer, status=1).stderr
    broken = tmp_path / "broken.jsonl"
    rows = text.splitlines(keepends=True)
    broken.write_text("".join(rows[:5]) + "{]\n" + "".join(rows[5:]))
    for command in (["replay"], ["stats"], ["export", "-o", tmp_path / "x"], ["export", "--to", "asciicast", "-o", tmp_path / "x"]):
        assert f"{broken}:6: not JSON" in run(*command, broken, status=1).stderr
    assert not (tmp_path / "x").exists()
    assert "not a trace" in run("stats", MODEL, status=1).stderr


def test_a_lost_start_is_said_and_the_rest_given(tmp_path, shadowed):
    path = tmp_path / "a.jsonl"
    kept = [line for line in shadowed[0].read_text().splitlines(keepends=True) if not line.startswith('{"ev":"start"')]
    path.write_text("".join(kept))
    whole, part = (json.loads(run("stats", "--json", p).stdout)["policies"] for p in (shadowed[0], path))
    assert part == whole
    assert "start of the session was lost" in run("stats", path).stderr
    again = run("replay", path)
    assert again.stdout == shadowed[1].stdout
    assert re.search(r"^prompt +n/a tokens", again.stderr, re.M) and re.search(r"^cache held +full n/a, partial n/a$", again.stderr, re.M)
    for to in ("html", "csv", "chrome", "svg", "asciicast"):
        run("export", path, "--to", to)


def test_two_traces_of_one_prompt(tmp_path, shadowed):
    base, p = record(tmp_path, "v.jsonl", "-n", 48, "--policy", "vanilla")
    ids = [[e["id"] for e in lines(path) if e.get("ev") == "token"] for path in (shadowed[0], base)]
    n = next((i for i, (a, b) in enumerate(zip(*ids)) if a != b), min(map(len, ids)) if len(ids[0]) != len(ids[1]) else None)
    both = run("replay", shadowed[0], base)
    texts = both.stdout.split("--- ")
    assert texts[1].startswith(f"1: {shadowed[0]}: refreshkv:") and texts[1].endswith(shadowed[1].stdout)
    assert texts[2].startswith(f"2: {base}: vanilla") and p.stdout in texts[2]
    assert texts[2].splitlines()[-1].startswith("(never leaves 1" if n is None else f"(leaves 1 at token {n}: ")
    figures = [line for line in (shadowed[1].stderr + p.stderr).splitlines() if not line.startswith("peak memory")]
    assert both.stderr.splitlines() == figures	# of each its own prefill, caches and all
    assert json.loads(run("stats", "--json", shadowed[0], base).stdout)["divergences"] == [{"file": str(base), "same_prompt": True, "token": n}]
    assert f"{base}: {'none' if n is None else f'token {n}'}" in run("stats", shadowed[0], base).stdout
    other = tmp_path / "other.jsonl"
    run("run", "-m", MODEL, "-p", "Hi", "-n", 1, "--threads", 1, "--trace", other)
    assert "different prompts" in run("replay", base, other, status=2).stderr
    assert json.loads(run("stats", "--json", base, other).stdout)["divergences"][0]["same_prompt"] is False


def test_given_tokens_are_compared_by_what_each_would_have_taken(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("The program answers questions about long documents, and it shows what is kept of them.")
    both = ["--policy", "vanilla"], ["--policy", "streamingllm:k=8"]
    paths = [record(tmp_path, name, "--follow", "text", "--text", text, *a, *b, command="compare")[0]
             for name, a, b in (("a.jsonl", *both), ("b.jsonl", *reversed(both)))]
    own = [[e["top"][0] for e in lines(path) if e.get("ev") == "token" and e["lane"] == 0] for path in paths]
    n = next(i for i, (a, b) in enumerate(zip(*own)) if a != b)
    assert f"(leaves 1 at token {n}: " in run("replay", *paths, "--plain").stdout
    assert json.loads(run("stats", "--json", *paths).stdout)["divergences"][0]["token"] == n


def rows_of(path):
    with open(path, newline="") as f:
        return list(csv.DictReader(f))


def test_csv_tables(tmp_path, shadowed):
    path, live = shadowed
    run("export", path, "--to", "csv", "-o", tmp_path / "x")
    events = lines(path)[1:]
    tokens, steps, refreshes = (rows_of(tmp_path / f"x.{t}.csv") for t in ("token", "step", "refresh"))
    assert "".join(r["text"] for r in tokens) == live.stdout.rstrip("\n")
    assert [int(r["id"]) for r in tokens] == [e["id"] for e in events if e["ev"] == "token"]
    shadow = {e.get("i", 0): e["lp"] for e in events if e["ev"] == "shadow"}
    assert [float(r["logprob_full"]) for r in tokens] == pytest.approx([shadow[int(r["index"])] for r in tokens])
    n_layer = lines(path)[0]["model"]["n_layer"]
    assert len(steps) == n_layer * sum(e["ev"] == "step" for e in events)
    full = sum(bin(int(e.get("full", "0"), 16)).count("1") for e in events if e["ev"] == "step")
    assert sum(r["kind"] == "full" for r in steps) == full
    assert len(refreshes) == lines(path)[0]["model"]["n_kv_head"] * sum(e["ev"] == "positions" for e in events)
    for r in refreshes:
        kept = [n for part in r["kept"].split() for a, _, b in [part.partition("-")] for n in range(int(a), int(b or a) + 1)]
        assert len(kept) == int(r["n_kept"]) == len(set(kept))
    assert "standard output" in run("export", path, "--to", "csv", "-o", "-", status=2).stderr


def test_chrome_slices_nest_and_match(tmp_path, compared):
    path, live = compared
    run("export", path, "--to", "chrome", "-o", tmp_path / "x.json")
    events = json.loads((tmp_path / "x.json").read_text())["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X", "C", "i"}
    n_layer = len([e for e in events if e["ph"] == "M" and e["name"] == "thread_name" and e["pid"] == 0]) - 1
    tracks = {}
    for e in events:
        assert isinstance(e["pid"], int)
        if e["ph"] == "X":
            assert e["ts"] >= 0 and e["dur"] > 0
            tracks.setdefault((e["pid"], e["tid"]), []).append(e)
    for slices in tracks.values():	# on a track, slices lie inside each other or apart
        open_until = []
        for e in sorted(slices, key=lambda e: (e["ts"], -e["dur"])):
            while open_until and open_until[-1] <= e["ts"] + 1e-3:
                open_until.pop()
            assert not open_until or e["ts"] + e["dur"] <= open_until[-1] + 1e-3
            open_until.append(e["ts"] + e["dur"])
    for lane, want in enumerate(live["lanes"]):
        for layer in range(n_layer):
            got = [e["args"]["step"] for e in tracks[lane, layer] if e["name"] == "full"]
            assert got == [i for i, step in enumerate(want["full_layers_per_step"]) if layer in step]
    ratios = [e["args"]["running"] for e in events if e["ph"] == "C" and e["name"] == "perplexity ratio" and e["pid"] == 1]
    assert ratios[-1] == pytest.approx(live["lanes"][1]["ratio"], rel=1e-5)


def test_svg_is_xml(tmp_path, compared, shadowed):
    for path in (compared[0], shadowed[0]):
        for pane in ("timeline", "stride", "occupancy", "ratio"):
            root = xml.etree.ElementTree.fromstring(run("export", path, "--to", "svg", "--pane", pane, "-o", "-").stdout)
            assert root.tag.endswith("svg") and float(root.get("height")) > 100


def test_html_needs_nothing_else(tmp_path, shadowed):
    path, live = shadowed
    page = run("export", path, "-o", "-").stdout
    assert "{{" not in page and page.startswith("<!DOCTYPE html>") and page.rstrip().endswith("</html>")
    assert re.findall(r'(?:src|href)\s*=|url\(|@import|fetch\(|https?://(?!www\.w3\.org/2000/svg)', page) == []
    data = json.loads(re.search(r"^const D = (.*);$", page, re.M).group(1))
    assert "".join(t[0] for t in data["lanes"][0]["tokens"]) == live.stdout.rstrip("\n")
    assert len(data["lanes"][0]["cells"]) == data["layers"] == lines(path)[0]["model"]["n_layer"]


def test_asciicast_is_the_replayed_screen(tmp_path, shadowed):
    pyte = pytest.importorskip("pyte")
    path, live = shadowed
    cast = run("export", path, "--to", "asciicast", "--size", "140x45", "-o", "-").stdout
    head, *rows = (json.loads(line) for line in cast.splitlines())
    recorded = lines(path)
    assert (head["version"], head["width"], head["height"], head["title"]) == (2, 140, 45, recorded[0]["model"]["name"])
    assert time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(head["timestamp"])) == recorded[0]["started"][:19]
    times = [t for t, _, _ in rows]
    assert times == sorted(times) and times[0] == 0 and {code for _, code, _ in rows} == {"o"}
    assert times[-1] == pytest.approx(recorded[-1]["t"] / 1e9, abs=0.1)	# a frame later at most
    assert all(b - a >= 0.066 for a, b in zip(times, times[1:-1]))
    assert rows[-1][2] == "\033[m\033[45;1H\033[?25h" and "\033[?1049" not in cast and "\\u001B[?1049" not in cast
    screen = pyte.Screen(140, 45)
    stream = pyte.Stream(screen)
    seen = []
    for _, _, text in rows:
        stream.feed(text)
        seen.append("\n".join(screen.display))
    assert "ready" in seen[-1] and "ready" not in seen[len(seen) // 2]
    assert "policy refreshkv" in seen[-1] and "Effective stride" in seen[-1] and "Occupancy" in seen[-1]
    chat = " ".join(" ".join(row.split("│")[0] for row in screen.display).split())
    assert " ".join(live.stdout.split())[-60:] in chat
    assert all(row.count("│") <= 1 and len(row) == 140 for row in screen.display)

    # neither a terminal nor the user's settings nor the clock decide what is in it
    other = {"LINES": "9", "COLUMNS": "30", "TERM": "dumb", "COLORTERM": "truecolor", "NO_COLOR": "1", "LC_ALL": "C"}
    assert run("export", path, "--to", "asciicast", "--size", "140x45", "-o", "-", env={**os.environ, **other}).stdout == cast
    fast = run("export", path, "--to", "asciicast", "--speed", 4, "-o", "-").stdout.splitlines()
    assert json.loads(fast[-1])[0] == pytest.approx(recorded[-1]["t"] / 4e9, abs=0.1) and json.loads(fast[0])["width"] == 120
    assert "No space left" in run("export", path, "--to", "asciicast", "-o", "/dev/full", status=1).stderr
    for size in ("10x10", "120", "120x", "x40", "120x40x", "501x40", "120x201", "-120x40", "99999999999999999999x40"):
        assert "--size" in run("export", path, "--to", "asciicast", "--size", size, status=2).stderr


@pytest.mark.skipif(not shutil.which("asciinema"), reason="no asciinema")
def test_asciinema_plays_the_cast(tmp_path, shadowed):
    cast = tmp_path / "a.cast"
    run("export", shadowed[0], "--to", "asciicast", "-o", cast)
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe("asciinema", ["asciinema", "play", "-s", "1000", "-i", "0.01", str(cast)],
                   {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"})
    shown = b""
    try:
        while data := os.read(fd, 65536):
            shown += data
    except OSError:
        pass	# the player has gone
    os.close(fd)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert "".join(json.loads(line)[2] for line in cast.read_text().splitlines()[1:]).encode() in shown


@pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium")
def test_html_opens_in_a_browser_without_errors(tmp_path, compared):
    page = tmp_path / "a.html"
    run("export", compared[0], "--to", "html", "-o", page)

    def open_page():
        p = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile", "--enable-logging=stderr",
                            "--virtual-time-budget=2000", "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120)
        return p.stdout, [line for line in p.stderr.splitlines() if ":CONSOLE" in line]

    dom, errors = open_page()
    assert errors == [] and dom.count('class="pane"') == 4
    page.write_text(page.read_text().replace("<script>", "<script>console.error('probe');", 1))
    assert len(open_page()[1]) == 1	# one that is there is seen


def test_names_of_exports(shadowed):
    path, _ = shadowed
    run("export", path)
    run("export", path, "--to", "svg", "--pane", "stride")
    run("export", path, "--to", "chrome")
    run("export", path, "--to", "asciicast")
    assert {p.name for p in path.parent.iterdir()} >= {"a.html", "a.stride.svg", "a.chrome.json", "a.cast"}
