//! Forecasts of recurring peaks: a live host's responder gets the remembered seasons of volumes that join, and its memory is
//! stored.

use slo::AheadConfig;
use slo::seasonal::SeasonalConfig;
use units::Nanos;

use super::super::Controller;
use super::HostResponder;

impl Controller {
    /// Configures the forecasts of a host's responder, in wall-clock time.
    pub(super) fn follow_seasons(
        &mut self,
        host: &str,
        of: &mut HostResponder,
        config: Option<AheadConfig>,
    ) {
        let Some(live) = &mut of.live else {
            return;
        };
        let mut joined = std::mem::take(&mut live.joined);
        if live.ahead != config {
            live.ahead = config;
            joined = live.numbers.values().copied().collect();
            match config {
                Some(ahead) => of.responder.look_ahead(ahead),
                None => of.responder.look_no_more(),
            }
        }
        let Some(ahead) = config else {
            return;
        };
        let unix_ms = self.now.unix_ms;
        // Slots follow the local day, also when its UTC offset changes.
        let wall = Nanos(self.settings.hours.local_ms(unix_ms) * 1_000_000);
        of.responder.wall_clock(self.now.at, wall);
        let seasonal: SeasonalConfig = ahead.seasonal;
        self.seasons.zones_of(live.config.workflow.warm.zone);
        for w in joined {
            let volume = (host, of.name(w.index()));
            let (remembered, forgotten) =
                self.seasons
                    .recall(volume, seasonal, &of.resources, unix_ms);
            self.changes.extend(forgotten);
            of.responder.recall(w, remembered);
        }
    }

    /// Stores slots that have ended.
    pub(super) fn remember_seasons(&mut self, host: &str, of: &mut HostResponder) {
        if of.live.is_none() {
            return;
        }
        for (w, number) in of.responder.take_remembered() {
            let Some(seasonal) = of.responder.remembered(w) else {
                continue;
            };
            let volume = (host, of.name(w.index()));
            let slot = (seasonal, number);
            let unix_ms = self.now.unix_ms;
            let kept = self.seasons.remember(volume, slot, &of.resources, unix_ms);
            self.changes.extend(kept);
        }
    }
}
