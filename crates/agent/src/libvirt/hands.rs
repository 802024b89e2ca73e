//! What libvirt does for a move.
//!
//! Its copy is a mirror with writes to both images from the start (`--synchronous-writes`): guests' writes are acknowledged when both have them, so
//! the two agree in everything that was acknowledged once all is copied, whatever is killed then. `--transient-job` lets it be begun for
//! persistent domains: what becomes of the definition is the move's own affair.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use vmhost::moving::{Definition, Intent, Live};
use vmhost::{Domain, Image, Pool, copy_target, quoted, with_image};

use crate::moves::{Hands, Sight, TEXT};
use crate::virsh::{Refusal, Virsh};

/// By `virsh`.
pub(super) struct LibvirtHands<'a> {
    pub virsh: &'a Virsh,
    pub pools: &'a [Pool],
    /// Where texts for virsh may be written.
    pub dir: PathBuf,
}

impl LibvirtHands<'_> {
    fn directory_of(&self, pool: &str) -> Option<&str> {
        let pool = self.pools.iter().find(|p| p.name == pool)?;
        pool.directory()
    }

    fn order(&self, words: &[&str]) -> Result<(), String> {
        self.virsh.order(words).map(|_| ()).map_err(Refusal::why)
    }

    /// What libvirt calls the domain's state; nothing if it is gone.
    fn state(&self, intent: &Intent) -> Result<String, String> {
        let answers = self
            .virsh
            .ask(&[format!("domstate {}", quoted(&intent.uuid))])?;
        Ok(answers[0].trim().into())
    }

    /// Has virsh read a text.
    fn with_text(
        &self,
        text: &str,
        order: impl FnOnce(&str) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        // Never the same name twice: a process that is late must not find another order's.
        static ORDERS: AtomicU64 = AtomicU64::new(0);
        let order_number = ORDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("{TEXT}{}-{order_number}.xml", std::process::id());
        let path = self.dir.join(name);
        let said = |e| Refusal::Said(format!("{} cannot be written: {e}", path.display()));
        // A definition may have passwords in it.
        let mut file = OpenOptions::new();
        file.create(true).write(true).truncate(true).mode(0o600);
        let written = file
            .open(&path)
            .and_then(|mut f| f.write_all(text.as_bytes()));
        written.map_err(said)?;
        let done = order(&path.to_string_lossy());
        let _ = fs::remove_file(&path);
        done
    }
}

impl Hands for LibvirtHands<'_> {
    fn look(&mut self, intent: &Intent) -> Result<Sight, String> {
        let uuid = quoted(&intent.uuid);
        let ask = [
            "list --all --uuid".to_owned(),
            format!("dominfo {uuid}"),
            format!("dumpxml {uuid}"),
            format!("dumpxml --inactive {uuid}"),
            format!("blockjob {uuid} {} --raw --bytes", quoted(&intent.target)),
        ];
        let answers = self.virsh.ask(&ask)?;
        let [all, info, live, inactive, job] = &answers[..] else {
            return Err("virsh said less than was asked".into());
        };
        if !all.lines().any(|l| l.trim() == intent.uuid) {
            return Ok(Sight {
                live: Live::Off,
                definition: Definition::None,
                progress: None,
                failed: None,
            });
        }
        let directory_of = |pool: &str| self.directory_of(pool);
        let read = |text: &str| match text.trim() {
            "" => None,
            text => Some(Domain::of_xml(text).map_err(|e| e.to_string())),
        };
        let live = match read(live).transpose()? {
            None => Live::Unknown,
            // What is shown of one that does not run is its definition.
            Some(domain) if domain.id.is_none() => Live::Off,
            Some(domain) => Live::of(&domain, &intent.target, directory_of),
        };
        let persistent = info.lines().find_map(|l| l.strip_prefix("Persistent:"));
        let definition = match (persistent.map(str::trim), read(inactive).transpose()?) {
            (Some("yes"), Some(domain)) => Definition::of(&domain, intent, directory_of),
            (Some("no"), _) => Definition::None,
            _ => Definition::Unknown,
        };
        let number = |key: &str| {
            let mut lines = job.lines().filter_map(|l| l.trim().strip_prefix(key));
            lines.next()?.parse::<u64>().ok()
        };
        let progress = number("cur=").zip(number("end="));
        Ok(Sight {
            live,
            definition,
            progress: progress.map(|(cur, end)| (cur, end.saturating_sub(cur))),
            failed: None,
        })
    }

    fn begin(&mut self, intent: &Intent) -> Result<(), Refusal> {
        let rate = intent.rate_bytes_per_s.to_string();
        self.with_text(&copy_target(&intent.to), |path| {
            let words = [
                "blockcopy",
                &intent.uuid,
                &intent.target,
                "--xml",
                path,
                "--transient-job",
                "--synchronous-writes",
                "--bandwidth",
                &rate,
                "--bytes",
                "--reuse-external",
            ];
            self.virsh.order(&words).map(|_| ())
        })
    }

    fn set_rate(&mut self, intent: &Intent, rate_bytes_per_s: u64) -> Result<(), String> {
        let rate = rate_bytes_per_s.to_string();
        let (uuid, target) = (&intent.uuid, &intent.target);
        self.order(&["blockjob", uuid, target, "--bandwidth", &rate, "--bytes"])
    }

    fn pause(&mut self, intent: &Intent) -> Result<bool, String> {
        if self.state(intent)? != "running" {
            return Ok(false);
        }
        self.order(&["suspend", &intent.uuid]).map(|()| true)
    }

    fn resume(&mut self, intent: &Intent) -> Result<(), String> {
        match self.state(intent)?.as_str() {
            "paused" => self.order(&["resume", &intent.uuid]),
            _ => Ok(()),
        }
    }

    fn abort(&mut self, intent: &Intent) -> Result<(), String> {
        self.order(&["blockjob", &intent.uuid, &intent.target, "--abort"])
    }

    fn pivot(&mut self, intent: &Intent) -> Result<(), String> {
        self.order(&["blockjob", &intent.uuid, &intent.target, "--pivot"])
    }

    fn define(&mut self, intent: &Intent, seen: &Definition, image: &Image) -> Result<(), String> {
        let dump = ["dumpxml", "--inactive", "--security-info", &intent.uuid];
        let text = self.virsh.order(&dump).map_err(Refusal::why)?;
        let domain = Domain::of_xml(text.trim()).map_err(|e| e.to_string())?;
        if Definition::of(&domain, intent, |pool| self.directory_of(pool)) != *seen {
            return Err("the domain's definition was changed just now".into());
        }
        let text = with_image(text.trim(), &intent.target, image).map_err(|e| e.to_string())?;
        let define = |path: &str| self.virsh.order(&["define", path]).map(|_| ());
        self.with_text(&text, define).map_err(Refusal::why)
    }
}
