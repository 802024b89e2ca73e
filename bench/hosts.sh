#!/usr/bin/env bash
# Copies by the QEMU builds of Debian's suites, under libvirt and plain: lost writes at starts, pivots, cancels and kills (`terrace host
# qualify`), and the tests that kill agent, libvirtd and QEMU during moves. The control is QEMU 10.0.2, which has issue 3273: its
# qualification must find lost writes, otherwise the test is blind and the script fails.
# usage: bench/hosts.sh [--minutes N] [--kills N] [7.2|10.0|11.1|control]...
# Builds a chroot for each build below target/hosts, about a minute and 350 MiB each. A step that has a result for this commit is not
# repeated. Needs root, mmdebstrap, jq and a Debian archive; without them it fails, because the control could not be run.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=10 kills=10 chosen=
while [ $# -gt 0 ]; do
  case $1 in
    --minutes) minutes=$2; shift 2 ;;
    --kills) kills=$2; shift 2 ;;
    7.2 | 10.0 | 11.1 | control) chosen+=" $1"; shift ;;
    *) echo "unknown argument $1" >&2; exit 2 ;;
  esac
done
chosen=${chosen:- control 7.2 10.0 11.1}
fail() { echo "FAILED: $*"; exit 1; }
[ "$(id -u)" = 0 ] || fail "needs root"
for command in mmdebstrap jq chroot unshare; do command -v $command >/dev/null || fail "needs $command"; done
# All mounts end with the script.
if [ -z "${HOSTS_INSIDE:-}" ]; then
  HOSTS_INSIDE=1 exec unshare --mount --propagation private "$0" --minutes "$minutes" --kills "$kills" $chosen
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
  case $1 in 10.0 | 11.1) suite=trixie; packages+=,libvirt-daemon-driver-storage ;; esac
  case $1 in 11.1 | control) backports=yes ;; esac
  packages+=,nbdkit,procps
  [ ! -d "$dir/$1" ] || return 0
  rm -rf "$dir/$1.new"
  local sources=("deb [signed-by=$keys] $archive $suite main") options=()
  if [ -n "$backports" ]; then
    sources+=("deb [signed-by=$keys] $archive $suite-backports main")
    options=(--aptopt="APT::Default-Release \"$suite-backports\"")
  fi
  mmdebstrap --quiet --variant=apt --aptopt='APT::Install-Recommends "false"' --dpkgopt=force-unsafe-io \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    "${options[@]}" --include="$packages" "$suite" "$dir/$1.new" "${sources[@]}"
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

# killed BUILD TEST: a test with so many kills.
killed() {
  chroot "$dir/$1" env -i PATH=/usr/bin:/usr/sbin:/bin HOME=/root TERRACE_SEEDS="0..$kills" \
    TERRACE_HAS="virsh libvirtd qemu-system-x86_64 qemu-img" "$suite" --exact "$2" --nocapture
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
suite=${SUITE:-$(cargo test --quiet --locked -p cli --test suite --no-run --message-format json |
  jq -r 'select(.profile.test == true and .target.name == "suite") | .executable' | tail -n 1)}
terrace=${TERRACE:-$target/debug/terrace}
failed=
for build in $chosen; do
  step "$build.root" root "$build"
  mounts "$build"
  step "$build.versions" chroot "$dir/$build" dpkg-query -W -f '${Version} ' qemu-system-x86 libvirt-daemon
  for way in libvirt qemu; do step "$build.$way" qualify "$build" $way; done
  if [ "$build" != control ] && [ "$kills" -gt 0 ]; then
    step "$build.kills-libvirt" killed "$build" machines::whatever_is_killed_no_domain_starts_from_a_stale_image
    step "$build.kills-qemu" killed "$build" qemu::no_start_script_of_plain_qemu_starts_from_a_stale_image
  fi
done

printf '\n%-8s %-8s %-44s %6s %6s %7s %5s %8s %5s  %s\n' build way 'QEMU, build-id' starts pivots cancels kills writes lost result
for build in $chosen; do
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
[ -z "$failed" ] || fail "$failed"
echo "the control loses writes, and no other build does"
