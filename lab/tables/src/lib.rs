//! Results as Arrow tables with units, and Parquet files of them. The command line and the package for Python use the same tables.
//!
//! ```text
//!  RunResult, SweepResult, Comparison ─▶ RecordBatch ─▶ write_tables ─▶ NAME.parquet
//!  ServedRequest, window by window ────▶ RequestFile ────────────────▶ Parquet or CSV
//! ```
//!
//! The metadata of a schema has the name and version of the table's layout; the metadata of a column has its unit.
//!
//! # Limits
//!
//! It makes no text for people (`report`) and computes no new numbers.

mod columns;
mod compared;
mod decisions;
mod file;
mod requests;
mod run;
mod sweep;

pub use arrow_array::RecordBatch;
pub use columns::{Columns, SCHEMA, UNIT};
pub use compared::{OPTIMALITY_SCHEMA, counted, optimality};
pub use decisions::comparison;
pub use file::{RequestFile, TableError, write_table, write_tables};
pub use requests::{OPS, REQUESTS_SCHEMA, RequestNames};
pub use run::{
    RUN_TABLES, RUN_TABLES_SCHEMA, RunTable, decisions, final_tiers, groups, moves, remedies,
    windows,
};
pub use sweep::{means, runs, sweep};
