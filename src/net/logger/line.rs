//! The text of one log line.

use std::fmt::{self, Display, Write};
use std::time::Duration;

use log::{Level, Record};

/// Longest line in bytes with its newline: PIPE_BUF, up to which a write to a pipe is one piece.
const LINE_LEN_MAX: usize = 4096;
/// Ends a line that was too long.
const CUT_MARK: &str = " cut=true";
/// Where text stops, so that an open quote, the mark and the newline still fit.
const TEXT_LEN_MAX: usize = LINE_LEN_MAX - CUT_MARK.len() - 2;
/// Records of this crate come as logfmt; those of others as plain text.
const OWN_TARGET: &str = env!("CARGO_CRATE_NAME");

/// Formats `value` for logfmt: as it is if that is plain, else in quotes with escapes. A peer's text cannot
/// end the value, forge a key or a line, or drive a terminal.
#[must_use]
pub const fn quote(value: &str) -> Quoted<'_> {
    Quoted(value)
}

/// See [`quote`].
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain =
            |char: char| !char.is_whitespace() && !matches!(char, '"' | '\\' | '=') && !is_hidden(char);
        if !self.0.is_empty() && self.0.chars().all(plain) {
            return f.write_str(self.0);
        }
        f.write_char('"')?;
        for char in self.0.chars() {
            match char {
                '"' | '\\' => write!(f, "\\{char}")?,
                _ => write_visible(f, char)?,
            }
        }
        f.write_char('"')
    }
}

/// Controls, line ends of Unicode, and marks that reorder the text around them.
fn is_hidden(char: char) -> bool {
    char.is_control() || matches!(char, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn write_visible(out: &mut impl Write, char: char) -> fmt::Result {
    match char {
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        _ if is_hidden(char) => write!(out, "\\u{:04x}", u32::from(char)),
        _ => out.write_char(char),
    }
}

/// The line of a record, newline included, [`LINE_LEN_MAX`] bytes at most.
///
/// Text of this crate that starts with `msg=` is logfmt already and only loses its control characters. All
/// else becomes one quoted `msg`. The target stands on debug and trace lines and on those of other crates.
pub(super) fn render(at: Duration, record: &Record<'_>) -> String {
    let mut line = Line { text: String::with_capacity(160), quoted: false, escaped: false, cut: false };
    let level = match record.level() {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    };
    let mut text = Bounded { text: String::new(), full: false };
    let cut = text.write_fmt(*record.args()).is_err();
    let text = text.text;
    let target = record.target();
    let own = target.split("::").next() == Some(OWN_TARGET);
    // Writing to a line fails when it is full, and then it knows.
    let _ = write!(line, "ts={} level={level}", Timestamp(at));
    if !own || record.level() > Level::Info {
        let _ = write!(line, " target={}", quote(target));
    }
    let _ = if own && text.starts_with("msg=") {
        line.write_char(' ').and_then(|()| line.write_str(&text))
    } else {
        write!(line, " msg={}", quote(&text))
    };
    line.finish(cut)
}

/// The line that says how many others are missing.
pub(super) fn dropped_note(at: Duration, count: u64) -> String {
    format!("ts={} level=warn msg=\"log lines were dropped\" count={count}\n", Timestamp(at))
}

/// A record's text, up to a line's length: a huge value is not worth its memory.
struct Bounded {
    text: String,
    full: bool,
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LINE_LEN_MAX - self.text.len();
        self.full |= text.len() > room;
        if !self.full {
            self.text.push_str(text);
            return Ok(());
        }
        let end = (0..=room.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        self.text.push_str(text.get(..end).unwrap_or_default());
        Err(fmt::Error)
    }
}

/// Makes every character visible, and stops at [`TEXT_LEN_MAX`] without leaving a quote open.
struct Line {
    text: String,
    /// Inside quotes.
    quoted: bool,
    /// After a backslash inside quotes.
    escaped: bool,
    cut: bool,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|char| self.push(char))
    }
}

impl Line {
    fn push(&mut self, char: char) -> fmt::Result {
        let before = self.text.len();
        if self.cut {
            return Err(fmt::Error);
        }
        write_visible(&mut self.text, char)?;
        if self.text.len() > TEXT_LEN_MAX {
            self.text.truncate(before);
            self.cut = true;
            return Err(fmt::Error);
        }
        if self.escaped {
            self.escaped = false;
        } else if char == '"' {
            self.quoted = !self.quoted;
        } else {
            self.escaped = self.quoted && char == '\\';
        }
        Ok(())
    }

    fn finish(mut self, source_cut: bool) -> String {
        if self.cut || source_cut {
            if self.escaped {
                self.text.pop(); // half an escape
            }
            if self.quoted {
                self.text.push('"');
            }
            self.text.push_str(CUT_MARK);
        }
        self.text.push('\n');
        self.text
    }
}

/// RFC 3339 in UTC with milliseconds.
struct Timestamp(Duration);

