//! Kinds of trouble, by urgency: what an operator has to look at, and what has to be looked at first.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What kind of trouble. The order is that of urgency: data first, then guests, then what is not decided.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
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
    ObjectiveViolated,
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

impl ProblemKind {
    /// Its name in metrics, in files and for people.
    pub fn name(self) -> &'static str {
        match self {
            ProblemKind::StaleImage => "stale-image",
            ProblemKind::WorkerStalled => "worker-stalled",
            ProblemKind::MapFailing => "map-failing",
            ProblemKind::DeviceOverwritten => "device-overwritten",
            ProblemKind::DeviceLost => "device-lost",
            ProblemKind::DeviceFileGone => "device-file-gone",
            ProblemKind::VolumeIncomplete => "volume-incomplete",
            ProblemKind::VolumeDamaged => "volume-damaged",
            ProblemKind::SourceLost => "source-lost",
            ProblemKind::MapCopyLost => "map-copy-lost",
            ProblemKind::DeviceUnreachable => "device-unreachable",
            ProblemKind::RemoteNotOwned => "remote-not-owned",
            ProblemKind::DeviceErrors => "device-errors",
            ProblemKind::RequestsFail => "requests-fail",
            ProblemKind::NoSpace => "no-space",
            ProblemKind::StoreFailing => "store-failing",
            ProblemKind::TwoControllers => "two-controllers",
            ProblemKind::ControllerDegraded => "controller-degraded",
            ProblemKind::HostLost => "host-lost",
            ProblemKind::ObjectiveViolated => "objective-violated",
            ProblemKind::NearlyFull => "nearly-full",
            ProblemKind::DeviceNotDirect => "device-not-direct",
            ProblemKind::HostLate => "host-late",
            ProblemKind::NoDecision => "no-decision",
            ProblemKind::Overcommitted => "overcommitted",
            ProblemKind::MoveFailing => "move-failing",
            ProblemKind::JobStuck => "job-stuck",
            ProblemKind::MoveStuck => "move-stuck",
            ProblemKind::FileLeftBehind => "file-left-behind",
            ProblemKind::PredictionsFail => "predictions-fail",
            ProblemKind::TokenExpires => "token-expires",
            ProblemKind::UndescribedTier => "undescribed-tier",
            ProblemKind::UnknownClass => "unknown-class",
            ProblemKind::Other => "other",
        }
    }

    /// The kind that an array calls so; one that this version does not know is [`ProblemKind::Other`].
    pub fn of_array(name: &str) -> Self {
        let known = [
            ProblemKind::StaleImage,
            ProblemKind::WorkerStalled,
            ProblemKind::MapFailing,
            ProblemKind::DeviceOverwritten,
            ProblemKind::DeviceLost,
            ProblemKind::DeviceFileGone,
            ProblemKind::VolumeIncomplete,
            ProblemKind::VolumeDamaged,
            ProblemKind::SourceLost,
            ProblemKind::MapCopyLost,
            ProblemKind::DeviceUnreachable,
            ProblemKind::RemoteNotOwned,
            ProblemKind::DeviceErrors,
            ProblemKind::NoSpace,
            ProblemKind::ControllerDegraded,
            ProblemKind::NearlyFull,
            ProblemKind::DeviceNotDirect,
            ProblemKind::Overcommitted,
            ProblemKind::MoveStuck,
            ProblemKind::FileLeftBehind,
        ];
        let found = known.into_iter().find(|k| k.name() == name);
        found.unwrap_or(ProblemKind::Other)
    }

    /// Whether it is seen window by window, so that one good window does not mean that it is over.
    pub(crate) fn comes_and_goes(self) -> bool {
        matches!(
            self,
            ProblemKind::DeviceErrors | ProblemKind::RequestsFail | ProblemKind::ObjectiveViolated
        )
    }

    /// Whether something else writes into the audit that it began and ended.
    pub(crate) fn has_events_of_its_own(self) -> bool {
        matches!(
            self,
            ProblemKind::HostLost
                | ProblemKind::HostLate
                | ProblemKind::NoDecision
                | ProblemKind::JobStuck
                | ProblemKind::PredictionsFail
        )
    }
}

impl std::fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProblemView {
    /// What kind; the list is sorted by it, most urgent first.
    pub kind: ProblemKind,
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
            ProblemKind::WorkerStalled,
            ProblemKind::MapFailing,
            ProblemKind::DeviceErrors,
            ProblemKind::NoDecision,
            ProblemKind::Other,
        ] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        assert_eq!(
            ProblemKind::of_array("device-lost"),
            ProblemKind::DeviceLost
        );
        assert_eq!(ProblemKind::of_array("from-the-future"), ProblemKind::Other);
    }
}
