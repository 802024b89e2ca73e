//! Windows in tables: one row for the head, and one for each part.
//!
//! The key of a part has the number of its block in the high bits and the id of its window in the low bits. So the history
//! of a block is contiguous in the file.

use std::collections::BTreeMap;

use manager::store::{DeviceSummary, HistoryPoint, HistoryQuery, StoredWindow, VolumeSummary};
use rusqlite::OptionalExtension;

use crate::Work;
use crate::failure::Failure;
use crate::head::{DeviceRow, Head};
use crate::names::{Names, PART_NAMES};
use crate::part::{self, VolumeRow};

/// Bits of the window id in a part's key: enough for one window per millisecond for 34 years.
const WINDOW_BITS: u32 = 40;

/// Kind of windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// Windows as reported.
    Raw,
    Rolled,
}

impl Level {
    /// Returns the prefix of the table names.
    fn tables(self) -> &'static str {
        match self {
            Level::Raw => "raw",
            Level::Rolled => "rolled",
        }
    }
}

/// Window with ids in place of names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Window {
    pub at_ns: u64,
    pub window_ns: u64,
    pub volumes: Vec<VolumeRow>,
    pub devices: Vec<DeviceRow>,
}

/// Row of a table of windows.
pub(crate) struct WindowRow {
    pub id: i64,
    pub at_ns: u64,
    head: Vec<u8>,
}

