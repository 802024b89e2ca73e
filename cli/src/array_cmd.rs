//! `terrace array …`: state of an array, the copies, backups and restoration of its map, and its cache.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use datapath::control_server::{ControlAnswer, ControlRequest, CopyInfo, Problem};
use datapath::{SecondStatus, ShareOf};
use report::{table, words};
use serde::Serialize;
use units::Bytes;

use crate::live::{AcceptLossArg, ArrayArg, OutputArg, absolute, message, unexpected};
use crate::live_table::size;

/// `terrace array …`
#[derive(Debug, Subcommand)]
pub enum ArrayCommand {
    /// Show the problems of an array, and of the controller in the same process
    Status {
        #[command(flatten)]
        array: ArrayArg,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Show the copies of the map, and whether they are current
    Copies {
        #[command(flatten)]
        array: ArrayArg,
        #[command(flatten)]
        output: OutputArg,
    },
    /// Keep the second copy of the map in another directory, or keep only one copy
    Copy(Copy),
    /// Show, set or remove the L2 cache of a served array
    Cache(Cache),
    /// Write the map to a file, also while the array is served
    Backup {
        #[command(flatten)]
        array: ArrayArg,
        /// The file; an older backup of the same array is replaced
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Restore the map after the loss of its directory, from its second copy or from a backup
    Restore {
        #[command(flatten)]
        array: ArrayArg,
        /// The second copy (`map-….redb` in the directory of a device), or a backup
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
        #[command(flatten)]
        accept: AcceptLossArg,
    },
}

/// `terrace array copy`
#[derive(Debug, Args)]
pub struct Copy {
    #[command(flatten)]
    array: ArrayArg,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// The directory, on another disk than the array's own
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Keep only one copy: if its disk fails, the map is lost
    #[arg(long)]
    none: bool,
}

/// `terrace array cache`
#[derive(Debug, Args)]
pub struct Cache {
    #[command(flatten)]
    array: ArrayArg,
    /// New L2 cache: a directory on flash, an export of `terrace cache-node` such as
    /// nbds://HOST:PORT?tls-certificates=DIR, or off. Until the server ends
    #[arg(long, value_name = "DIR|NBD-URI|off")]
    second: Option<String>,
    /// Size of the L2 cache; by default all of an export
    #[arg(long, value_name = "SIZE", requires = "second")]
    size: Option<Bytes>,
    /// Service class whose volumes share a part of the cache, until the server ends
    #[arg(long, value_name = "CLASS", requires = "share")]
    class: Option<String>,
    /// Share of each worker's cache for the class, from 0 (no caching) to below 1; off for the common part
    #[arg(long, value_name = "SHARE|off", requires = "class", value_parser = share)]
    share: Option<Share>,
    #[command(flatten)]
    output: OutputArg,
}

/// Share of the cache; `None` for `off`.
#[derive(Debug, Clone, Copy)]
struct Share(Option<f64>);

fn share(text: &str) -> Result<Share, String> {
    if text == "off" {
        return Ok(Share(None));
    }
    let share = text.parse().ok().filter(|s| (0.0..1.0).contains(s));
    let share: f64 = share.ok_or("a number from 0 to 1, and below 1, or off")?;
    Ok(Share(Some(share)))
}

impl Cache {
    fn run(self) -> anyhow::Result<()> {
        match self.second.as_deref() {
            None => {}
            Some("off") => self.order(None)?,
            Some(uri) if uri.contains("://") => self.order(Some(uri.to_owned()))?,
            Some(dir) => {
                let dir = absolute(dir.as_ref())?;
                let dir = dir.into_os_string().into_string();
                let dir = dir.map_err(|_| anyhow!("a directory whose name is UTF-8"))?;
                self.order(Some(dir))?;
            }
        }
        if let (Some(class), Some(Share(share))) = (self.class, self.share) {
            let of = ShareOf::Class(class);
            self.array
                .order(ControlRequest::SetCacheShare { of, share })?;
        }
        let ControlAnswer::Second { status } = self.array.ask(ControlRequest::Second)? else {
            return Err(unexpected());
        };
        self.output.print("terrace.array.cache/1", &status, second)
    }

    fn order(&self, at: Option<String>) -> anyhow::Result<()> {
        let size = self.size;
        self.array.order(ControlRequest::UseSecond { at, size })
    }
}

fn second(status: &Option<SecondStatus>) -> String {
    let Some(status) = status else {
        return "no L2 cache\n".into();
    };
    let ended = status.ended.as_deref().map(report::printable);
    if let (Some(why), Bytes::ZERO) = (&ended, status.size) {
        return format!("the L2 cache stopped: {why}\n");
    }
    let ready = match status.ready {
        true => "",
        false => " (its export is not connected yet)",
    };
    let ended = ended.map(|why| format!("the L2 cache stopped on some workers: {why}\n"));
    let volumes = status.of.volumes.iter().flatten();
    let volumes: Vec<String> = volumes.map(|v| report::printable(v)).collect();
    let whose = match (volumes.is_empty(), status.of.answer) {
        (true, _) => String::new(),
        (_, None) => format!(", for {}", volumes.join(", ")),
        (_, Some(_)) => format!(
            ", for {}, as a remedy for an SLO violation{}",
            volumes.join(", "),
            match &status.of.server {
                Some(server) => format!(": on {}", report::printable(server)),
                None => String::new(),
            }
        ),
    };
    let warmed = match (status.warmed, status.to_warm) {
        (Bytes::ZERO, Bytes::ZERO) => String::new(),
        (warmed, left) => format!("read in advance  {}, {} left\n", size(warmed), size(left)),
    };
    format!(
        "L2 cache         {} of {}{whose}{ready}\npages read       {}\npages written    {}\n{warmed}{}",
        size(status.bytes),
        size(status.size),
        status.hits,
        status.fills,
        ended.unwrap_or_default()
    )
}

#[derive(Serialize)]
struct Problems {
    problems: Vec<Problem>,
}

impl Problems {
    fn text(&self) -> String {
        if self.problems.is_empty() {
            return "no problems\n".into();
        }
        let columns = [words("about"), words("problem")];
        let row = |t: &Problem| vec![report::printable(&t.about), report::printable(&t.what)];
        table(&columns, self.problems.iter().map(row).collect())
    }
}

#[derive(Serialize)]
struct Copies {
    commits: u64,
    generation: u64,
    /// Reason that the state of the copies is uncertain or insufficient.
    unsettled: Option<String>,
    copies: Vec<CopyInfo>,
}

impl Copies {
    fn text(&self) -> String {
        let columns = [words("copy"), words("state"), words("where"), words("why")];
        let row = |c: &CopyInfo| {
            vec![
                c.copy.clone(),
                c.state.clone(),
                c.path.clone(),
                c.why.clone().unwrap_or_else(|| "-".into()),
            ]
        };
        let rows = self.copies.iter().map(row).collect();
        let mut text = table(&columns, rows);
        text.push_str(&format!(
            "\n{} commits, generation {}\n",
            self.commits, self.generation
        ));
        if let Some(why) = &self.unsettled {
            text.push_str(&format!("in doubt: {}\n", report::printable(why)));
        }
        text
    }
}

/// Runs `terrace array …`.
pub fn run(command: ArrayCommand) -> anyhow::Result<ExitCode> {
    match command {
        ArrayCommand::Status { array, output } => {
            let ControlAnswer::Samples(samples) = array.ask(ControlRequest::Samples)? else {
                return Err(unexpected());
            };
            let problems = Problems {
                problems: samples.problems,
            };
            output.print("terrace.array.status/1", &problems, Problems::text)?;
        }
        ArrayCommand::Copies { array, output } => {
            let ControlAnswer::Copies {
                copies,
                commits,
                generation,
                unsettled,
            } = array.ask(ControlRequest::Copies)?
            else {
                return Err(unexpected());
            };
            let copies = Copies {
                commits,
                generation,
                unsettled,
                copies,
            };
            output.print("terrace.array.copies/1", &copies, Copies::text)?;
        }
        ArrayCommand::Copy(Copy { array, target }) => {
            let dir = target.dir.as_deref().map(absolute).transpose()?;
            array.order(ControlRequest::SetSecondCopy { dir })?;
        }
        ArrayCommand::Cache(cache) => cache.run()?,
        ArrayCommand::Backup { array, file } => {
            let path = absolute(&file)?;
            array.order(ControlRequest::Backup { path })?;
        }
        ArrayCommand::Restore {
            array,
            from,
            accept,
        } => {
            let restored = datapath::restore(&array.array, &from, &accept.words());
            message(&restored.map_err(|why| anyhow!(why))?);
        }
    }
    Ok(ExitCode::SUCCESS)
}
