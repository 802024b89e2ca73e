# Many exports: clients list 1,000 volumes and learn the size of each.
if ! command -v nbdinfo >/dev/null || ! command -v qemu-nbd >/dev/null; then
  echo "skipped: needs nbdinfo and qemu-nbd"
else
  mkdir "$dir/many-tier"
  "$terrace" tier add many --array "$dir/many" --dir "$dir/many-tier" --size 64M >/dev/null
  serve many
  # One connection creates all of them.
  python3 - "$dir/many/control.sock" <<'END'
import json, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
lines = server.makefile("rw")
for number in range(1000):
    volume = f"department-{number % 17:02}-machine-{number:04}"
    ask = {"v": 1, "ask": "create", "volume": volume, "size": "1 MiB", "tier": "many"}
    lines.write(json.dumps(ask) + "\n")
    lines.flush()
    answer = lines.readline()
    assert "error" not in answer, answer
END
  listed() { # FILTER: prints how many exports the output of the last command names
    grep -c "$1" "$dir/output" || true
  }
  row "nbdinfo --list" done "$(outcome nbdinfo --list --no-content "nbd+unix:///?socket=$dir/many/nbd.sock")"
  row "exports in nbdinfo --list" 1000 "$(listed '^export="department-')"
  row "sizes in nbdinfo --list" 1000 "$(listed 'export-size: 1048576')"
  row "qemu-nbd --list" done "$(outcome qemu-nbd --list --socket="$dir/many/nbd.sock")"
  row "exports in qemu-nbd --list" 1000 "$(listed "^ *export: 'department-")"
  row "sizes in qemu-nbd --list" 1000 "$(listed 'size: *1048576')"
  stop
fi
