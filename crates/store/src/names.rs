//! Names of hosts, volumes and devices as numbers.
//!
//! Ids of names come in blocks of [`PART_NAMES`], each of one host: a block is what a part of a window is about. A host takes the
//! ids of its block one after the other, and then the next block that nobody has. A name is never forgotten: it costs about
//! 50 bytes.

use std::collections::BTreeMap;

use rusqlite::{Connection, Transaction};

use crate::failure::Failure;

/// Names in a block. More make the past of one volume slower to read, fewer make windows larger.
pub(crate) const PART_NAMES: u32 = 64;

/// Ids of names: a block's number and a window's share a 63-bit key.
const NAMES_MAX: u32 = 1 << 29;

#[derive(Default)]
pub(crate) struct Names {
    hosts: BTreeMap<String, HostNames>,
    by_id: BTreeMap<u32, String>,
    /// Added in the transaction that is going on.
    new: Vec<New>,
}

#[derive(Default)]
struct HostNames {
    id: u32,
    by_name: BTreeMap<String, u32>,
    last: Option<u32>,
}

enum New {
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

    /// The host's id, if it has any window.
    pub(crate) fn host(&self, host: &str) -> Option<u32> {
        self.hosts.get(host).map(|h| h.id)
    }

    /// Ids of all hosts.
    pub(crate) fn hosts(&self) -> Vec<u32> {
        self.hosts.values().map(|h| h.id).collect()
    }

    /// The host's id, now that it has a window.
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
        self.new.push(New::Host(host.to_string()));
        Ok(id)
    }

    /// The id of a name of a host.
    pub(crate) fn id(&self, host: &str, name: &str) -> Option<u32> {
        self.hosts.get(host)?.by_name.get(name).copied()
    }

    /// The id of a name of a host that was added, now that it is in a window.
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
        self.new.push(New::Name {
            host: host.to_string(),
            name: name.to_string(),
            last_before: known.last,
        });
        known.by_name.insert(name.to_string(), id);
        known.last = Some(id);
        self.by_id.insert(id, name.to_string());
        Ok(id)
    }

    /// The name with an id.
    pub(crate) fn name(&self, id: u32) -> Result<&str, Failure> {
        let name = self.by_id.get(&id).map(String::as_str);
        name.ok_or_else(|| Failure::Damaged(format!("unknown name {id}")))
    }

    /// The transaction was committed.
    pub(crate) fn keep_new(&mut self) {
        self.new.clear();
    }

    /// The transaction was not committed.
    pub(crate) fn forget_new(&mut self) {
        while let Some(new) = self.new.pop() {
            match new {
                New::Host(host) => {
                    self.hosts.remove(&host);
                }
                New::Name {
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
