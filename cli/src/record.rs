//! Records of runs on disk: one directory per scenario, a manifest and a file per strategy.
//!
//! ```text
//!  terrace-out/
//!    latest                the name of the directory written last
//!    captured/
//!      manifest.json       version, scenario hash, trace hashes, seed, strategies
//!      autotiering.json    the whole result, over time and with all decisions
//!      idt.json
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use sim::{Manifest, RUN_SCHEMA, RunResult, ScenarioFile};

/// Of the strategies of a record, the one that is meant where none is named: the first of these that is in it.
const PREFERRED: [&str; 2] = [planner::DEFAULT_STRATEGY, "autotiering"];

/// Where records go unless said otherwise.
pub const DEFAULT_DIR: &str = "terrace-out";

/// Writes the results of one scenario; its directory.
pub fn write(base: &Path, file: &ScenarioFile, results: &[RunResult]) -> anyhow::Result<PathBuf> {
    let dir = base.join(&file.scenario.name);
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let manifests: Vec<&Manifest> = results.iter().map(|r| &r.manifest).collect();
    put(
        &dir.join("manifest.json"),
        &serde_json::to_vec_pretty(&manifests)?,
    )?;
    put(&dir.join("scenario.toml"), file.source.text.as_bytes())?;
    for result in results {
        put(
            &dir.join(file_of(&result.manifest.strategy)),
            &serde_json::to_vec(result)?,
        )?;
    }
    put(&base.join("latest"), file.scenario.name.as_bytes())?;
    Ok(dir)
}

/// Name of the file of a strategy. The name of a strategy in Python may have the path of its file.
fn file_of(strategy: &str) -> String {
    format!("{}.json", strategy.replace('/', "-"))
}

fn put(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// The directory of a record: the one that was named, or the one that was written last.
pub fn directory(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(dir) = named {
        return Ok(dir.to_path_buf());
    }
    let latest = Path::new(DEFAULT_DIR).join("latest");
    let name = fs::read_to_string(&latest).with_context(|| {
        format!("no run is recorded in {DEFAULT_DIR}: run `terrace sim run SCENARIO.toml` first, or give --run DIR")
    })?;
    Ok(Path::new(DEFAULT_DIR).join(name.trim()))
}

/// Reads the result of one strategy from the record in a directory. `strategy` may be left out where the record has just one,
/// or has the default one, or `autotiering`.
pub fn read(dir: &Path, strategy: Option<&str>) -> anyhow::Result<RunResult> {
    let manifest = dir.join("manifest.json");
    let bytes = fs::read(&manifest)
        .with_context(|| format!("{} is not a record of a run", dir.display()))?;
    let manifests: Vec<Manifest> = serde_json::from_slice(&bytes)
        .with_context(|| format!("{} is not a manifest", manifest.display()))?;
    let names: Vec<&str> = manifests.iter().map(|m| m.strategy.as_str()).collect();
    let chosen = match strategy {
        Some(name) if names.contains(&name) => name,
        Some(name) => bail!(
            "no run under strategy \"{name}\" in {}: the record has {}",
            dir.display(),
            names.join(", ")
        ),
        None => match names[..] {
            [only] => only,
            _ => match PREFERRED.iter().find(|p| names.contains(p)) {
                Some(preferred) => preferred,
                None => bail!(
                    "{} has runs under {}: choose one with --strategy",
                    dir.display(),
                    names.join(", ")
                ),
            },
        },
    };
    let path = dir.join(file_of(chosen));
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let result: RunResult = serde_json::from_slice(&bytes)
        .with_context(|| format!("{} is not the result of a run", path.display()))?;
    if result.schema != RUN_SCHEMA {
        bail!(
            "{} has schema {}, this program reads {RUN_SCHEMA}",
            path.display(),
            result.schema
        );
    }
    Ok(result)
}
