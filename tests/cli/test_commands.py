"""What each command prints, with a tiny random model."""
import csv
import io
import json
import math
import os
import pty
import re
import signal
import subprocess
import time

import pytest

PAPER = ["vanilla", "streamingllm", "h2o", "snapkv", "refreshkv", "refreshkv-fixed", "refreshkv-norefresh", "refreshkv-nofull"]
PRESETS = PAPER + ["refreshkv-dynamic", "glance"]
COMMANDS = ["run", "ppl", "compare", "info", "tokenize"]


def answer(refreshkv, *args, **kw):
    return json.loads(refreshkv.ok("run", "--json", "-q", *args, **kw).stdout)


# ---- help ----

def test_help_and_version(refreshkv):
    top = refreshkv.ok("--help")
    assert top.stderr == b"" and all(name.encode() in top.stdout for name in COMMANDS + PRESETS)
    assert refreshkv.ok("-h").stdout == top.stdout
    assert refreshkv.ok("--version").stdout.startswith(b"refreshkv ")
    for name in COMMANDS:
        r = refreshkv.ok(name, "--help")
        assert r.stderr == b"" and f"refreshkv {name}".encode() in r.stdout


def test_no_command_on_a_terminal_is_help(refreshkv):
    master, slave = pty.openpty()
    p = refreshkv.popen(stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = p.communicate(timeout=60)
    os.close(master), os.close(slave)
    assert (p.returncode, err) == (0, b"") and b"Commands:" in out


# ---- tokenize ----

def test_tokenize_and_back(refreshkv, tiny):
    text = "Hello world! Café déjà vu — 123\r\n\tend 👩‍👩‍👧".encode()
    ids = refreshkv.ok("tokenize", "-m", tiny, stdin=text).stdout
    assert ids.endswith(b"\n") and ids.count(b"\n") == 1
    assert refreshkv.ok("tokenize", "-m", tiny, "--decode", stdin=ids).stdout == text


def test_tokenize_special(refreshkv, tiny):
    text = b"<|im_end|>"
    assert refreshkv.ok("tokenize", "-m", tiny, stdin=text).stdout == b"2\n"
    plain = refreshkv.ok("tokenize", "-m", tiny, "--no-special", stdin=text).stdout
    assert len(plain.split()) > 1
    assert refreshkv.ok("tokenize", "-m", tiny, "--decode", stdin=b"[2, 2]").stdout == 2 * text


# ---- info ----

def test_info(refreshkv, tiny):
    assert b"not there" in refreshkv.ok("info").stdout	# the test's home is empty
    r = refreshkv.ok("info", "-m", tiny).stdout
    for word in (b"smollm", b"chatml", b"memory plan", b"F32"):
        assert word in r


def test_info_json(refreshkv, tiny):
    d = json.loads(refreshkv.ok("info", "--json", "-m", tiny, "--ctx", "512", "-n", "12", "--policy", "vanilla", "--policy", "h2o").stdout)
    assert set(PRESETS) <= {p["name"] for p in d["presets"]}
    m, plan = d["model"], d["plan"]
    assert (m["n_layer"], m["n_embd"], m["n_head"], m["n_kv_head"], m["head_dim"]) == (3, 64, 4, 2, 16)
    assert sum(t["bytes"] for t in m["tensors"].values()) < m["file_bytes"] == tiny.stat().st_size
    assert (plan["n_prompt"], plan["n_new"]) == (500, 12)
    row = 3 * 2 * 16 * 2 * 2	# layers x KV heads x head size x (K and V) x f16
    assert plan["prompt_cache_bytes"] == 500 * row
    vanilla, h2o = plan["lanes"]
    assert 12 * row <= vanilla["tail_bytes"] < 12 * row + 4096 and vanilla["partial_bytes"] == 0
    assert h2o["tail_bytes"] == 0 and (62 + 1) * row <= h2o["partial_bytes"]
    assert plan["sketch_bytes"] == 0
    parts = sum(plan[k] for k in ("weights_bytes", "prompt_cache_bytes", "sketch_bytes", "activations_bytes", "backend_bytes"))
    assert plan["total_bytes"] == parts + sum(x["tail_bytes"] + x["partial_bytes"] for x in plan["lanes"])
    assert "model" not in json.loads(refreshkv.ok("info", "--json").stdout)


# ---- run ----

def test_run_streams_what_json_says(refreshkv, tiny, text):
    args = ("-m", tiny, "-f", text, "-p", "Who wrote?", "-n", "24")
    r = refreshkv.ok("run", *args)
    d = answer(refreshkv, *args)
    assert r.stdout.decode().rstrip("\n") == d["text"].rstrip("\n")
    assert len(d["ids"]) == len(d["logprob"]) == len(d["margin"]) == 24 and d["end"] == "length"
    assert d["steps"] == len(d["full_layers_per_step"]) == 23
    assert d["policy"].startswith("refreshkv:") and "qc=5" in d["policy"] and "s=0.85" in d["policy"]
    assert all(i % 5 == 4 for i, _, _ in d["cos"]) and len(d["cos"]) == 4 * 3
    assert d["kl"] is None and d["same_top1"] is None	# no baseline: unknown, not 0
    for word in ("prompt", "reply", "cache read", "effective stride", "cache held", "peak memory", "logits hash"):
        assert word in r.stderr.decode()
    assert refreshkv.ok("run", *args, "-q").stderr == b""


def test_a_prompt_too_short_for_a_fraction_is_said_first(refreshkv, tiny):
    args = ("-m", tiny, "-p", "Hi", "-n", "4", "--system", "")
    says = b"too few for a sensible reply; refreshkv:k=64 does not"
    assert refreshkv.ok("run", *args).stderr.startswith(b"refreshkv: policy refreshkv keeps ") and says in refreshkv.ok("run", *args).stderr
    assert refreshkv.ok("run", *args, "-q").stderr == b""
    assert says not in refreshkv.ok("run", *args, "--policy", "refreshkv:k=64").stderr
    of_two = refreshkv.ok("compare", *args, "--policy", "snapkv", "--policy", "h2o").stderr
    assert of_two.count(b"too few") == 1 and b"policy snapkv keeps" in of_two
    assert b"too few" not in refreshkv.ok("bench", "-m", tiny, "-c", "24", "-n", "4", "--policy", "snapkv").stderr	# no reply to be read


def test_decisions_follow_the_cosines(refreshkv, tiny, text):
    d = answer(refreshkv, "-m", tiny, "-f", text, "-n", "40", "--policy", "refreshkv:qc=3,s=0.6")
    below = [[layer for i, layer, c in d["cos"] if i == step and c < 0.6] for step in range(d["steps"])]
    assert d["full_layers_per_step"] == below


def test_stdin_is_the_document(refreshkv, tiny, text):
    doc = text.read_bytes()
    args = ("-m", tiny, "-p", "Who?", "-n", "8", "-q")
    want = refreshkv.ok("run", "-f", text, *args).stdout
    assert refreshkv.ok(*args, stdin=doc).stdout == want
    assert refreshkv.ok("run", *args, stdin=doc).stdout == want
    assert refreshkv.ok("run", "-f", "-", *args, stdin=doc).stdout == want
    assert refreshkv.ok("run", *args).stdout != want	# /dev/null is no document


def test_prompt_is_document_blank_line_question(refreshkv, tiny, tmp_path):
    doc = tmp_path / "doc.txt"
    doc.write_text("The document.\n\n")
    shown = refreshkv.ok("run", "-m", tiny, "-f", doc, "-p", "The question?", "--show-prompt").stdout.decode()
    assert "<|im_start|>user\nThe document.\n\nThe question?<|im_end|>\n<|im_start|>assistant\n" in shown
    ids = shown.splitlines()[-1].encode()
    assert refreshkv.ok("tokenize", "-m", tiny, "--decode", stdin=ids).stdout.decode() + "\n" == shown.removesuffix(ids.decode() + "\n")
    raw = json.loads(refreshkv.ok("run", "-m", tiny, "-f", doc, "-p", "And", "--raw", "--show-prompt", "--json").stdout)
    assert raw["text"] == "The document.\n\nAnd"
    (tmp_path / "ids").write_text(json.dumps(raw["ids"]))
    assert answer(refreshkv, "-m", tiny, "--ids", tmp_path / "ids", "-n", "9")["ids"] == \
        answer(refreshkv, "-m", tiny, "-f", doc, "-p", "And", "--raw", "-n", "9")["ids"]


def test_lossy(refreshkv, tiny):
    args = ("run", "-m", tiny, "--raw", "--show-prompt", "--json", "--lossy")
    assert json.loads(refreshkv.ok(*args, stdin=b"a\xffb\0c").stdout)["text"] == "a\ufffdb\ufffdc"


def test_sampling_is_seeded(refreshkv, tiny, text):
    def ids(seed, temp="1.5"):
        return answer(refreshkv, "-m", tiny, "-f", text, "-n", "20", "--temp", temp, "--top-k", "50", "--seed", seed)["ids"]
    assert ids(1) == ids(1)
    assert ids(1) != ids(2)
    assert ids(1, "0") == ids(2, "0")


# ---- ppl ----

def test_ppl(refreshkv, tiny, text, tmp_path):
    out, rows = tmp_path / "out.json", tmp_path / "out.csv"
    r = refreshkv.ok("ppl", "-m", tiny, "-f", text, "--ctx", "200", "--eval", "30", "--offset", "0,100", "--json", out, "--csv", rows)
    d = json.loads(out.read_text())
    assert [(w["offset"], w["ctx"], w["eval"]) for w in d["windows"]] == [(0, 200, 30), (100, 200, 30)]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.csv", "out.json", "text.txt"]
    for w in d["windows"]:
        assert list(w["policies"]) == PAPER
        base = w["policies"]["vanilla"]
        assert base["ratio"] == 1 and base["kl"] == 0 and base["same_top1"] == 1
        for spec, p in w["policies"].items():
            mean = sum(p["nll"]) / 30
            assert len(p["nll"]) == 30 and math.isclose(p["ppl"], math.exp(mean), rel_tol=1e-5)
            assert math.isclose(p["ratio"], math.exp(mean - sum(base["nll"]) / 30), rel_tol=1e-5)
            assert len(p["full_layers_per_step"]) == 29 and p["kl"] >= 0 and 0 <= p["same_top1"] <= 1
        kept = 3 * 2 * (25 + 1) * 16 * 2 * 2	# K + 1 entries per layer and KV head: K, V, f16
        assert math.isclose(w["policies"]["refreshkv-norefresh"]["bytes_read_per_step"], kept, rel_tol=0.05)
        assert w["policies"]["refreshkv-norefresh"]["effective_stride"] is None	# never a full step: unknown
        assert w["policies"]["refreshkv-fixed"]["full_layers_per_step"] == [[0, 1, 2] if i % 10 == 9 else [] for i in range(29)]
    table = list(csv.DictReader(io.StringIO(rows.read_text())))
    assert len(table) == 16
    for row in table:
        p = d["windows"][row["offset"] == "100"]["policies"][row["policy"]]
        assert math.isclose(float(row["ppl"]), p["ppl"], rel_tol=1e-6)
        assert (row["effective_stride"] == "") == (p["effective_stride"] is None)
    for spec, p in d["summary"].items():
        nll = [x for w in d["windows"] for x in w["policies"][spec]["nll"]]
        assert math.isclose(p["ppl"], math.exp(sum(nll) / 60), rel_tol=1e-5)
    assert b"all 2 windows" in r.stdout and b"n/a" in r.stdout


def test_ppl_adds_the_baseline_and_says_so(refreshkv, tiny, text):
    r = refreshkv.ok("ppl", "-m", tiny, "-f", text, "--ctx", "60", "--eval", "5", "--policy", "snapkv:k=20", "--json", "-")
    d = json.loads(r.stdout)
    assert list(d["windows"][0]["policies"]) == ["vanilla", "snapkv:k=20"] and d["baseline"] == "vanilla"
    assert b"added as the baseline" in r.stderr and b"snapkv:k=20" in r.stderr


def test_ppl_ids_are_the_text(refreshkv, tiny, text, tmp_path):
    ids = tmp_path / "ids.json"
    ids.write_text(str(refreshkv.ok("tokenize", "-m", tiny, stdin=text.read_bytes()).stdout.decode().split()).replace("'", ""))
    args = ("ppl", "-m", tiny, "--ctx", "50", "--eval", "6", "--policy", "vanilla", "--json", "-")
    nll = [json.loads(refreshkv.ok(*args, *src).stdout)["windows"][0]["policies"]["vanilla"]["nll"]
           for src in (("-f", text), ("--ids", ids))]
    assert nll[0] == nll[1]


def test_ppl_agrees_with_run(refreshkv, tiny, text, tmp_path):
    """Teacher forcing a lane with its own greedy reply gives the same log-probabilities."""
    ids = refreshkv.ok("tokenize", "-m", tiny, stdin=text.read_bytes()).stdout.split()[:100]
    (tmp_path / "prompt").write_bytes(b" ".join(ids))
    d = answer(refreshkv, "-m", tiny, "--ids", tmp_path / "prompt", "-n", "20", "--exact")
    (tmp_path / "all").write_bytes(b" ".join(ids) + b" " + " ".join(map(str, d["ids"])).encode())
    p = json.loads(refreshkv.ok("ppl", "-m", tiny, "--ids", tmp_path / "all", "--ctx", "100", "--eval", "20", "--exact",
                                "--policy", "refreshkv", "--json", "-").stdout)
    nll = p["windows"][0]["policies"]["refreshkv"]["nll"]
    assert all(math.isclose(-a, b, rel_tol=1e-5, abs_tol=1e-5) for a, b in zip(d["logprob"], nll))


# ---- compare ----

def test_compare_free(refreshkv, tiny, text):
    args = ("compare", "-m", tiny, "-f", text, "-p", "Who?", "-n", "16", "--policy", "vanilla", "--policy", "refreshkv:k=16")
    d = json.loads(refreshkv.ok(*args, "--json").stdout)
    a, b = d["lanes"]
    assert a["diverges_at"] is None and a["ratio"] is None and b["ratio"] is None and b["kl"] is None
    at = b["diverges_at"]
    assert a["ids"][:at] == b["ids"][:at] and (at is None or a["ids"][at] != b["ids"][at])
    alone = answer(refreshkv, "-m", tiny, "-f", text, "-p", "Who?", "-n", "16", "--policy", "refreshkv:k=16")
    assert alone["ids"] == b["ids"] and alone["logprob"] == b["logprob"] and alone["logits_hash"] == b["logits_hash"]
    r = refreshkv.ok(*args).stdout.decode()
    assert "--- 1: vanilla" in r and "--- 2: refreshkv:k=16" in r and "n/a" in r


@pytest.mark.parametrize("follow", ["first", "text"])
def test_compare_forced(refreshkv, tiny, text, tmp_path, follow):
    more = ()
    if follow == "text":
        (tmp_path / "next").write_text("The sea wrote back, 144 lines.")
        more = ("--text", tmp_path / "next")
    d = json.loads(refreshkv.ok("compare", "-m", tiny, "-f", text, "-p", "Who?", "-n", "16", "--follow", follow, *more, "--json").stdout)
    a, b = d["lanes"]
    assert a["spec"] == "vanilla" and b["spec"] == "refreshkv"
    assert a["ids"] == b["ids"] and a["ratio"] == 1 and b["ratio"] > 0 and a["kl"] == 0 and b["kl"] > 0
    if follow == "text":
        assert d["lanes"][0]["text"] == (tmp_path / "next").read_text()[:len(d["lanes"][0]["text"])]


# ---- the same whatever the way ----

def test_deterministic(refreshkv, make_tiny, text):
    tiny = make_tiny(type="q4_1")
    for extra in ((), ("--exact",)):
        runs = [answer(refreshkv, "-m", tiny, "-f", text, "-n", "24", "-t", t, *extra) for t in (1, 1, 2)]
        assert runs[0]["ids"] == runs[1]["ids"] == runs[2]["ids"]
        assert runs[0]["logits_hash"] == runs[1]["logits_hash"] == runs[2]["logits_hash"]


@pytest.mark.parametrize("length", [31, 32, 33, 511, 512, 513])
def test_chunks_do_not_show(refreshkv, make_tiny, text, tmp_path, length):
    tiny = make_tiny(type="q4_1")
    ids = refreshkv.ok("tokenize", "-m", tiny, stdin=text.read_bytes()).stdout.split()
    (tmp_path / "ids").write_bytes(b" ".join(ids[:length]))
    for policy in ("vanilla", "h2o", "refreshkv:qc=2"):
        runs = [answer(refreshkv, "-m", tiny, "--ids", tmp_path / "ids", "-n", "12", "--chunk", c, "--policy", policy) for c in (1, 32, 512)]
        assert runs[0]["ids"] == runs[1]["ids"] == runs[2]["ids"], policy


# ---- being a good process ----

def test_piped_output_has_no_escapes(refreshkv, tiny, text):
    r = refreshkv.ok("compare", "-m", tiny, "-f", text, "-p", "Who?", "-n", "4")
    assert b"\x1b[" not in r.stdout and b"\x1b" not in r.stderr and b"\r" not in r.stderr


def test_progress_only_on_a_terminal(refreshkv, tiny, text):
    master, slave = pty.openpty()
    p = refreshkv.popen("run", "-m", tiny, "-f", text, "-n", "2", "--chunk", "64", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    seen = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:	# the other end is closed
            break
        if not data:
            break
        seen += data
    os.close(master)
    assert p.wait(60) == 0 and re.search(rb"\rprefill \d+ of", seen) and b"\x1b" not in seen


def start_long_reply(refreshkv, make_tiny, text, *more):
    p = refreshkv.popen("run", "-m", make_tiny(n_ctx=200000), "-f", text, "-n", "150000", *more,
                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert p.stdout.read(1)	# the reply has begun
    return p


def test_interrupt_stops_the_reply(refreshkv, make_tiny, text):
    p = start_long_reply(refreshkv, make_tiny, text)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 130 and out and b"ended by: stopped" in err and b"logits hash" in err


def test_interrupted_measurement_writes_nothing(refreshkv, make_tiny, tmp_path):
    text = tmp_path / "long.txt"
    text.write_text("All work and no play makes a dull day. " * 2000)
    p = refreshkv.popen("ppl", "-m", make_tiny(n_ctx=200000), "-f", text, "--ctx", "4000", "--eval", "8000", "--json", tmp_path / "out.json",
                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not any(f.name.startswith("out.json") for f in tmp_path.iterdir()):
        time.sleep(0.01)
    time.sleep(0.5)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 130 and out == b""
    assert [f.name for f in tmp_path.iterdir()] == ["long.txt"]


def test_reader_that_leaves_ends_the_run_quietly(refreshkv, make_tiny, text):
    p = start_long_reply(refreshkv, make_tiny, text)
    p.stdout.close()
    assert p.wait(60) == 1
    assert p.stderr.read() == b""
