//! Sources of volumes that are imported: opened, looked at, and let go of when nothing is there any more.
//!
//! ```text
//!   away ──opened, and as it was──▶ in use ──written to, or a connection to its server ended──▶ away, and tried again
//!                                     └──nothing is there any more, and a last look found no change──▶ forgotten
//! ```
//!
//! While a source is away what is there cannot be read, and copies wait. A file whose name is gone is still in use: what is open is what it
//! was. All that may hang is done by threads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use array::{Change, SourceRecord, VolumeRecord};
use units::{DeviceId, VolumeId};
use volume::Location;

use super::Keeper;
use super::places::{Content, NoPlace};
use crate::device::{Device, SOURCE, SlotSpace};
use crate::engine::Fault;
use crate::helper_thread::{HelperThread, at_once};
use crate::source::{LOOK, Source, Unusable, Wanted, changed, clear_sockets};
use crate::worker::Message;

/// One that cannot be used is tried again after this time.
const AGAIN: Duration = Duration::from_secs(3);

/// An import that has asked for slots within this time goes on.
const COPIES: Duration = Duration::from_secs(2);

/// Time between two turns: all volumes are gone through, and others wait.
const TURN: Duration = Duration::from_millis(20);

/// Sources that do not answer in this time are away for the start; they are tried again later.
const OPEN_TIME: Duration = Duration::from_secs(10);

/// What is known of sources.
#[derive(Debug, Default)]
pub(super) struct Sources {
    all: BTreeMap<DeviceId, Known>,
    /// The highest number that one has had: no device gets it in the life of this process, as workers may know it still.
    highest: Option<DeviceId>,
    /// When they were last gone through.
    turned: Option<Instant>,
    /// When slots were last asked for.
    gathered: Option<Instant>,
}

#[derive(Debug, Default)]
struct Known {
    open: Option<Arc<Source>>,
    /// Why it is not in use.
    away: Option<Unusable>,
    /// What is wrong with it, though it is in use.
    warning: Option<String>,
    helper: HelperThread,
    looking: Option<(Instant, Receiver<Looked>)>,
    /// When the last look began that found it well.
    well: Option<Instant>,
    /// When the last one began that could not find it.
    gone: Option<Instant>,
    /// When the last one ended.
    looked: Option<Instant>,
    /// Since when its volume has nothing there.
    empty: Option<Instant>,
    /// When a worker's connection to it last ended, until it is known that it is what it was.
    broke: Option<Instant>,
}

#[derive(Debug)]
enum Looked {
    Opened(Result<Box<Source>, Unusable>),
    Still(Result<Option<String>, Unusable>),
}

/// Opens what an import began with, if it is that still.
fn open_again(wanted: &Wanted, record: &SourceRecord) -> Result<Source, Unusable> {
    let opened = Source::open(wanted)?;
    match opened.mark == record.mark {
        true => Ok(opened),
        false => Err(Unusable::Unfit(changed(&record.from))),
    }
}

impl<D: SlotSpace> Keeper<D> {
    /// The highest number that is, or was, a device's or a source's.
    pub fn last_number(&self) -> Option<DeviceId> {
        let sources = self.volumes.values().filter_map(|v| v.source.as_ref());
        let sources = sources.map(|s| s.device).max();
        let devices = self.records.keys().last().copied();
        devices.max(sources).max(self.sources.highest)
    }

    /// A volume's record without its source, if all was well to the end; nothing if it has none any more.
    pub(super) fn without_source(&mut self, volume: VolumeId) -> Result<Option<Change>, Fault> {
        let Some(record) = self.volumes.get(&volume) else {
            return Err(Fault::Io);
        };
        let Some(source) = &record.source else {
            return Ok(None);
        };
        // Whoever has no threads to look with has no sources that change.
        if !self.workers.is_empty() {
            let Some(known) = self.sources.all.get_mut(&source.device) else {
                return Err(Fault::Io);
            };
            let since = *known.empty.get_or_insert_with(Instant::now);
            // One that is gone says nothing, however long it is waited for; and nothing more is wanted of it.
            if known.well.max(known.gone).is_none_or(|at| at < since) {
                return Err(Fault::Io);
            }
        }
        Ok(Some(Change::SetVolume(VolumeRecord {
            source: None,
            ..record.clone()
        })))
    }

    /// A volume is imported, durably.
    pub(super) fn source_is_over(&mut self, changes: &[Change]) {
        for change in changes {
            if let Change::SetVolume(record) = change
                && let Some(known) = self.volumes.get_mut(&record.id)
                && record.source.is_none()
            {
                known.source = None;
            }
        }
    }

