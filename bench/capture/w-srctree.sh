#!/usr/bin/env bash
# Volume src-tree: a source tree is unpacked, searched, copied and removed in
# bursts; between two bursts it lies there untouched.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

vol=$(mnt src-tree)
tar=$CAP_WORK/src.tar # on the host's file system, so not in the trace

# Any directory will do (CAP_SRC_DIR); by default a part of Debian's kernel
# source, which is many small files.
if [[ -n ${CAP_SRC_DIR:-} ]]; then
    tar -cf "$tar" -C "$CAP_SRC_DIR" .
else
    xz=$(find /usr/src -maxdepth 1 -name 'linux-source-*.tar.xz' | sort | tail -n 1)
    mkdir "$CAP_WORK/src"
    tar -xJf "$xz" -C "$CAP_WORK/src" --wildcards --no-wildcards-match-slash --strip-components=1 \
        '*/fs' '*/kernel' '*/mm' '*/net' '*/lib' '*/block' '*/include/linux' '*/include/net'
    tar -cf "$tar" -C "$CAP_WORK/src" .
    rm -rf "$CAP_WORK/src"
fi

# burst N END
burst() {
    local tree=$vol/tree.$1 old=$vol/tree.$(($1 - 1)) end=$2
    if [[ -d $old ]]; then
        # The tree left by the burst before: read again when cold, then gone.
        bounded "$end" grep -rlE 'mutex_lock|READ_ONCE' "$old/fs" > "$vol/hits.old"
        bounded "$end" rm -rf "$old" "$old.copy"
    fi
    mkdir "$tree"
    bounded "$end" tar -xf "$tar" -C "$tree"
    bounded "$end" grep -rnE 'spin_lock_irqsave|container_of' "$tree" > "$vol/hits.$1"
    [[ ! -d $tree/net ]] || bounded "$end" cp -a "$tree/net" "$tree.copy"
    bounded "$end" find "$tree" -type f -name '*.h' -size +16k > "$vol/headers.$1"
    sync -f "$vol"
}

ready_and_wait src-tree
at 1; burst 1 3
at 3; burst 2 4.8
at 5; burst 3 7.5
at 9.5; burst 4 11.5
at 15; burst 5 17
at 17; burst 6 19
at 19; burst 7 21.8
at 22; burst 8 24
at 25.2
