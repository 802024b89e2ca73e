"""Traces: files and tables, statistics, curves, caches."""

import os
import signal
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import pytest

import terrace

CAPTURED = Path(__file__).parents[2] / "traces" / "captured"


class Lru:
    def __init__(self, capacity):
        self.capacity, self.pages = capacity, OrderedDict()

    def access(self, page):
        pages = self.pages
        if page in pages:
            pages.move_to_end(page)
            return True
        if len(pages) >= self.capacity:
            pages.popitem(last=False)
        pages[page] = True
        return False


class LruInBatches(Lru):
    def access_many(self, pages):
        return sum(map(self.access, pages))


def test_recorded_trace_opens():
    trace = terrace.Trace.open(CAPTURED / "sqlite.csv.zst")
    stats = trace.stats()
    assert len(trace) == stats["requests"] > 1000
    assert stats["content_hash"] == trace.content_hash
    assert trace.span_s == stats["span_s"]


def test_missing_trace_is_not_found():
    with pytest.raises(FileNotFoundError):
        terrace.Trace.open("/nothing.csv")


def test_invalid_line_is_named_by_number(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("128166372003061629,host,0,Read,0,4096,100\n128166372003061630,host,0,Read,zero,4096,100\n")
    with pytest.raises(terrace.TerraceError) as caught:
        terrace.Trace.open(path, format="msr")
    assert caught.value.line == 2
    with pytest.raises(terrace.TerraceError, match="format"):
        terrace.Trace.open(path, format="msrr")


def test_trace_round_trips_as_a_table(table):
    pa = pytest.importorskip("pyarrow")
    trace = terrace.Trace.from_arrow(table)
    assert (len(trace), trace.volumes) == (4000, ["v0", "v1", "v2"])
    assert trace.stats()["reads"] == 3000
    again = terrace.Trace.from_arrow(trace.to_arrow())
    assert again.content_hash == trace.content_hash
    arrow = pa.table(trace.to_arrow())
    assert arrow.column("offset_bytes").to_pylist() == table.column("offset_bytes").to_pylist()
    assert arrow.schema.field("time_ns").metadata == {b"unit": b"ns"}


@pytest.mark.parametrize(
    "column, values, message",
    [
        ("op", ["read", "reed"], 'row 1: unknown op "reed"'),
        ("time_ns", [5, 4], "row 1: its time is before"),
        ("length_bytes", [4096, 1 << 33], "row 1: length_bytes"),
        ("offset_bytes", [0, None], 'row 1: no value in column "offset_bytes"'),
        ("size", [0, 0], 'unknown column "size"'),
        ("time_ns", [0.0, 1.5], 'row 1: 1.5 in column "time_ns" is not a whole number'),
        ("offset_bytes", [0.0, float(1 << 53)], 'row 1: 9007199254740992 in column "offset_bytes" is not a whole number'),
    ],
)
def test_invalid_row_is_refused(column, values, message):
    pa = pytest.importorskip("pyarrow")
    columns = {"time_ns": [0, 1], "op": ["read", "read"], "offset_bytes": [0, 0], "length_bytes": [512, 512]}
    with pytest.raises(terrace.TerraceError, match=message):
        terrace.Trace.from_arrow(pa.table(columns | {column: values}))


def test_whole_decimal_numbers_are_accepted(table):
    pa = pytest.importorskip("pyarrow")
    index = table.schema.get_field_index("time_ns")
    decimal = table.set_column(index, "time_ns", table.column("time_ns").cast(pa.float64()))
    assert terrace.Trace.from_arrow(decimal).content_hash == terrace.Trace.from_arrow(table).content_hash


def test_row_index_of_pandas_is_ignored(table):
    pa = pytest.importorskip("pyarrow")
    filtered = table.append_column("__index_level_0__", pa.array(range(len(table))))
    assert terrace.Trace.open(filtered).content_hash == terrace.Trace.open(table).content_hash


def test_non_table_object_is_refused():
    with pytest.raises(terrace.TerraceError, match="not an Arrow table"):
        terrace.Trace.from_arrow([1, 2])


def test_trace_in_memory_drives_a_scenario(table):
    from conftest import TEXT

    words = TEXT[: TEXT.index("[[clients]]")] + '[[traces]]\nfile = "mine"\nvolumes = { v0 = "busy", v1 = "idle", v2 = "idle" }\n'
    scenario = terrace.Scenario(words, traces={"mine": terrace.Trace.from_arrow(table)})
    total = scenario.simulate("noop").groups.to_pylist()[0]
    assert total["all_ios"] > 0
    with pytest.raises(terrace.TerraceError, match="no trace with file"):
        terrace.Scenario(words, traces={"other": terrace.Trace.from_arrow(table)})


def test_saved_traces_with_exchanged_volumes_have_other_names(table, tmp_path):
    from conftest import TEXT

    words = TEXT[: TEXT.index("[[clients]]")] + '[[traces]]\nfile = "mine"\nvolumes = { v0 = "busy", v1 = "idle", v2 = "idle" }\n'
    other = {"v0": "v1", "v1": "v0", "v2": "v2"}
    exchanged = [other[v] for v in table.column("volume").to_pylist()]
    exchanged = table.set_column(table.schema.get_field_index("volume"), "volume", [exchanged])
    traces = [terrace.Trace.from_arrow(t) for t in (table, exchanged)]
    assert traces[0].content_hash == traces[1].content_hash
    names = {terrace.Scenario(words, traces={"mine": t})._save_traces(tmp_path)["mine"] for t in traces}
    assert len(names) == 2 and all((tmp_path / name).exists() for name in names)


def test_exact_curve_equals_lru(table):
    trace = terrace.Trace.from_arrow(table)
    sizes = [4096 * n for n in (1, 16, 256)]
    curve = trace.mrc(["exact"], sizes=sizes)
    assert curve["size_bytes"] == sizes
    assert curve["miss_ratio"] == pytest.approx(trace.cache(["lru"], sizes)["miss_ratio"], abs=1e-3)
    assert set(trace.mrc(["exact", "aet"])["method"]) == {"exact", "aet"}
    with pytest.raises(terrace.TerraceError, match="unknown method"):
        trace.mrc(["exakt"])


def test_lru_in_python_counts_like_the_native_one(table):
    trace = terrace.Trace.from_arrow(table)
    rows = trace.cache(["lru", Lru, LruInBatches], ["64 KiB", "1 MiB"]).to_pylist()
    misses = {(r["policy"], r["size_bytes"]): r["misses"] for r in rows}
    for size in (64 << 10, 1 << 20):
        assert misses["Lru", size] == misses["lru", size] == misses["LruInBatches", size]
        assert 0 < misses["lru", size] < 4000


def test_invalid_policy_is_refused(table):
    trace = terrace.Trace.from_arrow(table)
    for policy, message in [
        ("lruu", "unknown cache policy"),
        (lambda capacity: object(), "neither access"),
        (lambda capacity: type("P", (), {"access": lambda self, page: None})(), "must return True"),
        (lambda capacity: type("P", (), {"access_many": lambda self, pages: 1 << 40})(), "hits of"),
        (3, "a cache policy is"),
    ]:
        with pytest.raises(terrace.TerraceError, match=message):
            trace.cache([policy], ["1 MiB"])
    with pytest.raises(terrace.TerraceError, match="sizes"):
        trace.cache(["lru"], [1])


def test_note_of_an_estimator_is_a_warning(table):
    with pytest.warns(UserWarning, match="too few pages for samples of .*: exact instead of shards"):
        curve = terrace.Trace.from_arrow(table).mrc(["shards"])
    assert set(curve["method"]) == {"exact"}


def test_interrupt_ends_the_reading_of_a_trace(tmp_path):
    pipe = tmp_path / "trace.csv"
    os.mkfifo(pipe)
    code = f"""
import signal, terrace
# It is ignored below a shell that runs in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print("reading", flush=True)
    terrace.Trace.open({str(pipe)!r})
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "reading\n"
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=120)
    finally:
        child.kill()
    assert (out, child.returncode) == ("interrupted\n", 0)
