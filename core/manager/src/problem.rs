//! Kinds of problems, in order of urgency.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of a problem, in order of urgency: first risks for data, then for guests, then missing
/// decisions.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// A virtual machine might start from an image without all acknowledged writes. Do not start it
    /// before you have checked the image.
    StaleImage,
    /// A worker of an array's server does not respond. I/O of its volumes hangs.
    WorkerStalled,
    /// Changes of an array's map cannot be made durable. New extents and moves are impossible.
    MapFailing,
    /// Another program has overwritten the superblock of a device. The array has stopped writing to
    /// the device.
    DeviceOverwritten,
    /// A device cannot be used. Requests to its data fail.
    DeviceLost,
    /// The file of a device in use is no longer at its path. The next start of the array will not
    /// find it.
    DeviceFileGone,
    /// Some extents of a volume cannot be read.
    VolumeIncomplete,
    /// Records of a volume in the map are damaged. The volume is not served.
    VolumeDamaged,
    /// The source of a running import cannot be read, or was changed.
    SourceLost,
    /// A copy of the map is not current.
    MapCopyLost,
    /// A device does not respond, or another device is in its place.
    DeviceUnreachable,
    /// Another server owns a remote device or may own it. This server does not write to it.
    RemoteNotOwned,
    /// I/O on a device fails.
    DeviceErrors,
    /// Requests of a volume complete with errors.
    RequestsFail,
    /// A tier, a device or the disk of a map copy is full.
    NoSpace,
    /// The controller's store cannot be read or written. The controller decides and orders nothing.
    StoreFailing,
    /// Two controllers give orders to an array, which carries out those of one.
    TwoControllers,
    /// A part of the controller does not run, for example its port, agent or recording.
    ControllerDegraded,
    /// A host does not report. Its state is unknown.
    HostLost,
    /// A volume violates its objective.
    ObjectiveViolated,
    /// A tier, a device or the disk of a map copy is nearly full.
    NearlyFull,
    /// A device uses the page cache of its host, although direct I/O was requested.
    DeviceNotDirect,
    /// The data about a host is old.
    HostLate,
    /// A host reports, but no decision about it is possible.
    NoDecision,
    /// The sizes of volumes exceed the space by more than the policy allows.
    Overcommitted,
    /// A move fails repeatedly.
    MoveFailing,
    /// A job makes no progress.
    JobStuck,
    /// A host of virtual machines cannot clean up after a move.
    MoveStuck,
    /// A move has left a file. Only an operator can decide whether it is needed.
    FileLeftBehind,
    /// The strategy's predictions are wrong too often. Moves for latency wait for approval.
    PredictionsFail,
    /// A token of the interface expires soon, or has expired.
    TokenExpires,
    /// The configuration does not describe the performance of a tier. No data is placed on it.
    UndescribedTier,
    /// Volumes have a class that the configuration does not know. They count as volumes without a
    /// class.
    UnknownClass,
    /// A kind of problem that this version does not know, reported by an array of a newer version.
    Other,
}

impl ProblemKind {
    /// Returns the name of the kind in metrics, files and messages.
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

    /// Returns the kind with this name in reports of arrays, or [`ProblemKind::Other`] for an
    /// unknown name.
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

    /// Returns true for conditions that are measured in each window. One window without the
    /// condition does not end such a problem.
    pub(crate) fn comes_and_goes(self) -> bool {
        matches!(
            self,
            ProblemKind::DeviceErrors | ProblemKind::RequestsFail | ProblemKind::ObjectiveViolated
        )
    }

    /// Returns true if other code records the start and the end of the problem in the audit log.
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

/// Condition that an operator must act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProblemView {
    /// Kind of the problem; lists are sorted by it, most urgent first.
    pub kind: ProblemKind,
    /// Host with the problem; null for the controller itself.
    pub host: Option<String>,
    /// Device, tier, volume, class, job or host with the problem.
    pub subject: String,
    /// Problem, its consequence and the required action, as sentences.
    pub what: String,
    /// Decisions and actions that the problem prevents; null if none.
    pub undecided: Option<String>,
    /// Start of the problem, as controller time in nanoseconds.
    pub since_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_names_match_the_interface() {
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
