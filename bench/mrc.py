"""Million references per second and core: our curves, libCacheSim's simulation of one size, its mrcProfiler. See mrc.sh."""

import json
import os
import resource
import statistics
import subprocess
import sys

RATE = 0.001
METHODS = ["exact", "shards", "shards-verified", "shards-size"]
CHILD = """
import sys, time
import libcachesim as lcs
path, size, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
options = lcs.ReaderInitParam(ignore_obj_size=True)
reader = lcs.TraceReader(path, lcs.TraceType.ORACLE_GENERAL_TRACE, options)
cache = lcs.LRU(cache_size=size)
before = time.process_time()
misses, _ = cache.process_trace(reader)
print(time.process_time() - before, misses)
"""


def ours(tool, path, size):
    """One measurement of each method: rate in millions, miss ratio."""
    command = [tool, "mrc-native", "measure", path + ".trc", str(RATE), "1", str(size), *METHODS]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {name: (float(rate), float(ratio)) for name, rate, ratio in (line.split() for line in out.splitlines())}


def wheel(path, size, references):
    command = [sys.executable, "-c", CHILD, path + ".oracle", str(size), "1"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    cpu, ratio = out.split()
    return references / float(cpu), float(ratio)


def children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def profiler(binary, path, pages, size, rate, references):
    """Processor time of the whole command: it has no clock of its own. Sizes are absolute, so that it does not read the trace twice."""
    sizes = f"{size}B,{pages}B,100"
    parameters = f"--profiler-params=FIX_RATE,{rate},42"
    command = [binary, path + ".oracle", "oracleGeneral", "--algo=LRU", "--profiler=SHARDS", parameters, f"--size={sizes}"]
    before = children()
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds = children() - before
    rows = [line.split() for line in out.splitlines() if line[:1].isdigit()]
    return references / seconds, float(rows[0][1])


def main():
    tool, path, references, pages, runs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) * 1000, int(sys.argv[5])
    size = pages // 10
    results = {}

    def add(name, result):
        results.setdefault(name, []).append(result)

    peers = {"libCacheSim wheel, LRU of one size": lambda: wheel(path, size, references)}
    try:
        import libcachesim  # noqa: F401
    except ImportError:
        peers.clear()
    binary = os.path.join(os.environ.get("LIBCACHESIM_BIN", ""), "mrcProfiler")
    if os.path.isfile(binary):
        peers["libCacheSim mrcProfiler, exact"] = lambda: profiler(binary, path, pages, size, 1, references)
        peers["libCacheSim mrcProfiler, SHARDS"] = lambda: profiler(binary, path, pages, size, RATE, references)
    for _ in range(runs):
        for name, result in ours(tool, path, size).items():
            add(name, result)
        for name, run in peers.items():
            add(name, run())
    medians = {name: statistics.median(rate for rate, _ in all_of) for name, all_of in results.items()}
    print(f"{references} M references, medians of {runs} runs; miss ratio of {size} pages")
    for name, rate in medians.items():
        print(f"  {name:<36} {rate:9.2f} M references/s   {results[name][0][1]:.4f}")
    if peers:
        one = medians.get("libCacheSim wheel, LRU of one size")
        if one:
            print(f"  all sizes at once: {medians['exact'] / one:.1f} times the speed of one size in libCacheSim")
        if "libCacheSim mrcProfiler, exact" in medians:
            print(f"  exact: {medians['exact'] / medians['libCacheSim mrcProfiler, exact']:.1f} times")
            print(f"  SHARDS: {medians['shards'] / medians['libCacheSim mrcProfiler, SHARDS']:.1f} times")
    print(json.dumps({"references": references * 1_000_000, "rate": RATE, "million_per_s": medians}))


if __name__ == "__main__":
    main()
