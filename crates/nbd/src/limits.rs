//! How much either side takes from the other before there is a session.

/// How much a client may take before it has an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeLimits {
    /// Data of one option. Protects memory: an option is kept until it is complete. Longer ones are refused unread.
    pub max_option_bytes: u32,
    /// Data of one option that is skipped. Protects bandwidth; a longer one ends the connection.
    pub max_skipped_bytes: u32,
    /// All options of one handshake, headers included. Protects the worker's time from a client
    /// that never starts. A client that lists exports sends about 200 bytes for each of them.
    pub max_received_bytes: u32,
    /// All replies of one handshake; the reply to the last option may exceed it. Protects memory
    /// from a client that asks and does not read.
    pub max_reply_bytes: u32,
    /// Replies to `LIST` in the whole handshake. Protects the worker's time: each list is made of
    /// all exports.
    pub max_list_reply_bytes: u32,
    /// Most dirty-bitmap contexts in one handshake. Protects the server's thread, which scans all changed extents for each, from a client that selects
    /// contexts repeatedly.
    pub max_dirty_contexts: u32,
}

impl Default for HandshakeLimits {
    fn default() -> Self {
        Self {
            max_option_bytes: 8 << 10,
            max_skipped_bytes: 256 << 10,
            max_received_bytes: 2 << 20,
            max_reply_bytes: 4 << 20,
            max_list_reply_bytes: 1 << 20,
            max_dirty_contexts: 16,
        }
    }
}

/// Data of one reply to an option. Protects memory; the longest with a meaning has two strings of 4096 bytes.
pub(crate) const REPLY_BYTES_MAX: u32 = 16 << 10;
/// All replies to one option, headers included. Protects against a server that never comes to an end.
pub(crate) const REPLIES_BYTES_MAX: usize = 4 << 20;
