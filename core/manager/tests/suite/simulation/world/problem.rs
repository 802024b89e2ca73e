//! Faults in a simulated run, and actions of operators.

use manager::question::{Actor, Choice, Question};
use manager::service::Service;
use manager::store::memory::Fault;
use manager::wire::Throttle;
use model::{Goal, Mode, TierState};
use units::Nanos;

use super::super::site::Site;
use super::{PROBLEM_NS, SECOND, World};

impl World {
    pub(super) fn problem(&mut self) {
        if self.chance(300) {
            self.controller = None;
            self.controller_back_ns = self.now_ns + self.rng.below(20) * SECOND;
            self.sums.kills += 1;
        }
        if self.chance(200) {
            self.cut_until_ns = self.now_ns + self.rng.below(10) * SECOND;
        }
        if self.chance(400) {
            // The machine was suspended, or the wall clock was set. After a restart the controller's time may be far
            // ahead.
            self.ahead_ns += self.rng.below(600) * SECOND;
        }
        if self.chance(400) {
            self.unix_ms = self
                .unix_ms
                .wrapping_add_signed(self.rng.below(20_000_000) as i64 - 10_000_000);
        }
        if self.chance(250) {
            let fails = self.rng.below(2) == 0;
            if let Some(controller) = &mut self.controller {
                controller
                    .store()
                    .set_fault(if fails { Fault::Writes } else { Fault::None });
                self.sums.store_failures += u64::from(fails);
            }
        }
        if self.now_ns >= PROBLEM_NS
            && let Some(controller) = &mut self.controller
        {
            controller.store().set_fault(Fault::None);
        }
        for h in 0..self.hosts.len() {
            if self.chance(300) {
                self.hosts[h].site.agent_dies();
                self.kill_agent(h);
            }
            if self.chance(300) {
                let for_ns = self.rng.below(40) * SECOND;
                self.hosts[h].site.freeze(self.now_ns + for_ns);
            }
            if self.chance(300) {
                self.hosts[h].throttles.lose();
            }
            self.guests(h);
            if self.chance(20) {
                self.pin_disks(h);
            }
        }
        if self.chance(25) {
            self.operator();
        }
    }

    /// Kills an agent, which restarts after a while.
    pub(super) fn kill_agent(&mut self, h: usize) {
        let host = &mut self.hosts[h];
        host.agent = None;
        host.back_ns = self.now_ns + self.rng.below(15) * SECOND;
        host.leases.clear();
        host.newest = (0, vec![]);
        self.sums.kills += 1;
    }

    /// Changes the behaviour of an array's guests. Virtual machines have faults of their own.
    fn guests(&mut self, h: usize) {
        let [grow, change, forget, noise] = [100, 60, 300, 80].map(|of| self.chance(of));
        let Site::Array(array) = &mut self.hosts[h].site else {
            return;
        };
        let volumes = array.volumes.len() as u64;
        if grow {
            // Guests write to new places, and tiers fill up.
            let v = self.rng.below(volumes) as usize;
            self.sums.full += u64::from(array.grow(v, 1 + self.rng.below(6)));
        }
        if change {
            let v = self.rng.below(volumes) as usize;
            array.volumes[v].rate = (20 << self.rng.below(8)) as f64;
            array.volumes[v].hot = self.rng.below(10) as usize;
        }
        if noise && array.crowded {
            // One volume overloads a device, and all others have little load.
            let loud = self.rng.below(volumes) as usize;
            for (v, volume) in array.volumes.iter_mut().enumerate() {
                let is_loud = v == loud && !volume.is_gold();
                volume.rate = if is_loud { 3000.0 } else { 40.0 };
            }
        }
        if forget {
            let v = self.rng.below(volumes) as usize;
            array.volumes[v].forget_heat();
        }
    }

    /// Pins disks of a domain to other tiers, as an operator.
    fn pin_disks(&mut self, h: usize) {
        let Site::Machines(machines) = &self.hosts[h].site else {
            return;
        };
        let volumes = machines.volumes();
        let domains: Vec<&str> = volumes
            .iter()
            .filter_map(|v| Some(v.split_once(':')?.0))
            .collect();
        let domain = domains[self.rng.below(domains.len() as u64) as usize];
        let own = volumes
            .iter()
            .filter(|v| v.split_once(':').is_some_and(|v| v.0 == domain));
        let (name, now) = (self.hosts[h].name.clone(), self.now());
        let mut questions = vec![
            Question::Resume,
            Question::SetMode {
                goal: Goal::Rules,
                mode: Mode::Auto,
            },
        ];
        for volume in own {
            let tier = ["fast", "mid", "slow"][self.rng.below(3) as usize];
            questions.push(Question::Pin {
                volume: format!("{name}/{volume}"),
                tier: Some(format!("{name}/{tier}")),
            });
        }
        for question in questions {
            if let Some(controller) = &mut self.controller {
                let _ = controller.ask(now, &Actor("operator".into()), question);
            }
        }
    }

    fn operator(&mut self) {
        let host = self.rng.below(self.hosts.len() as u64) as usize;
        let name = self.hosts[host].name.clone();
        let tier = format!(
            "{name}/{}",
            ["fast", "mid", "slow"][self.rng.below(3) as usize]
        );
        let volumes = self.hosts[host].site.volumes();
        let volume = &volumes[self.rng.below(volumes.len() as u64) as usize];
        let volume = format!("{name}/{volume}");
        let mode =
            [Mode::Off, Mode::Recommend, Mode::Partial, Mode::Auto][self.rng.below(4) as usize];
        let goal =
            [Goal::Drain, Goal::Rules, Goal::Space, Goal::Latency][self.rng.below(4) as usize];
        let generation = self.rng.below(20);
        let moves = (self.rng.below(2) == 0).then(|| vec![self.rng.below(4) as u32]);
        let choice = Choice {
            host: Some(name.clone()),
            generation,
            moves,
        };
        let question = match self.rng.below(10) {
            0 => Question::Pause,
            1 | 2 => Question::Resume,
            3 => Question::CancelJob {
                host: Some(name),
                job: self.rng.below(20) as u32,
            },
            4 => {
                let state = [TierState::Open, TierState::Cordoned, TierState::Draining]
                    [self.rng.below(3) as usize];
                Question::SetTier { tier, state }
            }
            5 => Question::Pin {
                volume,
                tier: (self.rng.below(2) == 0).then_some(tier),
            },
            6 => Question::SetMode { goal, mode },
            7 => Question::Apply(choice),
            8 => Question::Throttle {
                volume,
                to: (self.rng.below(3) > 0).then(|| Throttle {
                    iops: Some(20 + self.rng.below(1000)),
                    bandwidth_bytes_per_s: None,
                    lasting_ns: (1 + self.rng.below(400)) * SECOND,
                }),
            },
            _ => Question::Reject(choice),
        };
        let now = self.now();
        let limits = match &question {
            Question::Throttle { volume, to } => Some((volume.clone(), *to)),
            _ => None,
        };
        if let Some(controller) = &mut self.controller {
            let answer = controller.ask(now, &Actor("operator".into()), question);
            if let (Ok(_), Some((volume, to))) = (answer, limits) {
                let until = |lasting_ns| Nanos(now.at.0 + lasting_ns);
                let limit = to.and_then(|to| Some((to.iops?, until(to.lasting_ns))));
                match limit {
                    Some(limit) => self.limited.insert(volume, limit),
                    None => self.limited.remove(&volume),
                };
            }
        }
    }
}
