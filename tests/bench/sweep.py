#!/usr/bin/env python3
"""Quality against bytes: runs `refreshkv ppl` over texts and policies and prints the table of docs/POLICIES.md.

    tests/bench/sweep.py -m MODEL [--bin ./refreshkv] [--ctx 4096] [--eval 256] [--offset 20000,60000] TEXT... -- POLICY...

One run per text and offset (in tokens), eight policies at a time, all teacher-forced on the same tokens.  Columns: the ratio of
perplexities to vanilla's (geometric mean over the runs), the worst run's, mean KL in nats, and bytes of K, V and sketches read per step,
vanilla = 1.
"""
import argparse
import csv
import io
import math
import subprocess
import sys


def measure(a, text, offset, policies):
    args = [a.bin, "ppl", "-q", "--ctx", str(a.ctx), "--eval", str(a.eval), "--offset", offset, "-f", text, "--csv", "-"]
    args += ["-m", a.model] if a.model else []
    for p in ["vanilla"] + policies:
        args += ["--policy", p]
    run = subprocess.run(args, capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr.strip())
    return list(csv.DictReader(io.StringIO(run.stdout)))[1:]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("-m", "--model")
    ap.add_argument("--bin", default="./refreshkv")
    ap.add_argument("--ctx", type=int, default=4096)
    ap.add_argument("--eval", type=int, default=256)
    ap.add_argument("--offset", default="20000,60000")
    ap.add_argument("text", nargs="+")
    own, _, policies = (lambda v: (v[:v.index("--")], "--", v[v.index("--") + 1:]) if "--" in v else (v, "", []))(sys.argv[1:])
    a = ap.parse_args(own)
    if not policies:
        ap.error("no policies: name them after --")
    print("| policy | ratio | worst | KL | bytes |\n|---|---|---|---|---|")
    for i in range(0, len(policies), 7):
        part = policies[i:i + 7]
        rows = [measure(a, t, o, part) for t in a.text for o in a.offset.split(",")]
        for j, name in enumerate(part):
            of = [r[j] for r in rows]
            ratio = [float(r["ratio"]) for r in of]
            mean = math.exp(sum(map(math.log, ratio)) / len(ratio))
            kl = sum(float(r["kl"]) for r in of) / len(of)
            read = sum(float(r["bytes_read_per_step"]) / float(r["bytes_vanilla_per_step"]) for r in of) / len(of)
            print(f"| `{name}` | {mean:.4f} | {max(ratio):.4f} | {kl:.4f} | {read:.3f} |", flush=True)


if __name__ == "__main__":
    main()
