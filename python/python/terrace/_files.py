"""Parquet files of tables. Arrow's metadata goes into the files: units of columns, name and version of the layout."""

from pathlib import Path

from ._terrace import TerraceError


def _parquet():
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as missing:
        raise TerraceError("Parquet files need pyarrow: pip install pyarrow") from missing
    return pyarrow


def write_table(table, path):
    """Writes a table to a file, which appears when it is complete."""
    pyarrow = _parquet()
    path = Path(path)
    unfinished = path.with_name(path.name + ".tmp")
    pyarrow.parquet.write_table(pyarrow.table(table), unfinished, compression="zstd")
    unfinished.replace(path)


def write_tables(result, names, directory):
    """Writes the tables of a result to files named after them."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        write_table(getattr(result, name), directory / f"{name}.parquet")


class _Callable:
    def __init__(self, take):
        self.take = take

    def put(self, table):
        self.take(table)

    def close(self):
        pass


class _ParquetFile:
    """File that grows with each measurement window, so that memory does not."""

    def __init__(self, path):
        self.pyarrow = _parquet()
        self.path = Path(path)
        self.unfinished = self.path.with_name(self.path.name + ".tmp")
        self.writer = None

    def put(self, table):
        table = self.pyarrow.table(table)
        if self.writer is None:
            self.writer = self.pyarrow.parquet.ParquetWriter(self.unfinished, table.schema, compression="zstd")
        self.writer.write_table(table)

    def close(self):
        if self.writer is not None:
            self.writer.close()
            self.unfinished.replace(self.path)


def sink(requests):
    """Returns the taker of requests for the argument ``requests`` of a simulation: a callable or the path of a Parquet file."""
    return _Callable(requests) if callable(requests) else _ParquetFile(requests)
