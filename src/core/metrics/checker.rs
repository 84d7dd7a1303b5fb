//! A small strict reader of the text format, for the tests.

use std::collections::{BTreeMap, BTreeSet};

type Series = (String, BTreeMap<String, String>);

/// All samples of a page that was found valid.
#[derive(Debug, Default)]
pub(super) struct Page {
    samples: BTreeMap<Series, f64>,
    /// Family to type.
    pub(super) types: BTreeMap<String, String>,
}

impl Page {
    pub(super) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
        self.samples.get(&(name.to_owned(), labels)).copied()
    }

    pub(super) fn names(&self) -> BTreeSet<&str> {
        self.samples.keys().map(|(name, _)| name.as_str()).collect()
    }
}

/// Reads a page; says what is wrong with it.
pub(super) fn check(text: &str) -> Result<Page, String> {
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("the last line does not end".to_owned());
    }
    let mut page = Page::default();
    let mut helped = BTreeSet::new();
    let mut family = String::new();
    for line in text.lines() {
        let wrong = |what: &str| Err(format!("{what}: {line}"));
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let Some((name, help)) = rest.split_once(' ') else { return wrong("no help") };
            if !is_name(name) || help.is_empty() || !helped.insert(name.to_owned()) {
                return wrong("bad or second HELP");
            }
            family = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let Some((name, kind)) = rest.split_once(' ') else { return wrong("no type") };
            if name != family || !["counter", "gauge", "histogram"].contains(&kind) {
                return wrong("TYPE without its HELP, or unknown");
            }
            if page.types.insert(name.to_owned(), kind.to_owned()).is_some() {
                return wrong("second TYPE");
            }
        } else {
            let (series, value) = sample(line).ok_or_else(|| format!("not a sample: {line}"))?;
            let kind = page.types.get(&family).map_or("", String::as_str);
            let suffix = series.0.strip_prefix(family.as_str());
            let fits = match kind {
                "histogram" => matches!(suffix, Some("_bucket" | "_sum" | "_count")),
                "counter" => suffix == Some("") && value >= 0.0,
                "gauge" => suffix == Some(""),
                _ => false,
            };
            if !fits {
                return wrong("sample outside its family, or a negative counter");
            }
            if page.samples.insert(series, value).is_some() {
                return wrong("duplicate series");
            }
        }
    }
    empty_families(&page)?;
    histograms(&page)?;
    Ok(page)
}

fn empty_families(page: &Page) -> Result<(), String> {
    let names = page.names();
    for family in page.types.keys() {
        if !names.iter().any(|name| name.starts_with(family.as_str())) {
            return Err(format!("{family} has no sample"));
        }
    }
    Ok(())
}

/// Histograms here have no labels but `le`.
fn histograms(page: &Page) -> Result<(), String> {
    for family in page.types.iter().filter(|(_, kind)| *kind == "histogram").map(|(name, _)| name) {
        let bucket_name = format!("{family}_bucket");
        let mut buckets = Vec::new();
        for ((name, labels), count) in &page.samples {
            if *name == bucket_name {
                let bound = labels.get("le").and_then(|le| number(le));
                buckets.push((bound.ok_or_else(|| format!("{family}: bad le"))?, *count));
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        if !buckets.is_sorted_by(|a, b| a.1 <= b.1) {
            return Err(format!("{family}: counts go down"));
        }
        let last = buckets.last().filter(|(bound, _)| *bound == f64::INFINITY).map(|(_, count)| *count);
        if last.is_none() || last != page.value(&format!("{family}_count"), &[]) {
            return Err(format!("{family}: +Inf is not the count"));
        }
        if page.value(&format!("{family}_sum"), &[]).is_none() {
            return Err(format!("{family}: no sum"));
        }
    }
    Ok(())
}

fn sample(line: &str) -> Option<(Series, f64)> {
    let name_len = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(name_len);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    let value = number(rest.strip_prefix(' ')?)?;
    is_name(name).then(|| ((name.to_owned(), labels), value))
}

/// Reads `a="b",c="d"}` and gives what follows.
fn labels(mut rest: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        let (label, after) = rest.split_once("=\"")?;
        if !is_name(label) || label.contains(':') {
            return None;
        }
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at + 1,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    escaped @ ('\\' | '"') => escaped,
                    _ => return None,
                }),
                (_, other) => value.push(other),
            }
        };
        if labels.insert(label.to_owned(), value).is_some() {
            return None;
        }
        rest = &after[end..];
        if let Some(done) = rest.strip_prefix('}') {
            return Some((labels, done));
        }
        rest = rest.strip_prefix(',')?;
    }
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        _ if text.contains(|char: char| !matches!(char, '0'..='9' | '.' | 'e' | '+' | '-')) => None,
        _ => text.parse().ok(),
    }
}

fn is_name(name: &str) -> bool {
    let first = |char: char| char.is_ascii_alphabetic() || matches!(char, '_' | ':');
    name.starts_with(first) && name.chars().all(|char| first(char) || char.is_ascii_digit())
}

#[test]
fn the_checker_finds_faults() {
    let good = "# HELP a x\n# TYPE a counter\na{b=\"c\"} 1\n";
    assert_eq!(check(good).unwrap().value("a", &[("b", "c")]), Some(1.0));
    let histogram = |one: u32, all: u32, count: u32| {
        format!(
            "# HELP h x\n# TYPE h histogram\nh_bucket{{le=\"1\"}} {one}\nh_bucket{{le=\"+Inf\"}} {all}\nh_sum 1\n\
             h_count {count}\n"
        )
    };
    assert!(check(&histogram(1, 2, 2)).is_ok());
    let (down, other_count) = (histogram(3, 2, 2), histogram(1, 2, 3));
    for bad in [
        "a 1\n",
        "# TYPE a counter\na 1\n",
        "# HELP a x\na 1\n",
        "# HELP a x\n# TYPE a counter\n",
        "# HELP a x\n# TYPE a counter\na 1",
        "# HELP a x\n# TYPE a counter\na -1\n",
        "# HELP a x\n# TYPE a counter\na x\n",
        "# HELP a x\n# TYPE a counter\na{b=\"c\"} 1\na{b=\"c\"} 2\n",
        "# HELP a x\n# TYPE a counter\na{b=\"c\",} 1\n",
        "# HELP a x\n# TYPE a counter\na{b=c} 1\n",
        "# HELP a x\n# TYPE a counter\nb 1\n",
        "# HELP a x\n# TYPE a what\na 1\n",
        "# HELP 1a x\n# TYPE 1a counter\n1a 1\n",
        "# HELP a x\n# TYPE a counter\na 1\n# HELP a x\n# TYPE a counter\na{b=\"c\"} 1\n",
        down.as_str(),
        other_count.as_str(),
    ] {
        assert!(check(bad).is_err(), "{bad}");
    }
}
