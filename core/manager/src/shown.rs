//! Display of a live configuration: its effective values.

use config::{ConfigFault, PolicyConfig};
use model::Policy;

use crate::settings::{ManagerConfig, Settings, UnknownTiers};

impl Settings {
    /// Returns the configuration with all defaults filled in. Keys without a value, such as unset
    /// limits, stay absent.
    ///
    /// # Errors
    /// None that [`Settings::new`] has not already returned.
    pub fn effective(&self) -> Result<ManagerConfig, ConfigFault> {
        let mut words = self.words.clone();
        let rules = self.policy(&[], &[], UnknownTiers::Skip)?;
        fill_policy(&mut words.policy, &rules.policy);
        let controller = &mut words.controller;
        let state = controller.state.trim_end_matches('/');
        let socket = format!("{state}/controller.sock");
        controller.socket.get_or_insert(socket);
        if let Some(array) = words.array.as_mut().filter(|a| a.listen.is_empty()) {
            array.listen.push("unix:nbd.sock".into());
        }
        Ok(words)
    }
}

fn fill_policy(words: &mut PolicyConfig, policy: &Policy) {
    let Policy {
        epochs,
        headroom,
        budget,
        gates,
        ..
    } = policy;
    let PolicyConfig {
        monitor_epoch,
        migration_epoch,
        headroom_performance,
        headroom_bandwidth,
        headroom_space,
        moves_per_epoch,
        concurrent_moves,
        concurrent_moves_per_device,
        copy_bandwidth,
        copy_share,
        hold,
        cooldown,
        margin,
        threshold,
        // Absent means no limit for these; the others are lists.
        bytes_per_epoch: _,
        space_high: _,
        overcommit_max: _,
        pins: _,
        affinity: _,
        cordon: _,
        drain: _,
        no_injection: _,
    } = words;
    monitor_epoch.get_or_insert(epochs.monitor);
    migration_epoch.get_or_insert(epochs.migration);
    headroom_performance.get_or_insert(headroom.performance);
    headroom_bandwidth.get_or_insert(headroom.bandwidth);
    headroom_space.get_or_insert(headroom.space);
    moves_per_epoch.get_or_insert(budget.moves_per_epoch);
    concurrent_moves.get_or_insert(budget.concurrent);
    concurrent_moves_per_device.get_or_insert(budget.concurrent_per_device);
    copy_bandwidth.get_or_insert(budget.copy_bandwidth);
    copy_share.get_or_insert(budget.copy_share);
    hold.get_or_insert(gates.hold);
    cooldown.get_or_insert(gates.cooldown);
    margin.get_or_insert(gates.margin);
    threshold.get_or_insert(gates.threshold);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        let (words, text) = config::read::<ManagerConfig>("live.toml", text).unwrap();
        Settings::new(text, words).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The effective configuration has the same effect as the original file.
    #[test]
    fn effective_configuration_is_equivalent_to_the_original() {
        let given = settings(
            "strategy = \"edt\"\n[controller]\nstate = \"s/\"\n[array]\ndir = \"a\"\n[policy]\nhold = 3\n[modes]\nspace = \"auto\"\n",
        );
        let words = given.effective().unwrap();
        assert_eq!(
            words.controller.socket.as_deref(),
            Some("s/controller.sock")
        );
        assert_eq!(words.array.as_ref().unwrap().listen, ["unix:nbd.sock"]);
        assert_eq!(words.policy.hold, Some(3));
        assert_eq!(words.policy.margin, Some(0.05));
        assert!(words.policy.monitor_epoch.is_some() && words.policy.copy_share.is_some());
        let again = settings(&config::write(&words).unwrap());
        let rules = |s: &Settings| s.policy(&[], &[], UnknownTiers::Refuse).unwrap();
        assert_eq!(rules(&given), rules(&again));
        let json = |w: &ManagerConfig| serde_json::to_value(w).unwrap();
        assert_eq!(json(&again.effective().unwrap()), json(&words));
    }

    #[test]
    fn empty_configuration_is_valid() {
        let words = settings("").effective().unwrap();
        assert!(words.array.is_none());
        assert_eq!(words.strategy, "terrace");
        assert_eq!(
            words.controller.socket.as_deref(),
            Some("terrace-state/controller.sock")
        );
    }
}
