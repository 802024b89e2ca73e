//! Volumes as they are, with what of them cannot be read: the samples of an array say that, by volume.

use datapath::control_server::{ControlAnswer, ControlRequest, ProblemKind, Samples, VolumeInfo};
use serde::Serialize;

use crate::live::{ArrayArg, show, unexpected};

/// A volume, and what is lost of it.
#[derive(Debug, Serialize)]
pub struct ListedVolume {
    /// As the array knows it.
    #[serde(flatten)]
    pub info: VolumeInfo,
    /// What of it is on devices that are lost, or were given up; none where all of it is there.
    pub incomplete: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct ListedVolumes {
    /// In order of creation.
    pub volumes: Vec<ListedVolume>,
    /// Processor time in seconds that the server has spent with looking for requests instead of sleeping, since it was started; none while one of its
    /// workers is stalled.
    pub polled_s: Option<f64>,
}

impl ListedVolumes {
    /// Asks an array.
    pub fn of(array: &ArrayArg) -> anyhow::Result<Self> {
        let (volumes, samples) = asked(array, ControlRequest::Volumes)?;
        Ok(Self {
            volumes,
            polled_s: samples.looked.map(|looked| looked.as_secs_f64()),
        })
    }
}

impl ListedVolumes {
    /// Those that guests write to.
    pub fn without_snapshots(mut self) -> Self {
        self.volumes.retain(|v| v.info.snapshot.is_none());
        self
    }
}

impl ListedVolume {
    /// Asks an array for one.
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
