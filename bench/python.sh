#!/usr/bin/env bash
# Speed of the Python package, medians of several runs in one process: bench/python.sh [RUNS [PART…]]
#
# Parts: policies (a cache policy per request and in batches, beside libCacheSim's Python hooks), decisions (time that a strategy in Python
# adds to a decision of 1,000 volumes), native (the same simulation by the command line), sweep (200 cells on Ray with two workers, beside
# the built-in runner). Also prints the time of `pip install ./python` and the size of the wheel. TERRACE and PYTHON name a program and an
# interpreter with the package; without them both are built with the profile `release`, since the package has no other one.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
program=${TERRACE:-$(PROFILE=release bench/program.sh cli terrace)}
python=${PYTHON:-$target/bench-python/bin/python}
if [ -z "${PYTHON:-}" ]; then
  rm -rf "$target/bench-python"
  python3 -m venv "$target/bench-python"
  began=$(date +%s)
  "$python" -m pip install -q ./python
  echo "pip install ./python: $(($(date +%s) - began)) s"
  "$python" -m pip install -q pyarrow ray libcachesim || echo "skipped: needs the wheels of pyarrow, Ray and libCacheSim from PyPI"
fi
library=$("$python" -c "import terrace._terrace as t; print(t.__file__)")
echo "compiled library: $(($(stat -c %s "$library") >> 10)) KiB"
cd "$(mktemp -d)"
exec "$python" "$OLDPWD/bench/python.py" "$program" "${1:-5}" "${@:2}"
