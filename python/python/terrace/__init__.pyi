from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Protocol

__version__: str

class TerraceError(ValueError):
    """Invalid input, or a run that cannot continue."""

    file: str | None
    line: int | None

class ArrowTable(Protocol):
    """Table of any library with the Arrow PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class Table:
    """Table of results, for every library with the Arrow PyCapsule interface."""

    @property
    def column_names(self) -> list[str]: ...
    @property
    def units(self) -> dict[str, str]: ...
    @property
    def layout(self) -> str | None: ...
    @property
    def num_rows(self) -> int: ...
    def __len__(self) -> int: ...
    def __getitem__(self, name: str) -> list[Any]: ...
    def to_pydict(self) -> dict[str, list[Any]]: ...
    def to_parquet(self, path: str | PathLike[str]) -> None: ...
    def to_pylist(self) -> list[dict[str, Any]]: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class Trace:
    """Trace of block I/O."""

    @staticmethod
    def open(source: str | PathLike[str] | ArrowTable, format: str | None = None) -> Trace: ...
    @staticmethod
    def from_arrow(table: ArrowTable) -> Trace: ...
    @property
    def format(self) -> str: ...
    @property
    def format_assumed(self) -> str | None: ...
    @property
    def volumes(self) -> list[str]: ...
    @property
    def span_s(self) -> float: ...
    @property
    def content_hash(self) -> str: ...
    def __len__(self) -> int: ...
    def stats(self) -> dict[str, Any]: ...
    def save(self, path: str | PathLike[str]) -> None: ...
    def to_arrow(self) -> Table: ...
    def mrc(
        self,
        methods: Sequence[str] = ["exact"],
        sizes: Sequence[str | int] | None = None,
        page: str | int = 4096,
        rate: float | None = None,
        seed: int = 1,
        reads_only_cache: bool = False,
    ) -> Table: ...
    def cache(
        self,
        policies: Sequence[str | Callable[[int], CachePolicy | BatchCachePolicy]],
        sizes: Sequence[str | int],
        page: str | int = 4096,
    ) -> Table: ...

class MrcSummary:
    """Summary of a part of a trace set. Summaries of parts that follow one another in time merge to that of the whole."""

    @property
    def requests(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def references(self) -> int: ...
    @property
    def distinct_pages(self) -> float: ...
    def merge(self, next: MrcSummary) -> MrcSummary: ...
    def mrc(self, sizes: Sequence[str | int] | None = None) -> Table: ...

def mrc_summary(
    part: Trace | str | PathLike[str],
    page: str | int = 4096,
    rate: float = 0.001,
    seed: int = 1,
    format: str | None = None,
    volume: str | None = None,
) -> MrcSummary: ...

class CachePolicy(Protocol):
    """Cache policy in Python; it is made from its capacity in pages."""

    def access(self, page: int) -> bool:
        """Accesses a page; True for a hit. A missed page is cached afterwards."""

class BatchCachePolicy(Protocol):
    """Cache policy that takes batches."""

    def access_many(self, pages: Any) -> int:
        """Accesses pages (``array.array`` of unsigned 32-bit numbers) in order; returns the number of hits."""

class Facts:
    """Everything that a strategy may know of the array at one moment."""

    @property
    def at_s(self) -> float: ...
    @property
    def epoch(self) -> int: ...
    @property
    def placement_due(self) -> bool: ...
    @property
    def volumes(self) -> Table: ...
    @property
    def tiers(self) -> Table: ...
    @property
    def devices(self) -> Table: ...
    @property
    def classes(self) -> Table: ...
    @property
    def moves(self) -> Table: ...

Move = Mapping[str, Any] | tuple[str, str]
Moves = Iterable[Move] | ArrowTable | None

class Strategy(Protocol):
    """Placement strategy in Python."""

    def decide(self, facts: Facts, state: Any, seed: int) -> Moves | tuple[Moves, Any]:
        """Returns moves, or moves and the next state (plain data; None at first)."""

Progress = bool | Callable[[float, int], object] | None

class Scenario:
    """Array, volumes, load and policy."""

    def __init__(
        self,
        source: str | dict[str, Any],
        base: str | PathLike[str] = ".",
        traces: Mapping[str, Trace] | None = None,
    ) -> None: ...
    @staticmethod
    def open(path: str | PathLike[str]) -> Scenario: ...
    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def strategy(self) -> str: ...
    @property
    def strategies(self) -> list[str]: ...
    @property
    def seed(self) -> int: ...
    def with_settings(self, settings: Mapping[str, Any]) -> Scenario: ...
    def simulate(
        self,
        strategy: str | Strategy | type[Strategy] | None = None,
        seed: int | None = None,
        progress: Progress = None,
        requests: bool | str | PathLike[str] | Callable[[Table], object] | None = None,
    ) -> Result: ...
    def compare(
        self,
        strategies: Sequence[str | Strategy | type[Strategy]] | None = None,
        seeds: Sequence[int] | None = None,
        metrics: Sequence[str] | None = None,
        progress: Progress = None,
    ) -> Comparison: ...

class Result:
    """Result of one run."""

    @property
    def scenario(self) -> str: ...
    @property
    def strategy(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def groups(self) -> Table: ...
    @property
    def windows(self) -> Table: ...
    @property
    def moves(self) -> Table: ...
    @property
    def decisions(self) -> Table: ...
    @property
    def remedies(self) -> Table: ...
    @property
    def requests(self) -> Table: ...
    @property
    def final_tiers(self) -> Table: ...
    def to_parquet(self, directory: str | PathLike[str]) -> None: ...
    def to_dict(self) -> dict[str, Any]: ...

class Comparison:
    """Strategies side by side; its text is a table."""

    @property
    def runs(self) -> Table: ...
    @property
    def means(self) -> Table: ...
    def to_json(self) -> str: ...
    def to_parquet(self, directory: str | PathLike[str]) -> None: ...
    def to_dict(self) -> dict[str, Any]: ...

class Sweep:
    """Sweep that is checked and not run yet."""

    def __len__(self) -> int: ...
    def run(
        self,
        directory: str | PathLike[str] | None = None,
        *,
        ray: bool | str | None = None,
        workers: int | None = None,
        memory: int | None = None,
        progress: Progress = None,
    ) -> Comparison: ...

class Reproduction(dict[str, Any]):
    """Outcome of a published experiment."""

AnyStrategy = str | Strategy | type[Strategy]

def sweep(
    scenario: Scenario,
    grid: Mapping[str, Sequence[Any]] | None = None,
    strategies: Sequence[AnyStrategy] | None = None,
    seeds: Sequence[int] | None = None,
    metrics: Sequence[str] | None = None,
) -> Sweep: ...
def lint(strategy: AnyStrategy, scenario: Scenario, seed: int | None = None) -> int: ...
def reproduce(
    paper: str,
    *,
    keep: str | PathLike[str] | None = None,
    report: str | PathLike[str] | None = None,
    **options: Any,
) -> Reproduction: ...
def strategies() -> list[str]: ...
def cache_policies() -> list[str]: ...
