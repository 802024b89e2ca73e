//! Selection of the jobs of `terrace job watch`, and detection of their ends. It uses neither clock nor terminal.

use std::collections::BTreeSet;

use anyhow::{anyhow, bail};
use manager::view::JobView;
use model::JobStatus;

/// Host and number of a job.
type Key = (String, u32);

/// State of the watch.
pub struct Watch {
    /// Watched job; `None` for all running jobs.
    only: Option<Key>,
    /// Host of the watched jobs; `None` for all hosts.
    host: Option<String>,
    seen: BTreeSet<Key>,
    ended: BTreeSet<Key>,
    failed: usize,
}

/// Watched jobs in one listing.
pub struct JobsSeen<'a> {
    /// Jobs that have ended since the last listing.
    pub ended: Vec<&'a JobView>,
    /// Jobs that still run.
    pub going: Vec<&'a JobView>,
}

impl Watch {
    /// Watches one job or all, of one host or all. `jobs` is the current listing.
    ///
    /// # Errors
    /// If the job does not exist, or exists on several hosts.
    pub fn new(job: Option<u32>, host: Option<&str>, jobs: &[JobView]) -> anyhow::Result<Self> {
        let of_host = |j: &&JobView| host.is_none_or(|h| h == j.host);
        let only = match job {
            None => None,
            Some(number) => {
                let mut found = jobs.iter().filter(of_host).filter(|j| j.job == number);
                match (found.next(), found.next()) {
                    (Some(one), None) => Some(key(one)),
                    (Some(a), Some(b)) => bail!(
                        "job {number} exists on hosts {} and {}: choose one with --host",
                        a.host,
                        b.host
                    ),
                    (None, _) => bail!("no job {number}: `terrace job list` lists the jobs"),
                }
            }
        };
        Ok(Self {
            only,
            host: host.map(str::to_owned),
            seen: BTreeSet::new(),
            ended: BTreeSet::new(),
            failed: 0,
        })
    }

    /// Evaluates the current listing.
    ///
    /// # Errors
    /// If a watched job is missing before its end.
    pub fn take<'a>(&mut self, jobs: &'a [JobView]) -> anyhow::Result<JobsSeen<'a>> {
        let mut seen = JobsSeen {
            ended: vec![],
            going: vec![],
        };
        for job in jobs {
            if !self.watches(job) {
                continue;
            }
            let key = key(job);
            if !has_ended(job) {
                self.seen.insert(key);
                seen.going.push(job);
                continue;
            }
            // Jobs that ended before the watch began are ignored, except for a job that the user named.
            let asked_for = self.only.as_ref() == Some(&key);
            if (asked_for || self.seen.contains(&key)) && self.ended.insert(key.clone()) {
                self.seen.insert(key);
                self.failed += usize::from(job.state == JobStatus::Failed);
                seen.ended.push(job);
            }
        }
        let there: BTreeSet<Key> = jobs.iter().map(key).collect();
        let mut open = self.seen.difference(&self.ended);
        if let Some((host, job)) = open.find(|k| !there.contains(*k)) {
            return Err(anyhow!(
                "the controller no longer knows job {job} of {host}"
            ));
        }
        Ok(seen)
    }

    /// Returns the number of watched jobs.
    pub fn seen(&self) -> usize {
        self.seen.len()
    }

    /// Returns the number of watched jobs that failed.
    pub fn failed(&self) -> usize {
        self.failed
    }

    fn watches(&self, job: &JobView) -> bool {
        match &self.only {
            Some(only) => key(job) == *only,
            // Proposed jobs are not watched: they may wait for approval for ever.
            None => {
                let of_host = self.host.as_ref().is_none_or(|h| *h == job.host);
                of_host && job.state != JobStatus::Proposed
            }
        }
    }
}

fn key(job: &JobView) -> Key {
    (job.host.clone(), job.job)
}

fn has_ended(job: &JobView) -> bool {
    job.ended_ns.is_some()
}

#[cfg(test)]
mod tests {
    use model::Goal;

