//! The text exposition format 0.0.4.

use std::fmt::{self, Display, Write};

use super::types::{Histogram, LabelledCounter};

/// Type of a family.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Counter,
    Gauge,
}

/// A page under construction. Families come one after another, each whole.
#[derive(Debug, Default)]
pub(super) struct Text {
    out: String,
}

/// A label.
pub(super) type Label<'a> = (&'static str, &'a str);

impl Text {
    /// Starts a family; its samples follow.
    pub(super) fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.head(name, kind, help);
    }

    /// One series of the family.
    pub(super) fn sample(&mut self, name: &str, labels: &[Label<'_>], value: impl Display) {
        self.out.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            self.out.push(if index == 0 { '{' } else { ',' });
            self.put(format_args!("{label}=\"{}\"", Escaped { text, quotes: true }));
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        self.put(format_args!(" {value}\n"));
    }

    /// A family of one counter without labels.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, Kind::Counter, help);
        self.sample(name, &[], value);
    }

    /// A family of one gauge without labels.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, Kind::Gauge, help);
        self.sample(name, &[], value);
    }

    /// A family of counters with labels; nothing if none was used yet.
    pub(super) fn labelled<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&'static str; N],
        counter: &LabelledCounter<N>,
    ) {
        for (index, (values, count)) in counter.iter().enumerate() {
            if index == 0 {
                self.family(name, Kind::Counter, help);
            }
            let pairs: [Label<'_>; N] = std::array::from_fn(|at| (labels[at], values[at]));
            self.sample(name, &pairs, count);
        }
    }

    /// A family of one histogram without labels.
    pub(super) fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        for (bound, count) in histogram.cumulative() {
            self.put(format_args!("{name}_bucket{{le=\"{}\"}} {count}\n", Float(bound)));
        }
        let count = histogram.count();
        self.put(format_args!("{name}_bucket{{le=\"+Inf\"}} {count}\n"));
        self.put(format_args!("{name}_sum {}\n{name}_count {count}\n", Float(histogram.sum().as_secs_f64())));
    }

    /// The page.
    pub(super) fn finish(self) -> String {
        self.out
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let help = Escaped { text: help, quotes: false };
        self.put(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn put(&mut self, arguments: fmt::Arguments<'_>) {
        // A String takes everything.
        let _ = self.out.write_fmt(arguments);
    }
}

/// A number as Go prints it (`1e-06`, not `0.000001`): dashboards compare the label `le` as text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Float(pub(super) f64);

impl Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if value.is_nan() {
            return f.write_str("NaN");
        }
        if value.is_infinite() {
            return f.write_str(if value > 0.0 { "+Inf" } else { "-Inf" });
        }
        let magnitude = value.abs();
        if magnitude == 0.0 || (1e-4..1e21).contains(&magnitude) {
            return write!(f, "{value}");
        }
        let scientific = format!("{value:e}");
        let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        write!(f, "{mantissa}e{sign}{digits:0>2}")
    }
}

/// Text in a HELP line, or between the quotes of a label.
struct Escaped<'a> {
    text: &'a str,
    quotes: bool,
}

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in self.text.chars() {
            match char {
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '"' if self.quotes => f.write_str("\\\"")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::checker::{Page, check};
    use super::super::types::DIAL;
    use super::*;

    #[test]
    fn numbers_as_go_prints_them() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.000_001, "1e-06"),
            (0.000_01, "1e-05"),
            (0.000_1, "0.0001"),
            (0.005, "0.005"),
            (12.5, "12.5"),
            (86400.0, "86400"),
            (1_700_000_000.25, "1700000000.25"),
            (1.5e21, "1.5e+21"),
            (-2.5e-7, "-2.5e-07"),
            (1e-100, "1e-100"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(Float(value).to_string(), text);
        }
    }

    #[test]
    fn byte_exact() {
        let mut counter = LabelledCounter::default();
        let mut text = Text::default();
        text.labelled("unused_total", "Never seen.", ["a"], &counter);
        counter.inc(["x"]);
        text.labelled("used_total", "Two\nlines \\ \"quoted\".", ["a"], &counter);
        text.gauge("g", "A gauge.", Float(0.5));
        text.family("two", Kind::Gauge, "Two labels.");
        text.sample("two", &[("a", "q\"b\\n\n"), ("b", "ü")], 2);
        assert_eq!(
            text.finish(),
            "# HELP used_total Two\\nlines \\\\ \"quoted\".\n# TYPE used_total counter\nused_total{a=\"x\"} 1\n\
             # HELP g A gauge.\n# TYPE g gauge\ng 0.5\n\
             # HELP two Two labels.\n# TYPE two gauge\ntwo{a=\"q\\\"b\\\\n\\n\",b=\"ü\"} 2\n"
        );
    }

    #[test]
    fn a_histogram_is_byte_exact() {
        let mut histogram = Histogram::new(DIAL);
        histogram.observe(Duration::from_micros(20));
        histogram.observe(Duration::from_secs(13));
        let mut text = Text::default();
        text.histogram("d_seconds", "Dials.", &histogram);
        let page = text.finish();
        assert_eq!(
            page,
            "# HELP d_seconds Dials.\n# TYPE d_seconds histogram\nd_seconds_bucket{le=\"1e-06\"} 0\n\
             d_seconds_bucket{le=\"1e-05\"} 0\nd_seconds_bucket{le=\"0.0001\"} 1\nd_seconds_bucket{le=\"0.005\"} 1\n\
             d_seconds_bucket{le=\"0.025\"} 1\nd_seconds_bucket{le=\"0.1\"} 1\nd_seconds_bucket{le=\"0.5\"} 1\n\
             d_seconds_bucket{le=\"2.5\"} 1\nd_seconds_bucket{le=\"12.5\"} 1\nd_seconds_bucket{le=\"+Inf\"} 2\n\
             d_seconds_sum 13.00002\nd_seconds_count 2\n"
        );
        check(&page).unwrap();
    }

    #[test]
    fn what_is_escaped_reads_back() {
        let mut text = Text::default();
        text.family("m", Kind::Gauge, "x");
        let value = "a\"b\\c\nd\\n{}, =";
        text.sample("m", &[("l", value)], 1);
        let page: Page = check(&text.finish()).unwrap();
        assert_eq!(page.value("m", &[("l", value)]), Some(1.0));
    }
}
