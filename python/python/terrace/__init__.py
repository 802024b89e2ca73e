"""Simulations of multi-tier flash arrays: traces, placement strategies, caches.

Tables follow the Arrow PyCapsule interface: ``pyarrow.table(t)``, ``polars.DataFrame(t)`` and duckdb read them without a copy.
"""

from ._terrace import (
    Comparison,
    Facts,
    Result,
    Scenario,
    Table,
    TerraceError,
    Trace,
    __version__,
    cache_policies,
    strategies,
)

__all__ = [
    "Comparison",
    "Facts",
    "Result",
    "Scenario",
    "Table",
    "TerraceError",
    "Trace",
    "__version__",
    "cache_policies",
    "strategies",
]