    /// Slots for extents that are imported, with any content.
    pub(super) fn gather(
        &mut self,
        volume: VolumeId,
        count: usize,
        prefer: Option<DeviceId>,
        changes: &mut Vec<Change>,
    ) -> Result<Vec<Location>, Fault> {
        self.sources.gathered = Some(Instant::now());
        // Space is taken now: a full one is found here, and not in the middle of a write.
        match self.place_all(volume, count, prefer, Content::Any, changes) {
            Ok(places) => Ok(places),
            Err(NoPlace::Full) => Err(Fault::NoSpace),
            Err(NoPlace::NotInTime) => Err(Fault::Io),
        }
    }

    /// Whether an import copies at this moment. Zeroing slots beside it flushes what it writes, again and again.
    pub(super) fn imports(&self) -> bool {
        let lately = |at: Instant| at.elapsed() < COPIES;
        self.sources.gathered.is_some_and(lately)
    }

    /// Whether a place is one at the source of a volume.
    pub(super) fn is_at_source(&self, volume: VolumeId, at: Location) -> bool {
        let record = self.volumes.get(&volume);
        record.is_some_and(|v| v.is_at_source(at))
    }
}

impl Keeper {
    fn wanted(&self, record: &SourceRecord) -> Wanted {
        let dir = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        Wanted::of(record, &dir)
    }

    fn source_records(&self) -> Vec<SourceRecord> {
        let all = self.volumes.values();
        all.filter_map(|v| v.source.clone()).collect()
    }

    /// Opens the sources of all imports, before guests are let in; what workers are to know.
    pub(crate) fn open_sources(&mut self) -> Vec<Arc<Device>> {
        if let Some(dir) = &self.dir {
            clear_sockets(dir);
        }
        let records = self.source_records();
        let one = |record: &SourceRecord| {
            let (wanted, record) = (self.wanted(record), record.clone());
            move || open_again(&wanted, &record)
        };
        let opened = at_once(records.iter().map(one).collect(), OPEN_TIME);
        let mut devices = vec![];
        for (record, opened) in records.iter().zip(opened) {
            let silent = |_| Err(Unusable::Gone("it does not answer".into()));
            let opened = opened.unwrap_or_else(silent);
            devices.push(match opened {
                Ok(source) => {
                    let device = source.device.clone();
                    self.source_joins(record.device, Arc::new(source));
                    device
                }
                Err(why) => {
                    self.source_known(record.device).away = Some(why);
                    Arc::new(Device::lost(record.device, SOURCE.into()))
                }
            });
        }
        devices
    }

    fn source_known(&mut self, id: DeviceId) -> &mut Known {
        self.sources.highest = self.sources.highest.max(Some(id));
        self.sources.all.entry(id).or_default()
    }

    fn source_joins(&mut self, id: DeviceId, source: Arc<Source>) {
        let known = self.source_known(id);
        (known.open, known.away, known.gone) = (Some(source), None, None);
        known.looked = Some(Instant::now());
    }

    /// An import begins: its source is open, and what of it holds anything is known.
    ///
    /// # Errors
    /// When it does not, or that is not known.
    pub(crate) fn begin_import(
        &mut self,
        record: VolumeRecord,
        extents: Vec<(u32, u32)>,
        source: Source,
    ) -> Result<(), array::ArrayError> {
        let number = source.device.id;
        let volume = record.clone();
        self.commit(&[Change::Import { volume, extents }])?;
        self.volumes.insert(record.id, record);
        self.tell(|| Message::Device(source.device.clone()));
        self.source_joins(number, Arc::new(source));
        Ok(())
    }

    /// Content of an import's source that is not imported, in words.
    pub(crate) fn source_has_more(&self, record: &VolumeRecord) -> Option<String> {
        let source = record.source.as_ref()?;
        let known = self.sources.all.get(&source.device)?;
        known.open.as_ref()?.more.clone()
    }

    /// Why the source of an import is not in use.
    pub(crate) fn source_away(&self, record: &VolumeRecord) -> Option<String> {
        let source = record.source.as_ref()?;
        // Who serves nothing has not looked.
        let known = self.sources.all.get(&source.device)?;
        known.away.as_ref().map(ToString::to_string)
    }

    /// What is wrong with the source of an import, though it is in use.
    pub(crate) fn source_warning(&self, record: &VolumeRecord) -> Option<String> {
        let source = record.source.as_ref()?;
        self.sources.all.get(&source.device)?.warning.clone()
    }

    /// A worker's connection to a source ended: it is looked at before that worker connects again. Others go on meanwhile.
    pub(crate) fn source_broke(&mut self, device: &Arc<Device>) {
        let known = self.sources.all.get(&device.id);
        let open = known.and_then(|k| k.open.as_ref());
        // Another worker may have said so before, and it is open again.
        if open.is_some_and(|s| Arc::ptr_eq(&s.device, device)) {
            self.source_known(device.id).broke = Some(Instant::now());
        }
    }

