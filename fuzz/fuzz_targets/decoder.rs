//! Any bytes, in any split, mean the same; what decodes to a control frame can be sent and decodes to itself.
//!
//! The input is wire bytes and nothing else, so vectors and captures are seeds as they are. Where it is cut
//! follows from a hash of it: each mutation is also another split.

#![no_main]

#[path = "../../wire/tests/common/mod.rs"]
mod common;

use common::{Event, GREETING, OPEN, WIDE, run, split};
use libfuzzer_sys::fuzz_target;
use tautline_wire::{Decoder, Limits, encode_control};

fuzz_target!(|bytes: &[u8]| {
    for limits in [GREETING, OPEN, WIDE] {
        for decoder in [Decoder::new, Decoder::after_magic] {
            check(bytes, limits, decoder);
        }
    }
});

fn check(bytes: &[u8], limits: Limits, decoder: fn(Limits) -> Decoder) {
    let whole = run(decoder(limits), [bytes]);
    let seed = hash(bytes);
    for seed in [seed, seed.rotate_left(32)] {
        assert_eq!(whole, run(decoder(limits), split(bytes, seed)));
    }
    let mut payload_len = 0;
    for event in whole.events {
        match event {
            Event::Control(control) => {
                let mut sent = Vec::new();
                encode_control(&control, &mut sent);
                let again = run(Decoder::new(limits), [&sent[..]]);
                assert_eq!(again.error, None);
                assert_eq!(again.events, [Event::Control(control)]);
            }
            Event::Data { bytes, .. } => payload_len += bytes.len(),
        }
    }
    assert!(payload_len <= bytes.len(), "bytes from nowhere");
}

/// FNV-1a, 64 bits.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
