#!/usr/bin/env bash
# device-check.sh [OUT.json]: everything that needs a GPU, on the first one: builds, operation tests, parity with the CPU, memory
# checks, benchmark.  In under 4 minutes on 16 cores.  Exit status: 0 good, 1 something failed, 77 there is no GPU.
# REFRESHKV_BUILD: a folder that already holds the CUDA=1 build (default build-cuda).  MODEL: the model file.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

out=${1:-device-check.json}
build=${REFRESHKV_BUILD:-build-cuda}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0

if ! command -v nvidia-smi >/dev/null || ! gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -n 1) ||
	[[ -z $gpu ]]; then
	echo "device-check: no NVIDIA GPU (nvidia-smi finds none); nothing was checked" >&2
	exit 77
fi
command -v nvcc >/dev/null || { echo "device-check: a GPU ($gpu) but no nvcc to build for it" >&2; exit 77; }
echo "device-check: $gpu"

step() {	# NAME COMMAND...: runs it, records pass or fail and seconds
	local name=$1 t0=$SECONDS verdict=pass
	shift
	"$@" >"$work/$name.log" 2>&1 || { verdict=fail; status=1; tail -n 20 "$work/$name.log" >&2; }
	printf '%s\t%s\t%d\n' "$name" "$verdict" $((SECONDS - t0)) | tee -a "$work/steps"
}

# shellcheck disable=SC2317	# called through step
parity() {	# greedy text of every policy, GPU against CPU
	local policy bad=0
	for policy in vanilla refreshkv:qc=5,k=256 snapkv:k=256 h2o:k=256 streamingllm:k=256 refreshkv-nofull:k=256 \
		glance:k=256 glance:k=256,bits=2,tail=8; do
		for device in cpu cuda:0; do
			"$build/refreshkv" run -q --exact --device "$device" -m "$MODEL" --policy "$policy" -f docs/handbook.md \
				-p "What does the program show?" -n 48 >"$work/$device.txt" || bad=1
		done
		if cmp -s "$work/cpu.txt" "$work/cuda:0.txt"; then
			echo "same text: $policy"
		else
			echo "other text: $policy (a near tie, or a bug)"
			diff "$work/cpu.txt" "$work/cuda:0.txt"
			bad=1
		fi
	done
	return "$bad"
}

step build make CUDA=1 BUILD="$build" "$build/refreshkv" "$build/tests/device_ops"
[[ $status == 0 ]] || exit 1
MODEL=${MODEL:-$(models/fetch.sh)} || exit 1
step ops "$build/tests/device_ops"
step parity parity
if command -v compute-sanitizer >/dev/null; then
	step memcheck timeout 60 compute-sanitizer --error-exitcode 1 "$build/refreshkv" run -q --device cuda:0 -m "$MODEL" --policy refreshkv:qc=2,k=64 \
		-p "Hello" -n 6
	step racecheck timeout 60 compute-sanitizer --tool racecheck --error-exitcode 1 "$build/refreshkv" run -q --device cuda:0 -m "$MODEL" \
		--policy refreshkv:qc=2,k=64 -p "Hello" -n 3
fi
step copy bash -c "nvcc -O2 -o '$work/copy' tests/device_copy.cu && '$work/copy'"
step bench timeout 100 "$build/refreshkv" bench -q --device cuda:0 -m "$MODEL" --ctx 128,4096,8000 --policy vanilla --policy refreshkv:qc=5 \
	--policy glance --json "$work/bench.json"

python3 - "$work" "$gpu" "$out" <<'PY'
import json, pathlib, sys
work, gpu, out = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
steps = [line.split("\t") for line in (work / "steps").read_text().splitlines()]
bench = work / "bench.json"
try:
    copy = float((work / "copy.log").read_text().split()[-1])
except (OSError, IndexError, ValueError):
    copy = None
pathlib.Path(out).write_text(json.dumps({
    "gpu": gpu,
    "steps": [{"name": n, "result": r, "seconds": int(s)} for n, r, s in steps],
    "copy_gb_per_s": copy,
    "parity": (work / "parity.log").read_text().splitlines(),
    "bench": json.loads(bench.read_text()) if bench.exists() else None,
}, indent=1) + "\n")
PY
echo "device-check: figures are in $out"
exit $status
