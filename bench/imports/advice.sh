# Moves of disks of virtual machines: what a copy would lose is refused alike by why, pin, plan and
# printed command; a printed command and a job keep every option of a qcow2 image.
# Sourced by bench/imports.sh.
advice() {
  local home=$dir/advice name option why command
  local keep=compat=1.1,cluster_size=131072,lazy_refcounts=on,refcount_bits=32,extended_l2=on,compression_type=zstd
  mkdir -p "$home/slow" "$home/fast" "$home/run"
  chmod 755 "$dir"
  install -m 755 "$terrace" "$home/terrace"
  for name in hand job snapshot bitmap; do
    qemu-img create -q -f qcow2 -o "$keep" "$home/slow/$name.qcow2" 8M
  done
  qemu-img snapshot -c before "$home/slow/snapshot.qcow2"
  qemu-img bitmap --add "$home/slow/bitmap.qcow2" backup
  qemu-img create -q -f qcow2 -o "data_file=$home/slow/data.raw" "$home/slow/data.qcow2" 8M
  qemu-io -f qcow2 -c "write -P 7 1M 1M" "$home/slow/hand.qcow2" >/dev/null
  local disks= letter=a
  for name in hand job snapshot bitmap data; do
    disks+="<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>
      <source file='$home/slow/$name.qcow2'/><target dev='vd$letter' bus='virtio'/></disk>"
    letter=$(tr a-y b-z <<<"$letter")
  done
  cat >"$home/advice.xml" <<XML
<domain type='qemu'><name>advice</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='pc'>hvm</type></os><devices>$disks</devices></domain>
XML
  advice_configure recommend false
  chmod 700 "$home/run"
  [ "$(id -u)" != 0 ] || chown -R nobody "$home"
  advice_as virsh -q define "$home/advice.xml" >/dev/null
  advice_as virsh -q start advice >/dev/null
  advice_serve
  for name in "snapshot vdc internal snapshots" "bitmap vdd bitmaps" "data vde data in another file"; do
    set -- $name
    why=${name#* * }
    row "move of an image with its $why" refused "$(outcome advice_as "$home/terrace" volume pin "advice:$2" fast)"
    row "the refusal names the $why" named "$(names "$why")"
  done
  outcome advice_as "$home/terrace" volume pin advice:vda fast >/dev/null
  advice_until 'advice_as "$home/terrace" plan --commands >"$dir/output" 2>/dev/null && grep -q blockcopy "$dir/output"'
  cp "$dir/output" "$home/script"
  for name in "vdc internal snapshots" "vdd bitmaps" "vde data in another file"; do
    why=${name#* }
    outcome advice_as "$home/terrace" why "advice:${name%% *}" >/dev/null
    row "why names the $why" named "$(names "$why")"
  done
  command=$(grep -v '^#' "$home/script" | grep blockcopy)
  touch "$home/fast/hand.qcow2"
  row "printed command, the target exists" refused "$(outcome advice_as sh -c "$command")"
  rm "$home/fast/hand.qcow2"
  row "printed command" "done" "$(outcome advice_as sh -c "$command")"
  row "options after the printed command" kept "$(advice_options hand)"
  row "content after the printed command" kept "$(advice_content "$home/fast/hand.qcow2")"
  stop
  advice_configure auto true
  advice_serve
  outcome advice_as "$home/terrace" volume pin advice:vdb fast >/dev/null
  advice_until '[ -e "$home/fast/job.qcow2" ] && [ ! -e "$home/slow/job.qcow2" ]'
  row "options after a job" kept "$(advice_options job)"
  stop
  advice_as virsh -q destroy advice >/dev/null
  advice_as virsh -q undefine advice >/dev/null
}
# advice_exec COMMAND...: becomes a command of the user of the session's libvirt.
advice_exec() {
  local home=$dir/advice
  local variables="HOME=$home XDG_RUNTIME_DIR=$home/run XDG_CONFIG_HOME=$home/config XDG_CACHE_HOME=$home/cache
    XDG_DATA_HOME=$home/data TMPDIR=$home LIBVIRT_DEFAULT_URI=qemu:///session NO_COLOR=1
    TERRACE_CONTROLLER=unix:$home/state/controller.sock"
  cd "$home"
  if [ "$(id -u)" = 0 ]; then
    exec setpriv --reuid nobody --regid nogroup --clear-groups env $variables "$@"
  fi
  exec env $variables "$@"
}
advice_as() { (advice_exec "$@"); }
# advice_configure MODE MOVES: the mode of pins, and whether the agent moves.
advice_configure() {
  cat >"$dir/advice/advice.toml" <<TOML
window = "200ms"
[controller]
state = "state"
[libvirt]
uri = "qemu:///session"
host = "advice"
moves = $2
keep_source = "1s"
[policy]
monitor_epoch = "1s"
migration_epoch = "2s"
headroom_space = 1.0
[modes]
rules = "$1"
drain = "recommend"
space = "recommend"
latency = "recommend"
[[tiers]]
name = "fast"
preset = "nvme-tlc"
pools = ["$dir/advice/fast"]
[[tiers]]
name = "slow"
preset = "sata-ssd"
pools = ["$dir/advice/slow"]
TOML
}
advice_serve() {
  (advice_exec "$dir/advice/terrace" serve --config advice.toml) >>"$dir/advice.log" 2>&1 & server=$!
  servers+=" $server"
  advice_until 'advice_as "$home/terrace" top -n 1 -o json 2>/dev/null | grep -q advice:vde'
}
# advice_until CONDITION: waits until a condition holds, a minute at most.
advice_until() {
  local home=$dir/advice
  for _ in $(seq 600); do
    if eval "$1"; then return 0; fi
    sleep 0.1
  done
  cat "$dir/advice.log"
  return 1
}
# advice_options NAME: prints kept if the image on the fast tier has the options that it had.
advice_options() {
  qemu-img info -U --output=json "$dir/advice/fast/$1.qcow2" >"$dir/output"
  local found
  found=$(jq -c '[."cluster-size", ."format-specific".data["compat","lazy-refcounts","refcount-bits","extended-l2","compression-type"]]' "$dir/output")
  [ "$found" = '[131072,"1.1",true,32,true,"zstd"]' ] && echo kept || echo "$found"
}
advice_content() {
  qemu-io -U -r -f qcow2 -c "read -P 7 1M 1M" "$1" >"$dir/output" 2>&1 &&
    ! grep -qi "failed\|error" "$dir/output" && echo kept || echo lost
}
advice_needs= advice_program=
for advice_program in virsh libvirtd qemu-system-x86_64 jq setpriv; do
  command -v "$advice_program" >/dev/null || advice_needs=$advice_program
done
if [ -n "$advice_needs" ]; then
  echo "skipped: needs $advice_needs"
elif ! qemu-system-x86_64 --version | grep -q 'version 7\.2'; then
  echo "skipped: needs QEMU 7.2, the tested build for moves of disks under libvirt"
else
  advice
fi
