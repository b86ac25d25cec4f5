#!/usr/bin/env bash
# run.sh BUILD: runs the tests of the emulated device that were built in BUILD, side by side, then those of the program on it.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

pids=()
for program in "$1"/tests/test_cuda_*; do
	[[ -x $program ]] || continue
	"$program" &
	pids+=($!)
done
status=0
REFRESHKV=$1/refreshkv "${PYTHON:-/usr/bin/python3}" -m pytest -q -p no:cacheprovider tests/cuda_emu || status=1
for pid in "${pids[@]}"; do wait "$pid" || status=1; done
exit $status
