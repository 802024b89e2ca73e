# Two controllers on one array, and a job that can never work. Sourced by bench/control-plane.sh.
controllers_config() { # NAME ARRAY EXTRA: the file of a controller beside the array's server
  cat >"$dir/$1.toml" <<TOML
strategy = "static"
window = "1s"
[controller]
state = "$1-state"
[array]
dir = "$2"
host = "h"
serve = "elsewhere"
[policy]
monitor_epoch = "1s"
migration_epoch = "2s"
hold = 1
cooldown = "0s"
[modes]
drain = "auto"
[[tiers]]
name = "fast"
preset = "nvme-tlc"
[[tiers]]
name = "slow"
preset = "sata-ssd"
TOML
}
controllers_start() { # NAME: the process is in $controller
  "$terrace" serve --config "$dir/$1.toml" >"$dir/$1.log" 2>&1 & controller=$!
  servers+=" $controller"
}
of() { # NAME COMMAND...: asks a controller
  local name=$1; shift
  TERRACE_CONTROLLER="unix:$dir/$name-state/controller.sock" "$terrace" "$@"
}
problem() { # NAME KIND: prints the problems of a kind that a controller reports
  of "$1" status -o json 2>/dev/null | jq -r --arg k "$2" '.problems[] | select(.kind == $k) | .what'
}
reported() { # NAME KIND TEXT SECONDS: prints named as soon as a problem of the kind has the text
  local i
  for i in $(seq $(($4 * 10))); do
    problem "$1" "$2" >"$dir/output" || true
    grep -qF -- "$3" "$dir/output" && { echo named; return; }
    sleep 0.1
  done
  echo "not named"
}
over() { # NAME KIND SECONDS: prints over as soon as there is no problem of the kind
  local i
  for i in $(seq $(($3 * 10))); do
    of "$1" status >/dev/null 2>&1 && [ -z "$(problem "$1" "$2")" ] && { echo over; return; }
    sleep 0.1
  done
  problem "$1" "$2" >"$dir/output"
  echo "not over"
}
jobs_of() { of "$1" job list -o json | jq "[.jobs[] | select(.started_ns != null)] | length"; }

if ! command -v jq >/dev/null; then
  echo "skipped: needs jq"
else
  mkdir "$dir"/lease-{fast,slow}
  "$terrace" tier add fast --dir "$dir/lease-fast" --size 128M --array "$dir/lease" >/dev/null
  "$terrace" tier add slow --dir "$dir/lease-slow" --size 128M --array "$dir/lease" >/dev/null
  "$terrace" volume create v --size 32M --tier fast --array "$dir/lease" >/dev/null
  serve lease
  lease_server=$server
  controllers_config lease-a lease
  controllers_config lease-b lease
  controllers_start lease-a; lease_a=$controller
  for _ in $(seq 300); do of lease-a tier list 2>/dev/null | grep -q slow && break; sleep 0.1; done
  sleep 2
  controllers_start lease-b; lease_b=$controller
  row "second controller reports the holder" named "$(reported lease-b two-controllers "$dir/lease-a-state" 30)"
  row "holder reports the second controller" named "$(reported lease-a two-controllers "$dir/lease-b-state" 30)"
  of lease-b tier drain fast >"$dir/output" 2>&1 || true
  row "second controller reports that its order has no effect" named "$(names "no effect yet")"
  sleep 5
  row "second controller starts no move" 0 "$(jobs_of lease-b)"
  row "a command of an operator needs no lease" done \
    "$(outcome "$terrace" volume move v --to slow --array "$dir/lease")"
  kill -9 $lease_a; wait $lease_a 2>/dev/null || true
  row "holder is killed: the second controller gets the lease" over "$(over lease-b two-controllers 30)"
  kill -9 "$lease_b" "$lease_server" 2>/dev/null
  wait "$lease_b" "$lease_server" 2>/dev/null || true

  # A move that can never work: the target's file system has no room for what the device promises.
  mkdir "$dir/never-slow"
  if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=8M none "$dir/never-slow" 2>/dev/null; then
    mounted="$dir/never-slow"
    mkdir "$dir/never-fast"
    "$terrace" tier add fast --dir "$dir/never-fast" --size 128M --array "$dir/never" >/dev/null
    "$terrace" tier add slow --dir "$dir/never-slow" --size 128M --thin --array "$dir/never" >/dev/null
    "$terrace" volume create v --size 64M --tier fast --array "$dir/never" >/dev/null
    serve never
    never_server=$server
    for at in 0 4 8 12 16 20; do
      qemu-io -f raw -c "write -P 7 ${at}M 4M" -c flush "$(uri never v)" >/dev/null
    done
    controllers_config never-a never
    controllers_start never-a; never_a=$controller
    for _ in $(seq 300); do of never-a tier list 2>/dev/null | grep -q slow && break; sleep 0.1; done
    of never-a tier drain fast >/dev/null
    row "permanently failing job: the problem has the number of attempts" named "$(reported never-a move-failing " time" 60)"
    row "permanently failing job: the problem names the next attempt" named "$(names attempt)"
    row "permanently failing job: the why output of the volume" named "$(of never-a why v >"$dir/output" 2>&1; names "has failed")"
    first=$(jobs_of never-a)
    sleep 10
    row "permanently failing job: at most 3 attempts in 10 s" yes \
      "$([ $(($(jobs_of never-a) - first)) -le 3 ] && echo yes || echo no)"
    row "permanently failing job: data of the volume" right "$(holds never v 7)"
    kill -9 "$never_a" "$never_server" 2>/dev/null
    wait "$never_a" "$never_server" 2>/dev/null || true
    umount "$mounted"; mounted=
  else
    echo "skipped: needs root for a small file system"
  fi
fi
