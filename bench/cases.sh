# Functions of the scripts that print a table of case, expected result and seen result. Source this
# file after bench/skip.sh. $dir is an empty directory that ends with the script; $terrace is the
# program; `servers`, `loops` and `mounted` name what has to end with the script.
terrace=${TERRACE:-$(PROFILE=release bench/program.sh cli terrace)}
dir=$(mktemp -d)
export NO_COLOR=1
servers= loops= mounted=
cleanup() {
  set +e
  for pid in $servers; do kill -9 "$pid" 2>/dev/null; done
  wait 2>/dev/null
  [ -z "$mounted" ] || umount "$mounted"
  for loop in $loops; do losetup -d "$loop"; done
  rm -rf "$dir"
}
trap cleanup EXIT

table=$'case\texpected\tseen\n' wrong=0
# row CASE EXPECTED SEEN
row() {
  table+="$1"$'\t'"$2"$'\t'"$3"$'\n'
  [ "$2" = "$3" ] || { wrong=$((wrong + 1)); echo "-- $1: expected $2, seen $3"; cat "$dir/output" 2>/dev/null || true; }
}
# outcome COMMAND...: prints refused or done; the output of the command is in $dir/output.
outcome() { if "$@" >"$dir/output" 2>&1; then echo done; else echo refused; fi; }
# names TEXT: prints named if the output of the last command has the text.
names() { if grep -qF -- "$1" "$dir/output"; then echo named; else echo "not named"; fi; }

loop() { # NAME: a block device of 64 MiB
  truncate -s 64M "$dir/$1"
  device=$(losetup -f --show "$dir/$1")
  loops+=" $device"
}
serve() { # ARRAY [OPTION...]
  local array=$1; shift
  rm -f "$dir/$array/nbd.sock"
  "$terrace" volume export --array "$dir/$array" "$@" >"$dir/$array.log" 2>&1 & server=$!
  servers+=" $server"
  for _ in $(seq 3000); do
    [ -S "$dir/$array/nbd.sock" ] && return 0
    kill -0 $server 2>/dev/null || return 1
    sleep 0.02
  done
  return 1
}
begin() { if serve "$@"; then seen=done; else seen=refused; fi; } # as serve; the outcome is in $seen
stop() { # [SIGNAL]
  kill "-${1:-TERM}" "$server"
  wait "$server" 2>/dev/null || true
}
uri() { echo "nbd+unix:///$2?socket=$dir/$1/nbd.sock"; }
put() { qemu-io -f raw -c "write -P $3 0 4M" -c flush "$(uri "$1" "$2")" >/dev/null; }
# holds ARRAY VOLUME PATTERN: prints "right" if the volume holds the pattern.
holds() {
  if qemu-io -f raw -c "read -P $3 0 4M" "$(uri "$1" "$2")" >"$dir/output" 2>&1 && ! grep -qi failed "$dir/output"; then echo right; else echo error; fi
}
# result: prints the table; fails if a row differs.
result() {
  printf '\n'
  printf '%s' "$table" | awk -F '\t' '{ printf "%-60s %-15s %s\n", $1, $2, $3 }'
  [ "$wrong" = 0 ] || { echo "$wrong cases differ"; exit 1; }
  echo "all as expected"
}
