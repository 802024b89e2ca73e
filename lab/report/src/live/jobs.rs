//! `terrace job list` and `watch`.

use std::fmt::Write;

use manager::view::JobView;

use super::{named, several};
use crate::format::{NONE, fixed, gib, mib, span};
use crate::tables::{number, printable, table, words};

/// Renders jobs in the given order, and the reasons why jobs failed or were cancelled.
pub fn jobs(jobs: &[JobView]) -> String {
    if jobs.is_empty() {
        return "no jobs\n".into();
    }
    let several = several(jobs.iter().map(|j| j.host.as_str()));
    let columns = [
        number("job", ""),
        number("plan", ""),
        words("volume"),
        words("goal"),
        words("from → to"),
        words("state"),
        number("copied", "GiB"),
        number("total", "GiB"),
        number("rate", "MiB/s"),
        number("time left", ""),
    ];
    let rows = jobs.iter().map(|j| {
        let active = j.started_ns.is_some() && j.ended_ns.is_none();
        let rate = active.then(|| fixed(mib(j.rate_bytes_per_s as f64), 0));
        vec![
            j.job.to_string(),
            j.generation.to_string(),
            named(&j.host, &j.subject(), several),
            j.goal.to_string(),
            format!("{} → {}", j.from_tier, j.to_tier),
            j.state.to_string(),
            fixed(gib(j.copied_bytes), 2),
            fixed(gib(j.bytes), 2),
            rate.unwrap_or(NONE.into()),
            j.eta_ns.map_or(NONE.into(), span),
        ]
    });
    let mut out = table(&columns, rows.collect());
    let mut remarks = String::new();
    for j in jobs {
        if let Some(why) = &j.why {
            let _ = writeln!(remarks, "job {} {}: {}", j.job, j.state, printable(why));
        }
        if let Some(stuck) = j.stuck_ns {
            let _ = writeln!(
                remarks,
                "job {} is stuck: no data copied for {}",
                j.job,
                span(stuck)
            );
        }
    }
    if !remarks.is_empty() {
        let _ = write!(out, "\n{remarks}");
    }
    out
}

/// Renders a job in one line, without a line end.
pub fn job_line(job: &JobView) -> String {
    let mut text = format!(
        "job {} of {}, {} → {}: {}",
        job.job,
        job.subject(),
        job.from_tier,
        job.to_tier,
        job.state
    );
    let copied = fixed(gib(job.copied_bytes), 2);
    match (&job.why, job.ended_ns, job.started_ns) {
        (Some(why), _, _) => text += &format!(": {why}; {copied} GiB copied"),
        (None, Some(_), _) => text += &format!(", {copied} GiB copied"),
        (None, None, Some(_)) => {
            let (all, rate) = (fixed(gib(job.bytes), 2), mib(job.rate_bytes_per_s as f64));
            text += &format!(", {copied} of {all} GiB, {} MiB/s", fixed(rate, 0));
        }
        (None, None, None) => {}
    }
    if let Some(left) = job.eta_ns {
        text += &format!(", {} left", span(left));
    }
    if let Some(stuck) = job.stuck_ns {
        text += &format!(", stuck for {}", span(stuck));
    }
    printable(&text)
}
