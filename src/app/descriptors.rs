//! How the process shares its descriptors out: tunnels get most, strangers and probes a bounded part.

use crate::limits::{DESCRIPTOR_RESERVE_MAX, DESCRIPTOR_RESERVE_MIN, PROBES_MAX, UNAUTHENTICATED_LINKS_MAX};

/// Bounds in connections, from the limit of open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorShares {
    /// Tunnels, those being dialled included.
    pub tunnels: usize,
    /// Links that have not said HELLO yet.
    pub greetings: usize,
    /// Clients of the health port, and as many of the admin port.
    pub probes: usize,
    /// Connections of any kind: beyond it those that are closing, and whose peer reads slowly, are cut.
    pub connections: usize,
}

impl DescriptorShares {
    /// Shares `limit` descriptors (RLIMIT_NOFILE) out. The reserve behind tunnels serves listeners, links, strangers,
    /// probes, and the files and pipes of the process itself.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let reserve = (limit / 8).clamp(DESCRIPTOR_RESERVE_MIN, DESCRIPTOR_RESERVE_MAX).min(limit / 2);
        Self {
            tunnels: limit - reserve,
            greetings: (reserve / 2).clamp(1, UNAUTHENTICATED_LINKS_MAX),
            probes: (reserve / 16).clamp(1, PROBES_MAX),
            connections: limit - reserve / 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_limit_everybody_has_a_share_and_all_fit() {
        for limit in (16..5000).chain([20_000, 65_536, 1 << 20, u64::MAX]) {
            let shares = DescriptorShares::new(limit);
            let DescriptorShares { tunnels, greetings, probes, connections } = shares;
            assert!(tunnels > 0 && greetings > 0 && probes > 0);
            assert!(tunnels + greetings + 2 * probes <= connections, "{limit}: {shares:?}");
            assert!((connections as u64) < limit, "{limit}: {shares:?}");
        }
        let usual = DescriptorShares::new(20_000);
        assert_eq!((usual.tunnels, usual.greetings, usual.probes), (17_952, 1024, 32));
        assert_eq!(DescriptorShares::new(64).tunnels, 32);
    }
}
