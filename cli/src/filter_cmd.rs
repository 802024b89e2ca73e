//! `terrace filter`: the data path in front of an existing export.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use datapath::{Filter, FilterOptions, Listen};
use units::{BytesPerSec, Iops, Nanos};

use crate::export_cmd::{ServingArgs, TlsArgs, announce, reachable};
use crate::live::{Go, OutputArg, SERVER_ENDS_WITHIN, Stop, explained, parse_iops};
use crate::{live_table, trace_record};

/// `terrace filter`
#[derive(Debug, Args)]
pub struct FilterArgs {
    /// The export, such as nbd://localhost/disk, nbd+unix:///disk?socket=PATH or nbds://HOST/disk?tls-certificates=DIR
    #[arg(value_name = "NBD-URI")]
    remote: nbd::Uri,
    /// Listening address: unix:PATH, tcp:127.0.0.1:PORT or, with TLS, tcp:ADDRESS:PORT; repeatable
    #[arg(long, value_name = "ADDRESS", required = true)]
    listen: Vec<Listen>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Name of the local export; by default the name of the remote export
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Requests per second at most
    #[arg(long, value_name = "N", value_parser = parse_iops)]
    iops: Option<Iops>,
    /// Bytes per second at most, such as "200 MiB/s"
    #[arg(long, value_name = "RATE")]
    bandwidth: Option<BytesPerSec>,
    /// Delay of each read, such as 100us
    #[arg(long, value_name = "TIME", default_value = "0us")]
    inject_read: Nanos,
    /// Delay of each write
    #[arg(long, value_name = "TIME", default_value = "0us")]
    inject_write: Nanos,
    /// Record all requests to this native trace (.trc)
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    serving: ServingArgs,
    #[command(flatten)]
    output: OutputArg,
}

/// Runs `terrace filter`.
pub fn run(args: FilterArgs) -> anyhow::Result<ExitCode> {
    let tls = match args.tls.credentials(&args.listen) {
        Ok(tls) => tls,
        Err(wrong) => return Ok(wrong),
    };
    let record = args.record.as_deref().map(trace_record::target);
    let record = record.transpose()?;
    let stop = Stop::listen_within(SERVER_ENDS_WITHIN)?;
    if let Err(wrong) = args.serving.check() {
        return Ok(wrong);
    }
    let _logging = args.serving.log.begin();
    let options = FilterOptions {
        name: args.name,
        server: args.serving.config(),
        iops: args.iops,
        bandwidth: args.bandwidth,
        delays: [args.inject_read, args.inject_write],
        record,
    };
    let mut filter = Filter::start(&args.remote, options).map_err(explained)?;
    if let Some(credentials) = tls {
        filter.server.require_tls(credentials).map_err(explained)?;
    }
    let served = serve(&mut filter, args.listen, &args.output, &stop);
    stop.doing("stopping the filter");
    let status = filter.status();
    let recorded = filter.stop().map_err(explained)?;
    let text = |s: &datapath::VolumeStatus| {
        let measured = s.stages.measure.measured.as_ref().map(live_table::measured);
        let injected = s.stages.inject.injected.as_ref().map(live_table::injected);
        let cached = s.cache.as_ref();
        let cached = cached.map(|c| format!("cache: {}\n", live_table::cached(c)));
        [measured, injected, cached]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("\n")
    };
    served?;
    let status = status.map_err(explained)?;
    args.output.print("terrace.filter/1", &status, text)?;
    if let Some(recorded) = recorded {
        trace_record::say(&recorded);
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves until a stop order.
///
/// # Errors
/// If a listening address cannot be used, or if a worker has ended.
pub fn serve(
    filter: &mut Filter,
    listens: Vec<Listen>,
    output: &OutputArg,
    stop: &Stop,
) -> anyhow::Result<()> {
    for listen in listens {
        let bound = filter
            .server
            .listen(&reachable(listen))
            .map_err(explained)?;
        announce(output, &bound, &filter.name)?;
    }
    stop.doing("watching the worker");
    while stop.sleep(Duration::from_millis(200)) == Go::On {
        if !filter.server.healthy() {
            return Err(anyhow!(
                "the worker has ended unexpectedly: start the filter again"
            ));
        }
    }
    Ok(())
}
