//! Identities of core. Connections are named by [`crate::key::Key`].

use std::fmt;

/// Names one stream of one link: where it stands in the link's table, and its wire id, which is never reused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct StreamKey {
    /// The slot in the link's table.
    pub(crate) slot: u32,
    /// The id on the wire: a late key finds a slot with another id, so it finds nobody.
    pub id: u64,
}

/// Names one look-up or connect that a role asked for. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
