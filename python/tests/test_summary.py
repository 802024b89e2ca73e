"""Summaries of parts of a trace set."""

import functools
import pickle

import pytest

import terrace


def _parts(table, count):
    size = len(table) // count
    return [terrace.Trace.open(table.slice(i * size, size)) for i in range(count)]


def distinct_pages(table):
    columns = (table.column(name).to_pylist() for name in ("volume", "offset_bytes"))
    return len({(volume, offset // 4096) for volume, offset in zip(*columns)})


def test_merged_summaries_equal_the_summary_of_all(table):
    whole = terrace.mrc_summary(terrace.Trace.open(table), rate=0.5)
    parts = [terrace.mrc_summary(part, rate=0.5) for part in _parts(table, 4)]
    merged = functools.reduce(lambda a, b: a.merge(b), parts)
    assert merged.requests == whole.requests == 4000
    assert merged.references == whole.references
    assert merged.distinct_pages == whole.distinct_pages
    assert merged.mrc().to_pylist() == whole.mrc().to_pylist()
    assert pickle.dumps(merged) == pickle.dumps(whole)


def test_summaries_can_be_pickled(table):
    summary = terrace.mrc_summary(terrace.Trace.open(table), rate=1.0)
    copy = pickle.loads(pickle.dumps(summary))
    assert copy.mrc().to_pylist() == summary.mrc().to_pylist()
    assert set(copy.mrc()["sampled_share"]) == {1.0}


def test_summary_of_all_pages_has_the_exact_curve(table, tmp_path):
    trace = terrace.Trace.open(table)
    trace.save(tmp_path / "all.trc")
    summary = terrace.mrc_summary(tmp_path / "all.trc", rate=1.0)
    sizes = ["16 KiB", "1 MiB", "4 MiB"]
    exact = trace.mrc(["exact"], sizes=sizes)["miss_ratio"]
    assert summary.mrc(sizes)["miss_ratio"] == pytest.approx(exact, abs=0.01)
    assert summary.distinct_pages == pytest.approx(distinct_pages(table), rel=0.03)


def test_incompatible_summaries_are_errors(table):
    trace = terrace.Trace.open(table)
    one = terrace.mrc_summary(trace, rate=0.5)
    with pytest.raises(terrace.TerraceError, match="different samples"):
        one.merge(terrace.mrc_summary(trace, rate=0.1))
    with pytest.raises(terrace.TerraceError, match="pages of 4 KiB and 8 KiB"):
        one.merge(terrace.mrc_summary(trace, rate=0.5, page="8 KiB"))
    with pytest.raises(terrace.TerraceError, match="rate: 2"):
        terrace.mrc_summary(trace, rate=2)
    with pytest.raises(FileNotFoundError):
        terrace.mrc_summary("missing.trc")


def test_volumes_of_nameless_parts_have_the_names_of_the_caller(table):
    part = terrace.Trace.open(table.drop_columns(["volume"]))
    assert part.volumes == ["0"]
    one, same, other = (terrace.mrc_summary(part, rate=1.0, volume=name) for name in ("vm1", "vm1", "vm2"))
    assert one.merge(same).distinct_pages == one.distinct_pages
    assert one.merge(other).distinct_pages == pytest.approx(2 * one.distinct_pages, rel=0.03)
    with pytest.raises(terrace.TerraceError, match="the part has a volume v0"):
        terrace.mrc_summary(terrace.Trace.open(table), volume="vm1")


def test_nameless_volume_of_a_file_and_a_table_is_the_same(table, tmp_path):
    file = tmp_path / "part.csv"
    file.write_text("time_ns,op,offset_bytes,length_bytes\n" + "".join(f"{i},read,{i * 4096},4096\n" for i in range(100)))
    columns = {"time_ns": range(100), "op": ["read"] * 100, "offset_bytes": range(0, 409600, 4096), "length_bytes": [4096] * 100}
    pa = pytest.importorskip("pyarrow")
    of_table = terrace.mrc_summary(terrace.Trace.open(pa.table({k: list(v) for k, v in columns.items()})), rate=1.0)
    assert of_table.merge(terrace.mrc_summary(file, rate=1.0)).distinct_pages == of_table.distinct_pages


def test_assumed_format_is_refused(tmp_path):
    file = tmp_path / "part.csv"
    file.write_text("1538323200,12910952,128,0,1063\n1538323201,6265688,8,1,7\n")
    assert terrace.Trace.open(file).format_assumed is not None
    with pytest.raises(terrace.TerraceError, match="format="):
        terrace.mrc_summary(file)
