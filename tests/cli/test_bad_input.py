"""Bad input: one clear line on stderr, the documented exit status, and nothing half-written."""
import os
import resource
import struct

import pytest
from conftest import one_line

FAILED, USAGE, MODEL, MEMORY = 1, 2, 3, 4


# ---- options ----

@pytest.mark.parametrize("args, words", [
    (["rum"], ["unknown command 'rum'", "'run'"]),
    (["--polcy", "h2o"], ["--polcy", "--policy"]),
    (["run", "--treads", "2"], ["--treads", "--threads"]),
    (["run", "-p"], ["-p"]),
    (["run", "-p", "x", "extra"], ["extra"]),
    (["run", "-p", "x", "-n", "0"], ["-n", "0", "1"]),
    (["run", "-p", "x", "-n", "many"], ["many"]),
    (["run", "-p", "x", "--temp", "-1"], ["temp", "-1"]),
    (["run", "-p", "x", "--top-p", "1.5"], ["top-p", "1.5"]),
    (["run", "-p", "x", "--policy", "refreshvk"], ["refreshvk", "refreshkv"]),
    (["run", "-p", "x", "--policy", "refreshkv:strid=3"], ["strid", "stride"]),
    (["run", "-p", "x", "--policy", "refreshkv:k=0"], ["k=0"]),
    (["run", "-p", "x", "--policy", "refreshkv:s=3"], ["s=3"]),
    (["run", "-p", "x", "--policy", "refreshkv:group=median"], ["group", "median"]),
    (["run", "-p", "x", "--policy", "vanilla:k=3"], ["vanilla", "k"]),
    (["run"], ["-p"]),
    (["run", "--ids", "x", "-p", "y"], ["--ids", "-p"]),
    (["ppl", "--ctx", "10"], ["-f"]),
    (["ppl", "-f", "x", "--ids", "y"], ["--ids"]),
    (["ppl", "-f", "x", "--offset", "1,b"], ["--offset", "1,b"]),
    (["ppl", "-f", "x", "--policy", "h2o", "--policy", "h2o"], ["h2o", "twice"]),
    (["ppl", "-f", "x"] + [f"--policy=h2o:k={i}" for i in range(1, 9)], ["vanilla", "8"]),
    (["ppl", "-f", "x"] + [f"--policy=h2o:k={i}" for i in range(1, 11)], ["10", "8"]),
    (["ppl", "-f", "x", "--json", "-", "--csv", "-"], ["--json", "--csv"]),
    (["compare", "-p", "x", "--follow", "last"], ["last", "first"]),
    (["compare", "-p", "x", "--follow", "text"], ["--text"]),
    (["info", "--ctx", "100", "-n", "100"], ["--ctx", "100"]),
    (["chat", "--trace", "x.jsonl", "--trace-prompt"], ["--trace-prompt", "chat"]),
    (["ppl", "-f", "x.txt", "--trace", "x.jsonl", "--trace-prompt"], ["--trace-prompt", "ppl"]),
    (["demo", "--trace", "x.jsonl", "--trace-prompt"], ["--trace-prompt", "demo"]),
])
def test_usage(refreshkv, tiny, args, words):
    if args[0] in ("run", "ppl", "compare", "info"):
        args = args[:1] + ["-m", tiny] + args[1:]
    err = one_line(refreshkv(*args), USAGE)
    assert all(w in err for w in words), err


def test_sinks_need_room(refreshkv, tiny):
    err = one_line(refreshkv("run", "-m", tiny, "-p", "x", "--policy", "streamingllm:k=4"), USAGE)
    assert "4" in err and "sinks" in err


def test_unknown_isa(refreshkv, tiny):
    assert "RK_ISA" in one_line(refreshkv("run", "-m", tiny, "-p", "x", env={"RK_ISA": "mmx"}), USAGE)
    assert "RK_ISA" in one_line(refreshkv("info", env={"RK_ISA": "mmx"}), USAGE)


