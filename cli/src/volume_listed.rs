//! Volumes with their unreadable parts, which the samples of the array contain.

use datapath::control_server::{ControlAnswer, ControlRequest, ProblemKind, Samples, VolumeInfo};
use serde::Serialize;

use crate::live::{ArrayArg, show, unexpected};

/// Volume with a description of its lost data.
#[derive(Debug, Serialize)]
pub struct ListedVolume {
    /// State of the volume in the array.
    #[serde(flatten)]
    pub info: VolumeInfo,
    /// Description of the data on devices that are lost or were abandoned; `None` if the volume is complete.
    pub incomplete: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct ListedVolumes {
    /// Volumes in order of creation.
    pub volumes: Vec<ListedVolume>,
    /// Processor time that the server has spent polling for requests since its start, seconds; `None` while one of its workers is stalled.
    pub polled_s: Option<f64>,
}

impl ListedVolumes {
    /// Requests all volumes of an array.
    pub fn of(array: &ArrayArg) -> anyhow::Result<Self> {
        let (volumes, samples) = asked(array, ControlRequest::Volumes)?;
        Ok(Self {
            volumes,
            polled_s: samples.looked.map(|looked| looked.as_secs_f64()),
        })
    }
}

impl ListedVolumes {
    /// Returns the volumes that are not snapshots.
    pub fn without_snapshots(mut self) -> Self {
        self.volumes.retain(|v| v.info.snapshot.is_none());
        self
    }
}

impl ListedVolume {
    /// Requests one volume of an array.
    pub fn of(array: &ArrayArg, volume: &str) -> anyhow::Result<Self> {
        let (mut volumes, _) = asked(array, show(volume))?;
        match volumes.len() {
            1 => Ok(volumes.remove(0)),
            _ => Err(unexpected()),
        }
    }

    fn new(info: VolumeInfo, samples: &Samples) -> Self {
        let mut of_it = samples
            .problems
            .iter()
            .filter(|t| t.kind == ProblemKind::VolumeIncomplete && t.about == info.name);
        Self {
            incomplete: of_it.next().map(|t| t.what.clone()),
            info,
        }
    }
}

fn asked(array: &ArrayArg, ask: ControlRequest) -> anyhow::Result<(Vec<ListedVolume>, Samples)> {
    let [
        ControlAnswer::Volumes { volumes },
        ControlAnswer::Samples(samples),
    ] = array.ask_each([ask, ControlRequest::Samples])?
    else {
        return Err(unexpected());
    };
    let listed = |info| ListedVolume::new(info, &samples);
    let volumes = volumes.into_iter().map(listed).collect();
    Ok((volumes, samples))
}
