//! Checks of requests against their session. All rules that do not need the data are applied here.

use crate::export::{ExportFlags, Session};
use crate::reply::ErrorCode;
use crate::request::{Command, RequestFlags, RequestHeader};

/// Longest read whose data and offset fit one chunk.
const CHUNK_DATA_BYTES_MAX: u32 = u32::MAX - 8;

/// Rejection of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// Error for the reply.
    pub error: ErrorCode,
    /// True if the connection must end, because the payload after the header cannot be skipped at a reasonable cost.
    /// Otherwise skip [`RequestHeader::payload_bytes`] and continue.
    pub fatal: bool,
    /// Reason for a log or an error chunk.
    pub why: &'static str,
}

fn refuse<T>(error: ErrorCode, why: &'static str) -> Result<T, Refusal> {
    Err(Refusal {
        error,
        fatal: false,
        why,
    })
}

/// Checks a request against the negotiated session. A valid request lies within the export, is not empty (except flush and
/// disconnect), and has only flags that its command supports. `Disconnect` is always valid.
pub fn check(header: &RequestHeader, session: &Session) -> Result<(), Refusal> {
    let export = &session.export;
    if header.command == Command::Disconnect {
        return Ok(());
    }
    // This check comes first, because it decides if the connection must end.
    if header.command == Command::Write && header.length > export.block.maximum {
        return Err(Refusal {
            error: ErrorCode::Inval,
            fatal: true,
            why: "write longer than the maximum block size",
        });
    }
    supported(header.command, session)?;
    flags(header, export.flags)?;
    match header.command {
        Command::Flush if header.offset != 0 || header.length != 0 => {
            refuse(ErrorCode::Inval, "flush with an offset or a length")
        }
        Command::Flush => Ok(()),
        _ => range(header, session),
    }
}

/// Checks that the command was offered, and that the export is writable if the command writes.
fn supported(command: Command, session: &Session) -> Result<(), Refusal> {
    let flags = session.export.flags;
    let needs = match command {
        Command::Flush => (ExportFlags::SEND_FLUSH, "flush is not supported"),
        Command::Trim => (ExportFlags::SEND_TRIM, "trim is not supported"),
        Command::Cache => (ExportFlags::SEND_CACHE, "cache is not supported"),
        Command::WriteZeroes => (
            ExportFlags::SEND_WRITE_ZEROES,
            "write zeroes is not supported",
        ),
        Command::Read | Command::Write | Command::BlockStatus | Command::Disconnect => {
            (ExportFlags(0), "")
        }
    };
    let writes = matches!(
        command,
        Command::Write | Command::Trim | Command::WriteZeroes
    );
    if writes && flags.contains(ExportFlags::READ_ONLY) {
        return refuse(ErrorCode::Perm, "the export is read-only");
    }
    if !flags.contains(needs.0) {
        return refuse(ErrorCode::Inval, needs.1);
    }
    if command == Command::BlockStatus
        && session.allocation_context.is_none()
        && session.dirty.is_empty()
    {
        return refuse(ErrorCode::Inval, "no metadata context was negotiated");
    }
    Ok(())
}

/// Checks that the flags belong to the command and were offered. FUA is accepted on each command, because some clients set
/// it always.
fn flags(header: &RequestHeader, offered: ExportFlags) -> Result<(), Refusal> {
    let mut allowed = RequestFlags(0);
    if offered.contains(ExportFlags::SEND_FUA) {
        allowed = allowed.with(RequestFlags::FUA);
    }
    match header.command {
        Command::Read if offered.contains(ExportFlags::SEND_DF) => {
            allowed = allowed.with(RequestFlags::DF);
        }
        Command::WriteZeroes => {
            allowed = allowed.with(RequestFlags::NO_HOLE);
            if offered.contains(ExportFlags::SEND_FAST_ZERO) {
                allowed = allowed.with(RequestFlags::FAST_ZERO);
            }
        }
        Command::BlockStatus => allowed = allowed.with(RequestFlags::REQ_ONE),
        _ => {}
    }
    if allowed.contains(header.flags) {
        Ok(())
    } else {
        refuse(ErrorCode::Inval, "flags that the command does not support")
    }
}

/// Checks that the range is not empty, not too long, aligned, and within the export.
fn range(header: &RequestHeader, session: &Session) -> Result<(), Refusal> {
    let export = &session.export;
    if header.length == 0 {
        return refuse(ErrorCode::Inval, "the length is 0");
    }
    // Trim and similar commands have no payload and may be longer.
    let maximum = export.block.maximum.min(CHUNK_DATA_BYTES_MAX);
    if header.command == Command::Read && header.length > maximum {
        let error = if header.flags.contains(RequestFlags::DF) {
            ErrorCode::Overflow
        } else {
            ErrorCode::Inval
        };
        return refuse(error, "read longer than the maximum block size");
    }
    let end = header.offset.checked_add(header.length.into());
    if end.is_none_or(|end| end > export.size) {
        let error = match header.command {
            Command::Write | Command::WriteZeroes => ErrorCode::NoSpc,
            _ => ErrorCode::Inval,
        };
        return refuse(error, "the request exceeds the end of the export");
    }
    let minimum = export.block.minimum.max(1);
    if !header.length.is_multiple_of(minimum) || !header.offset.is_multiple_of(minimum.into()) {
        return refuse(
            ErrorCode::Inval,
            "offset or length is not a multiple of the minimum block size",
        );
    }
    Ok(())
}
