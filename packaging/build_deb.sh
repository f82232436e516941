#!/usr/bin/env bash
# build_deb.sh DIRECTORY: build a Debian package of the last commit into DIRECTORY.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p "$1"
output=$(realpath "$1")
work=$(mktemp -d /var/tmp/blkreel-deb.XXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir "$work/blkreel"
git archive HEAD | tar -x -C "$work/blkreel"
# apt does not replace a package by one of the same version.
sed -i "1s/)/+git$(TZ=UTC git log -1 --date=format-local:%Y%m%d%H%M%S --format=%cd))/" "$work/blkreel/debian/changelog"
rm -f "$output"/blkreel_*.deb
if ! (cd "$work/blkreel" && dpkg-buildpackage --build=binary --unsigned-changes) >"$output/deb.log" 2>&1; then
	tail -50 "$output/deb.log" >&2
	echo "make deb: the build failed; all of its output: $output/deb.log" >&2
	exit 1
fi
mv "$work"/blkreel_*.deb "$output"
ls -l "$output"/blkreel_*.deb
