//! What the documents of all reproductions have in common.

use report::{Block, Cell, Section, Tone};

use crate::autotiering::Verdict;

/// A part of a document.
pub(crate) fn section(id: &str, title: &str, blocks: Vec<Block>) -> Section {
    Section {
        id: id.into(),
        title: title.into(),
        blocks,
    }
}

/// A verdict with its colour, and what to make of it behind it.
pub(crate) fn verdict_cell(verdict: Verdict, outlook: &str) -> Cell {
    Cell {
        text: format!("{}{outlook}", verdict.name()),
        tone: match verdict {
            Verdict::Agrees => Tone::Good,
            Verdict::Disagrees => Tone::Bad,
            Verdict::Undecided => Tone::Plain,
        },
    }
}
