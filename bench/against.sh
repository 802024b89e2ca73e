#!/bin/sh
# Speeds of this tree beside another commit's, in turn, in one run: replay, planning, flash translation, caches, the engine, NBD.
# Usage: bench/against.sh COMMIT [RUNS [PART...]]        7 runs of each; PART: the beginning of a name in the table
# Both are built with the profile `dist`, or that in PROFILE, as this tree has it, and measured by their own crate `bench`.
# Prints medians and their ratio (1 or more: no slower) and ends with an error where one is below 0.95. NBD needs fio, else it is skipped.
set -eu
cd "$(dirname "$0")/.."
commit=${1:?usage: bench/against.sh COMMIT [RUNS [PART...]]}
shift
target=${CARGO_TARGET_DIR:-$PWD/target}
other=$target/against
rm -rf "$other"
mkdir -p "$other"
git archive "$commit" | tar -x -C "$other"
profile=${PROFILE:-dist}
# The program itself is measured over NBD alone.
programs="-p bench -p cli"
[ $# -lt 2 ] || case " $* " in *" nbd"*) ;; *) programs="-p bench" ;; esac
# shellcheck disable=SC2086
cargo build --quiet --locked --profile "$profile" $programs
# Its lock file may not know the crate, nor its manifest the profile.
(cd "$other" && CARGO_TARGET_DIR=$target/against-target cargo build --quiet --profile "$profile" \
  --config "profile.dist.inherits='release'" --config "profile.dist.lto='thin'" --config "profile.dist.codegen-units=4" \
  --config "profile.dist.debug='line-tables-only'" $programs)
exec python3 bench/against.py "$target/$profile" "$target/against-target/$profile" "$@"
