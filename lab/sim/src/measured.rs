//! Volumes and clients from load measurements: intensities are measured, requests are generated.

use trace::measurements::{MEASUREMENT_PAGE, MEASUREMENT_SLOT, Measurements, VolumeMeasurements};
use trace::{Habits, Phase, SizeShare};
use units::{Bytes, Iops, Nanos};

use crate::{ScenarioError, ScenarioFile};
use config::scenario::{ClientConfig, MeasurementsConfig, VolumeConfig};

/// Shortest phase of a client. Shorter periods are merged into the previous one.
const PHASE_MIN: Nanos = Nanos::from_millis(1);
/// Rate below which a slot counts as idle, requests per second. The clients' gaps would be longer than slots.
const RATE_MIN: f64 = 1e-3;

impl ScenarioFile {
    /// Adds the volumes and clients of the scenario's `measurements[index]`. Sets the length of a scenario without one
    /// to the end of the last slot.
    ///
    /// # Errors
    /// Invalid values, and volumes that are not in the measurements.
    pub fn generate(
        &mut self,
        index: usize,
        measurements: &Measurements,
    ) -> Result<(), ScenarioError> {
        let config = self.scenario.measurements[index].clone();
        let at = |key: &str| format!("measurements[{index}].{key}");
        if !(config.speed >= 1.0 && config.speed <= 1e4) {
            return Err(self.fault(&at("speed"), "must be between 1 and 10,000"));
        }
        if !(config.size_factor >= 1.0 && config.size_factor <= 1e3) {
            return Err(self.fault(&at("size_factor"), "must be between 1 and 1,000"));
        }
        for name in &config.volumes {
            if !measurements.volumes.iter().any(|v| &v.name == name) {
                return Err(self.fault(&at("volumes"), format!("the file has no \"{name}\"")));
            }
        }
        let wanted =
            |v: &&VolumeMeasurements| config.volumes.is_empty() || config.volumes.contains(&v.name);
        let mut end = Nanos::ZERO;
        let first = self.scenario.clients.len();
        for (n, measured) in measurements.volumes.iter().filter(wanted).enumerate() {
            let size = size(&config, measured);
            let class = config.classes.get(n % config.classes.len().max(1));
            let volume = VolumeConfig {
                name: measured.name.clone(),
                vm: None,
                class: class.cloned(),
                size,
                tier: None,
                device: None,
                host: None,
            };
            let client = client(&config, measured, size);
            end = end.max(client.phases.iter().map(|p| p.duration).sum());
            self.scenario.volumes.push(volume);
            self.scenario.clients.push(client);
        }
        let duration = *self.scenario.duration.get_or_insert(end);
        // Phases repeat, so clients with a shorter measurement get an idle phase to the end.
        for client in &mut self.scenario.clients[first..] {
            let span: Nanos = client.phases.iter().map(|p| p.duration).sum();
            if span > Nanos::ZERO && span < duration {
                silence(&mut client.phases, duration - span);
            }
        }
        Ok(())
    }
}

fn size(config: &MeasurementsConfig, measured: &VolumeMeasurements) -> Bytes {
    let largest = measured.intervals.iter().map(|i| i.working_set);
    let largest = largest.max().unwrap_or(Bytes::ZERO);
    let real = (largest.as_f64() * config.size_factor).max(config.size_min.as_f64());
    let mib = (1u64 << 20) as f64;
    Bytes(((real / config.speed / mib).ceil() * mib) as u64)
}

fn client(config: &MeasurementsConfig, measured: &VolumeMeasurements, size: Bytes) -> ClientConfig {
    let scaled = |t: Nanos| Nanos((t.as_f64() / config.speed).round() as u64);
    let mut phases: Vec<Phase> = Vec::new();
    let mut at = Nanos::ZERO;
    for interval in &measured.intervals {
        // The measured part of a last slot may be very short. Below half a slot it gives no reliable rate.
        let measured = Nanos(interval.end.0 - interval.start.0);
        let until = if 2 * measured.0 < MEASUREMENT_SLOT.0 {
            Nanos(interval.start.0 + MEASUREMENT_SLOT.0)
        } else {
            interval.end
        };
        let (start, end) = (scaled(interval.start), scaled(until));
        if start > at {
            silence(&mut phases, start - at);
        }
        at = end;
        let pages = interval.read_pages + interval.write_pages;
        let bytes = pages as f64 * MEASUREMENT_PAGE.as_f64();
        let rate = bytes / config.request.as_f64() / (until - interval.start).as_secs_f64();
        if rate < RATE_MIN {
            silence(&mut phases, end - start);
            continue;
        }
        let touched = interval.working_set.as_f64() / config.speed / size.as_f64();
        phases.push(Phase {
            duration: end - start,
            idle: false,
            habits: Habits {
                rate: Some(Iops(rate)),
                read_share: Some(interval.read_pages as f64 / pages as f64),
                footprint: Some(touched.clamp(1e-6, 1.0)),
                ..Habits::default()
            },
        });
    }
    // A shortened last slot is idle to its end, so slots stay aligned.
    let slot = scaled(MEASUREMENT_SLOT);
    let over = Nanos(at.0 % slot.0.max(1));
    if over > Nanos::ZERO {
        silence(&mut phases, slot - over);
    }
    ClientConfig {
        volume: measured.name.clone(),
        preset: None,
        habits: Habits {
            outstanding: Some(config.outstanding),
            sizes: Some(vec![SizeShare {
                size: config.request,
                share: 1.0,
            }]),
            skew: Some(config.skew),
            ..Habits::default()
        },
        phases,
        bursts: None,
    }
}

