"""Simulations of multi-tier flash arrays: traces, placement strategies, caches.

Tables follow the Arrow PyCapsule interface: ``pyarrow.table(t)``, ``polars.DataFrame(t)`` and duckdb read them without a copy.
"""

from ._lint import lint
from ._reproduce import Reproduction, reproduce
from ._sweep import Sweep, sweep
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
    "Reproduction",
    "Result",
    "Scenario",
    "Sweep",
    "Table",
    "TerraceError",
    "Trace",
    "__version__",
    "cache_policies",
    "lint",
    "reproduce",
    "strategies",
    "sweep",
]
