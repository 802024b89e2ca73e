//! Curves as a table, as JSON, as CSV and as a chart.

use report::{Block, Cell, Chart, Document, Mark, Section, XyChart, XySeries, number, words};
use serde_json::{Value, json};
use tables::{Columns, RecordBatch};
use trace::CacheKind;
use trace::curves::{Estimate, Method};

use super::Curves;
use crate::trace_table::size;

/// Layout of the JSON.
const SCHEMA: &str = "terrace.trace.mrc/1";
/// Points of a line in a chart.
const CHART_POINTS: u64 = 300;

impl Curves {
    fn exact(&self) -> Option<&Estimate> {
        let exact = |e: &&Estimate| e.method == Method::Exact;
        self.estimates.iter().find(exact)
    }

    fn pages(&self, bytes: u64) -> u64 {
        bytes / self.page.0
    }

    fn cache_label(&self) -> &'static str {
        match self.cache {
            CacheKind::ReadWrite => "reads and writes are cached",
            CacheKind::ReadsOnly => "reads are cached, writes drop their pages",
        }
    }

    fn references(&self) -> u64 {
        let references = |e: &Estimate| e.curve.confidence.references;
        self.estimates.iter().map(references).max().unwrap_or(0)
    }
}

/// All traces as a document.
pub fn document(all: &[Curves]) -> Document {
    let sections = all.iter().enumerate().map(|(no, curves)| Section {
        id: format!("trace-{}", no + 1),
        title: report::printable(&curves.file),
        blocks: vec![
            Block::Text(format!(
                "{} references to pages of {}; {}",
                curves.references(),
                size(curves.page.0),
                curves.cache_label()
            )),
            Block::Charts(vec![Chart::Xy(chart(curves))]),
            ratios(curves),
            methods(curves),
        ],
    });
    Document {
        title: "Miss ratios of LRU caches".into(),
        facts: vec![],
        sections: sections.collect(),
    }
}

/// As an offline page.
pub fn page(all: &[Curves]) -> String {
    document(all).page()
}

/// As a picture.
pub fn svg(curves: &Curves) -> String {
    chart(curves).svg()
}

fn ratios(curves: &Curves) -> Block {
    let mut columns = vec![number("cache", "")];
    columns.extend(
        curves
            .estimates
            .iter()
            .map(|e| number(e.method.name(), "miss ratio")),
    );
    let rows = curves.sizes.iter().map(|bytes| {
        let mut row: Vec<Cell> = vec![size(*bytes).into()];
        let ratio = |e: &Estimate| format!("{:.4}", e.curve.at(curves.pages(*bytes))).into();
        row.extend(curves.estimates.iter().map(ratio));
        row
    });
    Block::Table(columns, rows.collect())
}

fn methods(curves: &Curves) -> Block {
    let columns = vec![
        words("method"),
        number("rate", ""),
        number("pages", "followed"),
        number("error", "mean"),
        number("error", "largest"),
        number("unadjusted", "mean"),
        number("standard error", "by itself"),
    ];
    let digits = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{v:.4}"));
    let truth = curves.exact();
    let rows = curves.estimates.iter().map(|e| {
        let error = truth.map(|t| e.curve.error_against(&t.curve));
        let raw = truth.and_then(|t| Some(e.raw.as_ref()?.error_against(&t.curve)));
        let followed = e.curve.confidence.blocks;
        vec![
            e.method.name().into(),
            e.rate
                .map_or_else(|| "-".into(), |r| format!("{r:.6}"))
                .into(),
            if followed > 0 {
                followed.to_string()
            } else {
                "-".into()
            }
            .into(),
            digits(error.map(|e| e.mean)).into(),
            digits(error.map(|e| e.max)).into(),
            digits(raw.map(|e| e.mean)).into(),
            digits(e.curve.confidence.standard_error).into(),
        ]
    });
    Block::Table(columns, rows.collect())
}

fn chart(curves: &Curves) -> XyChart {
    let end = curves
        .sizes
        .iter()
        .map(|bytes| curves.pages(*bytes))
        .chain(curves.estimates.iter().map(|e| e.curve.size_max()))
        .max()
        .unwrap_or(1)
        .max(1);
    let bytes_max = end.saturating_mul(curves.page.0);
    let (unit_bytes, unit) = match bytes_max {
        0..0x80_0000 => (1u64 << 10, "KiB"),
        0x80_0000..0x2_0000_0000 => (1 << 20, "MiB"),
        _ => (1 << 30, "GiB"),
    };
    let series = curves.estimates.iter().enumerate().map(|(style, e)| {
        let sizes = (0..=CHART_POINTS)
            .map(|i| (u128::from(end) * u128::from(i) / u128::from(CHART_POINTS)) as u64);
        let at = |pages: u64| {
            let x = pages as f64 * curves.page.0 as f64 / unit_bytes as f64;
            (x, e.curve.at(pages))
        };
        XySeries {
            label: e.method.name().into(),
            style,
            mark: Mark::Line,
            points: sizes.map(at).collect(),
        }
    });
    XyChart {
        title: report::printable(&curves.file),
        x: format!("size of the cache, {unit}"),
        y: "miss ratio".into(),
        series: series.collect(),
        marks: vec![],
    }
}

