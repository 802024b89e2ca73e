//! Parsing of libvirt's XML, with the line of errors.

use roxmltree::{Document, Node};

use crate::HostError;

/// Parses a text as a document.
pub(crate) fn parsed<'i>(what: &str, text: &'i str) -> Result<Document<'i>, HostError> {
    Document::parse(text).map_err(|e| HostError::Xml {
        what: what.into(),
        why: e.to_string(),
    })
}

pub(crate) fn child<'a, 'i>(of: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    of.children().find(|c| c.has_tag_name(name))
}

/// Document, and its kind for error messages.
#[derive(Clone, Copy)]
pub(crate) struct Xml<'d, 'i, 'w> {
    pub document: &'d Document<'i>,
    pub what: &'w str,
}

impl Xml<'_, '_, '_> {
    pub(crate) fn fault(&self, node: Node<'_, '_>, why: &str) -> HostError {
        HostError::Element {
            what: self.what.into(),
            line: self.document.text_pos_at(node.range().start).row,
            why: why.into(),
        }
    }

    /// Returns the text of a child element.
    pub(crate) fn text(&self, of: Node<'_, '_>, name: &str) -> Result<String, HostError> {
        let text = child(of, name).and_then(|n| n.text());
        let text = text.map(str::trim).filter(|t| !t.is_empty());
        let missing = || self.fault(of, &format!("<{name}> is missing"));
        text.map(String::from).ok_or_else(missing)
    }
}
