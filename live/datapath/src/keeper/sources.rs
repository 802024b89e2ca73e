//! Sources of imports: opened, checked, and released when they are not needed any more.
//!
//! ```text
//!   away ──opened, and unchanged──▶ in use ──written to, or its server closed the connection──▶ away, and tried again
//!                                     └──no extent left at the source, and a last check found no change──▶ released
//! ```
//!
//! While a source is away, its data cannot be read and copying waits. A file whose name has disappeared stays in use,
//! because the open file is unchanged. Helper threads run all operations that may hang.

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
use crate::error::DatapathError;
use crate::helper_thread::{HelperThread, at_once};
use crate::source::{LOOK, Source, SourceSpec, changed, clear_sockets};
use crate::worker::Message;

/// Interval between attempts to use an unusable source.
const AGAIN: Duration = Duration::from_secs(3);

/// An import is active if it requested slots within this time.
const COPIES: Duration = Duration::from_secs(2);

/// Interval between two passes. Each pass goes through all volumes while requests wait.
const TURN: Duration = Duration::from_millis(20);

/// Time limit to open sources at the start. A slower source is away for the start and is tried again later.
const OPEN_TIME: Duration = Duration::from_secs(10);

/// State of all sources.
#[derive(Debug, Default)]
pub(super) struct Sources {
    all: BTreeMap<DeviceId, SourceState>,
    /// Highest number that a source has had. This process gives it to no device, because workers may still know it.
    highest: Option<DeviceId>,
    /// Time of the last pass.
    turned: Option<Instant>,
    /// Time of the last request for slots.
    gathered: Option<Instant>,
}

#[derive(Debug, Default)]
struct SourceState {
    open: Option<Arc<Source>>,
    /// Reason why it is not in use.
    away: Option<DatapathError>,
    /// Fault of a source that is still in use.
    warning: Option<String>,
    helper: HelperThread,
    looking: Option<(Instant, Receiver<SourceCheck>)>,
    /// Start of the last check without a fault.
    well: Option<Instant>,
    /// Start of the last check that did not find the source.
    gone: Option<Instant>,
    /// End of the last check.
    looked: Option<Instant>,
    /// Time since when its volume has no extents there.
    empty: Option<Instant>,
    /// Time at which a worker's connection to it last ended; `None` after a check that the source is unchanged.
    broke: Option<Instant>,
}

#[derive(Debug)]
enum SourceCheck {
    Opened(Result<Box<Source>, DatapathError>),
    Still(Result<Option<String>, DatapathError>),
}

/// Opens the source of an import again, if it is unchanged.
fn open_again(wanted: &SourceSpec, record: &SourceRecord) -> Result<Source, DatapathError> {
    let opened = Source::open(wanted)?;
    match opened.mark == record.mark {
        true => Ok(opened),
        false => Err(changed(&record.from)),
    }
}

/// Returns the error for a source that does not respond.
fn silent() -> DatapathError {
    DatapathError::Late("it does not answer".into()).gone()
}

impl<D: SlotSpace> Keeper<D> {
    /// Returns the highest number of all present and former devices and sources.
    pub fn last_number(&self) -> Option<DeviceId> {
        let sources = self.volumes.values().filter_map(|v| v.source.as_ref());
        let sources = sources.map(|s| s.device).max();
        let devices = self.records.keys().last().copied();
        devices.max(sources).max(self.sources.highest)
    }

    /// Returns the volume's record without its source if the source was unchanged until the end; `None` if the volume
    /// has no source.
    pub(super) fn without_source(&mut self, volume: VolumeId) -> Result<Option<Change>, Fault> {
        let Some(record) = self.volumes.get(&volume) else {
            return Err(Fault::Io);
        };
        let Some(source) = &record.source else {
            return Ok(None);
        };
        // A keeper without workers (a test) does not check sources.
        if !self.workers.is_empty() {
            let Some(known) = self.sources.all.get_mut(&source.device) else {
                return Err(Fault::Io);
            };
            let since = *known.empty.get_or_insert_with(Instant::now);
            // A source that is gone never passes a check, and its data is not needed any more.
            if known.well.max(known.gone).is_none_or(|at| at < since) {
                return Err(Fault::Io);
            }
        }
        Ok(Some(Change::SetVolume(VolumeRecord {
            source: None,
            ..record.clone()
        })))
    }

    /// Ends the import of volumes whose record is committed without a source.
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

    /// Allocates slots for imported extents, with any content.
    pub(super) fn gather(
        &mut self,
        volume: VolumeId,
        count: usize,
        prefer: Option<DeviceId>,
        changes: &mut Vec<Change>,
    ) -> Result<Vec<Location>, Fault> {
        self.sources.gathered = Some(Instant::now());
        // Allocate space now, so a lack of space is found here and not during a write.
        match self.place_all(volume, count, prefer, Content::Any, changes) {
            Ok(places) => Ok(places),
            Err(NoPlace::Full) => Err(Fault::NoSpace),
            Err(NoPlace::NotInTime) => Err(Fault::Io),
        }
    }

    /// Returns true while an import copies data. Zeroing of slots at the same time would flush its writes again and
    /// again.
    pub(super) fn imports(&self) -> bool {
        let lately = |at: Instant| at.elapsed() < COPIES;
        self.sources.gathered.is_some_and(lately)
    }

