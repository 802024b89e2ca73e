#!/usr/bin/env bash
# Virtual machines under the builds of QEMU and libvirt of Debian's suites, and under the fake Proxmox VE cluster with this machine's QEMU:
# - lost writes at starts, pivots, cancels and kills of copies, by `terrace host qualify`, under libvirt and plain;
# - an operator's way from the installation of the package to the first confirmed move;
# - moves by the agent between files, NBD exports and block devices under guests that check their disks;
# - kills of agent, libvirtd and QEMU during moves.
# The control is QEMU 10.0.2, which has issue 3273: its qualification must find lost writes, otherwise the test is blind and the script fails.
# usage: bench/hosts.sh [--minutes N] [--moves N] [--kills N] [control|7.2|10.0|11.1|cluster]...
# Minutes of qualification, moves of each kind, kills of each way; 0 leaves them out. `--minutes 0` also leaves the operator out.
# Builds a chroot for each build below target/hosts, about a minute and 350 MiB each. A step that has a result for this commit is not
# repeated. Needs root, mmdebstrap, jq and a Debian archive; without them it fails, because the control could not be run.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=10 moves=6 kills=10 chosen=
while [ $# -gt 0 ]; do
  case $1 in
    --minutes) minutes=$2; shift 2 ;;
    --moves) moves=$2; shift 2 ;;
    --kills) kills=$2; shift 2 ;;
    7.2 | 10.0 | 11.1 | control | cluster) chosen+=" $1"; shift ;;
    *) echo "unknown argument $1" >&2; exit 2 ;;
  esac
done
chosen=${chosen:- control 7.2 10.0 11.1 cluster}
fail() { echo "FAILED: $*"; exit 1; }
[ "$(id -u)" = 0 ] || fail "needs root"
for command in mmdebstrap jq chroot unshare; do command -v $command >/dev/null || fail "needs $command"; done
# All mounts end with the script.
if [ -z "${HOSTS_INSIDE:-}" ]; then
  HOSTS_INSIDE=1 exec unshare --mount --propagation private "$0" --minutes "$minutes" --moves "$moves" --kills "$kills" $chosen
fi

dir=$PWD/target/hosts
commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
results=$dir/results/$commit
mkdir -p "$results"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
archive=${MIRROR:-$(sed -n 's/^URIs: //p' /etc/apt/sources.list.d/debian.sources | head -1)}

# root BUILD: creates its chroot, if there is none.
root() {
  local suite=bookworm backports='' packages=qemu-system-x86,qemu-utils,libvirt-daemon,libvirt-daemon-driver-qemu,libvirt-clients
  case $1 in
    10.0 | 11.1) suite=trixie packages+=,libvirt-daemon-driver-storage ;;
    7.2) packages+=,systemd-standalone-sysusers ;; # systemd of the backports has it
  esac
  case $1 in 11.1 | control) backports=yes ;; esac
  packages+=,nbdkit,procps,mount
  [ ! -d "$dir/$1" ] || return 0
  rm -rf "$dir/$1.new"
  local sources=("deb [signed-by=$keys] $archive $suite main") options=()
  if [ -n "$backports" ]; then
    sources+=("deb [signed-by=$keys] $archive $suite-backports main")
    options=(--aptopt="APT::Default-Release \"$suite-backports\"")
  fi
  # A step is run as a condition, in which `set -e` has no effect.
  mmdebstrap --quiet --variant=apt --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Retries "5"' --dpkgopt=force-unsafe-io \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    "${options[@]}" --include="$packages" "$suite" "$dir/$1.new" "${sources[@]}" || return 1
  mv "$dir/$1.new" "$dir/$1"
}

# mounts BUILD: what QEMU, libvirt and the programs of this checkout need inside.
mounts() {
  local at=$dir/$1
  mountpoint -q "$at/proc" && return
  mount -t proc proc "$at/proc"
  mount -t sysfs -o ro sys "$at/sys"
  mount --rbind /dev "$at/dev"
  mount -t tmpfs -o mode=1777 tmpfs "$at/tmp"
  mkdir -p "$at$target"
  mount --bind "$target" "$at$target"
}

