#!/usr/bin/env bash
# Volume backup: at minutes 12 and 20 the other volumes are copied here in
# large sequential writes, then read back and checked.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

vol=$(mnt backup)
bin=${PG_BIN:-/usr/lib/postgresql/15/bin}

# Reads standard input; O_DIRECT, so that what is verified comes from the
# volume and not from the page cache.
put() { dd of="$1" bs=1M iflag=fullblock oflag=direct conv=fsync status=none; }
get() { dd if="$1" bs=1M iflag=direct status=none; }

# backup END
backup() {
    local end=$1
    rm -rf "$vol/last" # removed first: its blocks are discarded and reused
    mkdir "$vol/last"
    bounded "$end" "$bin/pg_basebackup" -h "$CAP_WORK/pgsock" -U postgres \
        --checkpoint=fast --max-rate=32M -X none --no-manifest -Ft -D - \
        | put "$vol/last/pg.tar"
    # Segments are being written meanwhile; tar's complaint about that is
    # expected.
    { tar -C "$(mnt pg-wal)" --warning=no-file-changed -cf - wal || true; } \
        | put "$vol/last/wal.tar"
    bounded "$end" python3 - "$(mnt sqlite)/app.db" "$vol/last/app.db" <<'PY'
import sqlite3
import sys
source = sqlite3.connect(sys.argv[1], timeout=30)
target = sqlite3.connect(sys.argv[2])
target.execute("PRAGMA synchronous=OFF")
source.backup(target)  # one read transaction, so writers do not restart it
PY
    { tar -C "$(mnt src-tree)" -cf - . 2> /dev/null || true; } | put "$vol/last/src.tar"
    sync -f "$vol"
    log "written: $(du -sm "$vol/last" | cut -f 1) MB"

    for f in pg wal src; do
        get "$vol/last/$f.tar" | tar -tf - | wc -l
    done
    get "$vol/last/app.db" | wc -c
    log "verified"
}

ready_and_wait backup
at 12; backup 16
at 20; backup 24.5
at 25.2