    /// Nothing is to be read from a volume's source any more: what is under way there fails.
    pub(crate) fn give_up_source(&mut self, volume: VolumeId) {
        let source = self.volumes.get(&volume).and_then(|v| v.source.as_ref());
        if let Some(id) = source.map(|s| s.device) {
            self.source_leaves(id, Unusable::Gone("it does not answer".into()));
        }
    }

    /// To be called often.
    pub(super) fn look_at_known_sources(&mut self) {
        let due = |at: Instant| at.elapsed() >= TURN;
        if !self.sources.all.is_empty() && self.sources.turned.is_none_or(due) {
            self.look_at_sources();
            self.sources.turned = Some(Instant::now());
        }
    }

    /// Looks about once a second, and at once where somebody waits for it.
    fn look_at_sources(&mut self) {
        let records = self.source_records();
        let there = |id: &DeviceId| records.iter().any(|r| r.device == *id);
        let gone: Vec<DeviceId> = self.sources.all.keys().copied().collect();
        for id in gone.into_iter().filter(|id| !there(id)) {
            self.sources.all.remove(&id);
            self.tell_no_source(id);
        }
        for record in records {
            self.look_at_source(&record);
        }
    }

    fn look_at_source(&mut self, record: &SourceRecord) {
        let id = record.device;
        if !self.sources.all.contains_key(&id) {
            self.source_leaves(id, Unusable::Gone("it is not open yet".into()));
        }
        let known = self.source_known(id);
        let result = match &known.looking {
            None => None,
            Some((began, looking)) => match looking.try_recv() {
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => Some((*began, None)),
                Ok(looked) => Some((*began, Some(looked))),
            },
        };
        if let Some((began, looked)) = result {
            (known.looking, known.looked) = (None, Some(Instant::now()));
            match looked {
                Some(Looked::Opened(Ok(source))) => {
                    let device = source.device.clone();
                    self.source_joins(id, Arc::new(*source));
                    self.tell(|| Message::Device(device.clone()));
                }
                Some(Looked::Opened(Err(why))) => match (&known.away, &why) {
                    // What was seen to be another one is not as it was because it is gone.
                    (Some(Unusable::Unfit(_)), Unusable::Gone(_)) => {}
                    (_, Unusable::Gone(_)) => (known.gone, known.away) = (Some(began), Some(why)),
                    (_, Unusable::Unfit(_)) => known.away = Some(why),
                },
                // It has left meanwhile.
                Some(Looked::Still(_)) if known.open.is_none() => {}
                Some(Looked::Still(Ok(warning))) => {
                    (known.well, known.warning) = (Some(began), warning);
                    if known.broke.take_if(|broke| *broke <= began).is_some() {
                        self.tell(|| Message::SourceIsTheSame(id));
                    }
                }
                Some(Looked::Still(Err(why))) => self.source_leaves(id, why),
                None => {}
            }
            return;
        }
        let since = known.looked.map(|at| at.elapsed());
        let asked = [known.empty, known.broke];
        let asked = asked
            .iter()
            .flatten()
            .any(|e| known.well.is_none_or(|w| w < *e));
        let every = match (&known.open, asked) {
            (None, _) => AGAIN,
            (Some(_), true) => Duration::ZERO,
            (Some(_), false) => LOOK,
        };
        if since.is_some_and(|s| s < every) {
            return;
        }
        let began = Instant::now();
        let (open, broke) = (known.open.clone(), known.broke.is_some());
        let (wanted, record) = (self.wanted(record), record.clone());
        let known = self.source_known(id);
        let looking = known.helper.begin(move |_| match open {
            Some(source) => Looked::Still(source.look(broke)),
            None => Looked::Opened(open_again(&wanted, &record).map(Box::new)),
        });
        known.looking = looking.map(|l| (began, l));
    }

    fn source_leaves(&mut self, id: DeviceId, why: Unusable) {
        let known = self.source_known(id);
        (known.open, known.away, known.warning) = (None, Some(why), None);
        known.broke = None;
        self.tell_no_source(id);
    }

    fn tell_no_source(&self, id: DeviceId) {
        let nothing = Arc::new(Device::lost(id, SOURCE.into()));
        self.tell(|| Message::DeviceLost(nothing.clone()));
    }

    /// What is wrong with sources: the volume, and what people are told of it.
    pub(super) fn source_problems(&self) -> Vec<(String, String)> {
        let one = |v: &VolumeRecord| {
            let what = match (self.source_away(v), self.source_warning(v)) {
                (Some(why), _) => format!(
                    "it is being imported, and its source cannot be read: {why}; reads of data that is not copied yet fail"
                ),
                (None, warning) => format!("it is being imported: {}", warning?),
            };
            Some((v.name.clone(), what))
        };
        self.volumes.values().filter_map(one).collect()
    }
}
