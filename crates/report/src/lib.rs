//! Placeholder until the report branch lands.
pub fn page(_: &[sim::RunResult], _: &str) -> String { String::new() }
pub fn csv(_: &[sim::RunResult]) -> String { String::new() }
pub fn summary(r: &[sim::RunResult]) -> String { r.iter().map(|r| { let t=r.total(); format!("{:12} iops {:.0} mean {:.1} p99 {:.1} slo {:?} moves {:?}\n", r.manifest.strategy, t.all.iops, t.all.mean_us, t.all.p99_us, t.slo_violation_s, r.moves)}).collect() }
pub fn by_group(r: &[sim::RunResult], k: sim::GroupKind) -> String { r.iter().flat_map(|r| r.of_kind(k).map(move |g| format!("{:12} {:12} iops {:.0} mean {:.1} p99 {:.1} r {:.1} w {:.1} slo {:?}\n", r.manifest.strategy, g.name, g.all.iops, g.all.mean_us, g.all.p99_us, g.reads.mean_us, g.writes.mean_us, g.slo_violation_s))).collect() }
pub fn moves(r: &sim::RunResult) -> String { r.move_log.iter().map(|m| format!("{:?}\n", m)).collect() }
pub fn why(_: &sim::RunResult, _: &str, _: Option<f64>) -> anyhow::Result<String> { Ok(String::new()) }
pub fn why_not(_: &sim::RunResult, _: &str, _: &str, _: Option<f64>) -> anyhow::Result<String> { Ok(String::new()) }
