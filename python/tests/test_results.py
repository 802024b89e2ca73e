"""Results: single requests, Parquet files, remedies."""

import pytest

import terrace


def test_requests_match_the_summary(scenario):
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


def test_requests_without_requests_option_are_an_error(scenario):
    with pytest.raises(terrace.TerraceError, match="requests=True"):
        scenario.simulate("noop").requests


def test_requests_arrive_window_by_window(scenario):
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
    with pytest.raises(terrace.TerraceError, match="of another result"):
        scenario.simulate("noop").to_parquet(tmp_path / "run")


def test_tables_of_runs_can_be_concatenated(scenario):
    runs = [scenario.simulate("noop", seed=seed).groups.to_pylist() for seed in (1, 2)]
    assert [{(r["scenario"], r["strategy"], r["seed"]) for r in rows} for rows in runs] == [
        {(scenario.name, "noop", 1)},
        {(scenario.name, "noop", 2)},
    ]


def test_requests_stream_to_a_csv_file(scenario, tmp_path):
    scenario.simulate("noop", requests=tmp_path / "requests.csv")
    lines = (tmp_path / "requests.csv").read_text().splitlines()
    assert lines[0] == "time_ns,volume,op,offset_bytes,length_bytes,tier,cache,latency_ns"
    assert len(lines) - 1 == len(scenario.simulate("noop", requests=True).requests)
    with pytest.raises(terrace.TerraceError, match=r"\.parquet, \.csv or \.csv\.zst"):
        scenario.simulate("noop", requests=tmp_path / "requests.txt")


def test_requests_stream_to_a_parquet_file(scenario, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "requests.parquet"
    scenario.simulate("noop", requests=file)
    kept = scenario.simulate("noop", requests=True).requests
    read = parquet.read_table(file)
    assert read.column("volume").to_pylist() == kept["volume"]
    assert read.schema.field("offset_bytes").metadata[b"unit"] == b"B"
    assert list(tmp_path.iterdir()) == [file]


def test_run_without_requests_has_an_empty_file(table, tmp_path):
    from conftest import TEXT

    late = '[[traces]]\nfile = "mine"\nstart = "5m"\nvolumes = { v0 = "busy", v1 = "idle", v2 = "idle" }\n'
    idle = terrace.Scenario(TEXT[: TEXT.index("[[clients]]")] + late, traces={"mine": terrace.Trace.open(table)})
    idle.simulate("noop", requests=tmp_path / "requests.csv")
    assert (tmp_path / "requests.csv").read_text() == "time_ns,volume,op,offset_bytes,length_bytes,tier,cache,latency_ns\n"
    with pytest.raises(terrace.TerraceError, match=r"\.parquet, \.csv or \.csv\.zst"):
        idle.simulate("noop", requests=tmp_path / "requests.txt")
    assert len(idle.simulate("noop", requests=True).requests) == 0