# ---- models ----

def test_no_default_model(refreshkv):
    err = one_line(refreshkv("run", "-p", "x"), MODEL)
    assert "make model" in err and "-m" in err


def test_missing_model(refreshkv):
    assert "no/such.gguf" in one_line(refreshkv("run", "-m", "no/such.gguf", "-p", "x"), MODEL)


def damaged(tmp_path, data):
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    return path


def tensor_type_offset(data, name):
    at = data.index(struct.pack("<Q", len(name)) + name) + 8 + len(name)
    n_dims, = struct.unpack_from("<I", data, at)
    return at + 4 + 8 * n_dims


@pytest.mark.parametrize("command", [["run", "-p", "x"], ["ppl", "-f", "text"], ["compare", "-p", "x"], ["info"], ["tokenize"]])
def test_short_model(refreshkv, tiny, tmp_path, command):
    data = tiny.read_bytes()
    (tmp_path / "text").write_text("hello")
    for size in (0, 3, 4, 20, 1000):
        one_line(refreshkv(*command, "-m", damaged(tmp_path, data[:size]), cwd=tmp_path), MODEL)


def test_short_tensors(refreshkv, tiny, tmp_path):
    one_line(refreshkv("run", "-p", "x", "-m", damaged(tmp_path, tiny.read_bytes()[:-64])), MODEL)


def test_not_a_model(refreshkv, tmp_path):
    assert "bad.gguf" in one_line(refreshkv("run", "-p", "x", "-m", damaged(tmp_path, b"PK\3\4" + bytes(5000))), MODEL)
    assert str(tmp_path) in one_line(refreshkv("run", "-p", "x", "-m", tmp_path), MODEL)


def test_unknown_architecture_is_named(refreshkv, tiny, tmp_path):
    data = tiny.read_bytes()
    at = data.index(b"general.architecture") + len(b"general.architecture") + 4 + 8
    assert data[at:at + 5] == b"llama"
    assert "mamba" in one_line(refreshkv("run", "-p", "x", "-m", damaged(tmp_path, data[:at] + b"mamba" + data[at + 5:])), MODEL)


def test_unknown_tensor_type_is_named(refreshkv, tiny, tmp_path):
    data = bytearray(tiny.read_bytes())
    struct.pack_into("<I", data, tensor_type_offset(data, b"blk.0.attn_q.weight"), 29)
    err = one_line(refreshkv("run", "-p", "x", "-m", damaged(tmp_path, data)), MODEL)
    assert "blk.0.attn_q.weight" in err and "29" in err


def test_hostile_counts_cost_nothing(refreshkv, tiny, tmp_path):
    data = bytearray(tiny.read_bytes())
    for at in (8, 16):	# tensor count, key count
        bad = bytearray(data)
        struct.pack_into("<Q", bad, at, 1 << 60)
        one_line(refreshkv("run", "-p", "x", "-m", damaged(tmp_path, bad)), MODEL)


# ---- documents ----

def test_missing_document(refreshkv, tiny):
    assert "no/such.txt" in one_line(refreshkv("run", "-m", tiny, "-f", "no/such.txt", "-p", "x"), FAILED)


def test_folder_as_document(refreshkv, tiny, tmp_path):
    assert str(tmp_path) in one_line(refreshkv("run", "-m", tiny, "-f", tmp_path, "-p", "x"), FAILED)


@pytest.mark.parametrize("doc, offset", [(b"ab\xff", 2), (b"\xc0\xafx", 0), (b"ok \xed\xa0\x80", 3), (b"cut \xe2\x82", 4), (b"nul\0", 3)])
def test_invalid_utf8(refreshkv, tiny, doc, offset):
    for command in (["run", "-p", "x"], ["ppl", "-f", "-", "--ctx", "1", "--eval", "1"], ["tokenize"]):
        err = one_line(refreshkv(*command, "-m", tiny, stdin=doc), FAILED)
        assert f"byte {offset}" in err and "--lossy" in err


