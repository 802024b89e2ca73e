# Sources of imports: formats, truncated images, content that is not carried over, sectors, and NBD
# servers with limits. Needs qemu-img and qemu-nbd; other programs where a case says so.

"$terrace" tier add im --array "$dir/im" --dir "$(mkdir -p "$dir/im-tier"; echo "$dir/im-tier")" \
  --size 1G --direct off >/dev/null
mkdir "$dir/im-src"; im=$dir/im-src
truncate -s 16M "$im/disk.raw"
dd if=/dev/urandom of="$im/disk.raw" bs=1M count=3 conv=notrunc status=none
import() { outcome timeout 60 "$terrace" volume import "$@" --array "$dir/im" --tier im; }
im_same() { # VOLUME: whether it holds what disk.raw holds
  if qemu-img compare -f raw -F raw "$(uri im "$1")" "$im/disk.raw" >"$dir/output" 2>&1
  then echo same; else echo differs; fi
}
im_convert() { # FORMAT FILE [OPTION...]
  local format=$1 file=$2; shift 2
  qemu-img convert -f raw -O "$format" "$@" "$im/disk.raw" "$im/$file"
}

# Servers that allow one client, or start late; from an array that is not served.
if command -v nbdkit >/dev/null; then
  for n in 1 2 3 4 5; do
    nbdkit -f -U "$im/one-$n.sock" --filter=limit file "$im/disk.raw" limit=1 2>/dev/null & pid=$!
    servers+=" $pid"
    row "one client, array not served, $n" done "$(import "im-one-$n" "nbd+unix:///?socket=$im/one-$n.sock")"
    kill $pid
  done
  { sleep 1; exec nbdkit -f -U "$im/late.sock" file "$im/disk.raw" 2>/dev/null; } & pid=$!
  servers+=" $pid"
  row "a server that starts late" done "$(import im-late "nbd+unix:///?socket=$im/late.sock")"
  kill $pid
  for least in 512 4096 65536; do
    nbdkit -f -U "$im/sizes-$least.sock" --filter=blocksize-policy file "$im/disk.raw" \
      blocksize-minimum=$least blocksize-preferred=65536 blocksize-maximum=65536 \
      blocksize-error-policy=error 2>/dev/null & pid=$!
    servers+=" $pid"
    row "requests of $least to 65536 bytes" done \
      "$(import "im-sizes-$least" "nbd+unix:///?socket=$im/sizes-$least.sock")"
    kill $pid
  done
else
  echo "skipped: needs nbdkit"
fi
qemu-nbd -r --shared=1 -f raw -k "$im/qemu.sock" "$im/disk.raw" & servers+=" $!"
row "qemu-nbd that ends with its client" done "$(import im-qemu "nbd+unix:///?socket=$im/qemu.sock")"

serve im
for volume in im-qemu im-sizes-512 im-sizes-4096 im-sizes-65536; do
  "$terrace" volume show "$volume" --array "$dir/im" >/dev/null 2>&1 || continue
  row "content of $volume" same "$(im_same "$volume")"
done

