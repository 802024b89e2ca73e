"""References through libCacheSim and cachetools: a line for each as cache_speed prints it.

peer.py TRACE SHARE OBJECTS NAME...     TRACE is oracleGeneral with dense ids; SHARE 0 means that OBJECTS is the capacity
"""

import math
import sys
import time

import libcachesim as lcs

POLICIES = {
    "lru": lcs.LRU,
    "fifo": lcs.FIFO,
    "clock": lcs.Clock,
    "slru": lcs.SLRU,
    "two-q": lcs.TwoQ,
    "lfu-plain": lcs.LFU,
    "lfu": lcs.LFUDA,
    "arc": lcs.ARC,
    "lirs": lcs.LIRS,
    "s3-fifo": lcs.S3FIFO,
    "sieve": lcs.Sieve,
    "w-tinylfu": lcs.WTinyLFU,
    "belady": lcs.Belady,
}


def reader(trace):
    return lcs.TraceReader(
        trace,
        lcs.TraceType.ORACLE_GENERAL_TRACE,
        lcs.ReaderInitParam(ignore_obj_size=True),
    )


def main():
    trace, share, objects = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    capacity = max(int(objects * share), 1) if share else objects
    # Its hash table is made for the number of objects, which is faster than its default of 2^24 where that is too much.
    hashpower = max(math.ceil(math.log2(capacity)) + 1, 12)
    for name in sys.argv[4:]:
        if name == "cachetools":
            cachetools(trace, capacity)
            continue
        source = reader(trace)
        cache = POLICIES[name](capacity, hashpower=hashpower)
        started = time.process_time()
        missed, _ = cache.process_trace(source)
        seconds = time.process_time() - started
        references = source.n_total_req
        hits = references - round(missed * references)
        print(name, capacity, references, f"{seconds:.6f}", hits, flush=True)


def cachetools(trace, capacity):
    """Its LRU on the first million references: it is a hundred times slower."""
    import array

    import cachetools as ct

    with open(trace, "rb") as file:
        raw = file.read(24 * 1_000_000)
    ids = [int.from_bytes(raw[at + 4 : at + 12], "little") for at in range(0, len(raw), 24)]
    ids = array.array("Q", ids)
    cache, hits = ct.LRUCache(capacity), 0
    started = time.process_time()
    for page in ids:
        if cache.get(page) is None:
            cache[page] = True
        else:
            hits += 1
    seconds = time.process_time() - started
    print("cachetools", capacity, len(ids), f"{seconds:.6f}", hits, flush=True)


main()
