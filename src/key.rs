//! Keys that survive reuse: a slot index and a generation.
//!
//! A key names one occupant of a slot, not the slot. A late event, frame, timer or resolver answer that
//! carries the key of a dead occupant finds nothing: it can never reach the next one.

use std::fmt;

/// Names one occupant of a [`Slots`] table. `Key::default()` names nobody.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Key {
    index: u32,
    /// 0 is never handed out.
    generation: u32,
}

impl Key {
    /// The key as one number, for the kernel's event data.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        ((self.generation as u64) << 32) | self.index as u64
    }

    /// The inverse of [`Key::to_bits`]. Any number is a valid key; most name nobody.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self { index: (bits & 0xffff_ffff) as u32, generation: (bits >> 32) as u32 }
    }

    /// The slot, for tables beside the owning one ([`KeyMap`]).
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// A table that hands out [`Key`]s: O(1) insert, look-up and removal; slots are reused, keys are not.
#[derive(Debug)]
pub struct Slots<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), len: 0 }
    }
}

impl<T> Slots<T> {
    /// Puts `value` in a free slot. The caller bounds the number of occupants.
    pub fn insert(&mut self, value: T) -> Key {
        self.len += 1;
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.1 = Some(value);
            return Key { index, generation: slot.0 };
        }
        let index = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.slots.push((1, Some(value)));
        Key { index, generation: 1 }
    }

    /// Takes the occupant out. Its key names nobody from now on.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index())?;
        if slot.0 != key.generation {
            return None;
        }
        let value = slot.1.take()?;
        self.len -= 1;
        // A slot whose generations are used up is retired instead of starting again at a known one.
        slot.0 = slot.0.wrapping_add(1);
        if slot.0 != 0 {
            self.free.push(key.index);
        }
        Some(value)
    }

    /// The occupant, if `key` still names one.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&T> {
        self.slots.get(key.index()).filter(|slot| slot.0 == key.generation)?.1.as_ref()
    }

    /// The occupant, if `key` still names one.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.slots.get_mut(key.index()).filter(|slot| slot.0 == key.generation)?.1.as_mut()
    }

    /// Number of occupants.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if there is no occupant.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All occupants in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, (generation, value))| {
            let key = Key { index: index as u32, generation: *generation };
            value.as_ref().map(|value| (key, value))
        })
    }
}

/// A table beside [`Slots`]: what another layer knows about the occupants. O(1), indexed, not hashed.
#[derive(Debug)]
pub struct KeyMap<T> {
    slots: Vec<Option<(u32, T)>>,
    len: usize,
}

impl<T> Default for KeyMap<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), len: 0 }
    }
}

impl<T> KeyMap<T> {
    /// Stores `value` for `key`, in place of whatever an earlier occupant of the slot left.
    pub fn insert(&mut self, key: Key, value: T) {
        if self.slots.len() <= key.index() {
            self.slots.resize_with(key.index() + 1, || None);
        }
        if self.slots[key.index()].replace((key.generation, value)).is_none() {
            self.len += 1;
        }
    }

    /// Takes the value of `key` out.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index())?;
        if slot.as_ref()?.0 != key.generation {
            return None;
        }
        self.len -= 1;
        slot.take().map(|(_, value)| value)
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&T> {
        let (generation, value) = self.slots.get(key.index())?.as_ref()?;
        (*generation == key.generation).then_some(value)
    }

    /// The value of `key`.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let (generation, value) = self.slots.get_mut(key.index())?.as_mut()?;
        (*generation == key.generation).then_some(value)
    }

    /// Number of values.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if there is no value.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All values in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            slot.as_ref()
                .map(|(generation, value)| (Key { index: index as u32, generation: *generation }, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_key_names_nobody_after_its_slot_is_reused() {
        let mut slots = Slots::default();
        let first = slots.insert("first");
        assert_eq!(slots.remove(first), Some("first"));
        let second = slots.insert("second");
        assert_eq!(first.index(), second.index());
        assert_ne!(first, second);
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get(second), Some(&"second"));
        assert_eq!(Key::from_bits(second.to_bits()), second);
        assert_eq!(slots.get(Key::default()), None);
    }

    #[test]
    fn a_side_table_follows_the_generation() {
        let mut slots = Slots::default();
        let mut side = KeyMap::default();
        let first = slots.insert(());
        side.insert(first, 1);
        slots.remove(first);
        let second = slots.insert(());
        assert_eq!(side.get(second), None);
        side.insert(second, 2);
        assert_eq!(side.get(first), None);
        assert_eq!((side.len(), side.remove(first), side.remove(second)), (1, None, Some(2)));
        assert!(side.is_empty());
    }
}
