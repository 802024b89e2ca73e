//! Named values.

use rusqlite::Transaction;

use crate::failure::Failure;

pub(crate) fn put(txn: &Transaction, key: &str, value: &str) -> Result<(), Failure> {
    txn.prepare_cached("INSERT OR REPLACE INTO named (key, value) VALUES (?1, ?2)")?
        .execute((key, value))?;
    Ok(())
}

pub(crate) fn remove(txn: &Transaction, key: &str) -> Result<(), Failure> {
    txn.prepare_cached("DELETE FROM named WHERE key = ?1")?
        .execute([key])?;
    Ok(())
}

pub(crate) fn all(txn: &Transaction) -> Result<Vec<(String, String)>, Failure> {
    let mut statement = txn.prepare_cached("SELECT key, value FROM named ORDER BY key")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
