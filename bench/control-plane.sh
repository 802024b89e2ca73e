#!/usr/bin/env bash
# Trouble of the control plane under guests: damaged stores, full disks, hostile agents, two
# controllers, refused tokens, hopeless jobs. With real clients.
# Prints a table of case, expected result and seen result; fails if two results differ.
# usage: bench/control-plane.sh [NAME...]
# NAME is a file in bench/control-plane; all are run without one.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/skip.sh
. bench/cases.sh
[ $# -gt 0 ] || set -- $(cd bench/control-plane && ls *.sh)
for name; do
  name=${name%.sh}
  printf -- '-- %s\n' "$name"
  . "bench/control-plane/$name.sh"
done
result
