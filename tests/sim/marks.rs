//! "Sometimes" marks: situations that a sweep must have met, or it proves less than it seems to.

use std::collections::BTreeMap;

/// What the simulated kernel itself can meet. The self-test sweep must hit each of them.
pub(crate) const KERNEL_MARKS: &[&str] = &[
    "accept aborted",
    "accept out of descriptors",
    "backlog full",
    "edge late",
    "edge merged",
    "edge spurious",
    "edge split",
    "hint withheld",
    "job cancelled",
    "job refused",
    "keepalive gave up",
    "new bytes without an edge",
    "packet dropped",
    "path forgot a flow",
    "process frozen",
    "reset by unread data",
    "reset in the accept queue",
    "retransmission",
    "retransmission gave up",
    "short read",
    "short write",
    "write refused with room",
    "zero window",
];

#[derive(Clone, Default, Debug)]
pub(crate) struct Marks(BTreeMap<&'static str, u64>);

impl Marks {
    pub(crate) fn hit(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            *self.0.entry(name).or_default() += count;
        }
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Those of `wanted` that were never hit.
    pub(crate) fn missing<'a>(&self, wanted: &[&'a str]) -> Vec<&'a str> {
        wanted.iter().copied().filter(|name| self.count(name) == 0).collect()
    }
}
