"""Results: single requests, Parquet files, remedies."""

import pytest

import terrace


def test_requests_are_those_of_the_summary(scenario):
    result = scenario.simulate("noop", requests=True)
    rows = result.requests
    total = result.groups.to_pylist()[0]
    assert total["all_ios"] <= len(rows) <= total["all_ios"] + 8
    assert set(rows["volume"]) == {"busy", "idle"}
    assert set(rows["tier"]) == {"slow", "fast"}
    assert set(rows["cache"]) == {None}
    assert rows.units["latency_ns"] == "ns"
    latencies = rows["latency_ns"]
    assert sum(latencies) / len(latencies) / 1e3 == pytest.approx(total["all_mean_us"], rel=0.01)
    assert scenario.simulate("noop").to_dict() == result.to_dict()


def test_requests_that_were_not_kept_are_an_error(scenario):
    with pytest.raises(terrace.TerraceError, match="requests=True"):
        scenario.simulate("noop").requests


def test_requests_come_window_by_window(scenario):
    lengths = []
    scenario.simulate("noop", requests=lambda table: lengths.append(len(table)))
    assert 18 <= len(lengths) <= 19
    assert sum(lengths) == len(scenario.simulate("noop", requests=True).requests)


def test_exception_in_requests_ends_the_run(scenario):
    with pytest.raises(ZeroDivisionError):
        scenario.simulate("noop", requests=lambda table: 1 / 0)


def test_reads_of_a_cached_volume_hit_or_miss():
    from conftest import TEXT

    cached = terrace.Scenario(TEXT + '\n[cache]\nsize = "256 MiB"\nparts = [{ volume = "busy", share = 1.0 }]\n')
    rows = cached.simulate("noop", requests=True).requests.to_pylist()
    reads = [r for r in rows if r["volume"] == "busy" and r["op"] == "read"]
    assert {r["cache"] for r in reads} == {"hit", "miss"}
    assert all(r["tier"] is None for r in reads if r["cache"] == "hit")
    assert all(r["cache"] is None for r in rows if r["volume"] == "idle")


def test_parquet_files_have_units_and_layout(scenario, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    result = scenario.simulate("noop", requests=True)
    result.to_parquet(tmp_path / "run")
    names = {p.name for p in (tmp_path / "run").iterdir()}
    tables = {"groups", "windows", "moves", "decisions", "remedies", "final_tiers", "requests"}
    assert names == {f"{name}.parquet" for name in tables}
    windows = parquet.read_table(tmp_path / "run" / "windows.parquet")
    assert windows.schema.field("read_mean_us").metadata[b"unit"] == b"us"
    assert windows.schema.metadata[b"terrace.schema"] == b"terrace.run.tables/1"
    assert windows.num_rows == len(result.windows)
    requests = parquet.read_table(tmp_path / "run" / "requests.parquet")
    assert requests.column("latency_ns").to_pylist() == result.requests["latency_ns"]


def test_requests_stream_to_a_parquet_file(scenario, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "requests.parquet"
    scenario.simulate("noop", requests=file)
    kept = scenario.simulate("noop", requests=True).requests
    assert parquet.ParquetFile(file).metadata.num_row_groups >= 18
    read = parquet.read_table(file)
    assert read.column("volume").to_pylist() == kept["volume"]
    assert read.schema.field("offset_bytes").metadata[b"unit"] == b"B"
    assert list(tmp_path.iterdir()) == [file]