    /// Returns true if a place is at the source of a volume.
    pub(super) fn is_at_source(&self, volume: VolumeId, at: Location) -> bool {
        let record = self.volumes.get(&volume);
        record.is_some_and(|v| v.is_at_source(at))
    }
}

impl Keeper {
    fn wanted(&self, record: &SourceRecord) -> SourceSpec {
        let dir = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        SourceSpec::of(record, &dir)
    }

    fn source_records(&self) -> Vec<SourceRecord> {
        let all = self.volumes.values();
        all.filter_map(|v| v.source.clone()).collect()
    }

    /// Opens the sources of all imports before guests can connect. Returns their devices for the workers.
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
            let opened = opened.unwrap_or_else(|_| Err(silent()));
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

    fn source_known(&mut self, id: DeviceId) -> &mut SourceState {
        self.sources.highest = self.sources.highest.max(Some(id));
        self.sources.all.entry(id).or_default()
    }

    fn source_joins(&mut self, id: DeviceId, source: Arc<Source>) {
        let known = self.source_known(id);
        (known.open, known.away, known.gone) = (Some(source), None, None);
        known.looked = Some(Instant::now());
    }

    /// Begins an import. Its source is open, and the allocated extents of the source are known.
    ///
    /// # Errors
    /// The import was not created, or that is unknown.
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

    /// Describes the content of an import's source that is not imported.
    pub(crate) fn source_has_more(&self, record: &VolumeRecord) -> Option<String> {
        let source = record.source.as_ref()?;
        let known = self.sources.all.get(&source.device)?;
        known.open.as_ref()?.more.clone()
    }

    /// Returns the reason why the source of an import is not in use.
    pub(crate) fn source_away(&self, record: &VolumeRecord) -> Option<String> {
        let source = record.source.as_ref()?;
        // A process that does not serve has not checked sources.
        let known = self.sources.all.get(&source.device)?;
        known.away.as_ref().map(ToString::to_string)
    }

    /// Returns the fault of an import's source that is still in use.
    pub(crate) fn source_warning(&self, record: &VolumeRecord) -> Option<String> {
        let source = record.source.as_ref()?;
        self.sources.all.get(&source.device)?.warning.clone()
    }

    /// Records the end of a worker's connection to a source. The source is checked before this worker connects again.
    /// Other workers continue meanwhile.
    pub(crate) fn source_broke(&mut self, device: &Arc<Device>) {
        let known = self.sources.all.get(&device.id);
        let open = known.and_then(|k| k.open.as_ref());
        // Another worker may have reported it earlier, and the source may be open again.
        if open.is_some_and(|s| Arc::ptr_eq(&s.device, device)) {
            self.source_known(device.id).broke = Some(Instant::now());
        }
    }

    /// Stops reading from a volume's source: requests in flight there fail.
    pub(crate) fn give_up_source(&mut self, volume: VolumeId) {
        let source = self.volumes.get(&volume).and_then(|v| v.source.as_ref());
        if let Some(id) = source.map(|s| s.device) {
            self.source_leaves(id, silent());
        }
    }

    /// Runs a pass if it is due. The keeper calls it often.
    pub(super) fn look_at_known_sources(&mut self) {
        let due = |at: Instant| at.elapsed() >= TURN;
        if !self.sources.all.is_empty() && self.sources.turned.is_none_or(due) {
            self.look_at_sources();
            self.sources.turned = Some(Instant::now());
        }
    }

    /// Checks sources about once a second, and at once if a request waits for the result.
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
            let why = DatapathError::Refused("it is not open yet".into());
            self.source_leaves(id, why.gone());
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
                Some(SourceCheck::Opened(Ok(source))) => {
                    let device = source.device.clone();
                    self.source_joins(id, Arc::new(*source));
                    self.tell(|| Message::Device(device.clone()));
                }
                Some(SourceCheck::Opened(Err(why))) => {
                    let is_gone = |e: &DatapathError| matches!(e, DatapathError::SourceGone(_));
                    match (&known.away, is_gone(&why)) {
                        // A source that had changed does not count as unchanged because it is gone now.
                        (Some(before), true) if !is_gone(before) => {}
                        (_, true) => (known.gone, known.away) = (Some(began), Some(why)),
                        (_, false) => known.away = Some(why),
                    }
                }
                // The source was released meanwhile.
                Some(SourceCheck::Still(_)) if known.open.is_none() => {}
                Some(SourceCheck::Still(Ok(warning))) => {
                    (known.well, known.warning) = (Some(began), warning);
                    if known.broke.take_if(|broke| *broke <= began).is_some() {
                        self.tell(|| Message::SourceIsTheSame(id));
                    }
                }
                Some(SourceCheck::Still(Err(why))) => self.source_leaves(id, why),
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
            Some(source) => SourceCheck::Still(source.look(broke)),
            None => SourceCheck::Opened(open_again(&wanted, &record).map(Box::new)),
        });
        known.looking = looking.map(|l| (began, l));
    }

    fn source_leaves(&mut self, id: DeviceId, why: DatapathError) {
        let known = self.source_known(id);
        (known.open, known.away, known.warning) = (None, Some(why), None);
        known.broke = None;
        self.tell_no_source(id);
    }

    fn tell_no_source(&self, id: DeviceId) {
        let nothing = Arc::new(Device::lost(id, SOURCE.into()));
        self.tell(|| Message::DeviceLost(nothing.clone()));
    }

    /// Returns the problems of sources: volume and message.
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
