//! Numbers for sockets: 20 bits of slot and 12 bits of generation, so that a closed [`Sock`] names nobody.

use std::collections::VecDeque;
use std::io;

use crate::net::sys::Sock;

const INDEX_BITS: u32 = 20;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
const GENERATION_MASK: u32 = u32::MAX >> INDEX_BITS;
/// Sockets at one time.
const SLOTS_MAX: usize = 1 << INDEX_BITS;
/// Free slots that wait before the oldest is used again: with 12 bits of generation a number comes back after
/// a million closes at the earliest.
const REUSE_DELAY: usize = 256;

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// The table of a kernel's sockets.
pub(super) struct Table<T> {
    slots: Vec<Slot<T>>,
    /// Oldest first.
    free: VecDeque<u32>,
}

impl<T> Table<T> {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), free: VecDeque::new() }
    }

    /// Stores a socket.
    ///
    /// # Errors
    /// EMFILE when a million are open.
    pub(super) fn insert(&mut self, value: T) -> io::Result<Sock> {
        if self.free.len() > REUSE_DELAY || self.slots.len() >= SLOTS_MAX {
            let index = self.free.pop_front().ok_or_else(too_many)?;
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return Ok(Sock(slot.generation << INDEX_BITS | index));
        }
        let index = self.slots.len() as u32;
        self.slots.push(Slot { generation: 0, value: Some(value) });
        Ok(Sock(index))
    }

    /// Fails as [`Table::insert`] would.
    ///
    /// # Errors
    /// EMFILE when a million are open.
    pub(super) fn check_room(&self) -> io::Result<()> {
        if self.free.is_empty() && self.slots.len() >= SLOTS_MAX { Err(too_many()) } else { Ok(()) }
    }

    /// The socket of a number.
    ///
    /// # Errors
    /// EBADF when the number names none.
    pub(super) fn get(&self, sock: Sock) -> io::Result<&T> {
        let slot = self.slots.get((sock.0 & INDEX_MASK) as usize);
        slot.filter(|slot| slot.generation == sock.0 >> INDEX_BITS)
            .and_then(|slot| slot.value.as_ref())
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    /// Takes a socket out; its number is dead from now on.
    pub(super) fn remove(&mut self, sock: Sock) -> Option<T> {
        let index = sock.0 & INDEX_MASK;
        let slot = self.slots.get_mut(index as usize)?;
        if slot.generation != sock.0 >> INDEX_BITS {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        self.free.push_back(index);
        Some(value)
    }
}

fn too_many() -> io::Error {
    io::Error::from_raw_os_error(libc::EMFILE)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_number_does_not_come_back_for_a_million_closes() {
        let mut table = Table::new();
        let mut seen = HashSet::new();
        for round in 0..1_000_000 {
            let sock = table.insert(round).unwrap();
            assert!(seen.insert(sock), "reused after {round}");
            assert_eq!(table.remove(sock), Some(round));
            assert_eq!(table.remove(sock), None);
        }
        assert!(table.slots.len() <= REUSE_DELAY + 1);
    }

    #[test]
    fn the_table_is_bounded_and_then_uses_every_slot() {
        let mut table = Table::new();
        let socks: Vec<_> = (0..SLOTS_MAX).map(|value| table.insert(value).unwrap()).collect();
        assert_eq!(table.insert(0).unwrap_err().raw_os_error(), Some(libc::EMFILE));
        assert!(table.check_room().is_err());
        table.remove(socks[5]).unwrap();
        table.check_room().unwrap();
        let again = table.insert(1).unwrap();
        assert_ne!(again, socks[5]);
        assert_eq!(table.get(socks[5]).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(table.get(again).unwrap(), &1);
        assert_eq!(table.get(socks[SLOTS_MAX - 1]).unwrap(), &(SLOTS_MAX - 1));
    }
}
