//! The crate is representation only. A wasm build would prove it; this reads what it depends on instead.
#![expect(clippy::panic, reason = "helpers of tests say which file it was")]

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names in one section of a manifest.
fn section(manifest: &str, name: &str) -> Vec<String> {
    let inside = manifest.lines().skip_while(|line| line.trim() != format!("[{name}]")).skip(1);
    let entries = inside.take_while(|line| !line.starts_with('[')).filter(|line| !line.trim().is_empty());
    entries.map(|line| line.split(['.', '=', ' ']).next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn it_depends_on_nothing_but_a_test_library() {
    let manifest = read("Cargo.toml");
    let headings: Vec<&str> = manifest.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(
        headings,
        ["[package]", "[dev-dependencies]", "[lints]"],
        "no dependencies, build script or features"
    );
    assert_eq!(section(&manifest, "dev-dependencies"), ["proptest"]);

    let lock = read("../Cargo.lock");
    let own = lock.split("[[package]]").find(|entry| entry.contains("\nname = \"tautline-wire\"\n"));
    let own = own.expect("the crate is in the lock file");
    let (_, list) = own.split_once("dependencies = [").expect("proptest is there");
    let names: Vec<&str> = list.split(['"', ',', '\n', ']', ' ']).filter(|name| !name.is_empty()).collect();
    assert_eq!(names, ["proptest"]);
}

#[test]
fn it_reaches_for_no_socket_file_clock_or_thread() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = 0;
    for entry in fs::read_dir(sources).expect("src is there") {
        let path = entry.expect("readable").path();
        let text = fs::read_to_string(&path).expect("readable");
        for word in [
            "std::io",
            "std::net",
            "std::fs",
            "std::os",
            "std::env",
            "std::process",
            "std::thread",
            "std::time",
        ] {
            assert!(!text.contains(word), "{} uses {word}", path.display());
        }
        files += 1;
    }
    assert!(files >= 5, "the sources were found");
    assert!(read("src/lib.rs").contains("#![forbid(unsafe_code)]"));
}
