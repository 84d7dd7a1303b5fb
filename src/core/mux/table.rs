//! The streams of a link: a slab for the fast path, an index by wire id for frames.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Instant;

use slab::Slab;

use super::stream::Stream;
use crate::core::ids::StreamKey;

/// Hashes stream ids, which the server counts up: one multiplication spreads them.
#[derive(Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        let mixed = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// All streams of one link, and whose turn it is to send.
#[derive(Default)]
pub(super) struct Streams {
    slab: Slab<Stream>,
    by_id: HashMap<u64, u32, BuildHasherDefault<IdHasher>>,
    /// The stream that the last frame was for: pieces and bursts come in rows.
    last: Option<StreamKey>,
    /// Round robin of the streams that may send; each at most once.
    ring: VecDeque<StreamKey>,
    /// Streams whose window is to be granted; each at most once.
    grants: Vec<StreamKey>,
}

impl Streams {
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Adds a stream; `None` if its id is taken.
    pub(super) fn insert(&mut self, stream: Stream) -> Option<StreamKey> {
        let id = stream.id;
        let slot = u32::try_from(self.slab.vacant_key()).ok()?;
        match self.by_id.entry(id) {
            std::collections::hash_map::Entry::Occupied(_) => None,
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(slot);
                self.slab.insert(stream);
                Some(StreamKey { slot, id })
            }
        }
    }

    pub(super) fn get_mut(&mut self, key: StreamKey) -> Option<&mut Stream> {
        self.slab.get_mut(key.slot as usize).filter(|stream| stream.id == key.id)
    }

    pub(super) fn get(&self, key: StreamKey) -> Option<&Stream> {
        self.slab.get(key.slot as usize).filter(|stream| stream.id == key.id)
    }

    pub(super) fn remove(&mut self, key: StreamKey) -> Option<Stream> {
        self.get(key)?;
        self.by_id.remove(&key.id);
        let stream = self.slab.remove(key.slot as usize);
        if self.slab.is_empty() {
            self.give_back_memory();
        }
        Some(stream)
    }

    /// A link that was busy once must not keep the tables of its busiest hour.
    fn give_back_memory(&mut self) {
        const KEEP: usize = 64;
        if self.slab.capacity() > KEEP {
            self.slab = Slab::new();
            self.by_id = HashMap::default();
            self.ring = VecDeque::new();
            self.grants = Vec::new();
        }
    }

    /// The stream of a wire id.
    pub(super) fn find(&mut self, id: u64) -> Option<StreamKey> {
        if let Some(key) = self.last.filter(|key| key.id == id)
            && self.get(key).is_some()
        {
            return Some(key);
        }
        let slot = *self.by_id.get(&id)?;
        let key = StreamKey { slot, id };
        self.last = Some(key);
        Some(key)
    }

    /// Puts a stream in the ring if it may send.
    pub(super) fn schedule(&mut self, key: StreamKey) {
        if let Some(stream) = self.get_mut(key)
            && stream.may_send()
            && !std::mem::replace(&mut stream.scheduled, true)
        {
            self.ring.push_back(key);
        }
    }

    /// The next stream in turn that may send. The caller schedules it again if it has more.
    pub(super) fn next_scheduled(&mut self) -> Option<StreamKey> {
        while let Some(key) = self.ring.pop_front() {
            if let Some(stream) = self.get_mut(key) {
                stream.scheduled = false;
                if stream.may_send() {
                    return Some(key);
                }
            }
        }
        None
    }

    pub(super) fn anything_scheduled(&self) -> bool {
        !self.ring.is_empty()
    }

    /// Notes that credit is worth a frame.
    pub(super) fn list_grant(&mut self, now: Instant, key: StreamKey) {
        if let Some(stream) = self.get_mut(key)
            && stream.recv_window.grant_due(now)
            && !std::mem::replace(&mut stream.grant_listed, true)
        {
            self.grants.push(key);
        }
    }

    pub(super) fn next_grant(&mut self) -> Option<StreamKey> {
        while let Some(key) = self.grants.pop() {
            if let Some(stream) = self.get_mut(key) {
                stream.grant_listed = false;
                return Some(key);
            }
        }
        None
    }

    pub(super) fn any_grants(&self) -> bool {
        !self.grants.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (StreamKey, &Stream)> {
        self.slab.iter().map(|(slot, stream)| (StreamKey { slot: slot as u32, id: stream.id }, stream))
    }

    /// Takes all streams out: the link is gone.
    pub(super) fn drain(&mut self) -> Vec<(StreamKey, Stream)> {
        let Self { slab, .. } = std::mem::take(self);
        slab.into_iter()
            .map(|(slot, stream)| (StreamKey { slot: slot as u32, id: stream.id }, stream))
            .collect()
    }

    /// What must hold between calls.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn check_invariants(&self) {
        assert_eq!(self.slab.len(), self.by_id.len(), "every stream has its id in the index");
    }
}