# qualify BUILD libvirt|qemu: the qualification by an ordinary user, as JSON.
qualify() {
  local at=$dir/$1 work=/tmp/$2 way=(--libvirt qemu:///session)
  [ "$2" = libvirt ] || way=(--qemu qemu-system-x86_64)
  for sub in '' run state config cache images; do install -d -o nobody -g nogroup -m 700 "$at$work/$sub"; done
  cp "$terrace" "$at/tmp/terrace"
  # Its result is in the output, whatever it is.
  chroot --userspec=nobody:nogroup "$at" env -i PATH=/usr/bin:/usr/sbin HOME="$work" XDG_RUNTIME_DIR="$work/run" XDG_STATE_HOME="$work/state" \
    XDG_CONFIG_HOME="$work/config" XDG_CACHE_HOME="$work/cache" \
    /tmp/terrace host qualify --minutes "$minutes" "${way[@]}" -o json "$work/images" || true
}

# tested BUILD COUNT TEST: a test with so many moves or kills. Its last line has what it did.
tested() {
  local into=(chroot "$dir/$1")
  [ "$1" != cluster ] || into=()
  timeout 7200 "${into[@]}" env -i PATH=/usr/bin:/usr/sbin:/bin:/sbin HOME=/root LC_ALL=C TERRACE_SEEDS="0..$2" \
    TERRACE_HAS="virsh libvirtd qemu-system-x86_64 qemu-img nbdkit losetup loop root openssl python3" "$suite" --exact "$3" --nocapture 2>&1
}

# first BUILD: an operator's first twenty minutes, from the installation of the package to a confirmed move.
first() {
  local at=$dir/$1
  [ "$1" != cluster ] || at=cluster
  timeout 1800 python3 bench/first-moves.py "$at" "$package"
}

# step NAME COMMAND...: runs a command, unless it has a result; the result is its output.
step() {
  local name=$1
  shift
  [ ! -s "$results/$name" ] || return 0
  echo "== $name" >&2
  if "$@" >"$results/$name.new" 2>"$results/$name.log"; then
    mv "$results/$name.new" "$results/$name"
  else
    tail -n 5 "$results/$name.new" "$results/$name.log"
    failed+=" $name"
  fi
}

target=$(cargo metadata --locked --no-deps --format-version 1 | jq -r .target_directory)
# TERRACE and SUITE name programs that are built already. The suite runs target/debug/terrace.
suite=${SUITE:-$(cargo nextest list --workspace --locked --list-type binaries-only --message-format json |
  jq -r '."rust-binaries"["cli::suite"]."binary-path"')}
terrace=${TERRACE:-$target/debug/terrace}
[ "$minutes" = 0 ] || package=$(packaging/deb/build.sh -p "$terrace" -o "$dir" -Z gzip)
failed=
for build in $chosen; do
  if [ "$build" = cluster ]; then
    [ "$minutes" = 0 ] || step cluster.first first cluster
    [ "$moves" = 0 ] || step cluster.moves tested cluster $((moves * 2)) proxmox::moves_of_a_cluster_preserve_all_writes
    continue
  fi
  step "$build.root" root "$build"
  mounts "$build"
  step "$build.versions" chroot "$dir/$build" dpkg-query -W -f '${Version} ' qemu-system-x86 libvirt-daemon
  if [ "$minutes" != 0 ]; then
    for way in libvirt qemu; do step "$build.$way" qualify "$build" $way; done
  fi
  [ "$build" != control ] || continue
  [ "$minutes" = 0 ] || step "$build.first" first "$build"
  if [ "$moves" != 0 ]; then
    # Three kinds of moves in turn; the first of these tests ends with one more.
    step "$build.moves-files" tested "$build" $((moves * 3 + 1)) machines::disk_moves_through_all_tiers_without_data_loss
    step "$build.moves-devices" tested "$build" $((moves * 3)) devices::disk_moves_between_files_and_devices_without_data_loss
  fi
  if [ "$kills" != 0 ]; then
    step "$build.kills-libvirt" tested "$build" "$kills" machines::domain_does_not_start_from_a_stale_image_after_kills
    step "$build.kills-qemu" tested "$build" "$kills" qemu::plain_qemu_does_not_start_from_a_stale_image
  fi
done

if [ "$minutes" != 0 ]; then
  printf '\n%-8s %-8s %-44s %6s %6s %7s %5s %8s %5s  %s\n' build way 'QEMU, build-id' starts pivots cancels kills writes lost result
  for build in ${chosen/cluster/}; do
    for way in libvirt qemu; do
      result=$results/$build.$way
      expected=qualified
      [ "$build" != control ] || expected=failed
      if [ -s "$result" ]; then
        jq -r --arg build "$build" '[$build, .by, "\(.build | split(" ")[0]), \(.build_id[:32])",
          (.storages[0] | .starts, .pivots, .cancels, .kills, .writes, .lost), .result] | @tsv' "$result" |
          awk -F '\t' '{ printf "%-8s %-8s %-44s %6d %6d %7d %5d %8d %5d  %s\n", $1, $2, $3, $4, $5, $6, $7, $8, $9, $10 }'
        found=$(jq -r .result "$result")
        [ "$found" = $expected ] || failed+=" $build.$way($found)"
      else
        failed+=" $build.$way"
      fi
    done
  done
fi
printf '\n%-8s %-14s %s\n' build test 'result; no move and no kill lost a write'
for result in "$results"/*.first "$results"/*.moves* "$results"/*.kills*; do
  case $result in *.log | *.new | *'*'*) continue ;; esac
  name=${result##*/}
  did=$(grep -E '^[0-9]+ (moves|starts|s from)' "$result" | tail -n 1) || failed+=" $name(skipped)"
  printf '%-8s %-14s %s\n' "${name%.*}" "${name##*.}" "$did"
done
[ -z "$failed" ] || fail "$failed"
echo "no build lost a write, except the control if it was chosen"
