#!/usr/bin/env bash
# run.sh BUILD...: runs what was built in each folder and closes with one line `N passed, N failed[, N skipped]`.
#
# Counts cmocka test functions (its TAP output) and pytest results.  Exit status 0 only if nothing failed.
# A test program that ends badly without a failed function (crash, sanitizer report, a plan not completed) counts as one
# failure.  A folder whose name ends in -asan goes without the tests marked slow, test_golden, and those of the source tree.
# Tests find the program in $REFRESHKV and the default model in $RK_MODEL.
set -uo pipefail
cd "$(dirname "$0")/.."

passed=0 failed=0 skipped=0
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

add() {	# passed failed skipped status: one program's counts and exit status
	local bad=$2
	((bad > 0 || $4 == 0)) || bad=1
	((passed += $1, failed += bad, skipped += $3))
}

count() { grep -cE "$1" "$log"; }

run_unit() {	# $1: program
	printf '%s\n' "== $1"
	CMOCKA_MESSAGE_OUTPUT=TAP timeout 1200 "$1" >"$log" 2>&1 </dev/null	# one that hangs must not hold the others up
	local status=$? planned ok bad skip
	planned=$(sed -n 's/^1\.\.\([0-9]*\).*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
	skip=$(count '^not ok [0-9]+ # SKIP')	# so does cmocka 1.1 write a skipped test
	ok=$(count '^ok [0-9]+')
	bad=$(($(count '^not ok [0-9]+') - skip))
	((status != 0 || ok + bad + skip == planned)) || status=1
	if ((status || bad)); then cat "$log"; else grep -E '# SKIP' "$log"; fi
	add "$ok" "$bad" "$skip" "$status"
}

pytest_count() { grep -oE "[0-9]+ $1" "$log" | tail -n 1 | grep -oE '[0-9]+' || echo 0; }

run_pytest() {	# $@: pytest's arguments
	printf '%s\n' "== pytest $*"
	"${PYTHON:-/usr/bin/python3}" -m pytest -q -p no:cacheprovider "$@" </dev/null 2>&1 | tee "$log"
	local status=${PIPESTATUS[0]}
	((status != 5)) || status=0	# no test was collected
	tail -n 1 "$log" >"$log.last" && mv "$log.last" "$log"
	add "$(pytest_count passed)" $(($(pytest_count failed) + $(pytest_count error))) "$(pytest_count skipped)" "$status"
}

RK_MODEL=$(models/fetch.sh) || exit 1
export RK_MODEL
export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
for build in "$@"; do
	REFRESHKV=$(realpath "$build")/refreshkv
	export REFRESHKV
	for program in "$build"/tests/test_*; do
		case $build:$program in
		*-asan:*/test_golden) continue ;;	# takes minutes there, over code that test_session covers with a tiny model
		esac
		if [[ -x $program ]]; then run_unit "$program"; fi
	done
	case $build in
	*-asan) marks=(-m 'not slow') ;;
	*) marks=() && run_pytest tests/test_*.py ;;
	esac
	for folder in tests/*/; do	# one pytest each, since two conftest.py do not go together
		if compgen -G "$folder/test_*.py" >/dev/null; then run_pytest "${marks[@]}" "$folder"; fi
	done
done

line="$passed passed, $failed failed"
if ((skipped)); then line+=", $skipped skipped"; fi
echo "$line"
((failed == 0))
