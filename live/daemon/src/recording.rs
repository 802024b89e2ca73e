//! Output of a recording.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use manager::managed::Recorder;
use tracing::error;

use crate::error::DaemonError;

/// Appends a recording to a file that only its owner may read. Recording stops after a write error, because no decision
/// depends on it.
pub(crate) fn to_file(path: &Path) -> Result<Recorder, DaemonError> {
    let mut options = OpenOptions::new();
    let name = path.display().to_string();
    options.read(true).append(true).create(true).mode(0o600);
    let file = options.open(path).and_then(after_whole_lines);
    let file = file.map_err(|source| DaemonError::Record {
        file: name.clone(),
        source,
    })?;
    let mut file = Some(BufWriter::new(file));
    Ok(Box::new(move |entry| {
        let Some(out) = &mut file else { return };
        let written = serde_json::to_writer(&mut *out, entry)
            .map_err(io::Error::from)
            .and_then(|()| out.write_all(b"\n"))
            .and_then(|()| out.flush());
        if let Err(why) = written {
            error!(
                file = name,
                "cannot write the recording, which ends here: {why}"
            );
            file = None;
        }
    }))
}

/// Ends a truncated last line, which a killed controller leaves.
fn after_whole_lines(mut file: File) -> io::Result<File> {
    let size = file.seek(SeekFrom::End(0))?;
    let mut last = [b'\n'];
    if size > 0 {
        file.read_exact_at(&mut last, size - 1)?;
    }
    if last != [b'\n'] {
        file.write_all(b"\n")?;
    }
    Ok(file)
}
