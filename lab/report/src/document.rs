//! Document of text, tables and charts for results that are not runs, as plain text, Markdown and an offline page.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::chart::{BarChart, LineChart, StackChart, XyChart};
use crate::html::{POLICY, STYLE};
use crate::tables::{Align, Column, table};

/// Whole document.
#[derive(Debug, Clone, Default)]
pub struct Document {
    pub title: String,
    /// Names and values below the title.
    pub facts: Vec<(String, String)>,
    pub sections: Vec<Section>,
}

/// Section of a document.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// Target of links within the page.
    pub id: String,
    /// Heading.
    pub title: String,
    pub blocks: Vec<Block>,
}

/// Block of a section.
#[derive(Debug, Clone)]
pub enum Block {
    /// Paragraph.
    Text(String),
    /// Items of a list.
    List(Vec<String>),
    Table(Vec<Column>, Vec<Vec<Cell>>),
    /// Preformatted lines: commands, files.
    Lines(Vec<String>),
    /// Charts side by side; omitted in plain text.
    Charts(Vec<Chart>),
}

/// Chart of any kind.
#[derive(Debug, Clone)]
pub enum Chart {
    /// Groups of bars.
    Bars(BarChart),
    /// Layers over time.
    Stack(StackChart),
    /// Lines and points.
    Xy(XyChart),
    /// Lines over time.
    Line(LineChart),
}

/// Text and tone of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    pub text: String,
    /// Colour.
    pub tone: Tone,
}

/// Assessment of a value, shown by its colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tone {
    /// Neither.
    #[default]
    Plain,
    Good,
    Bad,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self {
            text: text.into(),
            tone: Tone::Plain,
        }
    }
}

impl Document {
    /// Renders the document for a terminal, without charts.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n", self.title);
        for (name, value) in &self.facts {
            out += &format!("  {name}: {value}\n");
        }
        for section in &self.sections {
            out += &format!("\n{}\n", section.title);
            for block in &section.blocks {
                match block {
                    Block::Text(text) => out += &format!("{text}\n"),
                    Block::List(points) => {
                        for point in points {
                            out += &format!("- {point}\n");
                        }
                    }
                    Block::Table(columns, rows) => {
                        let texts = rows
                            .iter()
                            .map(|row| row.iter().map(|c| c.text.clone()).collect())
                            .collect();
                        out += &format!("\n{}\n", table(columns, texts));
                    }
                    Block::Lines(lines) => {
                        for line in lines {
                            out += &format!("  {line}\n");
                        }
                    }
                    Block::Charts(_) => {}
                }
            }
        }
        out
    }

    /// Renders the document as Markdown, without charts.
    pub fn markdown(&self) -> String {
        let mut out = format!("# {}\n\n", escaped(&self.title));
        for (name, value) in &self.facts {
            out += &format!("- {}: {}\n", escaped(name), escaped(value));
        }
        for section in &self.sections {
            out += &format!("\n## {}\n", escaped(&section.title));
            for block in &section.blocks {
                out += &markdown(block);
            }
        }
        out
    }

    /// Renders the document as one page that needs no network and no script.
    pub fn page(&self) -> String {
        let document = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    header {
                        h1 { (self.title) }
                        dl class="facts" {
                            @for (name, value) in &self.facts { div { dt { (name) } dd { (value) } } }
                        }
                        nav aria-label="Sections" {
                            @for s in &self.sections { a href={ "#" (s.id) } { (s.title) } }
                        }
                    }
                    main {
                        @for s in &self.sections {
                            section id=(s.id) {
                                h2 { (s.title) }
                                @for b in &s.blocks { (block(b)) }
                            }
                        }
                    }
                }
            }
        };
        document.into_string()
    }
}

