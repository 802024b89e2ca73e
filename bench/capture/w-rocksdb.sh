#!/usr/bin/env bash
# Volume rocksdb: db_bench.  Bulk load with compaction, then skewed random
# reads, a pause, reads while writing, and a slow tail of reads.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

db=$(mnt rocksdb)/db
common=(--db="$db" --num=4000000 --key_size=16 --value_size=1000
    --compression_type=none --cache_size=8388608 --bloom_bits=10
    --write_buffer_size=33554432 --target_file_size_base=33554432
    --max_bytes_for_level_base=134217728 --max_background_jobs=2
    --bytes_per_sync=1048576 --wal_bytes_per_sync=1048576
    --stats_interval=0 --disable_wal=0)

# bench END ARGUMENTS...: db_bench up to phase minute END.
bench() {
    local end=$1
    shift
    # db_bench ends by --duration where the benchmark knows it; the timeout
    # also covers opening the database and the benchmarks which do not.
    bounded "$end" db_bench "${common[@]}" --duration="$(secs_until "$end")" "$@" 2>&1
}

ready_and_wait rocksdb
bench 5 --benchmarks=fillrandom --seed=42 --benchmark_write_rate_limit=8388608
# db_bench cannot limit reads below some thousands a second by itself.
at 6
read_iops 180
bench 12 --use_existing_db=1 --benchmarks=readrandom --seed=43 --threads=1 \
    --read_random_exp_range=8
read_iops 0
at 14
read_iops 100
bench 19 --use_existing_db=1 --benchmarks=readwhilewriting --seed=44 --threads=1 \
    --benchmark_write_rate_limit=1500000
read_iops 0
at 20
read_iops 40
bench 25 --use_existing_db=1 --benchmarks=readrandom --seed=45 --threads=1 \
    --read_random_exp_range=8
at 25.2
