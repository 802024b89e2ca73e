//! `terrace completion` and `terrace man`: completion scripts and manual pages, generated from the definitions of the commands.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;

/// `terrace completion`
#[derive(Debug, Args)]
pub struct Completion {
    /// The shell
    #[arg(value_enum)]
    shell: ShellArg,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ShellArg {
    Bash,
    Zsh,
    Fish,
}

/// `terrace man`
#[derive(Debug, Args)]
pub struct Pages {
    /// An existing directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Prints a script that completes `terrace …`.
pub fn completion(what: &Completion, mut terrace: Command) -> anyhow::Result<()> {
    let shell = match what.shell {
        ShellArg::Bash => Shell::Bash,
        ShellArg::Zsh => Shell::Zsh,
        ShellArg::Fish => Shell::Fish,
    };
    let mut script = vec![];
    clap_complete::generate(shell, &mut terrace, "terrace", &mut script);
    let mut out = io::stdout().lock();
    out.write_all(&script)?;
    out.flush()?;
    Ok(())
}

/// Writes a page for each command: `terrace.1`, `terrace-volume.1`, `terrace-volume-create.1`, …
pub fn pages(what: &Pages, terrace: Command) -> anyhow::Result<()> {
    let mut terrace = terrace.disable_help_subcommand(true);
    terrace.build();
    let version = terrace.get_version().unwrap_or_default();
    write(&terrace, &format!("terrace {version}"), &what.dir)
}

fn write(command: &Command, source: &str, dir: &Path) -> anyhow::Result<()> {
    let page = Man::new(command.clone()).source(source).manual("Terrace");
    let path = dir.join(page.get_filename());
    let mut text = vec![];
    page.render(&mut text)?;
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    let shown = command.get_subcommands().filter(|c| !c.is_hide_set());
    shown.into_iter().try_for_each(|c| write(c, source, dir))
}
