//! Names of hosts, volumes and devices as numbers.
//!
//! Ids are allocated in blocks of [`PART_NAMES`], each for one host. A block corresponds to a part of a window. A host uses
//! the ids of its block in order, then the next free block. Names are never deleted; each costs about 50 bytes.

use std::collections::BTreeMap;

use rusqlite::{Connection, Transaction};

use crate::failure::Failure;

/// Number of names in a block. With more, the history of one volume is slower to read; with fewer, windows are larger.
pub(crate) const PART_NAMES: u32 = 64;

/// Largest number of name ids: the numbers of a block and a window share a 63-bit key.
const NAMES_MAX: u32 = 1 << 29;

#[derive(Default)]
pub(crate) struct Names {
    hosts: BTreeMap<String, HostNames>,
    by_id: BTreeMap<u32, String>,
    /// Names added in the current transaction.
    new: Vec<NewName>,
}

#[derive(Default)]
struct HostNames {
    id: u32,
    by_name: BTreeMap<String, u32>,
    last: Option<u32>,
}

enum NewName {
    Host(String),
    Name {
        host: String,
        name: String,
        last_before: Option<u32>,
    },
}

impl Names {
    pub(crate) fn load(conn: &Connection) -> Result<Self, Failure> {
        let mut names = Self::default();
        let mut of_host = BTreeMap::new();
        let mut statement = conn.prepare("SELECT id, name FROM hosts")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (id, name): (u32, String) = (row.get(0)?, row.get(1)?);
            of_host.insert(id, name.clone());
            let empty = HostNames {
                id,
                ..HostNames::default()
            };
            names.hosts.insert(name, empty);
        }
        let mut statement = conn.prepare("SELECT id, host, name FROM names ORDER BY id")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (id, host): (u32, u32) = (row.get(0)?, row.get(1)?);
            let name: String = row.get(2)?;
            let host = of_host
                .get(&host)
                .and_then(|host| names.hosts.get_mut(host));
            let Some(host) = host else {
                return Err(Failure::Damaged(format!("name {id} has no host")));
            };
            host.by_name.insert(name.clone(), id);
            host.last = Some(id);
            names.by_id.insert(id, name);
        }
        Ok(names)
    }

    /// Returns the id of a host, if it has any window.
    pub(crate) fn host(&self, host: &str) -> Option<u32> {
        self.hosts.get(host).map(|h| h.id)
    }

    /// Returns the ids of all hosts.
    pub(crate) fn hosts(&self) -> Vec<u32> {
        self.hosts.values().map(|h| h.id).collect()
    }

    /// Returns the id of a host and adds the host if it is new.
    pub(crate) fn add_host(&mut self, txn: &Transaction, host: &str) -> Result<u32, Failure> {
        if let Some(known) = self.hosts.get(host) {
            return Ok(known.id);
        }
        txn.prepare_cached("INSERT INTO hosts (name) VALUES (?1)")?
            .execute([host])?;
        let id = u32::try_from(txn.last_insert_rowid())
            .map_err(|_| Failure::Unfit("too many hosts".to_string()))?;
        let empty = HostNames {
            id,
            ..HostNames::default()
        };
        self.hosts.insert(host.to_string(), empty);
        self.new.push(NewName::Host(host.to_string()));
        Ok(id)
    }

    /// Returns the id of a host's name.
    pub(crate) fn id(&self, host: &str, name: &str) -> Option<u32> {
        self.hosts.get(host)?.by_name.get(name).copied()
    }

    /// Returns the id of a known host's name and adds the name if it is new.
    pub(crate) fn add(
        &mut self,
        txn: &Transaction,
        host: &str,
        name: &str,
    ) -> Result<u32, Failure> {
        if let Some(id) = self.id(host, name) {
            return Ok(id);
        }
        let above_all = self.by_id.last_key_value().map_or(0, |(last, _)| last + 1);
        let Some(known) = self.hosts.get_mut(host) else {
            return Err(Failure::Unfit(format!("unknown host {host}")));
        };
        let id = match known.last {
            Some(last) if (last + 1) % PART_NAMES != 0 => last + 1,
            _ => above_all.next_multiple_of(PART_NAMES),
        };
        if id >= NAMES_MAX {
            return Err(Failure::Unfit(format!("more than {NAMES_MAX} names")));
        }
        txn.prepare_cached("INSERT INTO names (id, host, name) VALUES (?1, ?2, ?3)")?
            .execute((id, known.id, name))?;
        self.new.push(NewName::Name {
            host: host.to_string(),
            name: name.to_string(),
            last_before: known.last,
        });
        known.by_name.insert(name.to_string(), id);
        known.last = Some(id);
        self.by_id.insert(id, name.to_string());
        Ok(id)
    }

    /// Returns the name of an id.
    pub(crate) fn name(&self, id: u32) -> Result<&str, Failure> {
        let name = self.by_id.get(&id).map(String::as_str);
        name.ok_or_else(|| Failure::Damaged(format!("unknown name {id}")))
    }

    /// Keeps the new names after a commit.
    pub(crate) fn keep_new(&mut self) {
        self.new.clear();
    }

    /// Discards the new names after a failed transaction.
    pub(crate) fn forget_new(&mut self) {
        while let Some(new) = self.new.pop() {
            match new {
                NewName::Host(host) => {
                    self.hosts.remove(&host);
                }
                NewName::Name {
                    host,
                    name,
                    last_before,
                } => {
                    if let Some(host) = self.hosts.get_mut(&host) {
                        let id = host.by_name.remove(&name);
                        id.map(|id| self.by_id.remove(&id));
                        host.last = last_before;
                    }
                }
            }
        }
    }
}
