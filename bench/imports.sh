#!/usr/bin/env bash
# Imports, exports and advice that lose nothing: sources that are cut off, damaged or no disks, and
# printed commands for images that a copy would change. With real clients.
# Prints a table of case, expected result and seen result; fails if two results differ.
# usage: bench/imports.sh [NAME...]
# NAME is a file in bench/imports; all are run without one.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/skip.sh
. bench/cases.sh
[ $# -gt 0 ] || set -- $(cd bench/imports && ls *.sh)
for name; do
  name=${name%.sh}
  printf -- '-- %s\n' "$name"
  . "bench/imports/$name.sh"
done
result
