//! Remembered seasons of volumes, by name. They outlast restarts and responders, which start without memory.
//!
//! ```text
//!  a slot ends ─▶ responder ─▶ row by host, volume and slot ─▶ store: one value, written at the end of the slot
//!                     ▲              │
//!                     └──a volume joins, with the same season and slot lengths──┘
//! ```
//!
//! A row expires one season after the remembered number of seasons without a new occurrence, as for a removed volume. A value
//! that cannot be read is reported once and deleted: seasons are learned again, and the controller starts.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use slo::curve::Curve;
use slo::load::Cost;
use slo::seasonal::{SeasonRecord, SeasonalConfig, Slot, SlotRecord};
use slo::zones::Zone;
use slo::{Habit, ResourceId};
use units::{Bytes, Nanos, counted};

use crate::store::Change;

/// Prefix of the keys of rows.
const PREFIX: &str = "season/";

/// Most remembered volumes of a host: twice the number with remedies, since some have been removed.
const VOLUMES_MAX: usize = 512;

/// Most occurrences of a slot in a stored row. Limits the effect of a damaged one.
const OCCURRENCES_MAX: usize = 100;

/// Most stored zones of a slot: an appliance preloads no more than it can hold.
const ZONES_MAX: usize = 128;

/// Time between two searches for expired rows.
const LOOK_EVERY_MS: u64 = 3_600_000;

/// Ids of resources, by name.
type Numbers = BTreeMap<String, ResourceId>;

/// Stored slot of a volume's season, with devices by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    season_ns: u64,
    slot_ns: u64,
    /// Expiry, milliseconds since 1970.
    good_until_ms: u64,
    /// Requests per second, the oldest occurrence first.
    rates: VecDeque<f64>,
    rate_max_per_s: f64,
    requests: Option<Requests>,
    curve: Option<Curve>,
    /// Number of occurrences since the curve was measured.
    #[serde(default)]
    curve_age: usize,
    /// Size of a zone, in bytes.
    #[serde(default)]
    zone_bytes: u64,
    /// Hottest first.
    #[serde(default)]
    zones: Vec<Zone>,
}

/// Properties of requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Requests {
    write_share: f64,
    read_bytes: f64,
    /// Cost of requests, by device.
    costs: BTreeMap<String, Cost>,
}

impl Row {
    fn of(
        (seasonal, slot): (&SeasonRecord, &Slot),
        zone_bytes: u64,
        numbers: &Numbers,
        unix_ms: u64,
    ) -> Self {
        let config = seasonal.config();
        let seasons = config.occurrences as u64 + 1;
        let kept_ms = (config.season.0 / 1_000_000).saturating_mul(seasons);
        let requests = |habit: &Habit| {
            let cost = |(name, number): (&String, &ResourceId)| {
                let cost = habit.costs.get(number.index()).copied()?;
                (cost != Cost::default()).then(|| (name.clone(), cost))
            };
            Requests {
                write_share: habit.write_share,
                read_bytes: habit.read_bytes,
                costs: numbers.iter().filter_map(cost).collect(),
            }
        };
        Self {
            season_ns: config.season.0,
            slot_ns: config.slot.0,
            good_until_ms: unix_ms.saturating_add(kept_ms),
            rates: slot.rates.clone(),
            rate_max_per_s: slot.recorded.rate_max_per_s,
            requests: slot.recorded.habit.as_ref().map(requests),
            curve: slot.recorded.curve.clone(),
            curve_age: slot.curve_age,
            zone_bytes,
            zones: slot
                .recorded
                .zones
                .iter()
                .take(ZONES_MAX)
                .copied()
                .collect(),
        }
    }

