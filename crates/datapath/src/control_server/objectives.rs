//! Latency objectives: a live manager says them, and for how long they hold; moves yield to volumes that miss theirs.
//!
//! They are said again with every window. When nobody does any more it is not known what guests were promised, and moves are careful;
//! where nobody ever did, volumes have none.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use model::ClassObjective;
use units::{Nanos, VolumeId};

use super::{ControlAnswer, ControlServer, Result, done};
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
            return Err("an objective must be a latency above 0".into());
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
            // What waits for a limit for a time waits for nobody else, and nobody has to yield to it.
            let of_class = of_class.filter(|_| volume.for_a_time.is_none());
            volume
                .objective
                .hold_to(of_class.map(|o| o.objective), until_ns);
        }
        done("accepted the objectives".into())
    }
}
