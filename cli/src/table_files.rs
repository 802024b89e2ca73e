//! `--parquet`: results as files of tables, for other programs.

use std::path::PathBuf;

use clap::Args;
use tables::RecordBatch;

use crate::live::message;

/// `--parquet`
#[derive(Debug, Args)]
pub struct ParquetArg {
    /// Also write the results as tables into this directory, a Parquet file each; metadata has units and layout. All tables of an
    /// earlier run of the same command are replaced
    #[arg(long, value_name = "DIR")]
    parquet: Option<PathBuf>,
}

impl ParquetArg {
    /// Writes the tables, if they are wanted.
    pub fn write(
        &self,
        tables: impl FnOnce() -> Vec<(&'static str, RecordBatch)>,
    ) -> anyhow::Result<()> {
        if let Some(directory) = &self.parquet {
            tables::write_tables(directory, tables())?;
            message(&format!("tables written to {}", directory.display()));
        }
        Ok(())
    }
}
