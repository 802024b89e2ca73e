//! Kinds of trouble, by urgency: what an operator has to look at, and what has to be looked at first.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What kind of trouble. The order is that of urgency: data first, then guests, then what is not decided.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum TroubleKind {
    /// A virtual machine might start from an image that lacks what its guest was told is written: it must not be started.
    StaleImage,
    /// A worker of an array's server does not respond: I/O of its volumes hangs.
    WorkerStalled,
    /// Nothing can be made durable in the map of an array: no new extents, no moves.
    MapFailing,
    /// Another program has overwritten the superblock of a device. The array has stopped writing to
    /// it.
    DeviceOverwritten,
    /// A device cannot be used: what is on it answers with errors.
    DeviceLost,
    /// A device is used, and its file is not at its path any more: the next start will not find it.
    DeviceFileGone,
    /// Some extents of a volume cannot be read.
    VolumeIncomplete,
    /// Records of a volume are damaged: it is not served.
    VolumeDamaged,
    /// A volume is being imported, and its source cannot be read, or was written to.
    SourceLost,
    /// One of the copies of the map is not kept up to date.
    MapCopyLost,
    /// A device cannot be reached, or another one answers in its place.
    DeviceUnreachable,
    /// Another server owns a remote device or may own it; this server does not write to it.
    RemoteNotOwned,
    /// I/O on a device fails.
    DeviceErrors,
    /// Requests of a volume are answered with errors.
    RequestsFail,
    /// A tier, a device or the disk of a map copy has no room.
    NoSpace,
    /// The controller's store cannot be written: nothing is decided or ordered.
    StoreFailing,
    /// A second controller gives orders to an array, which carries out those of one of them.
    TwoControllers,
    /// A part of the controller does not run: its port, its agent, its recording.
    ControllerDegraded,
    /// Everything about a host is unknown.
    HostLost,
    /// A volume misses its objective.
    ObjectiveMissed,
    /// A tier, a device or the disk of a map copy has little room left.
    NearlyFull,
    /// A device goes through the page cache, though direct I/O was asked for.
    DeviceNotDirect,
    /// What is known of a host is old.
    HostLate,
    /// Nothing is decided about a host, and it is not because its agent is silent.
    NoDecision,
    /// More is promised to guests than the policy allows.
    Overcommitted,
    /// A move fails each time that it is tried.
    MoveFailing,
    /// A job does not go on.
    JobStuck,
    /// What is left of a move cannot be put away.
    MoveStuck,
    /// A file is left of a move, and only a person can say whether it is needed.
    FileLeftBehind,
    /// The strategy's predictions do not hold.
    PredictionsFail,
    /// A token of the interface expires soon, or has.
    TokenExpires,
    /// Nobody described what a tier can do.
    UndescribedTier,
    /// Volumes are of a class that the configuration does not know.
    UnknownClass,
    /// Something that an array of a newer version reports.
    Other,
}

