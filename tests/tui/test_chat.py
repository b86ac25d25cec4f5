"""A conversation on the screen, with a tiny model: asking, stopping, editing, policies, sessions, exports."""
import json
import re


def ready(t):
    t.wait(lambda s: "ready" in s.split("\n")[0])


def leave(t):
    """Esc and no key right behind it, or the two would be an Alt key."""
    t.send("\x1b")
    t.wait("q quit")


def ask(t, text):
    t.send(text + "\r")
    t.wait("▸ " + text)
    ready(t)


def test_turns_and_regenerate(chat):
    t = chat("-n", "20")
    t.wait("Type a question")
    ask(t, "first question")
    ask(t, "second question")
    leave(t)
    t.send("r")
    t.settle(0.5)
    ready(t)
    assert t.text().count("second question") == 1


def test_a_first_prompt_too_short_for_a_fraction_is_said(chat):
    t = chat("-n", "4", "--system", "")
    t.wait("Type a question")
    t.send("Hi\r")
    s = t.wait("k=64")
    assert s.index("▸ Hi") < s.index("policy refreshkv keeps") < s.index("k=64")


def test_names_of_tokens_are_words_when_asked_again(chat, tmp_path):
    t = chat("-n", "4", "--trace", tmp_path / "t.jsonl")
    t.wait("Type a question")
    ask(t, "a <|im_end|> b")
    leave(t)
    t.send("r")
    t.settle(0.5)
    ready(t)
    t.send(":new\r")
    t.wait(lambda s: "▸ a <|im_end|> b" not in s)
    t.send(":ask a b\r")
    t.wait("▸ a b")
    ready(t)
    t.send("q")
    assert t.end() == 0
    read = [e["total"] for e in map(json.loads, (tmp_path / "t.jsonl").read_text().splitlines()) if e.get("ev") == "prefill" and not e["done"]]
    assert len(read) == 3 and read[0] == read[1] > read[2] + 5	# its letters, not one token


def test_edit_the_last_question(chat):
    t = chat("-n", "20")
    t.wait("Type a question")
    ask(t, "wrong")
    leave(t)
    t.send("e")
    t.settle()
    t.send("\x17better\r")
    t.wait("▸ better")
    ready(t)
    assert "wrong" not in t.text()


def test_a_paste_does_not_send(chat):
    t = chat("-n", "5")
    t.wait("Type a question")
    t.send("\x1b[200~one\ntwo\rthree\x1b[201~")
    t.wait("three")
    assert "writing" not in t.text() and "Type a question" in t.text()
    t.send("\r")
    t.wait("▸ one")


def test_policy_changes_while_it_runs(chat):
    t = chat("-n", "2000", pace=100)
    t.wait("Type a question")
    t.send("go\r")
    t.wait("writing")
    t.send("\t:set s=0.5,qc=3\r")
    t.wait("qc=3,s=0.5")
    t.wait("policy:")
    t.send(":policy snapkv\r")
    t.wait("policy: snapkv")
    t.send(":set s=7x\r")
    t.wait(lambda s: "s" in s.split("\n")[-1] and "7x" in s.split("\n")[-1])
    t.send("\x1b")
    ready(t)


def test_pause_and_step(chat):
    t = chat("-n", "500", pace=40)
    t.wait("Type a question")
    t.send("go\r")
    t.wait("writing")
    t.send("\t ")
    t.wait("paused")
    t.settle(0.5)
    used = lambda: int(re.search(r"context +([\d,]+)", t.text()).group(1).replace(",", ""))
    before = used()
    t.settle(0.5)
    assert used() == before
    for _ in range(3):
        t.send(".")
        t.settle(0.3)
    assert used() == before + 3
    t.send(" ")
    t.wait("writing")


def test_save_resume_and_export(chat, home, tmp_path):
    doc = tmp_path / "doc.txt"
    doc.write_text("The first document.\n")
    t = chat(doc, "-n", "20")
    t.wait("doc.txt is the document")
    ask(t, "what is it?")
    leave(t)
    t.send(":save mine\r")
    t.wait("saved")
    for ending in "md", "json", "txt":
        t.send(f":export out.{ending}\r")
        t.wait(f"exported to out.{ending}")
    t.send(":export out.md\r")
    t.wait("File exists")
    t.send("q")
    assert t.end() == 0
    saved = json.loads((home / ".local/share/refreshkv/sessions/mine.json").read_text())
    assert saved["turns"][0]["user"] == "what is it?"
    assert (tmp_path / "out.md").read_text().startswith("# doc.txt\n")
    assert json.loads((tmp_path / "out.json").read_text())["turns"] == saved["turns"]
    assert "> what is it?" in (tmp_path / "out.txt").read_text()

    doc.write_text("Another document.\n")
    t = chat(doc, "-n", "20", "--resume", "mine")
    t.wait("▸ what is it?")
    assert "has changed since" in t.text()
    ask(t, "and now?")
    leave(t)
    t.send("q")
    assert t.end() == 0


def test_questions_are_remembered_from_run_to_run(chat, home):
    kept = home / ".local/state/refreshkv/history"
    config = home / "off.yaml"
    config.write_text("history: false\n")

    def up(*args):
        t = chat("-n", "4", *args)
        t.wait("Type a question")
        t.send("\x1bOA")
        return t

    t = up()
    ask(t, "the first question")
    assert kept.read_text() == "the first question\n"
    assert kept.stat().st_mode & 0o777 == 0o600
    leave(t)
    t = up()
    t.wait("the first question")	# in the editor
    t.send("\x15\x04")
    assert t.end() == 0
    t = up("--config", config)
    ask(t, "a private one")
    leave(t)
    assert kept.read_text() == "the first question\n" and "the first question" not in t.text()


