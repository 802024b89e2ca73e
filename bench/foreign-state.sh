#!/usr/bin/env bash
# Starts and servers on damaged and foreign storage, with real clients: mounted devices, devices of
# other arrays, mkfs and mount of a served device, an overwritten superblock, damaged and older
# maps, an older device, two servers on one remote tier.
# Prints a table of case, expected result and seen result; fails if two results differ.
# usage: bench/foreign-state.sh
# Needs root, loop devices, mkfs.ext4, nbdkit, qemu-io and jq; prints "skipped" without them.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/skip.sh
[ "$(id -u)" = 0 ] || skip "root"
for program in nbdkit qemu-io jq mkfs.ext4 losetup; do command -v $program >/dev/null || skip "$program"; done
[ -e /dev/loop-control ] || skip "loop"
. bench/cases.sh

rebuilt() { # ARRAY: waits until both copies of the map are current
  for _ in $(seq 600); do
    "$terrace" array copies --array "$dir/$1" -o json | jq -e '[.copies[].state] == ["current", "current"]' >/dev/null && return
    sleep 0.1
  done
}
# flip FILE: flips one bit in every page that is not zero, except the first.
flip() {
  /usr/bin/python3 - "$1" <<'PY'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
for page in range(1, len(data) // 4096):
    if any(data[page * 4096:(page + 1) * 4096]):
        data[page * 4096 + 300] ^= 4
open(sys.argv[1], "r+b").write(data)
PY
}

# Devices.
loop mounted; mkfs.ext4 -q "$device"; mkdir "$dir/mount"; mount "$device" "$dir/mount"; mounted=$dir/mount
echo precious >"$dir/mount/data"
row "tier add of a mounted device" refused "$(outcome "$terrace" tier add block --device "$device" --force --array "$dir/a")"
row "message names the mount" named "$(names "$dir/mount")"
umount "$dir/mount"; mounted=
row "tier add of a device with a file system" refused "$(outcome "$terrace" tier add block --device "$device" --array "$dir/a")"
row "message names the file system" named "$(names ext4)"
loop other
"$terrace" tier add block --device "$device" --array "$dir/other-array" >/dev/null
row "tier add of another array's device" refused "$(outcome "$terrace" tier add block --device "$device" --array "$dir/a")"
loop served; served=$device
mkdir "$dir/files"
"$terrace" tier add block --device "$served" --array "$dir/a" >/dev/null
"$terrace" tier add files --dir "$dir/files" --size 64M --array "$dir/a" >/dev/null
"$terrace" volume create db --size 16M --tier block --array "$dir/a" >/dev/null
"$terrace" volume create logs --size 16M --tier files --array "$dir/a" >/dev/null
serve a; put a db 0x11; put a logs 0x22
# On a busy machine the new device may be too slow for the first writes, which then go to the other tier.
"$terrace" volume move db --to block --wait --array "$dir/a" >/dev/null 2>&1 || true
row "the volume is on its device" "4 MiB" \
  "$("$terrace" tier list --array "$dir/a" -o json | jq -r '.tiers[] | select(.name == "block") | .used')"
row "mkfs of a served device" refused "$(outcome mkfs.ext4 -q -F "$served")"
row "mount of a served device" refused "$(outcome mount "$served" "$dir/mount")"
row "the guest's data" right "$(holds a db 0x11)"
stop
head -c 8192 /dev/urandom >"$dir/foreign"
# Past the page cache, as the server does it. A write of the superblock that began before that of the foreign program may end after it,
# therefore several attempts.
are_foreign() { dd if="$served" iflag=direct bs=8k count=1 status=none | cmp -s - "$dir/foreign"; }
for _ in 1 2 3 4 5; do
  serve a
  dd if="$dir/foreign" of="$served" oflag=direct bs=8k count=1 conv=notrunc status=none
  sleep 1
  stop
  ! are_foreign || break
done
row "orderly stop over a foreign superblock" "unchanged" "$(are_foreign && echo "unchanged" || echo stamped)"
serve a
row "volume of the overwritten device" error "$(holds a db 0x11)"
row "volume of another device" right "$(holds a logs 0x22)"
stop

# Maps.
mkdir "$dir/m1" "$dir/m2"
"$terrace" tier add one --dir "$dir/m1" --size 64M --array "$dir/b" >/dev/null
"$terrace" tier add two --dir "$dir/m2" --size 64M --array "$dir/b" >/dev/null
"$terrace" volume create db --size 16M --tier one --array "$dir/b" >/dev/null
serve b; put b db 0x33
rebuilt b
second=$("$terrace" array copies --array "$dir/b" -o json | jq -r '.copies[1].path')
stop
flip "$dir/b/map.redb"
begin b; row "start with a damaged first copy" done "$seen"
row "the guest's data" right "$(holds b db 0x33)"
rebuilt b; stop
flip "$second"
begin b; row "start with a damaged second copy" done "$seen"
row "the guest's data" right "$(holds b db 0x33)"
rebuilt b; stop
cp -a "$dir/b" "$dir/b.kept"; cp -a "$second" "$dir/second.kept"; cp -a "$dir/m1" "$dir/m1.kept"
flip "$dir/b/map.redb"; flip "$second"
begin b; row "start with two damaged copies" refused "$seen"
row "message names the recoverable volumes" named "$(cp "$dir/b.log" "$dir/output"; names "recovered")"
cp -a "$dir/b.kept/map.redb" "$dir/b/map.redb"; cp -a "$dir/second.kept" "$second"
serve b; put b db 0x44; stop
serve b; stop
for copy in "$dir/b/map.redb" "$second"; do cp -a "$copy" "$copy.now"; done
cp -a "$dir/b.kept/map.redb" "$dir/b/map.redb"; cp -a "$dir/second.kept" "$second"
begin b; row "start with older copies of the map" refused "$seen"
for copy in "$dir/b/map.redb" "$second"; do mv "$copy.now" "$copy"; done
cp -a "$dir/m1/one-0.extents" "$dir/one.now"; cp -a "$dir/m1.kept/one-0.extents" "$dir/m1/one-0.extents"
serve b
row "volume on an older device" error "$(holds b db 0x44)"
stop
cp -a "$dir/one.now" "$dir/m1/one-0.extents"
serve b
row "volume on the newest device" right "$(holds b db 0x44)"
stop

# Maps of other arrays, and cut off.
cp -a "$dir/b/map.redb" "$dir/b.now"; cp -a "$dir/a/map.redb" "$dir/b/map.redb"
begin b; row "start with the first copy of another array" done "$seen"
row "the guest's data" right "$(holds b db 0x44)"
rebuilt b; stop
truncate -s 5000 "$dir/b/map.redb"
begin b; row "start with a truncated first copy" done "$seen"
row "the guest's data" right "$(holds b db 0x44)"
rebuilt b; stop
"$terrace" array copy --none --array "$dir/b" >/dev/null
cp -a "$dir/b/map.redb" "$dir/b.now"; cp -a "$dir/a/map.redb" "$dir/b/map.redb"
begin b; row "start with the only copy of another array" refused "$seen"
cp -a "$dir/b.now" "$dir/b/map.redb"
printf '\x04' | dd of="$dir/b/map.redb" bs=1 seek=9 conv=notrunc status=none
begin b; row "start with a damaged flag in the only copy" done "$seen"
row "the guest's data" right "$(holds b db 0x44)"
stop

# A remote tier.
nbdkit -f -U "$dir/export.sock" memory 64M >/dev/null 2>&1 & servers+=" $!"
for _ in $(seq 500); do [ -S "$dir/export.sock" ] && break; sleep 0.02; done
"$terrace" tier add far --nbd "nbd+unix:///?socket=$dir/export.sock" --array "$dir/c" >/dev/null
"$terrace" volume create db --size 16M --tier far --array "$dir/c" >/dev/null
cp -a "$dir/c" "$dir/c2"
serve c; put c db 0x55; first=$server
begin c2; row "second server from a copy of the array" refused "$seen"
server=$first
row "the guest's data" right "$(holds c db 0x55)"
stop

result
