# A full file system under the map, sizes that no file system has, and devices that fail for a while.
await() { # COMMAND...: prints yes when the command succeeds, no after 60 s
  for _ in $(seq 300); do
    if "$@" >"$dir/output" 2>&1; then echo yes; return; fi
    sleep 0.2
  done
  echo no
}
status() { "$terrace" tier list --array "$dir/$1"; }
can_write() { # ARRAY VOLUME OFFSET: prints done or refused
  if qemu-io -f raw -c "write -P 9 $3 64k" -c flush "$(uri "$1" "$2")" >"$dir/output" 2>&1 && ! grep -qi failed "$dir/output"; then
    echo done
  else
    echo refused
  fi
}
if [ "$(id -u)" != 0 ] || ! command -v nbdsh >/dev/null; then
  echo "skipped: needs root and nbdsh"
else
  mkdir "$dir/full-map" "$dir/full-one" "$dir/full-two"
  mount -t tmpfs -o size=16m tmpfs "$dir/full-map"
  mounted="$dir/full-map"
  mkdir "$dir/full-map/array"
  ln -s "$dir/full-map/array" "$dir/full"
  "$terrace" tier add one --array "$dir/full" --dir "$dir/full-one" --size 8G --extent 64K >/dev/null
  "$terrace" tier add two --array "$dir/full" --dir "$dir/full-two" --size 8G >/dev/null
  "$terrace" array copy --none --array "$dir/full" >/dev/null
  "$terrace" volume create data --array "$dir/full" --tier one --size 64M >/dev/null
  "$terrace" volume create spare --array "$dir/full" --tier one --size 64M >/dev/null
  "$terrace" volume create big --array "$dir/full" --tier one --size 7G >/dev/null
  serve full
  put full data 0x51
  fill() { cat /dev/zero >>"$dir/full-map/filler" 2>/dev/null || true; }
  fill
  row "map disk full: read" right "$(holds full data 0x51)"
  row "map disk full: overwrite" done "$(can_write full data 0)"
  # One sector in each new extent, until the map has to grow.
  cat >"$dir/full.py" <<'END'
import errno, nbd
failed = []
def done(error):
    if error.value:
        failed.append(error.value)
    return 1
