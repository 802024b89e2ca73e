//! Reports for people: tables, reasons and one offline page, generated from the results of runs.
//!
//! ```text
//!  RunResult ──▶ tables   plain text for a terminal: summary, groups, moves
//!            ├─▶ csv      long form with units in the names
//!            ├─▶ why      one volume: its places, its decisions and their numbers
//!            ├─▶ verdict  the best strategy in one or two sentences
//!            └─▶ html     one self-contained page that compares all runs
//!  SweepResult ──▶ sweep    a row per cell, or means over seeds
//!  Comparison   ──▶ decisions  strategies over a suite, as text and as a page
//!  Figures      ──▶ figures    the same over a suite and random arrays, as Markdown for the book
//!  views of a live controller ──▶ live   status, volumes at work, plans, jobs, reasons, for a terminal
//!  Trial        ──▶ trial   disks of a host over some minutes, and the predicted gain of moves, for a terminal and as a page
//!  other results ──▶ document   text, tables and charts, for a terminal and as a page
//! ```
//!
//! All functions map results to a `String`. They open no file, read no clock and make no decisions. They do not invent
//! measurements: a percentile of percentiles is labelled as such.

mod cache;
mod chart;
mod counting;
mod csv;
mod decisions;
mod demo;
mod document;
mod figures;
mod format;
mod html;
pub mod live;
mod mirrors;
mod optimality;
mod parts;
mod response;
mod run;
mod series;
mod sweep;
mod tables;
pub mod trial;
mod verdict;
mod wear;
mod why;
mod why_data;

pub use cache::cache;
pub use chart::{
    BarChart, Layer, LoadChart, LoadPanel, LoadSeries, Mark, StackChart, ValueBar, XyChart,
    XySeries,
};
pub use counting::{counting, counting_csv};
pub use csv::{csv, moves_csv};
pub use decisions::{ablation, decisions, decisions_page};
pub use demo::{DemoAdapted, DemoClass, DemoTable, demo, demo_compared};
pub use document::{Block, Cell, Chart, Document, Section, Tone};
pub use figures::{DecisionFigures, decisions_markdown};
pub use format::utc;
pub use html::page;
pub use mirrors::mirrors;
pub use optimality::optimality;
pub use response::response;
pub use run::labels;
pub use sweep::{sweep, sweep_csv};
pub use tables::{
    Align, Column, by_group, events, moves, number, printable, summary, table, words,
};
pub use wear::wear;
pub use why::{WhyError, why, why_not};
pub use why_data::{
    DecisionRecorded, StayRecorded, WhyNotRecorded, WhyRecorded, why_data, why_not_data,
};
