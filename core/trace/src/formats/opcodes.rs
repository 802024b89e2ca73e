//! Operation codes of commands that transfer, discard or flush data.

use model::Op;

/// Returns the kind of a SCSI command (SPC, SBC), with 6, 10, 12 and 16 bytes in this order. A WRITE SAME is a write,
/// because its code does not show whether it unmaps.
pub(crate) fn scsi_op(code: u16) -> Option<Op> {
    Some(match code {
        // READ
        0x08 | 0x28 | 0xa8 | 0x88 => Op::Read,
        // WRITE; WRITE AND VERIFY; COMPARE AND WRITE; WRITE SAME; ORWRITE; WRITE ATOMIC; WRITE STREAM
        0x0a | 0x2a | 0xaa | 0x8a => Op::Write,
        0x2e | 0xae | 0x8e | 0x89 | 0x41 | 0x93 | 0x8b | 0x9c | 0x9a => Op::Write,
        // UNMAP
        0x42 => Op::Trim,
        // SYNCHRONIZE CACHE
        0x35 | 0x91 => Op::Flush,
        _ => return None,
    })
}

/// Returns the kind of a command of NVMe's NVM and zoned command sets.
pub(crate) fn nvme_op(code: u16) -> Option<Op> {
    Some(match code {
        0x00 => Op::Flush,
        0x02 => Op::Read,
        // Write, Zone Append
        0x01 | 0x7d => Op::Write,
        // Write Zeroes, Dataset Management
        0x08 | 0x09 => Op::Trim,
        _ => return None,
    })
}
