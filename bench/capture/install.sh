#!/usr/bin/env bash
# Installs what capture.sh needs on Debian 12.  Run as root.
set -euo pipefail

# The package would otherwise start a cluster of its own, which the capture
# does not use.
if [[ ! -e /etc/postgresql-common/createcluster.conf ]]; then
    mkdir -p /etc/postgresql-common
    echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.conf
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update
# linux-source-6.1 is only the tree that the src-tree volume unpacks.
apt-get install -y --no-install-recommends \
    bpftrace postgresql-15 postgresql-client-15 sqlite3 python3 \
    rocksdb-tools redis-server linux-source-6.1 xz-utils zstd \
    e2fsprogs util-linux
