//! Data of options: parsing in the server, encoding in the client; and replies of the server.
//!
//! ```text
//!  INFO, GO             │ length │ name │ count │ kind │ kind │ …
//!                         32            16      16
//!  *_META_CONTEXT       │ length │ name │ count │ length │ query │ length │ query │ …
//!                         32              32      32               32
//! ```

use crate::wire::{
    ALLOCATION, BASE, DIRTY, Fields, OPTION_REPLY_MAGIC, QEMU, info, length32, name,
};

/// Content of `INFO` and `GO`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InfoQuery<'a> {
    pub name: &'a str,
    pub wants_name: bool,
    pub wants_description: bool,
    pub wants_block_sizes: bool,
}

/// Parses `INFO` or `GO`. Unknown information types are ignored, as the specification requires.
pub(crate) fn parse_info(data: &[u8]) -> Result<InfoQuery<'_>, &'static str> {
    let mut fields = Fields::new(data);
    let name = name(fields.counted().ok_or("the name exceeds the option")?)?;
    let mut query = InfoQuery {
        name,
        wants_name: false,
        wants_description: false,
        wants_block_sizes: false,
    };
    let count = fields.u16().ok_or("the number of requests is missing")?;
    for _ in 0..count {
        match fields.u16().ok_or("fewer requests than announced")? {
            info::NAME => query.wants_name = true,
            info::DESCRIPTION => query.wants_description = true,
            info::BLOCK_SIZE => query.wants_block_sizes = true,
            _ => {}
        }
    }
    ended(&fields)?;
    Ok(query)
}

/// Returns the data of a `GO` option that requests all supported information.
pub(crate) fn write_info(name: &str) -> Vec<u8> {
    let mut data = Vec::with_capacity(name.len() + 12);
    data.extend_from_slice(&length32(name.len()));
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&3u16.to_be_bytes());
    for kind in [info::NAME, info::DESCRIPTION, info::BLOCK_SIZE] {
        data.extend_from_slice(&kind.to_be_bytes());
    }
    data
}

/// Content of the metadata context options.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ContextQuery<'a> {
    pub name: &'a str,
    /// There were no queries.
    pub empty: bool,
    /// `base:allocation` was requested.
    pub allocation: bool,
    /// `base:` was requested.
    pub base: bool,
    /// Names requested after `qemu:dirty-bitmap:`.
    pub dirty: Vec<&'a str>,
    /// `qemu:`, or `qemu:dirty-bitmap:` without a name, was requested.
    pub qemu: bool,
}

/// Parses a metadata context option. Queries in other namespaces match nothing.
pub(crate) fn parse_contexts(data: &[u8]) -> Result<ContextQuery<'_>, &'static str> {
    let mut fields = Fields::new(data);
    let export = name(fields.counted().ok_or("the name exceeds the option")?)?;
    let count = fields.u32().ok_or("the number of queries is missing")?;
    let mut query = ContextQuery {
        name: export,
        empty: count == 0,
        allocation: false,
        base: false,
        dirty: vec![],
        qemu: false,
    };
    // The loop ends at the first missing query, whatever the count is.
    for _ in 0..count {
        let text = name(fields.counted().ok_or("fewer queries than announced")?)?;
        if !text.contains(':') {
            return Err("a query without a namespace");
        }
        query.allocation |= text == ALLOCATION;
        query.base |= text == BASE;
        query.qemu |= text == QEMU || text == DIRTY;
        query
            .dirty
            .extend(text.strip_prefix(DIRTY).filter(|name| !name.is_empty()));
    }
    ended(&fields)?;
    Ok(query)
}

/// Returns the data of a `SET_META_CONTEXT` option for `base:allocation`.
pub(crate) fn write_contexts(name: &str) -> Vec<u8> {
    let mut data = Vec::with_capacity(name.len() + 32);
    data.extend_from_slice(&length32(name.len()));
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&1u32.to_be_bytes());
    data.extend_from_slice(&length32(ALLOCATION.len()));
    data.extend_from_slice(ALLOCATION.as_bytes());
    data
}

fn ended(fields: &Fields) -> Result<(), &'static str> {
    if fields.is_empty() {
        Ok(())
    } else {
        Err("surplus bytes after the last field")
    }
}

/// Appends a server's reply to an option.
pub(crate) fn reply(out: &mut Vec<u8>, number: u32, kind: u32, data: &[u8]) {
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&length32(data.len()));
    out.extend_from_slice(data);
}

/// Appends an error reply.
pub(crate) fn refuse(out: &mut Vec<u8>, number: u32, kind: u32, why: &str) {
    reply(out, number, kind, why.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_options_are_parsed_unchanged() {
        let info = write_info("disk");
        let expected = InfoQuery {
            name: "disk",
            wants_name: true,
            wants_description: true,
            wants_block_sizes: true,
        };
        assert_eq!(parse_info(&info), Ok(expected));
        let contexts = write_contexts("disk");
        let expected = ContextQuery {
            name: "disk",
            empty: false,
            allocation: true,
            base: false,
            dirty: vec![],
            qemu: false,
        };
        assert_eq!(parse_contexts(&contexts), Ok(expected));
    }

    #[test]
    fn options_of_another_length_are_refused() {
        fn check(data: &[u8], parses: fn(&[u8]) -> bool) {
            assert!(parses(data));
            for n in 0..data.len() {
                assert!(!parses(&data[..n]), "{n}");
            }
            assert!(!parses(&[data, &[0]].concat()));
        }
        check(&write_info("disk"), |data| parse_info(data).is_ok());
        check(&write_contexts("disk"), |data| parse_contexts(data).is_ok());
    }

    #[test]
    fn names_must_be_short_utf8_without_nul() {
        let with = |name: &[u8]| [&length32(name.len()), name, &[0, 0]].concat();
        assert!(parse_info(&with(b"")).is_ok());
        assert!(parse_info(&with("größe".as_bytes())).is_ok());
        assert_eq!(parse_info(&with(b"\xff")), Err("not UTF-8"));
        assert_eq!(parse_info(&with(b"a\0")), Err("contains NUL"));
        assert!(parse_info(&with(&[b'x'; 4096])).is_ok());
        assert!(parse_info(&with(&[b'x'; 4097])).is_err());
    }
}