fn markdown(block: &Block) -> String {
    match block {
        Block::Text(text) => format!("\n{}\n", escaped(text)),
        Block::List(points) => {
            let points = points.iter().map(|p| format!("- {}\n", escaped(p)));
            format!("\n{}", points.collect::<String>())
        }
        Block::Lines(lines) => format!("\n```text\n{}\n```\n", lines.join("\n")),
        Block::Charts(_) => String::new(),
        Block::Table(columns, rows) => {
            let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
            let name = |c: &Column| match c.unit.is_empty() {
                true => escaped(&c.name),
                false => format!("{} ({})", escaped(&c.name), escaped(&c.unit)),
            };
            let side = |c: &Column| match c.align {
                Align::Words => "---".to_owned(),
                Align::Number => "---:".to_owned(),
            };
            let mut out = format!(
                "\n{}{}",
                line(columns.iter().map(name).collect()),
                line(columns.iter().map(side).collect())
            );
            for row in rows {
                out += &line(row.iter().map(|c| escaped(&c.text)).collect());
            }
            out
        }
    }
}

/// Escapes the characters with a meaning in Markdown.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push(' '),
            '\\' | '|' | '<' | '>' | '*' | '_' | '`' | '[' | ']' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

fn block(block: &Block) -> Markup {
    match block {
        Block::Text(text) => html! { p class="note" { (text) } },
        Block::List(points) => html! { ul class="points" { @for p in points { li { (p) } } } },
        Block::Lines(lines) => html! { pre class="lines" tabindex="0" { (lines.join("\n")) } },
        Block::Table(columns, rows) => html! {
            div class="scroll" {
                table {
                    thead {
                        tr {
                            @for c in columns {
                                th scope="col" class=[(c.align == Align::Number).then_some("n")] {
                                    (c.name) @if !c.unit.is_empty() { br; span class="unit" { (c.unit) } }
                                }
                            }
                        }
                    }
                    tbody {
                        @for row in rows {
                            tr { @for (cell, c) in row.iter().zip(columns) { td class=(class(cell, c)) { (cell.text) } } }
                        }
                    }
                }
            }
        },
        Block::Charts(charts) => {
            let stacks = charts.iter().find_map(|c| match c {
                Chart::Stack(s) => Some(s),
                _ => None,
            });
            html! {
                @if let Some(first) = stacks { (first.legend()) }
                div class=(if stacks.is_some() { "panels" } else { "charts" }) {
                    @for chart in charts {
                        @match chart {
                            Chart::Bars(c) => (c.render()),
                            Chart::Stack(c) => (c.render()),
                            Chart::Xy(c) => (c.render()),
                            Chart::Line(c) => (c.render()),
                        }
                    }
                }
            }
        }
    }
}

fn class(cell: &Cell, column: &Column) -> &'static str {
    match (column.align, cell.tone) {
        (Align::Number, Tone::Plain) => "n",
        (Align::Number, Tone::Good) => "n good",
        (Align::Number, Tone::Bad) => "n bad",
        (Align::Words, Tone::Plain) => "",
        (Align::Words, Tone::Good) => "good",
        (Align::Words, Tone::Bad) => "bad",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{number, words};

    #[test]
    fn text_has_the_tables_and_the_page_escapes_markup() {
        let document = Document {
            title: "a & b".into(),
            facts: vec![("seeds".into(), "1, 2".into())],
            sections: vec![Section {
                id: "one".into(),
                title: "One".into(),
                blocks: vec![
                    Block::Text("because".into()),
                    Block::Table(
                        vec![words("name"), number("x", "µs")],
                        vec![vec!["<i>".into(), "3".into()]],
                    ),
                    Block::List(vec!["point".into()]),
                ],
            }],
        };
        let text = document.text();
        assert!(text.contains("seeds: 1, 2") && text.contains("<i>") && text.contains("- point"));
        let markdown = document.markdown();
        assert!(markdown.contains("| name | x (µs) |\n| --- | ---: |\n| \\<i\\> | 3 |\n"));
        let page = document.page();
        assert!(page.contains("a &amp; b") && page.contains("&lt;i&gt;"));
        assert!(page.contains("default-src 'none'") && !page.contains("src="));
    }
}
