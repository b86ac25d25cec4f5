#!/usr/bin/env python3
"""peer.py: prefill and decode speed of llama.cpp beside ours: same model file, same machine, same threads, in turn.

    peer.py REFRESHKV MODEL [--ctx 128,1024,4096,8000] [--steps 64] [--rounds 3] [--threads 2]

Needs the Python package llama-cpp-python, built from source so that it uses what this CPU has (`make bench-peer` makes
a throw-away environment for it).  Each round measures, at each length, llama.cpp with and without flash attention and then
`refreshkv bench`; the better of the two settings counts.  Prints medians and ratios; ratios above 1: we are faster.
"""
import argparse, json, statistics, subprocess, sys, time

import llama_cpp


def llama(model, ctx, steps, threads, flash):
    """(prefill tok/s, decode ms/token) of one run: a synthetic prompt of ctx ordinary tokens, greedy steps after it."""
    lm = llama_cpp.Llama(model, n_ctx=ctx + steps + 8, n_batch=512, n_ubatch=512, n_threads=threads, n_threads_batch=threads,
                         flash_attn=flash, verbose=False)
    ids = [1000 + (i * 7919) % 40000 for i in range(ctx)]
    t = time.perf_counter()
    lm.eval(ids)
    prefill = ctx / (time.perf_counter() - t)
    step = []
    for i in range(steps):
        t = time.perf_counter()
        lm.eval([1000 + (i * 104729) % 40000])
        step.append(1e3 * (time.perf_counter() - t))
    lm.close()
    return prefill, statistics.median(step)


def ours(program, model, ctx, steps, threads):
    out = subprocess.run([program, "bench", "-q", "-m", model, "-c", str(ctx), "-n", str(steps), "-t", str(threads), "--policy",
                          "vanilla", "--policy", "refreshkv:qc=10", "--policy", "refreshkv:qc=10,attend=selected", "--json", "-"],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    return {r["policy"]: (r["prefill_tok_per_s"], r["decode_ms_per_token"]) for r in json.loads(out)["rows"]}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("program"), ap.add_argument("model")
    ap.add_argument("--ctx", default="128,1024,4096,8000"), ap.add_argument("--steps", type=int, default=64)
    ap.add_argument("--rounds", type=int, default=3), ap.add_argument("--threads", type=int, default=2)
    a = ap.parse_args()
    med = statistics.median
    print(f"{'context':>8} {'engine':34} {'prefill tok/s':>14} {'ratio':>6} {'ms/token':>9} {'ratio':>6} {'spread':>13}")
    for ctx in map(int, a.ctx.split(",")):
        peer, mine = {False: [], True: []}, {}
        for _ in range(a.rounds):
            for flash in peer:
                peer[flash].append(llama(a.model, ctx, a.steps, a.threads, flash))
            for policy, r in ours(a.program, a.model, ctx, a.steps, a.threads).items():
                mine.setdefault(policy, []).append(r)
        best_p = max(med(p for p, _ in v) for v in peer.values())
        best_d = min(med(d for _, d in v) for v in peer.values())
        print(f"{ctx:8} {'llama.cpp':34} {best_p:14.0f} {1:6.2f} {best_d:9.2f} {1:6.2f}")
        for policy, v in mine.items():
            p, d = med(x for x, _ in v), [y for _, y in v]
            print(f"{ctx:8} {policy:34} {p:14.0f} {p / best_p:6.2f} {med(d):9.2f} {best_d / med(d):6.2f} {min(d):6.2f}-{max(d):.2f}")
        sys.stdout.flush()


main()
