"""Simulations of multi-tier flash arrays: traces, placement strategies, caches.

Tables follow the Arrow PyCapsule interface: ``pyarrow.table(t)``, ``polars.DataFrame(t)`` and duckdb read them without a copy.
"""

from ._lint import lint
from ._reproduce import Reproduction, reproduce
from ._sweep import Sweep, sweep
from ._terrace import (
    Comparison,
    Facts,
    MrcSummary,
    Result,
    Scenario,
    Table,
    TerraceError,
    Trace,
    __version__,
    cache_policies,
    mrc_summary,
    strategies,
)

__all__ = [
    "Comparison",
    "Facts",
    "MrcSummary",
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
    "mrc_summary",
    "reproduce",
    "strategies",
    "sweep",
]
