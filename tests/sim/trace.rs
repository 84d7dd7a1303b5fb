//! Everything that happens, in order, as one hash; as text when `TAUTLINE_SIM_TRACE=1`.
//!
//! Only numbers enter, never payload: TLS randomness changes bytes, not lengths.

use std::time::Duration;

use crate::rng::mix;

pub(crate) struct Trace {
    hash: u64,
    events: u64,
    printing: bool,
}

impl Trace {
    pub(crate) fn new() -> Self {
        let printing = std::env::var_os("TAUTLINE_SIM_TRACE").is_some_and(|value| value != "0");
        Self { hash: 0, events: 0, printing }
    }

    /// One event: what happened, and its numbers (who, which, how much).
    pub(crate) fn note(&mut self, now: Duration, what: &'static str, numbers: [u64; 3]) {
        self.events += 1;
        let mut hash = self.hash ^ u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        for chunk in what.as_bytes().chunks(8) {
            let word = chunk.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte));
            hash = mix(hash ^ word);
        }
        for number in numbers {
            hash = mix(hash.wrapping_add(number));
        }
        self.hash = hash;
        if self.printing {
            let [who, which, amount] = numbers;
            eprintln!("{:>14.6} ms  {what:<18} {who} {which} {amount}", now.as_secs_f64() * 1e3);
        }
    }

    /// A line for people only.
    pub(crate) fn say(&self, now: Duration, text: impl FnOnce() -> String) {
        if self.printing {
            eprintln!("{:>14.6} ms  == {}", now.as_secs_f64() * 1e3, text());
        }
    }

    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) const fn events(&self) -> u64 {
        self.events
    }
}
