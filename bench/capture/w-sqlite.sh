#!/usr/bin/env bash
# Volume sqlite: one SQLite database in WAL mode, used by sqlite_load.py.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

exec python3 "$CAP_HERE/sqlite_load.py" "$(mnt sqlite)/app.db" "$CAP_WORK" "$CAP_UNIT_MS"