/// For programs.
pub fn json(all: &[Curves]) -> Value {
    let traces: Vec<Value> = all.iter().map(trace_json).collect();
    json!({ "schema": SCHEMA, "traces": traces })
}

fn trace_json(curves: &Curves) -> Value {
    let truth = curves.exact();
    let points = |curve: &algo::mrc::Curve| -> Vec<Value> {
        let at = |bytes: &u64| json!({ "size_bytes": bytes, "miss_ratio": curve.at(curves.pages(*bytes)) });
        curves.sizes.iter().map(at).collect()
    };
    let estimates: Vec<Value> = curves
        .estimates
        .iter()
        .map(|e| {
            json!({
                "method": e.method.name(),
                "rate": e.rate,
                "pages_followed": e.curve.confidence.blocks,
                "standard_error": e.curve.confidence.standard_error,
                "error": truth.map(|t| e.curve.error_against(&t.curve)),
                "points": points(&e.curve),
                "unadjusted": e.raw.as_ref().map(|raw| json!({
                    "error": truth.map(|t| raw.error_against(&t.curve)),
                    "points": points(raw),
                })),
            })
        })
        .collect();
    json!({
        "file": curves.file,
        "page_bytes": curves.page.0,
        "reads_only_cache": curves.cache == CacheKind::ReadsOnly,
        "references": curves.references(),
        "curves": estimates,
    })
}

/// Returns the tables by name: curves by size, and what each rests on.
pub fn tables(all: &[Curves]) -> Vec<(&'static str, RecordBatch)> {
    let mut methods: Vec<(&Curves, &Estimate)> = vec![];
    for curves in all {
        methods.extend(curves.estimates.iter().map(|e| (curves, e)));
    }
    let points: Vec<(&Curves, &Estimate, u64)> = methods
        .iter()
        .flat_map(|(curves, e)| curves.sizes.iter().map(|bytes| (*curves, *e, *bytes)))
        .collect();
    let rows = || points.iter();
    let raw = |(c, e, bytes): &(&Curves, &Estimate, u64)| Some(e.raw.as_ref()?.at(c.pages(*bytes)));
    let curve_rows = Columns::default()
        .text("file", rows().map(|r| Some(&r.0.file)))
        .text("method", rows().map(|r| Some(r.1.method.name())))
        .u64("size_bytes", "B", rows().map(|r| Some(r.2)))
        .f64(
            "miss_ratio",
            "",
            rows().map(|(c, e, bytes)| Some(e.curve.at(c.pages(*bytes)))),
        )
        .f64("miss_ratio_unadjusted", "", rows().map(raw));
    let rows = || methods.iter();
    let error = |(c, e): &(&Curves, &Estimate)| Some(e.curve.error_against(&c.exact()?.curve));
    let confidence = |(_, e): &(&Curves, &Estimate)| e.curve.confidence;
    let method_rows = Columns::default()
        .text("file", rows().map(|r| Some(&r.0.file)))
        .text("method", rows().map(|r| Some(r.1.method.name())))
        .u64("page_bytes", "B", rows().map(|r| Some(r.0.page.0)))
        .flag(
            "reads_only_cache",
            rows().map(|r| r.0.cache == CacheKind::ReadsOnly),
        )
        .f64("rate", "", rows().map(|r| r.1.rate))
        .u64(
            "references",
            "",
            rows().map(|r| Some(confidence(r).references)),
        )
        .u64(
            "pages_followed",
            "",
            rows().map(|r| Some(confidence(r).blocks)),
        )
        .f64(
            "standard_error",
            "",
            rows().map(|r| confidence(r).standard_error),
        )
        .f64("error_mean", "", rows().map(|r| Some(error(r)?.mean)))
        .f64("error_max", "", rows().map(|r| Some(error(r)?.max)));
    vec![
        ("curves", curve_rows.finish(SCHEMA)),
        ("methods", method_rows.finish(SCHEMA)),
    ]
}

/// A row per trace, method and size.
pub fn csv(all: &[Curves]) -> String {
    let mut out = String::from("file,method,rate,size_bytes,miss_ratio,miss_ratio_unadjusted\n");
    for curves in all {
        let file = curves.file.replace('"', "\"\"");
        for e in &curves.estimates {
            for bytes in &curves.sizes {
                let pages = curves.pages(*bytes);
                let raw = e
                    .raw
                    .as_ref()
                    .map_or_else(String::new, |raw| raw.at(pages).to_string());
                let rate = e.rate.map_or_else(String::new, |rate| rate.to_string());
                let (name, ratio) = (e.method.name(), e.curve.at(pages));
                out += &format!("\"{file}\",{name},{rate},{bytes},{ratio},{raw}\n");
            }
        }
    }
    out
}