/// Adds an idle phase.
fn silence(phases: &mut Vec<Phase>, duration: Nanos) {
    match phases.last_mut() {
        Some(last) if duration < PHASE_MIN => last.duration += duration,
        _ => phases.push(Phase {
            duration,
            idle: true,
            habits: Habits::default(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(measurements: &str) -> ScenarioFile {
        let text = format!(
            "[[tiers]]\nname = \"t\"\npreset = \"pm953\"\n[[measurements]]\nfile = \"m\"\n{measurements}"
        );
        ScenarioFile::parse("x.toml", &text).unwrap()
    }

    /// Returns measurements of two volumes: one with a gap, one that ends early.
    fn measurements() -> Measurements {
        let text = "vm,index,end_us,reads_4k,writes_4k,wss_bytes,read_wss_bytes,write_wss_bytes\n\
                    a,0,1799000000,9000,9000,8192,4096,4096\n\
                    a,2,5399000000,18000,0,1073741824,1073741824,0\n\
                    b,0,1700000000,0,3600,4096,0,4096\n";
        Measurements::from_reader("m", text.as_bytes()).unwrap()
    }

    #[test]
    fn slots_become_phases_with_the_measured_rates() {
        let mut file =
            scenario("speed = 10\nrequest = \"8 KiB\"\nsize_factor = 2\nsize_min = \"1 GiB\"\n");
        file.generate(0, &measurements()).unwrap();
        let s = &file.scenario;
        // A tenth, by the speed, of the larger of minimum size and twice the largest working set.
        assert_eq!(s.volumes[0].size, Bytes::mib(205));
        assert_eq!(s.volumes[1].size, Bytes::mib(103));
        let phases = &s.clients[0].phases;
        let slot = Nanos::from_secs(180);
        assert_eq!(phases[0].duration, slot);
        // 18,000 pages are 9,000 requests in 1,800 s. The rate is not scaled.
        assert_eq!(phases[0].habits.rate, Some(Iops(5.0)));
        assert_eq!(phases[0].habits.read_share, Some(0.5));
        assert!(phases[1].idle && phases[1].duration == slot, "the gap");
        assert_eq!(phases[2].habits.read_share, Some(1.0));
        let span = |c: &ClientConfig| -> Nanos { c.phases.iter().map(|p| p.duration).sum() };
        assert_eq!(s.duration, Some(Nanos::from_secs(540)));
        assert_eq!(span(&s.clients[0]), Nanos::from_secs(540));
        assert_eq!(span(&s.clients[1]), Nanos::from_secs(540));
        assert!(s.clients[1].phases.last().unwrap().idle);
    }

    #[test]
    fn partial_last_slot_gives_no_extreme_rate_or_extra_phase() {
        let rows = |end: &str| {
            let text = format!(
                "vm,index,end_us,reads_4k,writes_4k,wss_bytes,read_wss_bytes,write_wss_bytes\n\
                 a,0,1700000000,3600,0,4096,4096,0\na,1,{end},3600,0,4096,4096,0\n"
            );
            Measurements::from_reader("m", std::io::Cursor::new(text.into_bytes())).unwrap()
        };
        // One second into the second slot, and one second before its end. At 10,000 times the speed, both are 0.1 ms.
        for end in ["1801000000", "3599000000"] {
            let mut file = scenario("speed = 10000\n");
            file.generate(0, &rows(end)).unwrap();
            let phases = &file.scenario.clients[0].phases;
            assert_eq!(phases.len(), 2, "{end}: {phases:?}");
            let rate = phases[1].habits.rate.unwrap().0;
            assert!((rate - 1.0).abs() < 1e-2, "{end}: {rate}");
            assert_eq!(
                file.scenario.duration,
                Some(Nanos::from_millis(360)),
                "{end}"
            );
        }
    }

    #[test]
    fn classes_are_assigned_in_turn_and_volumes_can_be_selected() {
        let mut file = scenario("classes = [\"x\", \"y\"]\n");
        file.generate(0, &measurements()).unwrap();
        let classes: Vec<_> = file
            .scenario
            .volumes
            .iter()
            .map(|v| v.class.clone())
            .collect();
        assert_eq!(classes, [Some("x".into()), Some("y".into())]);
        let mut file = scenario("volumes = [\"b\"]\n");
        file.generate(0, &measurements()).unwrap();
        assert_eq!(file.scenario.volumes.len(), 1);
        assert_eq!(file.scenario.clients[0].volume, "b");
    }

    #[test]
    fn invalid_measurement_options_are_refused() {
        for (config, why) in [
            (
                "volumes = [\"c\"]\n",
                "x.toml:6: measurements[0].volumes: the file has no \"c\"",
            ),
            (
                "speed = 0.5\n",
                "x.toml:6: measurements[0].speed: must be between 1 and 10,000",
            ),
            (
                "size_factor = 0.1\n",
                "x.toml:6: measurements[0].size_factor: must be between 1 and 1,000",
            ),
        ] {
            let error = scenario(config).generate(0, &measurements()).unwrap_err();
            assert_eq!(error.to_string(), why);
        }
    }
}