impl Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (year, month, day) = date(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let milliseconds = self.0.subsec_millis();
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
    }
}

/// Year, month and day of a day since 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    // The Gregorian calendar repeats every 400 years, which have 146 097 days.
    let mut year = 1970 + days / 146_097 * 400;
    let mut day = days % 146_097;
    while day >= year_len(year) {
        day -= year_len(year);
        year += 1;
    }
    let mut month = 1;
    while day >= month_len(year, month) {
        day -= month_len(year, month);
        month += 1;
    }
    (year, month, day + 1)
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const fn year_len(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

const fn month_len(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(level: Level, args: fmt::Arguments<'_>) -> String {
        let at = Duration::from_millis(1_796_108_400_123);
        render(at, &Record::builder().args(args).level(level).target("tautline::core").build())
    }

    #[test]
    fn logfmt_of_ours_stays_as_it_is() {
        let expected = "ts=2026-12-01T07:00:00.123Z level=info msg=\"link up\" agent=a1\n";
        assert_eq!(own(Level::Info, format_args!("msg=\"link up\" agent=a1")), expected);
        let debug = own(Level::Debug, format_args!("msg=x"));
        assert!(debug.ends_with(" level=debug target=tautline::core msg=x\n"), "{debug}");
    }

    #[test]
    fn text_of_others_becomes_one_value() {
        let args = format_args!("msg=forged level=error \"x\"");
        let record = Record::builder().args(args).level(Level::Warn).target("tautlineish::a").build();
        let line = render(Duration::ZERO, &record);
        let expected = "ts=1970-01-01T00:00:00.000Z level=warn target=tautlineish::a \
                        msg=\"msg=forged level=error \\\"x\\\"\"\n";
        assert_eq!(line, expected);
        let line = own(Level::Info, format_args!("no key"));
        assert!(line.ends_with(" level=info msg=\"no key\"\n"), "{line}");
    }

    #[test]
    fn a_record_is_one_line_even_if_somebody_forgot_to_quote() {
        let evil = "x\nts=1 level=error msg=\"forged\"\r\u{1b}[2J\u{85}\u{2028}\u{202e}";
        let line = own(Level::Info, format_args!("msg=dial host={evil}"));
        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.ends_with("\\r\\u001b[2J\\u0085\\u2028\\u202e\n"), "{line}");
        assert!(!line.trim_end_matches('\n').chars().any(is_hidden));
    }

    #[test]
    fn values_are_quoted_when_they_must_be() {
        for plain in ["a1", "10.0.0.1:443", "[::1]:443", "/var/run/x.sock", "über"] {
            assert_eq!(quote(plain).to_string(), plain);
        }
        assert_eq!(quote("").to_string(), "\"\"");
        assert_eq!(quote("a b").to_string(), "\"a b\"");
        assert_eq!(quote("a=b").to_string(), "\"a=b\"");
        assert_eq!(quote("a\" x=\"\\\n\0").to_string(), r#""a\" x=\"\\\n\u0000""#);
    }

    #[test]
    fn a_long_line_is_cut_at_a_character_with_its_quote_closed() {
        // Each length moves the cut: through a character, an escape, the closing quote.
        for len in TEXT_LEN_MAX - 80..LINE_LEN_MAX + 10 {
            for filler in ["x", "ü", "\"", "\n"] {
                let value = filler.repeat(len / filler.len());
                let line = own(Level::Info, format_args!("msg=\"m\" v={} after=1", quote(&value)));
                assert!(line.len() <= LINE_LEN_MAX && line.ends_with('\n'), "{}", line.len());
                assert_eq!(line.matches('\n').count(), 1);
                if line.ends_with(" after=1\n") {
                    assert!(!line.contains("cut=true"));
                    continue;
                }
                assert!(line.ends_with(" cut=true\n"), "{len}");
                let quotes = line.replace("\\\\", "").replace("\\\"", "").matches('"').count();
                assert!(quotes.is_multiple_of(2), "{len} {filler:?}");
            }
        }
        let endless = "y".repeat(1 << 20);
        let line = own(Level::Info, format_args!("{endless}"));
        assert!(line.len() <= LINE_LEN_MAX && line.ends_with("yyy cut=true\n"));
    }

    #[test]
    fn dates_follow_the_calendar() {
        let text = |seconds| Timestamp(Duration::from_secs(seconds)).to_string();
        assert_eq!(text(951_782_399), "2000-02-28T23:59:59.000Z");
        assert_eq!(text(951_782_400), "2000-02-29T00:00:00.000Z");
        assert_eq!(text(1_709_251_199), "2024-02-29T23:59:59.000Z");
        assert_eq!(text(4_107_542_400), "2100-03-01T00:00:00.000Z");
        assert_eq!(text(1_767_225_599), "2025-12-31T23:59:59.000Z");
        assert_eq!(text(13_574_606_400), "2400-02-29T12:00:00.000Z");
    }
}
