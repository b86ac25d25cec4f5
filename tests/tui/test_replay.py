"""A recording on the screen: its pace, holding, stepping, seeking; and what it refuses."""
import re


def used(t):
    m = re.search(r"context +([\d,]+)", t.text())
    return int(m.group(1).replace(",", "")) if m else 0


def test_seek_shows_that_place_and_no_more(replay):
    t = replay()
    t.wait("ready")
    end = used(t)
    t.send(" :seek 50\r")	# held, or it would run on at once
    t.wait(lambda s: "context" in s and 0 < used(t) < end)
    t.settle(0.5)
    half = used(t)
    assert end - 90 < half < end - 20
    assert t.text().count("This is RefreshKV, a powerful") == 1
    t.send(".")
    t.settle(0.3)
    assert used(t) == half + 1
    t.send(" ")
    t.wait(lambda s: used(t) == end)


def test_recorded_pace(term):
    import time
    from .conftest import DATA
    start = time.monotonic()
    t = term("replay", DATA / "session.jsonl", "--speed", "2")
    t.wait("ready")
    took = time.monotonic() - start
    assert 0.6 < took < 20	# 90 tokens at some 15 ms each, and the prefill


def test_what_a_recording_cannot_do_is_said(replay):
    t = replay()
    t.wait("ready")
    for keys, says in (":policy vanilla\r", "cannot be changed"), ("r", "cannot be asked"), (":ask x\r", "cannot be asked"), (":new\r", "own session"):
        t.send(keys)
        t.wait(says)
    t.send(":dmup\r")
    t.wait("did you mean 'dump'")
    t.send("q")
    assert t.end() == 0


def test_alternatives_are_text_where_the_model_is_here(chat, replay, term, tiny, tmp_path):
    trace = tmp_path / "t.jsonl"
    t = chat("-n", "4", "-p", "hello", "--trace", trace)
    t.wait("ready")
    t.send("\x04")
    assert t.end() == 0

    def top5(*args):
        t = term("replay", trace, "--speed", "0", *args)
        t.wait("ready")
        t.send("o")
        return next(line for line in t.wait("top 5").split("\n") if line.startswith("top 5"))

    assert "#" in top5() and '"' not in top5()	# the default model is not the recorded one
    assert '"' in top5("-m", tiny)
    t = replay("-m", tiny)
    assert t.end() == 2
    assert "not the recorded model" in t.text()


def test_a_live_session_cannot_be_sought_in(chat):
    t = chat()
    t.wait("Type a question")
    t.send("\t:seek 10\r")
    t.wait("only a recording")


def test_themes_and_zoom(replay):
    t = replay()
    t.wait("ready")
    for name in "high-contrast", "light", "mono", "default":
        t.send("T")
        t.wait(f"theme {name}")
    t.send("\t\tz")
    t.wait(lambda s: "Effective stride" in s and "Timeline" not in s)
    t.send("z")
    t.wait("Timeline")


def test_digits_and_text_go_to_their_places(replay):
    t = replay()
    t.wait("ready")
    end = used(t)
    t.send(" 5")
    t.wait(lambda s: 0 < used(t) < end)
    t.settle(0.5)
    half = used(t)
    assert end - 90 < half < end - 20
    t.send("0")
    t.wait(lambda s: used(t) < half)
    t.send(":seek /powerful\r")
    t.wait("powerful")
    t.settle(0.5)
    at = used(t)
    assert at < half and "powerful tool" not in t.text()
    t.send(":seek /powerful\r")
    t.wait("powerful does not come in the rest of the recording")
    t.settle(0.5)
    assert used(t) == at
    t.send(":seek 100\r")
    t.wait(lambda s: used(t) == end)


def test_two_side_by_side(term, tmp_path):
    from .conftest import DATA
    cut = tmp_path / "cut.jsonl"
    cut.write_text((DATA / "session.jsonl").read_text()[:-30])
    t = term("replay", DATA / "session.jsonl", cut, "--speed", "0")
    t.wait("ready")
    s = t.wait("same so far")
    assert "differs at" in s and s.count("This is RefreshKV, a powerful") == 2 and "beside" in s.split("\n")[0]
    assert s.count("the end is missing") >= 1


def test_a_lost_start_is_said(term, tmp_path):
    from .conftest import DATA
    path = tmp_path / "a.jsonl"
    path.write_text("".join(line for line in (DATA / "session.jsonl").read_text().splitlines(True) if not line.startswith('{"ev":"start"')))
    t = term("replay", path, "--speed", "0")
    t.wait("start of the session was lost")
    assert "This is RefreshKV, a powerful" in t.wait("ready")


def test_seeking_keeps_the_note_on_what_is_missing(term, tmp_path):
    from .conftest import DATA
    late = tmp_path / "late.jsonl"
    late.write_text((DATA / "session.jsonl").read_text().replace('"policies":', '"after":5,"policies":', 1))
    t = term("replay", late, "--speed", "0")
    t.wait("ready")
    end = used(t)
    t.send(" 5")
    t.wait(lambda s: 0 < used(t) < end)
    assert t.settle(0.3).count("recorded after 5 tokens") == 1
