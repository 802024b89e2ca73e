//! A whole map, written somewhere else: the second copy when it comes (back), and backups.
//!
//! Records are copied as they are, checksums and all, in one transaction: what is damaged stays so, and is found in the copy too.

use redb::{ReadTransaction, ReadableTable, TableDefinition, TableError, WriteTransaction};

use crate::tables::{DEVICES, EXTENTS, META, MOVES, STAMPS, STATE, TIERS, VOLUMES};
use crate::{Array, ArrayError};

impl Array {
    /// Makes another map one like this, as it is at this moment. The number of commits in it.
    ///
    /// # Errors
    /// When either store fails; the other map holds then what it held before.
    pub fn copy_into(&self, other: &Array) -> Result<u64, ArrayError> {
        let from = self.begin_read()?;
        let commits = self.state_in(&from)?.commits;
        let to = other.begin_write()?;
        copy(&from, &to, META)?;
        copy(&from, &to, TIERS)?;
        copy(&from, &to, DEVICES)?;
        copy(&from, &to, VOLUMES)?;
        copy(&from, &to, EXTENTS)?;
        copy(&from, &to, MOVES)?;
        copy(&from, &to, STATE)?;
        copy(&from, &to, STAMPS)?;
        to.commit()
            .map_err(ArrayError::store("commit a copy of the map"))?;
        Ok(commits)
    }
}

fn copy<K: redb::Key + 'static, V: redb::Value + 'static>(
    from: &ReadTransaction,
    to: &WriteTransaction,
    table: TableDefinition<'static, K, V>,
) -> Result<(), ArrayError> {
    let failed = || ArrayError::store("copy the map");
    let rows = match from.open_table(table) {
        Ok(table) => table,
        // Maps of format 1 do not have all of them.
        Err(TableError::TableDoesNotExist(_)) => return Ok(()),
        Err(error) => return Err(ArrayError::store("copy the map")(error)),
    };
    to.delete_table(table)
        .map_err(ArrayError::store("copy the map"))?;
    let mut copied = to
        .open_table(table)
        .map_err(ArrayError::store("copy the map"))?;
    for row in rows.iter().map_err(failed())? {
        let (key, value) = row.map_err(failed())?;
        copied
            .insert(key.value(), value.value())
            .map_err(failed())?;
    }
    Ok(())
}
