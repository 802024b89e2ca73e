"""Counts of every policy that libCacheSim has too, on captured traces: ours beside theirs.

counts.py TERRACE PYTHON TRACE...
"""

import json
import os
import subprocess
import sys
import tempfile

SHARED = [
    "fifo", "clock", "lru", "slru", "two-q", "lfu", "lfu-plain", "arc", "lirs", "s3-fifo", "sieve", "w-tinylfu", "belady",
]
DIFFERENT = {
    "lfu": "a hit adds the age to the key there; here, as in the paper, the key is uses plus age",
    "lirs": "how many pages are remembered, and which is forgotten, is left open by the paper",
    "slru": "equal for multiples of four pages; segments are rounded otherwise there",
    "w-tinylfu": "counts are exact here and estimated there",
    "arc": "steps of the target are real numbers here",
}

# Some of its policies do not come to an end at some sizes.
ANSWER_S_MAX = 60


def main():
    terrace, python, traces = sys.argv[1], sys.argv[2], sys.argv[3:]
    for trace in traces:
        with tempfile.TemporaryDirectory() as directory:
            exported = os.path.join(directory, "references")
            sizes = "1%,10%"
            command = [terrace, "sim", "cache", trace, "--policies", ",".join(SHARED), "--sizes", sizes, "-o", "json"]
            out = subprocess.run([*command, "--export", exported], check=True, capture_output=True, text=True).stdout
            info = json.loads(out)["traces"][0]
            ours = {(r["policy"], r["pages"]): r["hits"] for r in info["results"]}
            print(f"{os.path.basename(trace)}: {info['references']} references to {info['working_set_pages']} pages")
            for pages in sorted({p for _, p in ours}):
                for name in SHARED:
                    # One by one: a policy of theirs that ends the process takes no other with it.
                    peer = [python, "bench/cache/peer.py", exported, "0", str(pages), name]
                    try:
                        text = subprocess.run(peer, capture_output=True, text=True, timeout=ANSWER_S_MAX).stdout
                    except subprocess.TimeoutExpired:
                        text = ""
                    lines = text.splitlines()
                    lines = [l.split(" ") for l in lines if l.startswith(f"{name} ")]
                    theirs = int(lines[0][4]) if lines else None
                    mine = ours[name, pages]
                    said = "equal" if mine == theirs else DIFFERENT.get(name, "different")
                    said = "no answer" if theirs is None else said
                    print(f"  {pages:>8} pages  {name:<12}{mine:>9} hits, libCacheSim {theirs}: {said}", flush=True)


main()