impl Work<'_> {
    /// Stores a reported window.
    pub(crate) fn put_window(&mut self, window: &StoredWindow) -> Result<(), Failure> {
        let host = self.names.add_host(self.txn, &window.host)?;
        let window = self.with_ids(window)?;
        self.insert(Level::Raw, host, &window)
    }

    fn with_ids(&mut self, window: &StoredWindow) -> Result<Window, Failure> {
        let host = &window.host;
        let mut volumes = Vec::with_capacity(window.volumes.len());
        // Volumes get their ids first, so that their blocks have as few other names as possible.
        for v in &window.volumes {
            volumes.push(VolumeRow {
                volume: self.names.add(self.txn, host, &v.volume)?,
                device: 0,
                measured_ns: window.window_ns,
                outstanding_milli: v.outstanding_milli,
                reads: v.reads,
                writes: v.writes,
                p99_ns: v.p99_ns,
                slo_ns: v.slo_ns,
            });
        }
        for (row, v) in volumes.iter_mut().zip(&window.volumes) {
            row.device = self.names.add(self.txn, host, &v.device)?;
        }
        let mut devices = Vec::with_capacity(window.devices.len());
        for d in &window.devices {
            devices.push(DeviceRow {
                device: self.names.add(self.txn, host, &d.device)?,
                measured_ns: window.window_ns,
                used_bytes: d.used_bytes,
                reads: d.reads,
                writes: d.writes,
                read_bytes: d.read_bytes,
                write_bytes: d.write_bytes,
                utilization_milli: d.utilization_milli,
            });
        }
        Ok(Window {
            at_ns: window.at_ns,
            window_ns: window.window_ns,
            volumes,
            devices,
        })
    }

    /// Stores a window and replaces one with the same end.
    pub(crate) fn insert(
        &mut self,
        level: Level,
        host: u32,
        window: &Window,
    ) -> Result<(), Failure> {
        for old in self.find(level, host, window.at_ns, window.at_ns, 1)? {
            self.delete(level, &old)?;
        }
        let head = Head {
            window_ns: window.window_ns,
            volumes: window.volumes.iter().map(|v| v.volume).collect(),
            devices: window.devices.clone(),
        };
        let head = self.frames.pack(&head.encode())?;
        let tables = level.tables();
        self.txn
            .prepare_cached(&format!(
                "INSERT INTO {tables}_windows (host, at_ns, head) VALUES (?1, ?2, ?3)"
            ))?
            .execute((host, window.at_ns, head))?;
        let id = self.txn.last_insert_rowid();
        if id >= 1 << WINDOW_BITS {
            return Err(Failure::Unfit("too many windows".to_string()));
        }
        let mut parts: BTreeMap<u32, Vec<VolumeRow>> = BTreeMap::new();
        for row in &window.volumes {
            parts.entry(row.volume / PART_NAMES).or_default().push(*row);
        }
        let mut statement = self.txn.prepare_cached(&format!(
            "INSERT INTO {tables}_parts (id, volumes) VALUES (?1, ?2)"
        ))?;
        for (block, rows) in parts {
            let packed = self.frames.pack(&part::encode(&rows))?;
            statement.execute((key(block, id), packed))?;
        }
        Ok(())
    }

    /// Returns the windows of a host that end between two times, inclusive, oldest first.
    pub(crate) fn find(
        &mut self,
        level: Level,
        host: u32,
        from_ns: u64,
        to_ns: u64,
        limit: usize,
    ) -> Result<Vec<WindowRow>, Failure> {
        let mut statement = self.txn.prepare_cached(&format!(
            "SELECT id, at_ns, head FROM {}_windows WHERE host = ?1 AND at_ns BETWEEN ?2 AND ?3 ORDER BY at_ns LIMIT ?4",
            level.tables()
        ))?;
        let asked = (host, clamp(from_ns), clamp(to_ns), clamp(limit as u64));
        let rows = statement.query_map(asked, |row| {
            Ok(WindowRow {
                id: row.get(0)?,
                at_ns: row.get(1)?,
                head: row.get(2)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Loads the window of a row.
    pub(crate) fn load(&mut self, level: Level, stored: &WindowRow) -> Result<Window, Failure> {
        let head = Head::decode(&self.frames.unpack(&stored.head)?)?;
        let mut parts = BTreeMap::new();
        let mut statement = self.txn.prepare_cached(&format!(
            "SELECT volumes FROM {}_parts WHERE id = ?1",
            level.tables()
        ))?;
        for block in blocks(&head) {
            let packed: Option<Vec<u8>> = statement
                .query_row([key(block, stored.id)], |row| row.get(0))
                .optional()?;
            let packed = packed.ok_or_else(|| missing(stored))?;
            let rows = part::decode(&self.frames.unpack(&packed)?)?;
            parts.insert(block, rows.into_iter());
        }
        let mut volumes = Vec::with_capacity(head.volumes.len());
        for volume in &head.volumes {
            let part = parts.get_mut(&(volume / PART_NAMES));
            let row = part.and_then(Iterator::next);
            let row = row.filter(|row| row.volume == *volume);
            volumes.push(row.ok_or_else(|| missing(stored))?);
        }
        Ok(Window {
            at_ns: stored.at_ns,
            window_ns: head.window_ns,
            volumes,
            devices: head.devices,
        })
    }

    /// Deletes a window.
    pub(crate) fn delete(&mut self, level: Level, stored: &WindowRow) -> Result<(), Failure> {
        let head = Head::decode(&self.frames.unpack(&stored.head)?)?;
        let tables = level.tables();
        let mut statement = self
            .txn
            .prepare_cached(&format!("DELETE FROM {tables}_parts WHERE id = ?1"))?;
        for block in blocks(&head) {
            statement.execute([key(block, stored.id)])?;
        }
        self.txn
            .prepare_cached(&format!("DELETE FROM {tables}_windows WHERE id = ?1"))?
            .execute([stored.id])?;
        Ok(())
    }

    pub(crate) fn raw_windows(
        &mut self,
        host: &str,
        from_ns: u64,
        to_ns: u64,
    ) -> Result<Vec<StoredWindow>, Failure> {
        let Some(id) = self.names.host(host) else {
            return Ok(Vec::new());
        };
        let mut windows = Vec::new();
        for stored in self.find(Level::Raw, id, from_ns, to_ns, usize::MAX)? {
            let window = self.load(Level::Raw, &stored)?;
            windows.push(with_names(self.names, host, &window)?);
        }
        Ok(windows)
    }

    pub(crate) fn history(&mut self, query: &HistoryQuery) -> Result<Vec<HistoryPoint>, Failure> {
        let host = self.names.host(&query.host);
        let volume = self.names.id(&query.host, &query.volume);
        let (Some(host), Some(volume)) = (host, volume) else {
            return Ok(Vec::new());
        };
        let mut points = Vec::new();
        for level in [Level::Rolled, Level::Raw] {
            self.history_of(level, host, volume, query, &mut points)?;
        }
        points.sort_by_key(|p| p.at_ns);
        Ok(points)
    }

    fn history_of(
        &mut self,
        level: Level,
        host: u32,
        volume: u32,
        query: &HistoryQuery,
        points: &mut Vec<HistoryPoint>,
    ) -> Result<(), Failure> {
        let tables = level.tables();
        // The cross join makes SQLite start with the windows, with one look-up of a part for each.
        let mut statement = self.txn.prepare_cached(&format!(
            "SELECT w.at_ns, p.volumes FROM {tables}_windows w CROSS JOIN {tables}_parts p ON p.id = ?1 + w.id
             WHERE w.host = ?2 AND w.at_ns BETWEEN ?3 AND ?4 ORDER BY w.at_ns"
        ))?;
        let first_key = key(volume / PART_NAMES, 0);
        let asked = (first_key, host, clamp(query.from_ns), clamp(query.to_ns));
        let mut rows = statement.query(asked)?;
        while let Some(row) = rows.next()? {
            let at_ns = row.get(0)?;
            let packed = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
            let part = part::decode(&self.frames.unpack(packed)?)?;
            for row in part.iter().filter(|r| r.volume == volume) {
                points.push(HistoryPoint {
                    at_ns,
                    window_ns: row.measured_ns,
                    summary: summary(self.names, row)?,
                });
            }
        }
        Ok(())
    }
}

fn key(block: u32, window: i64) -> i64 {
    (i64::from(block) << WINDOW_BITS) + window
}

/// Converts a number to SQLite's range, which ends at 2^63.
pub(crate) fn clamp(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Returns the blocks of a window's volumes, each once.
fn blocks(head: &Head) -> Vec<u32> {
    let mut blocks: Vec<u32> = head.volumes.iter().map(|v| v / PART_NAMES).collect();
    blocks.sort_unstable();
    blocks.dedup();
    blocks
}

fn missing(stored: &WindowRow) -> Failure {
    Failure::Damaged(format!("window {} lacks a volume", stored.id))
}

fn summary(names: &Names, row: &VolumeRow) -> Result<VolumeSummary, Failure> {
    Ok(VolumeSummary {
        volume: names.name(row.volume)?.to_string(),
        device: names.name(row.device)?.to_string(),
        reads: row.reads,
        writes: row.writes,
        p99_ns: row.p99_ns,
        slo_ns: row.slo_ns,
        outstanding_milli: row.outstanding_milli,
    })
}

fn with_names(names: &Names, host: &str, window: &Window) -> Result<StoredWindow, Failure> {
    let volumes = window.volumes.iter().map(|row| summary(names, row));
    let devices = window.devices.iter().map(|d| {
        Ok(DeviceSummary {
            device: names.name(d.device)?.to_string(),
            used_bytes: d.used_bytes,
            reads: d.reads,
            writes: d.writes,
            read_bytes: d.read_bytes,
            write_bytes: d.write_bytes,
            utilization_milli: d.utilization_milli,
        })
    });
    Ok(StoredWindow {
        host: host.to_string(),
        at_ns: window.at_ns,
        window_ns: window.window_ns,
        volumes: volumes.collect::<Result<_, Failure>>()?,
        devices: devices.collect::<Result<_, Failure>>()?,
    })
}
