"""`refreshkv eval`: results files, resumption, shards, sweeps, bad input; with a tiny random model, whose scores mean nothing."""
import csv
import io
import json
import math
import os
import re
import signal
import subprocess
import time
import xml.etree.ElementTree as ET

import pytest

from conftest import ROOT, one_line


@pytest.fixture(scope="session")
def small(make_tiny):
    return make_tiny(n_ctx=2048)


def records(path, timing=False):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for r in lines[1:]:
        t = r.pop("timing")
        assert timing or set(t) == {"device", "isa", "threads", "prefill_ms", "ms_per_token"}
    return lines[0], lines[1:]


NEEDLE = ["eval", "needle", "-q", "--task", "passkey", "--length", "600,900", "-n", "3", "--policy", "refreshkv"]


def needle(refreshkv, model, *args, **kw):
    return refreshkv.ok(*NEEDLE, "-m", model, *args, **kw)


@pytest.fixture(scope="session")
def whole(refreshkv, small, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "r.jsonl"
    table = needle(refreshkv, small, "--json", path).stdout.decode()
    return path, table


def test_list_and_help(refreshkv):
    tasks = refreshkv.ok("eval", "list").stdout.decode()
    assert all(word in tasks for word in ("chain-of-key", "passkey", "ppl"))
    assert b"eval merge" in refreshkv.ok("eval", "--help").stdout


def test_records(whole):
    header, recs = records(whole[0])
    assert header["policies"][0] == "vanilla" and header["policies"][1].startswith("refreshkv:k=0.125") and header["seed"] == 0
    assert [(r["length"], r["index"]) for r in recs] == [(600, 0), (600, 1), (600, 2), (900, 0), (900, 1), (900, 2)]
    for r in recs:
        room = r["length"] - r["prompt_tokens"]
        assert room > 0 and re.fullmatch("[0-9a-f]{64}", r["prompt_sha256"]) and r["tokens_after"] == 0
        assert r["data"]["depth"] == r["index"] / 10 and len(r["answer"]) == 1
        vanilla, refresh = r["policies"]
        for p in (vanilla, refresh):
            assert p["score"] in (0, 1) and p["tokens"] <= room and p["layer_steps"] == 3 * p["steps"]
            assert (r["answer"][0] in p["reply"]) == (p["score"] == 1)
        assert vanilla["bytes_read"] == vanilla["bytes_vanilla"] and vanilla["full_layer_steps"] == vanilla["layer_steps"]
        assert refresh["bytes_read"] < 0.7 * refresh["bytes_vanilla"]


def test_table_and_csv(refreshkv, small, whole, tmp_path):
    assert "passkey@600" in whole[1] and "refreshkv" in whole[1] and "depth" in whole[1]
    r = needle(refreshkv, small, "--json", whole[0], "--csv", "-")	# all there: nothing is run
    rows = list(csv.DictReader(io.StringIO(r.stdout.decode())))
    _, recs = records(whole[0])
    wanted = [(str(rec["group"]), p["reply"], rec["answer"]) for rec in recs for p in rec["policies"]]
    assert [(row["group"], row["reply"], json.loads(row["answer"])) for row in rows] == wanted
    svg = needle(refreshkv, small, "--json", whole[0], "--svg", "-")
    assert ET.fromstring(svg.stdout).tag.endswith("svg") and svg.stderr.decode() == whole[1]
    assert len(rows) == 12 and [int(row["bytes_read"]) for row in rows] == [p["bytes_read"] for rec in recs for p in rec["policies"]]
    assert r.stderr.decode() == whole[1]


def test_same_seed_same_records(refreshkv, small, whole, tmp_path):
    other = tmp_path / "o.jsonl"
    needle(refreshkv, small, "--json", other, "-t", "1", "--chunk", "64")
    assert records(other) == records(whole[0])
    needle(refreshkv, small, "--json", tmp_path / "s.jsonl", "--seed", "1")
    assert records(tmp_path / "s.jsonl")[1][0]["prompt_sha256"] != records(whole[0])[1][0]["prompt_sha256"]


def test_resume_after_kill(refreshkv, small, whole, tmp_path):
    """Killed without warning again and again, each time after at least one more record."""
    path = tmp_path / "r.jsonl"
    args = [*NEEDLE, "-m", small, "--json", path]
    for wanted in (2, 4):
        p = refreshkv.popen(*map(str, args), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.time() + 60
        while time.time() < deadline and p.poll() is None and (not path.exists() or path.read_bytes().count(b"\n") < wanted):
            time.sleep(0.005)
        p.send_signal(signal.SIGKILL)
        p.wait()
    path.write_bytes(path.read_bytes() + b'{"group":0,"ta')	# as if it had been killed in the middle of a write
    needle(refreshkv, small, "--json", path)
    assert records(path) == records(whole[0])


def test_interrupted(refreshkv, small, tmp_path):
    path = tmp_path / "r.jsonl"
    p = refreshkv.popen("eval", "chain-of-key", "-q", "-m", str(small), "--length", "1500", "-n", "500", "--json", str(path),
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.time() + 60
    while time.time() < deadline and (not path.exists() or path.read_bytes().count(b"\n") < 2):
        time.sleep(0.01)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 130 and b"goes on from there" in err and b"vanilla" in out
    _, recs = records(path)
    assert 1 <= len(recs) < 500 and all(x["end"] != "stopped" for r in recs for x in r["policies"])


def test_shards_merge(refreshkv, small, whole, tmp_path):
    path = tmp_path / "r.jsonl"
    args = [*NEEDLE, "-m", str(small), "--json", str(path)]
    ranks = [refreshkv.popen(*args, "--shard", f"{i}/2", stdout=subprocess.PIPE) for i in (1, 2)]
    says = [p.communicate(timeout=120)[0].decode() for p in ranks]
    assert [p.returncode for p in ranks] == [0, 0] and says[0].startswith("shard 1/2: 3 of 3") and "eval merge" in says[1]
    table = refreshkv.ok("eval", "merge", path, f"{path}.2", f"{path}.1").stdout.decode()
    assert records(path) == records(whole[0])
    strip = lambda p: [re.sub(rb',"timing":.*', b"", line) for line in p.read_bytes().splitlines()]
    assert strip(path) == strip(whole[0])
    assert "passkey@900" in table
    assert "1 of 2 shards missing" in one_line(refreshkv("eval", "merge", "-", f"{path}.2"), 2)
    before = path.read_bytes()
    needle(refreshkv, small, "--json", path)	# a merged file is a results file: all is there
    assert path.read_bytes() == before
    assert "a second record" in one_line(refreshkv("eval", "merge", "-", f"{path}.1", f"{path}.1"), 1)


def test_mpi_environment(refreshkv, small, tmp_path):
    path = tmp_path / "r.jsonl"
    for rank in range(3):
        needle(refreshkv, small, "--json", path, "--mpi", env={"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "3"})
    header, recs = records(tmp_path / "r.jsonl.2")
    for rank, size in ("0", "0"), ("3", "3"):
        r = refreshkv(*NEEDLE, "-m", small, "--json", path, "--mpi", env={"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": size})
        assert f"RANK={rank}" in one_line(r, 2)
    assert header["shard"] == [2, 3] and [(r["length"], r["index"]) for r in recs] == [(600, 1), (900, 1)]


@pytest.mark.parametrize("template", ["chatml", "llama3", "raw"])
def test_question_after(refreshkv, small, tmp_path, template):
    """What comes after the selection is the question and what the template puts behind it; vanilla does not mind."""
    args = ["--chat-template", template, "--policy", "snapkv", "-n", "1", "--json"]
    needle(refreshkv, small, *args, tmp_path / "inside.jsonl")
    needle(refreshkv, small, *args, tmp_path / "after.jsonl", "--question", "after")
    inside, after = (records(tmp_path / f"{mode}.jsonl")[1] for mode in ("inside", "after"))
    for i, a in zip(inside, after, strict=True):
        assert 15 < a["tokens_after"] < 100 < a["prompt_tokens"] and i["tokens_after"] == 0
        assert i["prompt_sha256"] == a["prompt_sha256"] and i["prompt_tokens"] == a["prompt_tokens"]
        assert i["policies"][0]["reply"] == a["policies"][0]["reply"]


def test_groups_and_sweep(refreshkv, small, tmp_path):
    """More policies than one session holds: groups, each with the baseline."""
    path, svg = tmp_path / "r.jsonl", tmp_path / "r.svg"
    r = refreshkv.ok("eval", "chain-of-key", "-m", small, "--length", "700", "-n", "1", "--policy", "refreshkv",
                     "--sweep", "qc=5,10", "--sweep", "s=0.8,0.85,0.9,0.95", "--json", path, "--svg", svg)
    assert re.match(r"1/2, \d+ s left; vanilla 0.0, best refreshkv:qc=5,s=0.8 0.0, worst refreshkv:qc=5,s=0.8 0.0\n", r.stderr.decode())
    header, recs = records(path)
    assert len(header["policies"]) == 9 and header["names"][1] == "refreshkv:qc=5,s=0.8"
    assert [len(x["policies"]) for x in recs] == [8, 2]
    assert recs[0]["policies"][0] == recs[1]["policies"][0]		# vanilla is vanilla in every group
    assert "against bytes read" in r.stdout.decode()
    assert ET.parse(svg).getroot().tag.endswith("svg")


def test_ppl(refreshkv, small, text, tmp_path):
    """The same windows as `refreshkv ppl`, the same figures."""
    path, svg = tmp_path / "r.jsonl", tmp_path / "r.svg"
    args = ["--offset", "0,700", "--eval", "40", "--policy", "vanilla", "--policy", "snapkv", "--policy", "refreshkv:qc=2"]
    r = refreshkv.ok("eval", "ppl", text, "-q", "-m", small, "--length", "300", *args, "--json", path, "--svg", svg)
    want = json.loads(refreshkv.ok("ppl", "-q", "-f", text, "-m", small, "-c", "300", *args, "--json", "-").stdout)
    _, recs = records(path)
    for w, rec in zip(want["windows"], recs, strict=True):
        for (name, lane), p in zip(w["policies"].items(), rec["policies"], strict=True):
            assert p["nll"] == pytest.approx(lane["nll"], rel=1e-6) and len(p["nll"]) == 40
            assert p["kl"] == pytest.approx(lane["kl"], rel=1e-6, abs=1e-9)
    out = r.stdout.decode()
    assert f"{want['summary']['snapkv']['ratio']:.4f}" in out and "over position" in out
    assert len(ET.parse(svg).getroot()) > 10


def test_predictions(refreshkv, small, tmp_path):
    """RULER's own files: written from the records, and scored again to the same score."""
    path, out = tmp_path / "r.jsonl", tmp_path / "pred"
    refreshkv.ok("eval", "ruler", "-q", "-m", small, "--task", "vt", "--task", "niah_single_1", "--length", "1600", "-n", "2", "--policy", "snapkv",
                 "--json", path, "--predictions", out)
    _, recs = records(path)
    for name, lane in (("vanilla", 0), ("snapkv", 1)):
        for task in ("vt", "niah_single_1"):
            rows = [json.loads(line) for line in (out / name / "1600" / f"{task}.jsonl").read_text().splitlines()]
            of = [r for r in recs if r["task"] == task]
            assert [r["pred"] for r in rows] == [r["policies"][lane]["reply"] for r in of]
            assert [r["outputs"] for r in rows] == [r["answer"] for r in of]
    rows = out / "vanilla" / "1600" / "vt.jsonl"
    lines = [json.loads(line) for line in rows.read_text().splitlines()]
    lines[0]["pred"] = " ".join(lines[0]["outputs"])
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert re.search(r"vt.jsonl +2 +\d +50.00", refreshkv.ok("eval", "score", "vt", rows).stdout.decode())


def test_what_lacks_its_files_is_left_out(refreshkv, small, tmp_path):
    """A suite runs what can be run; which tasks that leaves out, and for want of what, is one line."""
    path, essays = tmp_path / "r.jsonl", tmp_path / "essays.json"
    essays.write_text(json.dumps({"text": "A sentence. " * 20}))
    args = ["eval", "ruler", "-q", "-m", small, "--length", "1600", "-n", "1", "--json", path]
    r = refreshkv.ok(*args)
    left = "niah_single_2, niah_single_3, niah_multikey_1, niah_multivalue, niah_multiquery (need --haystack FILE), qa_1, qa_2 (need --data DIR)"
    assert r.stderr.decode() == f"refreshkv: left out: {left}\n"
    assert [r["task"] for r in records(path)[1]] == ["niah_single_1", "niah_multikey_2", "niah_multikey_3", "vt", "cwe", "fwe"]
    # with essays there are more tasks, so these results are another run's
    assert "tasks" in one_line(refreshkv(*args, "--haystack", essays), 2)


def test_longproc(refreshkv, small, tmp_path):
    """A task with a size of its own, from files that end before the number of examples that was asked for."""
    data = tmp_path / "data" / "path_traversal"
    data.mkdir(parents=True)
    (data / "prompts.yaml").write_text("USER_PROMPT: |-\n  {city_context}\n  Go from {src_city} to {dst_city}.")
    items = [{"context_nl": f"A{i} leads to B.", "question_repr": [f"A{i}", "B"], "answer_nl": f"From A{i}, take a bus to B."} for i in range(2)]
    (data / "path_traversal_0.5k.json").write_text(json.dumps(items))
    path = tmp_path / "r.jsonl"
    refreshkv.ok("eval", "longproc", "-q", "-m", small, "--task", "path_traversal_0.5k", "--data", data.parent, "-n", "5", "--json", path)
    _, recs = records(path)
    assert sorted(r["data"]["item"] for r in recs) == [0, 1] and [r["index"] for r in recs] == [0, 1]
    for r in recs:
        assert r["answer"] == [items[r["data"]["item"]]["answer_nl"]] and r["prompt_tokens"] > 10
        assert all(p["score"] == 0 and set(p["detail"]) == {"accuracy", "partial_accuracy", "extraction_rate"} for p in r["policies"])


def path_data(folder, sizes):
    """LongProc's folder with one task, an item per number of words."""
    (folder / "path_traversal").mkdir(parents=True, exist_ok=True)
    (folder / "path_traversal" / "prompts.yaml").write_text("USER_PROMPT: |-\n  {city_context}\n  Go from {src_city} to {dst_city}.")
    items = [{"context_nl": "road " * n, "question_repr": ["A", "B"], "answer_nl": "From A."} for n in sizes]
    (folder / "path_traversal" / "path_traversal_0.5k.json").write_text(json.dumps(items))
    return ["eval", "longproc", "-q", "--task", "path_traversal_0.5k", "--data", folder, "-n", str(len(sizes))]


def test_too_long_is_noticed_first(refreshkv, small, tmp_path):
    """Any item that the context does not hold ends the run before the first one is run."""
    path = tmp_path / "r.jsonl"
    args = path_data(tmp_path / "data", [5, 5, 2000, 5])
    assert re.search(r"path_traversal_0.5k, example [0-3]: prompt and reply take \d+ tokens, 1024 of them.* holds 2048",
                     one_line(refreshkv(*args, "-m", small, "--json", path), 2))
    assert records(path)[1] == []


def test_data_is_known_by_what_it_holds(refreshkv, small, tmp_path):
    """The same files elsewhere are the same run; others under the same path are not."""
    path = tmp_path / "r.jsonl"
    refreshkv.ok(*path_data(tmp_path / "a", [5, 9]), "-m", small, "--json", path)
    refreshkv.ok(*path_data(tmp_path / "b", [5, 9]), "-m", small, "--json", path)
    args = path_data(tmp_path / "b", [5, 10])
    assert "data_sha256" in one_line(refreshkv(*args, "-m", small, "--json", path), 2)


BAD = [
    (["eval", "score", "vt"], 2, "score TASK FILE"),
    (["eval", "needle", "--predictions", "x"], 2, "--predictions does nothing for eval needle: it goes with ruler"),
    (["eval", "merge", "-", "x", "--json", "y"], 2, "--json"),
    (["eval", "score", "vt", "x", "--csv", "y"], 2, "--csv"),
    (["eval", "list", "--shard", "1/2"], 2, "--shard"),
    (["eval", "list", "x"], 2, "'x'"),
    (["eval", "ppl", "x", "--seed", "1"], 2, "--seed"),
    (["eval", "needle", "--eval", "5"], 2, "--eval does nothing for eval needle: it goes with ppl"),
    (["eval", "needle", "--data", "x"], 2, "ruler and longproc"),
    (["eval", "ruler", "--task", "vt", "--task", "niah_single_2", "--length", "1600"], 2, "niah_single_2: hides its needles in essays: give "
     "--haystack FILE"),  # before any task runs
    (["eval", "longproc"], 2, "html_to_tsv_0.5k: needs --data DIR"),
    (["eval", "longproc", "--task", "pseudo_to_code_2k"], 2, "compiling and running"),
    (["eval"], 2, "operand"),
    (["eval", "nedle"], 2, "needle"),
    (["eval", "needle", "--task", "paskey"], 2, "passkey"),
    (["eval", "needle", "--length", "10,x"], 2, "10,x"),
    (["eval", "needle", "--length", "9000"], 2, "2048"),
    (["eval", "needle", "--length", "50"], 2, "50"),
    (["eval", "needle", "some.txt"], 2, "some.txt"),
    (["eval", "ppl"], 2, "no text"),
    (["eval", "ppl", "/nowhere.txt"], 1, "/nowhere.txt"),
    (["eval", "needle", "--policy", "vanilla", "--policy", "snapkv", "--policy", "snapkv:window=1"], 2, "the same"),
    (["eval", "needle", "--policy", "snapkv", "--sweep", "qc=5"], 2, "qc"),
    (["eval", "needle", "--sweep", "qc"], 2, "key=value"),
    (["eval", "needle", "--shard", "3/2", "--json", "x"], 2, "3/2"),
    (["eval", "needle", "--shard", "1/2"], 2, "--json"),
    (["eval", "needle", "--shard", "1/2", "--json", "x", "--csv", "y"], 2, "merge"),
    (["eval", "needle", "--shard", "1/99999999999", "--json", "x"], 2, "1/99999999999"),
    (["eval", "needle", "--shard", "1/2x", "--json", "x"], 2, "1/2x"),
    (["eval", "needle", "--mpi"], 2, "OMPI_COMM_WORLD_RANK"),
    (["eval", "needle", "--json", "-"], 2, "--json -"),
    (["eval", "needle", "--csv", "-", "--svg", "-"], 2, "only one"),
    (["eval", "ruler", "--task", "qa_1", "--data", "/nowhere"], 1, "squad.json: cannot read: No such file or directory; get it from https"),
    (["eval", "longproc", "--data", "/nowhere"], 1, "princeton-pli"),
    (["eval", "merge", "out"], 2, "merge OUT SHARD"),
    (["eval", "merge", "-", "/nowhere.1"], 1, "/nowhere.1"),
]


@pytest.mark.parametrize("args,code,says", BAD, ids=lambda v: " ".join(v) if isinstance(v, list) else None)
def test_bad_input(refreshkv, small, args, code, says, tmp_path):
    assert says in one_line(refreshkv(*args, *(["-m", small, "-q"] if args[1:] and args[1] not in ("merge", "score", "list") else []), cwd=tmp_path), code)


def test_other_parameters_are_refused(refreshkv, small, whole):
    before = whole[0].read_bytes()
    for args, says in ((["--seed", "3"], "seed 0"), (["-n", "4"], "examples [3]"), (["--policy", "h2o"], "policies"), (["--exact"], "exact false")):
        assert says in one_line(refreshkv(*NEEDLE, "-m", small, "--json", whole[0], *args), 2)
    bad = whole[0].with_name("bad.jsonl")
    lines = whole[0].read_text().splitlines(keepends=True)
    bad.write_text("".join(lines[:2] + ["{not json}\n"] + lines[3:]))
    assert "bad.jsonl:3" in one_line(refreshkv(*NEEDLE, "-m", small, "--json", bad), 1)


@pytest.mark.parametrize("suite,tokens", [("ppl", 4294967296), ("ppl", -1), ("needle", 0), ("ruler", 0), (5, 0)])
def test_strange_results_file(refreshkv, suite, tokens, tmp_path):
    """A file that says it is one, and lacks everything: nothing is known, nothing breaks."""
    path = tmp_path / "r.jsonl"
    header = {"refreshkv_eval": 1, "suite": suite, "policies": ["a", 7, "b"], "names": [], "tasks": ["t"], "lengths": ["x"], "baseline": -4, "eval": tokens}
    rec = {"group": 0, "task": "t", "length": 1, "index": 0}
    lines = [header, rec, {**rec, "index": 1, "policies": [{"policy": "a", "kl": 1, "nll": [None, 2]}, 3], "timing": 4, "data": {"depth": "deep"}}]
    path.write_text("".join(json.dumps(x) + "\n" for x in lines))
    out = refreshkv.ok("eval", "merge", "-", path, "--csv", tmp_path / "r.csv", "--svg", tmp_path / "r.svg").stdout
    assert b"n/a" in out and b"nan" not in out


@pytest.mark.slow
def test_default_model_finds_the_needle(refreshkv, model, tmp_path):
    """Full attention reads the pass key at 512 tokens at three depths, and so does RefreshKV, reading a fifth."""
    path = tmp_path / "r.jsonl"
    refreshkv.ok("eval", "needle", "-q", "-m", model, "--task", "passkey", "--length", "512", "-n", "3", "--policy", "refreshkv", "--json", path)
    _, recs = records(path)
    for r in recs:
        vanilla, refresh = r["policies"]
        assert vanilla["score"] == refresh["score"] == 1 and refresh["bytes_read"] < 0.3 * refresh["bytes_vanilla"]


@pytest.mark.slow
def test_default_model_on_ruler(refreshkv, model, tmp_path):
    """The row niah_single_1 of docs/EVAL.md at 1,024 tokens."""
    path = tmp_path / "r.jsonl"
    refreshkv.ok("eval", "ruler", "-q", "-m", model, "--task", "niah_single_1", "--length", "1024", "-n", "2", "--policy", "refreshkv",
                 "--json", path)
    _, recs = records(path)
    assert len(recs) == 2
    for r in recs:
        vanilla, refresh = r["policies"]
        assert vanilla["score"] == refresh["score"] == 1 and refresh["bytes_read"] < 0.25 * refresh["bytes_vanilla"]
        assert r["answer"][0] in vanilla["reply"] and r["prompt_tokens"] + 128 <= 1024


@pytest.mark.slow
def test_default_model_ratios(refreshkv, model, tmp_path):
    """On a page of the handbook vanilla is the measure of itself; who reads less loses something, and not everything."""
    path = tmp_path / "r.jsonl"
    refreshkv.ok("eval", "ppl", ROOT / "docs" / "handbook.md", "-q", "-m", model, "--length", "1024", "--eval", "64", "--offset", "0,600",
                 "--policy", "snapkv", "--policy", "refreshkv", "--json", path)
    _, recs = records(path)
    nll = [sum(sum(r["policies"][lane]["nll"]) for r in recs) / sum(len(r["policies"][lane]["nll"]) for r in recs) for lane in range(3)]
    snapkv, refresh = (math.exp(x - nll[0]) for x in nll[1:])
    assert all(r["policies"][0]["kl"] == 0 and r["policies"][0]["same_top1"] == 1 and len(r["policies"][0]["nll"]) == 64 for r in recs)
    assert 1 < snapkv < 2 and 1 < refresh < 2
    out = refreshkv.ok("eval", "merge", "-", path).stdout.decode()
    for name, ratio in ("vanilla", 1), ("snapkv", snapkv), ("refreshkv", refresh):
        assert re.search(rf"^{name} +2 +[\d.]+ +{ratio:.4f} ", out, re.M)
