//! The rules of the house that a compiler does not know: who may import whom, and how long things may be.

#![expect(clippy::unwrap_used, reason = "a test says by panicking what failed")]

use std::fs;
use std::path::Path;

/// Code lines of a file: no blank lines, no comments, no tests.
const FILE_LINES_MAX: usize = 600;
/// Lines of a function, from its `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// What a file under the prefix must not contain.
const FORBIDDEN: &[(&str, &[&str])] = &[
    (
        "src/core/",
        &[
            "crate::net",
            "crate::app",
            "crate::cli",
            "std::fs",
            "std::thread",
            "SystemTime",
            "TcpStream",
            "TcpListener",
            "UdpSocket",
            "std::os::unix",
            "log::",
            "mio::",
            "socket2::",
            "rustls::",
        ],
    ),
    ("src/net/", &["crate::core", "crate::app", "crate::cli"]),
    ("src/cli/", &["crate::core", "crate::net"]),
    ("src/key.rs", &["crate::"]),
    ("src/limits.rs", &["crate::"]),
    ("wire/src/", &["std::net", "std::io", "std::time", "std::fs", "std::thread"]),
    ("src/", &["todo!(", "unimplemented!(", "dbg!("]),
    ("wire/src/", &["todo!(", "unimplemented!(", "dbg!("]),
];

fn is_test(path: &str) -> bool {
    path.ends_with("tests.rs")
        || path.contains("/tests/")
        || path.ends_with("testing.rs")
        || path.ends_with("checker.rs")
}

/// The part of a file that ships.
fn shipped(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let end = lines
        .windows(2)
        .position(|pair| {
            pair[0].starts_with("#[cfg(test)]") && pair[1].starts_with("mod ") && pair[1].ends_with('{')
        })
        .unwrap_or(lines.len());
    lines[..end].to_vec()
}

fn is_code(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with("//")
}

fn check(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    if is_test(path) {
        return found;
    }
    let lines = shipped(text);
    let code = lines.iter().filter(|line| is_code(line)).count();
    if code > FILE_LINES_MAX {
        found.push(format!("{path}: {code} code lines, {FILE_LINES_MAX} at most: is it one idea?"));
    }
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| is_code(line)) {
        for (prefix, words) in FORBIDDEN {
            for word in words.iter().filter(|word| path.starts_with(prefix) && line.contains(**word)) {
                found.push(format!("{path}:{}: {word} is not for this room", number + 1));
            }
        }
        if line.contains("unsafe {") && path != "src/net/ffi.rs" {
            found.push(format!("{path}:{}: unsafe has one place, net::ffi", number + 1));
        }
    }
    found.extend(long_functions(path, &lines));
    found
}

/// rustfmt puts the closing brace of a function at the indent of its `fn`.
fn long_functions(path: &str, lines: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let head = line.trim_start();
        let is_fn = ["fn ", "pub fn ", "pub(super) fn ", "pub(crate) fn ", "pub const fn ", "const fn "]
            .iter()
            .any(|word| head.starts_with(word));
        if !is_fn {
            continue;
        }
        // A declaration in a trait ends with a semicolon instead.
        let rest = &lines[start..];
        let end = rest.iter().position(|line| {
            let this = line.len() - line.trim_start().len();
            this == indent && (line.trim_start() == "}" || line.ends_with(';') || line.ends_with('}'))
        });
        if end.is_some_and(|end| end + 1 > FUNCTION_LINES_MAX) {
            found.push(format!("{path}:{}: a function of {} lines", start + 1, end.unwrap() + 1));
        }
    }
    found
}

fn sources(dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path.display().to_string());
        }
    }
}

#[test]
fn the_sources_keep_the_rules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    sources(&root.join("wire/src"), &mut files);
    assert!(files.len() > 40, "the sources were found");
    let mut violations = Vec::new();
    for file in files {
        let name = Path::new(&file).strip_prefix(root).unwrap().display().to_string();
        violations.extend(check(&name, &fs::read_to_string(&file).unwrap()));
    }
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

#[test]
fn each_rule_can_fail() {
    for (path, text, word) in [
        ("src/core/x.rs", "use crate::net::sys::Sys;\n", "crate::net"),
        ("src/core/x.rs", "    log::info!(\"x\");\n", "log::"),
        ("src/net/x.rs", "use crate::core::mux::Link;\n", "crate::core"),
        ("src/cli/x.rs", "use crate::net::sys;\n", "crate::net"),
        ("src/key.rs", "use crate::limits;\n", "crate::"),
        ("wire/src/x.rs", "use std::io::Read;\n", "std::io"),
        ("src/app/x.rs", "    dbg!(1);\n", "dbg!("),
        ("src/app/x.rs", "    unsafe { f() }\n", "unsafe"),
    ] {
        let found = check(path, text);
        assert!(found.iter().any(|line| line.contains(word)), "{path} {text:?}: {found:?}");
    }
    let long_file = "let x = 1;\n".repeat(FILE_LINES_MAX + 1);
    assert_eq!(check("src/app/x.rs", &long_file).len(), 1);
    let long_function = format!("fn f() {{\n{}}}\n", "    let x = 1;\n".repeat(FUNCTION_LINES_MAX));
    assert_eq!(check("src/app/x.rs", &long_function).len(), 1);
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "use crate::net;\n".repeat(700));
    assert!(check("src/core/x.rs", &tests).is_empty(), "tests are free");
    assert!(check("src/core/x.rs", "// use crate::net;\n").is_empty(), "comments are free");
}