    use super::JobStatus::{Active, Done, Failed, Proposed, Waiting};
    use super::*;

    fn job(host: &str, job: u32, state: JobStatus) -> JobView {
        JobView {
            host: host.into(),
            job,
            generation: 1,
            volume: format!("v{job}"),
            from_tier: "slow".into(),
            to_tier: "fast".into(),
            from: "slow".into(),
            to: "fast".into(),
            extents: None,
            goal: Goal::Latency,
            reason: String::new(),
            state,
            why: None,
            cause: None,
            failed_io: None,
            copied_bytes: 0,
            bytes: 0,
            left_bytes: 0,
            rate_bytes_per_s: 0,
            before_us: None,
            after_us: None,
            planned_ns: 0,
            started_ns: Some(0),
            ended_ns: state.ended().then_some(1),
            eta_ns: None,
            stuck_ns: None,
        }
    }

    fn numbers(jobs: &[&JobView]) -> Vec<u32> {
        jobs.iter().map(|j| j.job).collect()
    }

    #[test]
    fn watch_of_all_jobs_follows_active_and_new_jobs_to_their_end() {
        let now = [
            job("a", 1, Done),
            job("a", 2, Active),
            job("a", 3, Proposed),
        ];
        let mut watch = Watch::new(None, None, &now).unwrap();
        let seen = watch.take(&now).unwrap();
        assert_eq!(
            (numbers(&seen.ended), numbers(&seen.going)),
            (vec![], vec![2])
        );
        // A job that starts during the watch is watched too.
        let now = [job("a", 2, Failed), job("a", 3, Waiting)];
        let seen = watch.take(&now).unwrap();
        assert_eq!(
            (numbers(&seen.ended), numbers(&seen.going)),
            (vec![2], vec![3])
        );
        let now = [job("a", 2, Failed), job("a", 3, Done)];
        let seen = watch.take(&now).unwrap();
        assert_eq!(
            (numbers(&seen.ended), numbers(&seen.going)),
            (vec![3], vec![])
        );
        assert_eq!((watch.seen(), watch.failed()), (2, 1));
    }

    #[test]
    fn watch_of_one_job_accepts_ended_and_proposed_jobs() {
        let now = [
            job("a", 1, Failed),
            job("a", 2, Proposed),
            job("b", 2, Done),
        ];
        let mut watch = Watch::new(Some(1), None, &now).unwrap();
        assert_eq!(numbers(&watch.take(&now).unwrap().ended), [1]);
        assert_eq!(watch.failed(), 1);
        let mut watch = Watch::new(Some(2), Some("a"), &now).unwrap();
        assert_eq!(numbers(&watch.take(&now).unwrap().going), [2]);
        let error = |job, host| match Watch::new(job, host, &now) {
            Ok(_) => panic!("it is not clear which"),
            Err(e) => e.to_string(),
        };
        assert_eq!(
            error(Some(2), None),
            "job 2 exists on hosts a and b: choose one with --host"
        );
        assert_eq!(
            error(Some(9), None),
            "no job 9: `terrace job list` lists the jobs"
        );
        assert_eq!(
            error(Some(1), Some("b")),
            "no job 1: `terrace job list` lists the jobs"
        );
    }

    #[test]
    fn watch_with_host_shows_only_jobs_of_that_host() {
        let now = [job("a", 1, Active), job("b", 1, Active)];
        let mut watch = Watch::new(None, Some("b"), &now).unwrap();
        let seen = watch.take(&now).unwrap();
        assert_eq!(seen.going[0].host, "b");
        assert_eq!(seen.going.len(), 1);
    }

    #[test]
    fn watched_job_that_disappears_is_an_error() {
        let now = [job("a", 1, Active)];
        let mut watch = Watch::new(None, None, &now).unwrap();
        watch.take(&now).unwrap();
        match watch.take(&[]) {
            Ok(_) => panic!("it is gone"),
            Err(e) => assert_eq!(e.to_string(), "the controller no longer knows job 1 of a"),
        }
    }
}
