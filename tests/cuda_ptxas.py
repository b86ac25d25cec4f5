"""cuda_ptxas.py TABLE FILE.ptxas...: what ptxas says of each kernel against the committed table.

The table holds, per kernel and architecture, registers and bytes of spills (stores + loads).  With the compiler that made the table
(its first line) every figure must be equal; with another one only new spills are an error.  --write makes the table anew.
"""
import re
import subprocess
import sys


def demangle(names):
    out = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return [re.sub(r"^void |\(.*$", "", line).replace("unsigned short", "f16").replace("float", "f32") for line in out.splitlines()]


def read(paths):
    rows = []
    for path in paths:
        name = arch = spill = None
        for line in open(path, encoding="utf-8"):
            if m := re.search(r"Compiling entry function '(\S+)' for '(\S+)'", line):
                name, arch = m.groups()
            elif m := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
                spill = int(m[1]) + int(m[2])
            elif m := re.search(r"Used (\d+) registers", line):
                rows.append((name, arch, int(m[1]), spill))
    return {(n, a): (regs, spill) for n, (_, a, regs, spill) in zip(demangle([r[0] for r in rows]), rows)}


def compiler():
    text = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    return "nvcc " + re.search(r"V([\d.]+)", text)[1]


def main():
    args = [a for a in sys.argv[1:] if a != "--write"]
    table, now = args[0], read(args[1:])
    if "--write" in sys.argv:
        with open(table, "w", encoding="utf-8") as f:
            f.write(f"# {compiler()}: kernel, architecture, registers, bytes of spills\n")
            f.writelines(f"{n}\t{a}\t{r}\t{s}\n" for (n, a), (r, s) in sorted(now.items()))
        return 0
    lines = open(table, encoding="utf-8").read().splitlines()
    then = {(n, a): (int(r), int(s)) for n, a, r, s in (line.split("\t") for line in lines[1:])}
    exact = lines[0].startswith(f"# {compiler()}:")
    bad = [f"{n} {a}: {then.get((n, a), 'not')} in the table, {now.get((n, a), 'not')} built" for n, a in sorted(then.keys() | now.keys())
           if (then.get((n, a)) != now.get((n, a)) if exact else now.get((n, a), (0, 0))[1] > then.get((n, a), (0, 0))[1])]
    print("\n".join(bad) if bad else f"{len(now)} kernels as in {table}" + ("" if exact else " (no new spills; another compiler made it)"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
