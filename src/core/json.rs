//! The one thing of JSON that is easy to get wrong: a text (RFC 8259 section 7).

use std::fmt::{self, Write as _};

/// Shows a text as a JSON string, quotes included.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a>(pub &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(Text("a\"b\\c\nd\u{7f}é").to_string(), "\"a\\\"b\\\\c\\u000ad\\u007fé\"");
    }
}