# Files that are no raw disks.
im_convert qcow2 d.qcow2; im_convert vmdk d.vmdk; im_convert vdi d.vdi; im_convert vhdx d.vhdx
im_convert qed d.qed; im_convert parallels d.hds; im_convert qcow d.qcow; im_convert vpc d.vhd
im_convert vpc fixed.vhd -o subformat=fixed,force_size=on
im_convert vmdk flat.vmdk -o subformat=monolithicFlat
im_convert vmdk stream.vmdk -o subformat=streamOptimized
im_convert vmdk parts.vmdk -o subformat=twoGbMaxExtentSparse
truncate -s %512 "$im/flat.vmdk" "$im/parts.vmdk"
for pair in d.qcow2:qcow2 d.vmdk:vmdk d.vdi:vdi d.vhdx:vhdx d.qed:qed d.hds:parallels d.qcow:qcow \
  d.vhd:vpc fixed.vhd:vpc flat.vmdk:vmdk stream.vmdk:vmdk parts.vmdk:vmdk; do
  file=${pair%:*} format=${pair#*:}
  row "$file without --format" refused "$(import "im-no-$file" "$im/$file")"
  row "its conversion" named "$(names "qemu-img convert -f $format -O raw $im/$file $im/$file.raw")"
  row "$file --format $format" done "$(import "im-$file" "$im/$file" --format "$format")"
  row "its content" same "$(im_same "im-$file")"
done
for tool in xz gzip bzip2 zstd lz4; do
  command -v $tool >/dev/null || { echo "skipped: needs $tool"; continue; }
  "$tool" -1 -c "$im/d.vmdk" >"$im/d.$tool"; truncate -s %512 "$im/d.$tool"
  row "compressed with $tool" refused "$(import "im-no-$tool" "$im/d.$tool")"
  row "its command" named "$(names "$tool -dc $im/d.$tool > ")"
done
tar -C "$im" -cf "$im/a b.ova" d.vmdk
row "ova" refused "$(import im-no-ova "$im/a b.ova")"
row "its command" named "$(names "tar xf '$im/a b.ova'\`, then \`qemu-img convert -f vmdk -O raw d.vmdk")"

# Truncated images. The last ones are cut where `qemu-img check` sees nothing.
for pair in d.qcow2:qcow2 d.vmdk:vmdk d.vdi:vdi d.vhdx:vhdx d.qed:qed d.hds:parallels d.qcow:qcow \
  d.vhd:vpc stream.vmdk:vmdk; do
  file=${pair%:*} format=${pair#*:}
  for cut in 4K 60K 1500K; do
    cp "$im/$file" "$im/cut-$file"; truncate -s "-$cut" "$im/cut-$file"
    row "$file without its last $cut" refused \
      "$(import "im-cut-$file-$cut" "$im/cut-$file" --format "$format")"
  done
done
seq 1 400000 >"$im/text"; truncate -s 4M "$im/text"
qemu-img convert -f raw -O qcow2 -c "$im/text" "$im/packed.qcow2"
for cut in 512 6K; do
  cp "$im/packed.qcow2" "$im/cut.qcow2"; truncate -s "-$cut" "$im/cut.qcow2"
  row "compressed qcow2 without its last $cut" refused \
    "$(import "im-cut-packed-$cut" "$im/cut.qcow2" --format qcow2)"
done
cp "$im/flat.vmdk" "$im/short.vmdk"; sed -i 's/flat-flat/short-flat/' "$im/short.vmdk"
cp "$im/flat-flat.vmdk" "$im/short-flat.vmdk"; truncate -s 1M "$im/short-flat.vmdk"
row "vmdk with a short flat file" refused "$(import im-cut-short "$im/short.vmdk" --format vmdk)"
cp "$im/d.qcow2" "$im/corrupt.qcow2"
printf '\2' | dd of="$im/corrupt.qcow2" bs=1 seek=79 conv=notrunc status=none
row "qcow2 that is marked corrupt" refused "$(import im-cut-corrupt "$im/corrupt.qcow2" --format qcow2)"

# Content that a volume does not have.
cp "$im/d.qcow2" "$im/more.qcow2"
qemu-img snapshot -c before "$im/more.qcow2"; qemu-img bitmap --add "$im/more.qcow2" since
row "qcow2 with a snapshot and a bitmap" done "$(import im-more "$im/more.qcow2" --format qcow2)"
row "the lost snapshots and bitmaps are named" named "$(names "1 internal snapshot and 1 persistent bitmap")"
row "the image is reported as no longer needed" "not named" "$(names "no longer needed")"

# Logical blocks of 4096 bytes.
if command -v losetup >/dev/null && [ "$(id -u)" = 0 ]; then
  truncate -s 64M "$im/4kn"
  if device=$(losetup --sector-size 4096 --show -f "$im/4kn"); then
    loops+=" $device"
    row "a device with blocks of 4096 bytes" done "$(import im-4kn "$device")"
    stop; serve im
    "$terrace" volume xml im-4kn --array "$dir/im" >"$dir/output" 2>&1 || true
    row "volume xml, after a restart" named "$(names "logical_block_size='4096'")"
    "$terrace" volume snapshot create im-4kn s --array "$dir/im" >/dev/null
    "$terrace" volume show im-4kn@s --array "$dir/im" >"$dir/output" 2>&1 || true
    row "its snapshot" named "$(names "4096 B")"
    row "grown to a size that is not a multiple" refused \
      "$(outcome "$terrace" volume resize im-4kn --size 67109376B --array "$dir/im")"
  fi
else
  echo "skipped: needs losetup as root"
fi
stop