    /// Converts the row for a responder that remembers `occurrences`; unknown devices are left out.
    fn slot(&self, numbers: &Numbers, occurrences: usize) -> Slot {
        let skipped = self.rates.len().saturating_sub(occurrences);
        let habit = |of: &Requests| {
            let known = of.costs.iter();
            let known = known.filter_map(|(name, cost)| Some((numbers.get(name)?.index(), *cost)));
            let known: BTreeMap<usize, Cost> = known.collect();
            let length = known.keys().max().map_or(0, |last| last + 1);
            let cost = |r: usize| known.get(&r).copied().unwrap_or_default();
            Habit {
                write_share: of.write_share,
                read_bytes: of.read_bytes,
                costs: (0..length).map(cost).collect(),
            }
        };
        Slot {
            rates: self.rates.iter().skip(skipped).copied().collect(),
            recorded: SlotRecord {
                zones: self.zones.clone(),
                curve: self.curve.clone(),
                rate_max_per_s: self.rate_max_per_s,
                habit: self.requests.as_ref().map(habit),
            },
            curve_age: self.curve_age,
        }
    }

    fn is_cut_as(&self, config: &SeasonalConfig) -> bool {
        (self.season_ns, self.slot_ns) == (config.season.0, config.slot.0)
    }

    /// Returns why the row is invalid; none if it is valid.
    fn fault(&self, number: u64) -> Option<String> {
        let config = SeasonalConfig {
            season: Nanos(self.season_ns),
            slot: Nanos(self.slot_ns),
            occurrences: OCCURRENCES_MAX,
            ..SeasonalConfig::default()
        };
        let mut seasonal = SeasonRecord::new(config);
        if !self.is_cut_as(seasonal.config()) || self.rates.len() > OCCURRENCES_MAX {
            return Some("its season or its slot is out of range".into());
        }
        let numbers = self.requests.iter().flat_map(|r| r.costs.keys());
        let numbers = numbers
            .zip(0..)
            .map(|(name, n)| (name.clone(), ResourceId(n)));
        let slot = self.slot(&numbers.collect(), OCCURRENCES_MAX);
        seasonal.recall(number, slot).err().map(|e| e.to_string())
    }
}

/// Rows of a volume, by the number of their slot in the season.
type Rows = BTreeMap<u64, Row>;

/// All remembered seasons.
#[derive(Debug, Default)]
pub(super) struct Seasons {
    /// Rows by host and volume.
    hosts: BTreeMap<String, BTreeMap<String, Rows>>,
    /// Size of zones, in bytes.
    zone_bytes: u64,
    /// Keys of values that cannot be read, with the causes.
    refused: Vec<(String, String)>,
    /// Time of the last search for expired rows, milliseconds since 1970.
    looked_ms: u64,
}

fn key(host: &str, volume: &str, number: u64) -> String {
    format!("{PREFIX}{host}/{volume}/{number}")
}

fn removed(host: &str, volume: &str, rows: &Rows) -> Vec<Change> {
    let keys = rows.keys().map(|number| key(host, volume, *number));
    keys.map(|key| Change::Remove { key }).collect()
}

impl Seasons {
    /// Restores a value of the store. Returns false if the key is not of a season.
    pub(super) fn restore(&mut self, key: &str, value: &str) -> bool {
        let Some(name) = key.strip_prefix(PREFIX) else {
            return false;
        };
        // The name of a volume may contain any character.
        let parts = name.split_once('/');
        let parts = parts.and_then(|(host, rest)| Some((host, rest.rsplit_once('/')?)));
        let parts = parts.and_then(|(h, (v, n))| Some((h, v, n.parse::<u64>().ok()?)));
        let read = match parts {
            None => Err("the key has no host, volume and slot".into()),
            Some((host, volume, number)) => serde_json::from_str::<Row>(value)
                .map_err(|e| e.to_string())
                .and_then(|row| {
                    row.fault(number)
                        .map_or(Ok((host, volume, number, row)), Err)
                }),
        };
        match read {
            Ok((host, volume, number, row)) => {
                let volumes = self.hosts.entry(host.into()).or_default();
                volumes
                    .entry(volume.into())
                    .or_default()
                    .insert(number, row);
            }
            Err(why) => self.refused.push((key.into(), why)),
        }
        true
    }

    /// Sets the size of zones; rows with another size have no valid zones.
    pub(super) fn zones_of(&mut self, size: Bytes) {
        self.zone_bytes = size.0;
    }

