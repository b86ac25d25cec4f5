"""cuda_ptxas.py TABLE FILE.ptxas...: what ptxas says of each kernel against the committed table.

The table holds, per kernel and architecture, registers and bytes of spills (stores + loads).  With the compiler that made the table
(its first line) every figure must be equal, so that the table stays true; another one deals with registers in its own way, and only
new spills are an error.  The kernels that take a step's time must not spill, whatever the table says.  --write makes the table anew.
"""
import re
import subprocess
import sys

HOT = ("matvec<", "split<", "merge<", "flash<", "flash_mma<", "glance<", "pool", "pick", "rank", "gather<")


def demangle(names):
    out = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return [re.sub(r"^void |\(.*$", "", line).replace("unsigned short", "f16").replace("float", "f32") for line in out.splitlines()]


def read(paths):
    """({(kernel, architecture): (registers, spills)}, the compilers)"""
    rows, compilers = [], set()
    for path in paths:
        name = arch = spill = None
        for line in open(path, encoding="utf-8"):
            if line.startswith("nvcc "):
                compilers.add(line.strip())
            elif m := re.search(r"Compiling entry function '(\S+)' for '(\S+)'", line):
                name, arch = m.groups()
            elif m := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
                spill = int(m[1]) + int(m[2])
            elif m := re.search(r"Used (\d+) registers", line):
                rows.append((name, arch, int(m[1]), spill))
    return {(n, a): (regs, spill) for n, (_, a, regs, spill) in zip(demangle([r[0] for r in rows]), rows)}, compilers


def complaints(then, now, exact):
    for key in sorted(then.keys() | now.keys()):
        name, arch = key
        if key not in now or key not in then:
            yield f"{name} {arch}: {'not built' if key in then else 'not in the table'}"
        elif (now[key] != then[key]) if exact else now[key][1] > then[key][1]:
            yield f"{name} {arch}: registers, spills {now[key]}, in the table {then[key]}"
        if name.startswith(HOT) and now.get(key, (0, 0))[1]:
            yield f"{name} {arch}: {now[key][1]} bytes of spills"


def main():
    args = [a for a in sys.argv[1:] if a != "--write"]
    table, (now, compilers) = args[0], read(args[1:])
    compiler = compilers.pop() if len(compilers) == 1 else "several compilers"
    if "--write" in sys.argv:
        with open(table, "w", encoding="utf-8") as f:
            f.write(f"# {compiler}: kernel, architecture, registers, bytes of spills\n")
            f.writelines(f"{n}\t{a}\t{r}\t{s}\n" for (n, a), (r, s) in sorted(now.items()))
        return 0
    lines = open(table, encoding="utf-8").read().splitlines()
    then = {(n, a): (int(r), int(s)) for n, a, r, s in (line.split("\t") for line in lines[1:])}
    exact = lines[0].startswith(f"# {compiler}:")
    bad = list(complaints(then, now, exact))
    print("\n".join(bad) if bad else f"{len(now)} kernels as in {table}" + ("" if exact else f" but for registers ({compiler})"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
