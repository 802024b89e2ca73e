//! `terrace cache-node`: memory or flash of this host as the L2 cache of another host.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use config::LEND_MIN;
use datapath::{Filter, FilterOptions, Listen, ServerConfig};
use rustix::fs::Mode;
use units::{Bytes, Nanos};

use crate::export_cmd::TlsArgs;
use crate::filter_cmd::serve;
use crate::live::{AGENT_ENDS_WITHIN, OutputArg, Stop, explained, stopped_after, wrong_usage};
use crate::logging::LogArg;

/// Time limit for the end of the worker at a stop. It is below [`AGENT_ENDS_WITHIN`], which leaves time to report a worker that hangs.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

/// Examples below the help.
pub const EXAMPLES: &str = "\
Examples:
  terrace cache-node --memory 8GiB --listen tcp:192.0.2.7:10810 --tls-certificates /etc/terrace/tls
  terrace cache-node --flash /mnt/nvme --size 100GiB --listen tcp:127.0.0.1:10811
  terrace array cache --second 'nbds://192.0.2.7:10810?tls-certificates=/etc/terrace/tls'    # on the host whose cache it is for";

/// `terrace cache-node`
#[derive(Debug, Args)]
pub struct CacheNodeArgs {
    /// Amount of memory of this host; allocated at first use
    #[arg(long, value_name = "SIZE", required_unless_present = "flash")]
    memory: Option<Bytes>,
    /// A directory on flash of this host instead; its file is unnamed and vanishes with the process
    #[arg(long, value_name = "DIR", conflicts_with = "memory", requires = "size")]
    flash: Option<PathBuf>,
    /// With --flash: amount of flash, allocated at the start
    #[arg(long, value_name = "SIZE", requires = "flash")]
    size: Option<Bytes>,
    /// Listening address: unix:PATH, tcp:127.0.0.1:PORT or, with TLS, tcp:ADDRESS:PORT; repeatable
    #[arg(long, value_name = "ADDRESS", required = true)]
    listen: Vec<Listen>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Name of the export
    #[arg(long, value_name = "NAME", default_value = "")]
    name: String,
    /// Also end at the end of standard input; agents that lend start cache nodes this way
    #[arg(long)]
    until_input_ends: bool,
    #[command(flatten)]
    log: LogArg,
    #[command(flatten)]
    output: OutputArg,
}

/// Runs `terrace cache-node`.
pub fn run(args: CacheNodeArgs) -> anyhow::Result<ExitCode> {
    let tls = match args.tls.credentials(&args.listen) {
        Ok(tls) => tls,
        Err(wrong) => return Ok(wrong),
    };
    // A smaller L2 cache is useless, even with small pages.
    for (option, size) in [("--memory", args.memory), ("--size", args.size)] {
        if size.is_some_and(|size| size < LEND_MIN) {
            return Ok(wrong_usage(&format!("{option}: at least {LEND_MIN}")));
        }
    }
    let stop = match args.until_input_ends {
        true => {
            goes_first();
            // Only the user of the agent that started this process may access the lent space.
            rustix::process::umask(Mode::RWXG | Mode::RWXO);
            Stop::listen_with_input(AGENT_ENDS_WITHIN)?
        }
        false => Stop::listen_within(AGENT_ENDS_WITHIN)?,
    };
    let _logging = args.log.begin();
    let options = FilterOptions {
        name: Some(args.name),
        server: ServerConfig {
            stop_within: STOPS_WITHIN,
            ..ServerConfig::default()
        },
        iops: None,
        bandwidth: None,
        delays: [Nanos::ZERO; 2],
        record: None,
    };
    let size = args.memory.or(args.size).unwrap_or_default();
    let node = match &args.flash {
        None => Filter::start_on_memory(size, options),
        Some(dir) => Filter::start_on_flash(dir, size, options),
    };
    let mut node = node.map_err(explained)?;
    if let Some(credentials) = tls {
        node.server.require_tls(credentials).map_err(explained)?;
    }
    let served = serve(&mut node, args.listen, &args.output, &stop);
    stop.doing("stopping the node");
    stopped_after(served.map(|()| ExitCode::SUCCESS), node.stop())
}

/// Makes the kernel kill this process before others when memory runs out, because no data is lost with it. Without this, it has the same
/// score as its parent process, which may serve the disks of guests.
fn goes_first() {
    // If the write fails, the score remains unchanged.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
}
