//! Text format of Prometheus, version 0.0.4.

use std::fmt::Write as _;

/// Kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Labels of one series.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

/// Text of all metrics. Writing to a string cannot fail, so results of `write!` are ignored.
#[derive(Default)]
pub(crate) struct Exposition(String);

impl Exposition {
    pub(crate) fn text(self) -> String {
        self.0
    }

    /// Starts a metric. All its series must follow directly, as the format requires.
    pub(crate) fn metric(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub(crate) fn whole(&mut self, name: &str, labels: Labels<'_>, value: u64) {
        self.number(name, labels, &value.to_string());
    }

    /// Adds a formatted number.
    pub(crate) fn number(&mut self, name: &str, labels: Labels<'_>, value: &str) {
        self.series(name, "", labels, None);
        let _ = writeln!(self.0, "{value}");
    }

    /// Adds a number. A number that is not finite was not measured and is omitted.
    pub(crate) fn real(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        if value.is_finite() {
            self.number(name, labels, &value.to_string());
        }
    }

    /// Adds a histogram. `up_to` has cumulative counts up to each of `bounds_ns`; missing counts are zero.
    pub(crate) fn histogram(&mut self, name: &str, labels: Labels<'_>, of: &Histogram<'_>) {
        for (i, bound_ns) in of.bounds_ns.iter().enumerate() {
            let count = of.up_to.get(i).copied().unwrap_or_default();
            let bound = seconds(*bound_ns);
            self.series(name, "_bucket", labels, Some(&bound));
            let _ = writeln!(self.0, "{count}");
        }
        self.series(name, "_bucket", labels, Some("+Inf"));
        let _ = writeln!(self.0, "{}", of.count);
        self.series(name, "_sum", labels, None);
        let _ = writeln!(self.0, "{}", seconds(of.sum_ns));
        self.series(name, "_count", labels, None);
        let _ = writeln!(self.0, "{}", of.count);
    }

    fn series(&mut self, name: &str, suffix: &str, labels: Labels<'_>, bound: Option<&str>) {
        self.0.push_str(name);
        self.0.push_str(suffix);
        let labels = labels.iter().copied().chain(bound.map(|b| ("le", b)));
        let mut open = '{';
        for (label, value) in labels {
            self.0.push(open);
            open = ',';
            let _ = write!(self.0, "{label}=\"");
            for c in value.chars() {
                match c {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        self.0.push_str(if open == ',' { "} " } else { " " });
    }
}

/// Data of a histogram.
pub(crate) struct Histogram<'a> {
    pub(crate) bounds_ns: &'a [u64],
    pub(crate) up_to: &'a [u64],
    pub(crate) count: u64,
    pub(crate) sum_ns: u64,
}

/// Formats nanoseconds as seconds, exactly.
pub(crate) fn seconds(ns: u64) -> String {
    let (whole, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
    match rest {
        0 => whole.to_string(),
        rest => format!("{whole}.{rest:09}").trim_end_matches('0').into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_written_with_escapes() {
        let mut out = Exposition::default();
        out.metric("a_total", Kind::Counter, "so \\ many\nlines");
        out.whole("a_total", &[("v", "q\"\\\n")], 3);
        out.real("b", &[], 0.25);
        out.real("b", &[], f64::NAN);
        assert_eq!(
            out.text(),
            "# HELP a_total so \\\\ many\\nlines\n# TYPE a_total counter\na_total{v=\"q\\\"\\\\\\n\"} 3\nb 0.25\n"
        );
    }

    #[test]
    fn histograms_end_with_the_infinity_bucket() {
        let mut out = Exposition::default();
        let of = Histogram {
            bounds_ns: &[50_000, 2_000_000_000],
            up_to: &[1],
            count: 4,
            sum_ns: 1_500_000_001,
        };
        out.histogram("h", &[("v", "x")], &of);
        assert_eq!(
            out.text(),
            "h_bucket{v=\"x\",le=\"0.00005\"} 1\nh_bucket{v=\"x\",le=\"2\"} 0\nh_bucket{v=\"x\",le=\"+Inf\"} 4\nh_sum{v=\"x\"} 1.500000001\nh_count{v=\"x\"} 4\n"
        );
    }
}