impl TroubleKind {
    /// Its name in metrics, in files and for people.
    pub fn name(self) -> &'static str {
        match self {
            TroubleKind::StaleImage => "stale-image",
            TroubleKind::WorkerStalled => "worker-stalled",
            TroubleKind::MapFailing => "map-failing",
            TroubleKind::DeviceOverwritten => "device-overwritten",
            TroubleKind::DeviceLost => "device-lost",
            TroubleKind::DeviceFileGone => "device-file-gone",
            TroubleKind::VolumeIncomplete => "volume-incomplete",
            TroubleKind::VolumeDamaged => "volume-damaged",
            TroubleKind::SourceLost => "source-lost",
            TroubleKind::MapCopyLost => "map-copy-lost",
            TroubleKind::DeviceUnreachable => "device-unreachable",
            TroubleKind::RemoteNotOwned => "remote-not-owned",
            TroubleKind::DeviceErrors => "device-errors",
            TroubleKind::RequestsFail => "requests-fail",
            TroubleKind::NoSpace => "no-space",
            TroubleKind::StoreFailing => "store-failing",
            TroubleKind::TwoControllers => "two-controllers",
            TroubleKind::ControllerDegraded => "controller-degraded",
            TroubleKind::HostLost => "host-lost",
            TroubleKind::ObjectiveMissed => "objective-missed",
            TroubleKind::NearlyFull => "nearly-full",
            TroubleKind::DeviceNotDirect => "device-not-direct",
            TroubleKind::HostLate => "host-late",
            TroubleKind::NoDecision => "no-decision",
            TroubleKind::Overcommitted => "overcommitted",
            TroubleKind::MoveFailing => "move-failing",
            TroubleKind::JobStuck => "job-stuck",
            TroubleKind::MoveStuck => "move-stuck",
            TroubleKind::FileLeftBehind => "file-left-behind",
            TroubleKind::PredictionsFail => "predictions-fail",
            TroubleKind::TokenExpires => "token-expires",
            TroubleKind::UndescribedTier => "undescribed-tier",
            TroubleKind::UnknownClass => "unknown-class",
            TroubleKind::Other => "other",
        }
    }

    /// The kind that an array calls so; one that this version does not know is [`TroubleKind::Other`].
    pub fn of_array(name: &str) -> Self {
        let known = [
            TroubleKind::StaleImage,
            TroubleKind::WorkerStalled,
            TroubleKind::MapFailing,
            TroubleKind::DeviceOverwritten,
            TroubleKind::DeviceLost,
            TroubleKind::DeviceFileGone,
            TroubleKind::VolumeIncomplete,
            TroubleKind::VolumeDamaged,
            TroubleKind::SourceLost,
            TroubleKind::MapCopyLost,
            TroubleKind::DeviceUnreachable,
            TroubleKind::RemoteNotOwned,
            TroubleKind::DeviceErrors,
            TroubleKind::NoSpace,
            TroubleKind::ControllerDegraded,
            TroubleKind::NearlyFull,
            TroubleKind::DeviceNotDirect,
            TroubleKind::Overcommitted,
            TroubleKind::MoveStuck,
            TroubleKind::FileLeftBehind,
        ];
        let found = known.into_iter().find(|k| k.name() == name);
        found.unwrap_or(TroubleKind::Other)
    }

    /// Whether it is seen window by window, so that one good window does not mean that it is over.
    pub(crate) fn comes_and_goes(self) -> bool {
        matches!(
            self,
            TroubleKind::DeviceErrors | TroubleKind::RequestsFail | TroubleKind::ObjectiveMissed
        )
    }

    /// Whether something else writes into the audit that it began and ended.
    pub(crate) fn has_events_of_its_own(self) -> bool {
        matches!(
            self,
            TroubleKind::HostLost
                | TroubleKind::HostLate
                | TroubleKind::NoDecision
                | TroubleKind::JobStuck
                | TroubleKind::PredictionsFail
        )
    }
}

impl std::fmt::Display for TroubleKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TroubleView {
    /// What kind; the list is sorted by it, most urgent first.
    pub kind: TroubleKind,
    /// The host; none is the controller itself.
    pub host: Option<String>,
    /// The device, tier, volume, class, job or host that it is about.
    pub subject: String,
    /// What is wrong, what follows from it, what can be done.
    pub what: String,
    /// What is not decided, or not done, because of it.
    pub undecided: Option<String>,
    /// Since when, in the controller's time.
    pub since_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_interface() {
        for kind in [
            TroubleKind::WorkerStalled,
            TroubleKind::MapFailing,
            TroubleKind::DeviceErrors,
            TroubleKind::NoDecision,
            TroubleKind::Other,
        ] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        assert_eq!(
            TroubleKind::of_array("device-lost"),
            TroubleKind::DeviceLost
        );
        assert_eq!(TroubleKind::of_array("from-the-future"), TroubleKind::Other);
    }
}
