//! `terrace init`: writes a configuration for the discovered host of virtual machines.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;

use crate::live::message;
use crate::trial_cmd::configuration;
use crate::trial_cmd::host::HostArgs;

/// Directory for links to QMP sockets, next to the file.
const LINKS: &str = "terrace-sockets";

/// `terrace init`
#[derive(Debug, Args)]
pub struct Init {
    #[command(flatten)]
    host: HostArgs,
    /// Configuration file to write; it must not exist yet
    #[arg(long, value_name = "FILE", default_value = "terrace.toml")]
    file: PathBuf,
}

/// Runs `terrace init`.
pub fn run(what: &Init) -> anyhow::Result<ExitCode> {
    let file = &what.file;
    if file.exists() {
        bail!(
            "{} already exists: name another file with --file",
            file.display()
        );
    }
    let dir = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let dir = dir.canonicalize();
    let dir = dir.with_context(|| format!("cannot write {}", file.display()))?;
    let chosen = what.host.choose(&dir.join(LINKS))?;
    let text = configuration::of_init(&chosen, what.host.latency);
    let opened = OpenOptions::new().write(true).create_new(true).open(file);
    let written = opened.and_then(|mut f| f.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {}", file.display()))?;
    let name = file.display();
    message(&format!(
        "wrote {name} for {}: it recommends moves and carries out none",
        chosen.host.title
    ));
    message(&format!(
        "next: check its tiers and classes, then run `terrace config check {name}` and `terrace serve --config {name}`; after some hours, run `terrace plan --explain`"
    ));
    Ok(ExitCode::SUCCESS)
}