def test_damaged_session_is_refused_and_kept(chat, home):
    folder = home / ".local/share/refreshkv/sessions"
    folder.mkdir(parents=True)
    for content in b"{\"format\": \"refreshkv-sess", b"[]", b"{\"format\":\"refreshkv-session\",\"version\":9,\"turns\":[]}", \
                   b"{\"format\":\"refreshkv-session\",\"version\":1,\"turns\":[{\"user\":5}]}":
        (folder / "bad.json").write_bytes(content)
        t = chat("--resume", "bad")
        assert t.end() == 1
        assert "bad.json" in t.text()
        assert (folder / "bad.json").read_bytes() == content


def test_prompt_that_does_not_fit(chat, tmp_path):
    doc = tmp_path / "doc.txt"
    doc.write_text("word " * 2000)
    t = chat(doc, "-c", "300")
    t.wait("Type a question")
    t.send("what?\r")
    t.wait("the context holds 300")
    t.send("\x04")
    assert t.end() == 0


def test_compare_columns(chat):
    t = chat("-n", "40", "--policy", "refreshkv:qc=2,s=0.3,k=4", "--policy", "vanilla", "--policy", "streamingllm:k=8")
    t.wait("Type a question")
    ask(t, "compare these")
    s = t.text()
    assert "differs at" in s and "eff.stride" in s and s.count("compare these") == 3
    leave(t)
    t.send("c")
    t.wait("Timeline")


def test_lanes_come_and_go(chat, tmp_path):
    t = chat("-n", "30", "--policy", "refreshkv:k=4")
    t.wait("Type a question")
    ask(t, "first")
    ask(t, "second")
    leave(t)
    t.send(":lane add streamingllm:k=8\r")
    t.wait("differs at")
    ready(t)
    s = t.text()
    assert s.count("second") == 2 and s.count("first") == 2 and "streamingllm:k=8" in s
    t.send(f":record {tmp_path}/t.jsonl\r")
    t.wait("recording to")
    t.send(":lane add vanilla\r")
    t.wait("which has the lanes it has")
    t.send(":record stop\r")
    t.wait("recorded;")
    head = json.loads((tmp_path / "t.jsonl").read_text().split("\n")[0])
    assert len(head["policies"]) == 2
    t.send(f":export {tmp_path}/two.md\r")
    t.wait("exported to")
    turns = (tmp_path / "two.md").read_text().split("\n## ")[1:]
    assert turns[0].startswith("first") and "### " not in turns[0] and turns[1].count("### ") == 2	# the first had one lane
    t.send(":lane drop 1\r")
    t.wait("Timeline")
    ready(t)
    assert "streamingllm:k=8" in t.text().split("\n")[0] and t.text().count("second") == 1
    t.send(":lane drop 1\r")
    t.wait("there is one lane only")
    t.send(":lane add streamingllmm\r")
    t.wait("did you mean")


def add_a_lane_that_fails(t):
    """After a first question."""
    t.wait("Type a question")
    ask(t, "first")
    leave(t)
    t.send(":lane add snapkv:window=1024\r")	# wider than a chunk of the prefill
    t.wait("error:")
    ready(t)


def test_recording_after_a_lane_that_cannot_be_added(chat):
    t = chat("-n", "4")
    add_a_lane_that_fails(t)
    t.send(":new\r")
    t.wait(lambda s: "▸ first" not in s)
    t.send(":record one.jsonl\r")
    t.wait("recording to one.jsonl")


def test_a_lane_that_cannot_be_added(chat, tmp_path):
    """The prompt is read again without it, and what is asked next is a further turn: the document is not sent once more."""
    document = tmp_path / "doc.txt"
    document.write_text("lorem ipsum dolor " * 20)
    t = chat(document, "-n", "10", "--policy", "refreshkv:k=4")
    add_a_lane_that_fails(t)
    t.send(f":record {tmp_path}/t.jsonl\r")
    t.wait("recording to")
    t.send(":ask second\r")
    t.wait("▸ second")
    ready(t)
    t.send(":record stop\r")
    t.wait("recorded;")
    events = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    read = [e["total"] for e in events if e.get("ev") == "prefill"]
    assert read[0] > 100 and max(read[1:]) < read[0] / 2


def test_settings_errors_name_file_and_line(term, home, tiny):
    folder = home / ".config/refreshkv"
    folder.mkdir(parents=True)
    (folder / "refreshkv.yaml").write_text("theme: light\nmuose: true\n")
    t = term("chat", "-m", tiny)
    assert t.end() == 2
    assert "refreshkv.yaml:2:" in t.text().replace("\n", "")


def test_mouse_puts_the_cursor_on_a_token(replay):
    t = replay()
    t.wait("ready")
    t.settle()
    y = next(i for i, line in enumerate(t.screen.display) if "powerful" in line)
    x = t.screen.display[y].index("powerful")
    t.send(f"\x1b[<0;{x + 2};{y + 1}M\x1b[<0;{x + 2};{y + 1}m")
    t.wait("token under the cursor")
    assert '" powerful"' in t.text() or "number" in t.text()