sector = nbd.Buffer.from_bytearray(bytearray(b"\3" * 512))
for extent in range(h.get_size() // 65536):
    while h.aio_in_flight() > 200:
        h.poll(-1)
    if failed:
        break
    h.aio_pwrite(sector, extent * 65536, completion=done)
while h.aio_in_flight() > 0:
    h.poll(-1)
print(sorted({errno.errorcode[code] for code in failed}))
END
  PATH=/usr/bin:$PATH nbdsh -u "$(uri full big)" -c "$(cat "$dir/full.py")" >"$dir/output" 2>&1
  row "map disk full: new extents fail at last" named "$(names "['ENOSPC']")"
  row "map disk full: a new volume" refused "$(outcome "$terrace" volume create more --array "$dir/full" --tier one --size 1M)"
  row "the file system is named" named "$(names "is full")"
  row "map disk full: read after that" right "$(qemu-io -f raw -c "read -P 0x51 64k 3M" "$(uri full data)" >"$dir/output" 2>&1 && echo right)"
  row "map disk full: trim" done "$(outcome qemu-io -f raw -c 'discard 0 64M' "$(uri full spare)")"
  row "map disk full: move" done "$(outcome "$terrace" volume move data --array "$dir/full" --to two --wait)"
  fill
  stop
  begin full
  row "map disk full: start" done $seen
  row "map disk full: read after the start" right "$(qemu-io -f raw -c "read -P 0x51 64k 3M" "$(uri full data)" >"$dir/output" 2>&1 && echo right)"
  row "map disk full: delete" done "$(outcome "$terrace" volume delete spare --array "$dir/full" --yes)"
  row "map disk full: the largest volume is deleted" done "$(outcome "$terrace" volume delete big --array "$dir/full" --yes)"
  rm "$dir/full-map/filler"
  row "space is freed: a new volume" done "$(outcome "$terrace" volume create more --array "$dir/full" --tier one --size 1M)"
  row "space is freed: new extents" done "$(can_write full more 0)"
  stop

  mkdir "$dir/full-map/thin"
  row "tier add larger than the file system" refused "$(outcome "$terrace" tier add thin --array "$dir/thin" --dir "$dir/full-map/thin" --size 1G)"
  row "the option is named" named "$(names --thin)"
  row "tier add --thin" done "$(outcome "$terrace" tier add thin --array "$dir/thin" --dir "$dir/full-map/thin" --size 1G --thin)"
  umount "$dir/full-map"
  mounted=
fi

if ! command -v nbdkit >/dev/null; then
  echo "skipped: needs nbdkit"
else
  nbdkit -f -U "$dir/flaky.sock" --filter=error memory 64M error=EIO error-rate=100% error-file="$dir/flaky.fail" &
  servers+=" $!"
  "$terrace" tier add far --array "$dir/flaky" --nbd "nbd+unix:///?socket=$dir/flaky.sock" >/dev/null
  "$terrace" volume create far --array "$dir/flaky" --tier far --size 16M >/dev/null
  mkdir "$dir/flaky-near"
  "$terrace" tier add near --array "$dir/flaky" --dir "$dir/flaky-near" --size 32M >/dev/null
  "$terrace" volume create near --array "$dir/flaky" --tier near --size 16M >/dev/null
  serve flaky
  put flaky far 0x31
  put flaky near 0x32
  touch "$dir/flaky.fail"
  row "a device fails: read" error "$(holds flaky far 0x31)"
  row "a device fails: another volume" right "$(holds flaky near 0x32)"
  rm "$dir/flaky.fail"
  row "the device works again: read" right "$(holds flaky far 0x31)"
  stop KILL
  touch "$dir/flaky.fail"
  begin flaky
  row "a device fails at the start: start" done $seen
  row "a device fails at the start: another volume" right "$(holds flaky near 0x32)"
  status flaky >"$dir/output" 2>&1
  row "a device fails at the start: its name is reported" named "$(names "is lost")"
  rm "$dir/flaky.fail"
  is_right() { [ "$(holds flaky far 0x31)" = right ]; }
  row "the device works again: in use again" yes "$(await is_right)"
  stop
fi

if [ "$(id -u)" != 0 ] || ! command -v nbdkit nbdfuse losetup >/dev/null; then
  echo "skipped: needs root, nbdkit, nbdfuse and losetup"
else
  # A block device of this host that fails while guests use it.
  : >"$dir/disk"
  mounted="$dir/disk"
  nbdfuse "$dir/disk" --command nbdkit -s --exit-with-parent --filter=error memory 64M \
    error=EIO error-rate=100% error-file="$dir/disk.fail" >/dev/null 2>&1 &
  servers+=" $!"
  row "a block device" yes "$(await test -s "$dir/disk")"
  device=$(losetup --direct-io=on -f --show "$dir/disk")
  loops+=" $device"
  "$terrace" tier add disk --array "$dir/disks" --device "$device" --direct on >/dev/null
  "$terrace" volume create data --array "$dir/disks" --tier disk --size 16M >/dev/null
  serve disks
  is_written() { put disks data 0x41 && [ "$(holds disks data 0x41)" = right ]; }
  row "data is written" yes "$(await is_written)"
  touch "$dir/disk.fail"
  is_lost() { [ "$(holds disks data 0x41)" = error ] && status disks 2>&1 | grep -q "is lost"; }
  row "the device fails for long: lost" yes "$(await is_lost)"
  rm "$dir/disk.fail"
  is_right() { [ "$(holds disks data 0x41)" = right ]; }
  row "the device works again: in use again" yes "$(await is_right)"
  row "later writes" done "$(can_write disks data 0)"
  stop
  losetup -d "$device"
  loops=${loops% "$device"}
  umount "$mounted"
  mounted=
fi
