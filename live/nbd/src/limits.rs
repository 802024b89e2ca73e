//! Limits of both sides during the handshake.

/// Limits of a client's handshake in a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeLimits {
    /// Data of one option, bytes. Protects memory: an option is kept until it is complete. Longer ones are refused unread.
    pub max_option_bytes: u32,
    /// Data of one option that is skipped, bytes. Protects bandwidth: a longer one ends the connection.
    pub max_skipped_bytes: u32,
    /// All options of one handshake, including headers, bytes. Protects the worker's time from a client that never starts
    /// the transmission. A client that lists exports sends about 200 bytes per export.
    pub max_received_bytes: u32,
    /// All replies of one handshake, bytes; the reply to the last option may exceed it. Protects memory from a client that
    /// sends options and does not read replies.
    pub max_reply_bytes: u32,
    /// Replies to `LIST` in the whole handshake, bytes. Protects the worker's time: each list contains all exports.
    pub max_list_reply_bytes: u32,
    /// Largest number of dirty-bitmap contexts in one handshake. Protects the server's thread, which scans all changed
    /// extents for each, from a client that selects contexts repeatedly.
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

/// Data of one option reply, bytes. Protects memory; the longest meaningful reply has two strings of 4096 bytes.
pub(crate) const REPLY_BYTES_MAX: u32 = 16 << 10;
/// All replies to one option, including headers, bytes. Protects against endless replies.
pub(crate) const REPLIES_BYTES_MAX: usize = 4 << 20;