    /// Returns a text about values that could not be read, and the changes that delete them.
    pub(super) fn take_refused(&mut self) -> Option<(String, Vec<Change>)> {
        let refused = std::mem::take(&mut self.refused);
        let (key, why) = refused.first()?;
        let text = format!(
            "deleted {} about peaks that could not be read; {key:?}: {why}",
            counted(refused.len(), "stored value")
        );
        let keys = refused.iter().map(|(key, _)| key.clone());
        Some((text, keys.map(|key| Change::Remove { key }).collect()))
    }

    /// Returns the remembered season of a volume if its lengths match, and the changes that delete rows of other lengths.
    pub(super) fn recall(
        &mut self,
        (host, volume): (&str, &str),
        config: SeasonalConfig,
        numbers: &Numbers,
        unix_ms: u64,
    ) -> (SeasonRecord, Vec<Change>) {
        let mut seasonal = SeasonRecord::new(config);
        let Some(rows) = self.hosts.get_mut(host).and_then(|h| h.get_mut(volume)) else {
            return (seasonal, vec![]);
        };
        let is_cut = |row: &Row| row.is_cut_as(seasonal.config());
        let gone: Rows = rows.extract_if(.., |_, row| !is_cut(row)).collect();
        let good = rows.iter().filter(|(_, row)| unix_ms < row.good_until_ms);
        for (number, row) in good {
            let mut slot = row.slot(numbers, config.occurrences);
            if row.zone_bytes != self.zone_bytes {
                slot.recorded.zones.clear();
            }
            // Each row was checked when it was restored, or comes from a responder.
            let _ = seasonal.recall(*number, slot);
        }
        (seasonal, removed(host, volume, &gone))
    }

    /// Stores a slot that has ended.
    pub(super) fn remember(
        &mut self,
        (host, volume): (&str, &str),
        (seasonal, number): (&SeasonRecord, u64),
        numbers: &Numbers,
        unix_ms: u64,
    ) -> Vec<Change> {
        let Some(slot) = seasonal.slot(number) else {
            return vec![];
        };
        let row = Row::of((seasonal, slot), self.zone_bytes, numbers, unix_ms);
        let value = serde_json::to_string(&row).expect("plain data can be serialized");
        let volumes = self.hosts.entry(host.into()).or_default();
        let mut changes = vec![];
        if !volumes.contains_key(volume) && volumes.len() >= VOLUMES_MAX {
            let newest = |rows: &Rows| rows.values().map(|r| r.good_until_ms).max();
            let oldest = volumes.iter().min_by_key(|(_, rows)| newest(rows));
            let oldest = oldest.map(|(name, _)| name.clone());
            if let Some((name, rows)) = oldest.and_then(|name| volumes.remove_entry(&name)) {
                changes = removed(host, &name, &rows);
            }
        }
        volumes
            .entry(volume.into())
            .or_default()
            .insert(number, row);
        let key = key(host, volume, number);
        changes.push(Change::Put { key, value });
        changes
    }

    /// Deletes expired rows, once an hour. After a jump of the clock it waits for the next time: deleted rows cannot be restored.
    pub(super) fn forget_old(&mut self, unix_ms: u64) -> Vec<Change> {
        if unix_ms < self.looked_ms.saturating_add(LOOK_EVERY_MS) && unix_ms >= self.looked_ms {
            return vec![];
        }
        let since_ms = unix_ms.abs_diff(std::mem::replace(&mut self.looked_ms, unix_ms));
        if since_ms > 3 * LOOK_EVERY_MS {
            return vec![];
        }
        let mut changes = vec![];
        for (host, volumes) in &mut self.hosts {
            for (volume, rows) in volumes.iter_mut() {
                let is_old = |_: &u64, row: &mut Row| row.good_until_ms <= unix_ms;
                let gone: Rows = rows.extract_if(.., is_old).collect();
                changes.extend(removed(host, volume, &gone));
            }
            volumes.retain(|_, rows| !rows.is_empty());
        }
        changes
    }
}

#[cfg(test)]
#[path = "seasons_tests.rs"]
mod tests;