def test_invalid_utf8_in_the_question(refreshkv, tiny):
    assert "--prompt" in one_line(refreshkv("run", "-m", tiny, "-p", b"a\xff".decode(errors="surrogateescape")), FAILED)


def test_empty_document(refreshkv, tiny, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.touch()
    assert "empty" in one_line(refreshkv("run", "-m", tiny, "-f", empty, "-p", "x"), FAILED)
    assert "empty" in one_line(refreshkv("run", "-m", tiny, "-p", "x", stdin=b""), FAILED)
    assert "empty" in one_line(refreshkv("ppl", "-m", tiny, "-f", empty), FAILED)


def test_prompt_longer_than_the_context(refreshkv, tiny, tmp_path):
    (tmp_path / "ids").write_text("9 " * 65)
    err = one_line(refreshkv("run", "-m", tiny, "--ids", tmp_path / "ids", "--ctx", "64"), FAILED)
    assert "65" in err and "64" in err
    assert refreshkv("run", "-m", tiny, "--ids", tmp_path / "ids", "--ctx", "66", "-n", "1").returncode == 0


def test_text_too_short(refreshkv, tiny, tmp_path):
    (tmp_path / "ids").write_text("9 " * 100)
    err = one_line(refreshkv("ppl", "-m", tiny, "--ids", tmp_path / "ids", "--ctx", "90", "--eval", "11"), FAILED)
    assert "100" in err and "101" in err


@pytest.mark.parametrize("ids", ["1 2 x", "1 -2", "1 2 999999999999", "1 2 307"])
def test_bad_ids(refreshkv, tiny, tmp_path, ids):
    (tmp_path / "ids").write_text(ids)
    one_line(refreshkv("run", "-m", tiny, "--ids", tmp_path / "ids"), FAILED)
    one_line(refreshkv("tokenize", "-m", tiny, "--decode", stdin=ids.encode()), FAILED)


# ---- output and memory ----

def test_unwritable_output(refreshkv, tiny, text, tmp_path):
    for flag in ("--json", "--csv"):
        err = one_line(refreshkv("ppl", "-m", tiny, "-f", text, flag, tmp_path / "no/such/folder.out"), FAILED)
        assert "folder.out" in err
    assert [p.name for p in tmp_path.iterdir()] == ["text.txt"]


def test_failed_run_leaves_an_old_file_alone(refreshkv, tiny, text, tmp_path):
    old = tmp_path / "out.json"
    old.write_text("precious")
    one_line(refreshkv("ppl", "-m", tiny, "-f", text, "--ctx", "100000", "--json", old), FAILED)
    assert old.read_text() == "precious"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.json", "text.txt"]


def test_full_device(refreshkv, tiny):
    with open("/dev/full", "w") as full:
        p = refreshkv.popen("--help", stdout=full, stderr=-1)
        _, err = p.communicate(timeout=60)
    assert p.returncode == FAILED and b"No space left" in err


def test_device_as_output_is_not_replaced(refreshkv, tiny, text):
    refreshkv.ok("ppl", "-m", tiny, "-f", text, "--ctx", "20", "--eval", "2", "--policy", "vanilla", "--json", "/dev/null")
    assert not os.path.isfile("/dev/null")


@pytest.mark.skipif("asan" in os.environ.get("REFRESHKV", "").lower(), reason="the sanitizer reserves more address space than the limit")
def test_not_enough_memory(refreshkv, make_tiny, text):
    limit = 2 << 30
    big = make_tiny(n_ctx=1 << 24, n_layer=24)	# a million tokens take 24 layers x 2 KV heads x 16 x (K and V) x f16 = 3.2 GB
    r = refreshkv("run", "-m", big, "-f", text, "-n", 1 << 20, "--policy", "vanilla", timeout=60,
                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    err = one_line(r, MEMORY)
    assert "-n" in err and "MB" in err
