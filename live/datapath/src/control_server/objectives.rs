//! Latency objectives: a live controller sets them for a limited time, and moves yield to volumes that violate theirs.
//!
//! They are renewed with every window. If they expire, the objectives of guests are unknown, and moves run carefully. If
//! they were never set, volumes have none.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use model::ClassObjective;
use units::{Nanos, VolumeId};

use super::{ControlAnswer, ControlServer, DatapathError, Result, done};
use crate::clock;

impl ControlServer {
    pub(super) fn hold_to(
        &self,
        objectives: &[ClassObjective],
        lasting: Nanos,
    ) -> Result<ControlAnswer> {
        if objectives
            .iter()
            .any(|o| o.objective.latency == Nanos::ZERO)
        {
            return Err(DatapathError::Invalid(
                "an objective must be a latency above 0".into(),
            ));
        }
        let until_ns = clock::now_ns().saturating_add(lasting.0);
        let classes = self.with_keeper(|keeper| {
            let all = keeper.volumes.values();
            all.map(|v| (v.id, v.class.clone()))
                .collect::<BTreeMap<VolumeId, String>>()
        })?;
        let volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        for (id, volume) in volumes.iter() {
            let class = classes.get(id);
            let of_class = objectives.iter().find(|o| Some(&o.class) == class);
            // A volume with a temporary limit is slow because of that limit, so no other volume has to yield to it.
            let of_class = of_class.filter(|_| volume.for_a_time.is_none());
            volume
                .objective
                .hold_to(of_class.map(|o| o.objective), until_ns);
        }
        done("accepted the objectives".into())
    }
}
