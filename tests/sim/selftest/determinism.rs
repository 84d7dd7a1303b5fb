//! The same seed gives the same trace, another one another.

use std::collections::BTreeSet;

use super::chaos;

#[test]
fn a_seed_is_a_run() {
    let mut hashes = BTreeSet::new();
    for seed in 0..6 {
        let first = chaos::run(seed);
        let second = chaos::run(seed);
        assert_eq!((first.hash, first.events), (second.hash, second.events), "seed {seed}");
        assert!(first.events > 100, "something happened");
        hashes.insert(first.hash);
    }
    assert_eq!(hashes.len(), 6);
}
