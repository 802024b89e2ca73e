"""The package: names, stubs, tables in other libraries."""

import ast
from pathlib import Path

import pytest

import terrace


def test_stub_has_every_public_name():
    stub = ast.parse((Path(terrace.__file__).parent / "__init__.pyi").read_text())
    classes = {n.name: n for n in stub.body if isinstance(n, ast.ClassDef)}
    functions = {n.name for n in stub.body if isinstance(n, ast.FunctionDef)}
    for name in terrace.__all__:
        assert name in classes or name in functions or name == "__version__"
    for name in ("Comparison", "Facts", "Result", "Scenario", "Table", "Trace"):
        ours = {m for m in vars(getattr(terrace, name)) if not m.startswith("_")}
        stubbed = {m.name for m in classes[name].body if isinstance(m, ast.FunctionDef) and not m.name.startswith("_")}
        assert ours == stubbed, name


def test_strategy_and_policy_names_are_listed():
    assert {"noop", "terrace"} <= set(terrace.strategies())
    assert {"lru", "arc"} <= set(terrace.cache_policies())


def test_table_works_without_another_library(scenario):
    table = scenario.simulate("noop").final_tiers
    assert table.column_names == ["scenario", "strategy", "seed", "volume", "tier"]
    run = {"scenario": scenario.name, "strategy": "noop", "seed": scenario.seed}
    assert table.to_pylist() == [{**run, "volume": "busy", "tier": "slow"}, {**run, "volume": "idle", "tier": "fast"}]
    assert table.to_pydict()["volume"] == ["busy", "idle"]
    assert table.layout == "terrace.run.tables/1"
    with pytest.raises(KeyError, match="no column"):
        table["teir"]


@pytest.mark.parametrize("library, read", [("pyarrow", "table"), ("polars", "DataFrame")])
def test_table_is_readable_by_other_libraries(library, read, scenario):
    module = pytest.importorskip(library)
    groups = scenario.simulate("noop").groups
    read = getattr(module, read)(groups)
    assert read.num_rows == len(groups) if library == "pyarrow" else read.height == len(groups)
