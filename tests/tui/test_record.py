"""Recording from the screen: `:record` at any moment gives a trace that is whole from there on."""
import hashlib
import json
import pathlib
import shutil
import subprocess

import pytest

from .conftest import PROGRAM, ROOT


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def say(t, command, says):
    t.send(f":{command}\r")
    return t.wait(says)


def refreshkv(*args):
    return subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.fixture
def running(chat):
    """A reply of two lanes that runs for long, with the keyboard in the panes."""
    t = chat("-n", "3000", "--policy", "refreshkv:qc=2,s=0.3,k=4", "--policy", "streamingllm:k=8", pace=60)
    t.wait("Type a question")
    t.send("go\r")
    t.wait("writing")
    t.send("\t")
    t.wait("q quit")
    return t


def test_in_the_middle_of_a_reply(running, tmp_path):
    t, path = running, tmp_path / "mid.jsonl"
    say(t, "set qc=3", "qc=3")
    say(t, "record mid.jsonl", "recording to mid.jsonl, after")
    assert "recording  writing" in t.text().split("\n")[0]
    t.wait(lambda s: path.exists() and path.read_text().count('"ev":"token","lane":0') > 25)
    say(t, "record", "recording to mid.jsonl;")
    say(t, "record other.jsonl", "recording to mid.jsonl already")
    say(t, "record stop", "refreshkv replay mid.jsonl")
    assert "recording" not in t.text().split("\n")[0]

    head, *events = lines(path)
    assert head["command"] == "chat" and head["after"] > 0 and "qc=3" in head["policies"][0]
    assert [e["ev"] for e in events[:3]] == ["start", "prefill", "token"] and events[0]["policies"] == head["policies"]
    assert events[2]["lane"] == 0 and events[2]["i"] == head["after"]
    ids = [[e["i"] for e in events if e["ev"] == "token" and e["lane"] == lane] for lane in (0, 1)]
    assert ids[0] == list(range(head["after"], head["after"] + len(ids[0]))) and ids[1][0] == ids[0][0]
    assert {e["i"] for e in events if e["ev"] == "shadow"} & set(ids[0])
    jsonschema = pytest.importorskip("jsonschema")
    check = jsonschema.Draft202012Validator(json.loads((ROOT / "docs/trace.schema.json").read_text()))
    assert [list(check.iter_errors(line)) for line in (head, events[0], events[2])] == [[], [], []]

    again = refreshkv("replay", path)
    assert again.returncode == 0 and f"after {head['after']} tokens of the session" in again.stderr
    stats = json.loads(refreshkv("stats", "--json", path).stdout)["policies"]
    assert stats[0]["tokens"] == len(ids[0]) and stats[0]["ratio"] is not None


def test_between_two_replies(chat, tmp_path):
    t, path = chat("-n", "20"), tmp_path / "turn.jsonl.zst"
    t.wait("Type a question")
    t.send("first\r")
    t.wait("▸ first")
    t.wait(lambda s: "ready" in s.split("\n")[0])
    t.send("\t")
    say(t, "record turn.jsonl.zst", "recording to turn.jsonl.zst, after")
    say(t, "ask second", "▸ second")
    t.wait(lambda s: "ready" in s.split("\n")[0])
    t.send("q")
    assert t.end() == 0
    plain = subprocess.run(["zstd", "-dcq", path], capture_output=True, text=True, check=True).stdout
    head, *events = map(json.loads, plain.splitlines())
    assert [e["ev"] for e in events[:3]] == ["start", "prefill", "idle"] and events[-1]["ev"] == "idle"
    assert next(e for e in events if e["ev"] == "token").get("i", 0) == 0
    assert refreshkv("replay", path).returncode == 0


def test_after_a_new_session(chat, tmp_path):
    """What was forgotten is not in a trace that begins afterwards; a policy that was changed is."""
    t, path = chat("-n", "20", "--policy", "refreshkv:k=4"), tmp_path / "new.jsonl"
    t.wait("Type a question")
    t.send("first\r")
    t.wait("▸ first")
    t.wait(lambda s: "ready" in s.split("\n")[0])
    t.send("\t")
    say(t, "set qc=3", "qc=3")
    t.send(":new\r")
    say(t, "record new.jsonl", lambda s: "recording to new.jsonl" in s and "after" not in s)
    say(t, "ask second, which is longer than the first", "▸ second")
    t.wait(lambda s: "ready" in s.split("\n")[0])
    say(t, "record stop", "recorded;")
    head, *events = lines(path)
    starts = [e for e in events if e["ev"] == "start"]
    assert "after" not in head and "qc=3" in head["policies"][0] and len(starts) == 1
    assert starts[0]["policies"] == head["policies"]
    assert "after" not in refreshkv("replay", path).stderr


def test_the_model_is_hashed_once(term, tiny, tmp_path):
    """A second recording says which model it is of, though the file is no longer there to be read."""
    model = tmp_path / "model.gguf"
    shutil.copy(tiny, model)
    t = term("chat", "-m", model, "--threads", "1")
    t.wait("Type a question")
    t.send("\t")
    for name in "one.jsonl", "two.jsonl":
        say(t, f"record {name}", f"recording to {name}")
        t.wait(lambda s: (tmp_path / name).exists() and (tmp_path / name).read_text().endswith("\n"))
        say(t, "record stop", f"refreshkv replay {name}")
        model.unlink(missing_ok=True)
    one, two = (lines(tmp_path / name)[0]["model"] for name in ("one.jsonl", "two.jsonl"))
    assert one["sha256"] == hashlib.sha256(tiny.read_bytes()).hexdigest() and two == one


def test_nothing_is_overwritten(running, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("precious")
    say(running, "record a.jsonl", "a.jsonl: exists; `:record! FILE` overwrites it")
    say(running, "record", "nothing is recorded")
    say(running, "record stop", "nothing is recorded")
    assert path.read_text() == "precious"
    say(running, "record! a.jsonl", "recording to a.jsonl")
    say(running, "record stop", "recorded;")
    assert lines(path)[0]["schema"] == "refreshkv-trace"
    say(running, "record missing/a.jsonl", "missing/a.jsonl: cannot write: No such file")


def test_a_full_disk_ends_the_recording_only(running):
    say(running, "record /dev/full", "recording stopped: /dev/full: No space")
    running.wait(lambda s: "  writing" in s.split("\n")[0] and "recording" not in s.split("\n")[0])


def test_the_option_can_be_ended_and_a_recording_not_recorded(chat, replay, tmp_path):
    t = chat("-n", "20", "--trace", tmp_path / "all.jsonl", "-p", "hello")
    t.wait(lambda s: "recording  ready" in s.split("\n")[0])
    t.send("\t")
    say(t, "record stop", "recorded;")
    assert "after" not in lines(tmp_path / "all.jsonl")[0] and lines(tmp_path / "all.jsonl")[-1]["ev"] == "idle"
    again = replay()
    again.wait("ready")
    say(again, "record x.jsonl", "a recording cannot be recorded")
    assert not pathlib.Path(tmp_path / "x.jsonl").exists()
