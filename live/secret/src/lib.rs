//! Reading of files that only their owner may access: private keys, pre-shared keys, tokens.
//!
//! [`read`] reads all secrets, with one rule and one message. Callers interpret the content.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Largest size of a file of secrets, bytes. Protects memory from a wrong path.
const BYTES_MAX: u64 = 1 << 20;

/// Mode bits that grant any right to the group or to others.
const OTHERS: u32 = 0o077;

/// Environment variable with the directory of a unit's credentials (systemd's `LoadCredential=`).
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// Reason why a file of secrets is rejected.
#[derive(Debug, Error)]
pub enum SecretError {
    /// The group or others have rights on the file.
    #[error(
        "{path} is open to other users (mode {mode:04o}): run `chmod 600 {path}`, and replace the secret if another user may have read it"
    )]
    Open { path: PathBuf, mode: u32 },
    /// The path is a directory, a pipe or a device.
    #[error("{path} is not a regular file: name the file with the secret")]
    NoFile { path: PathBuf },
    #[error("{path} has {bytes} bytes, more than {BYTES_MAX}: name the file with the secret")]
    TooLong { path: PathBuf, bytes: u64 },
    #[error("cannot read {path}: {why}")]
    Read { path: PathBuf, why: io::Error },
}

impl SecretError {
    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        match self {
            SecretError::Open { path, .. }
            | SecretError::NoFile { path }
            | SecretError::TooLong { path, .. }
            | SecretError::Read { path, .. } => path,
        }
    }
}

/// Returns the content of a file that only its owner may read.
///
/// # Errors
/// [`SecretError`].
pub fn read(path: &Path) -> Result<Vec<u8>, SecretError> {
    let failed = |why| SecretError::Read {
        path: path.into(),
        why,
    };
    // The first check avoids an open of a pipe without a writer, which would block. The second one checks the opened file.
    check(path, &std::fs::metadata(path).map_err(failed)?)?;
    let file = File::open(path).map_err(failed)?;
    check(path, &file.metadata().map_err(failed)?)?;
    let mut bytes = vec![];
    let read = file.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(failed)?;
    match bytes.len() as u64 {
        bytes if bytes > BYTES_MAX => Err(SecretError::TooLong {
            path: path.into(),
            bytes,
        }),
        _ => Ok(bytes),
    }
}

fn check(path: &Path, metadata: &Metadata) -> Result<(), SecretError> {
    if !metadata.is_file() {
        return Err(SecretError::NoFile { path: path.into() });
    }
    let mode = metadata.mode() & 0o7777;
    if mode & allowed_to_none(path, metadata) != 0 {
        return Err(SecretError::Open {
            path: path.into(),
            mode,
        });
    }
    if metadata.len() > BYTES_MAX {
        return Err(SecretError::TooLong {
            path: path.into(),
            bytes: metadata.len(),
        });
    }
    Ok(())
}

/// Returns the mode bits that must not be set. Systemd grants a unit its credentials by an access list, whose mask appears
/// as the group's read bit.
fn allowed_to_none(path: &Path, metadata: &Metadata) -> u32 {
    let directory = std::env::var_os(CREDENTIALS).filter(|d| !d.is_empty());
    let credential = directory.is_some_and(|d| path.starts_with(d)) && metadata.uid() == 0;
    match credential {
        true => OTHERS & !0o040,
        false => OTHERS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(dir: &Path, mode: u32) -> PathBuf {
        let path = dir.join("key");
        std::fs::write(&path, "s3cret").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn secrets_open_to_group_or_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for mode in [0o600, 0o400] {
            assert_eq!(read(&file(dir.path(), mode)).unwrap(), b"s3cret");
        }
        for mode in [0o640, 0o604, 0o620, 0o644, 0o666, 0o601] {
            let path = file(dir.path(), mode);
            let error = read(&path).unwrap_err().to_string();
            let fix = format!("(mode {mode:04o}): run `chmod 600 {}`", path.display());
            assert!(error.contains(&fix), "{error}");
        }
    }

    #[test]
    fn invalid_secret_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let directory = read(dir.path()).unwrap_err();
        assert!(
            matches!(directory, SecretError::NoFile { .. }),
            "{directory}"
        );
        let missing = read(&dir.path().join("missing")).unwrap_err();
        assert!(matches!(missing, SecretError::Read { .. }), "{missing}");
        let path = file(dir.path(), 0o600);
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(BYTES_MAX + 1)
            .unwrap();
        let long = read(&path).unwrap_err();
        assert!(matches!(long, SecretError::TooLong { .. }), "{long}");
    }
}
