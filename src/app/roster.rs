//! Connections of one kind in the order of their arrival, to know the oldest one.

use std::collections::VecDeque;

use crate::key::Key;

/// Keys of connections that may be gone meanwhile: whoever asks says which are still meant.
#[derive(Debug, Default)]
pub(super) struct Roster {
    keys: VecDeque<Key>,
    /// Beyond this many keys those that are gone are swept out.
    sweep_at: usize,
}

impl Roster {
    /// Adds the youngest. `lives` tells whether a key is still one of the kind.
    pub(super) fn push(&mut self, key: Key, lives: impl Fn(Key) -> bool) {
        if self.keys.len() >= self.sweep_at {
            self.keys.retain(|&key| lives(key));
            self.sweep_at = 2 * self.keys.len() + 64;
        }
        self.keys.push_back(key);
    }

    /// How many live.
    pub(super) fn count(&mut self, lives: impl Fn(Key) -> bool) -> usize {
        self.keys.iter().filter(|&&key| lives(key)).count()
    }

    /// Takes the oldest that lives.
    pub(super) fn pop_oldest(&mut self, lives: impl Fn(Key) -> bool) -> Option<Key> {
        while let Some(key) = self.keys.pop_front() {
            if lives(key) {
                return Some(key);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_oldest_that_lives_comes_first_and_the_gone_take_no_room() {
        let key = |number: u64| Key::from_bits(1 << 32 | number);
        let mut roster = Roster::default();
        let mut living = HashSet::new();
        for number in 0..10_000 {
            living.insert(key(number));
            roster.push(key(number), |key| living.contains(&key));
            if number % 1000 != 0 {
                living.remove(&key(number));
            }
        }
        assert!(roster.keys.len() < 200, "{}", roster.keys.len());
        assert_eq!(roster.count(|key| living.contains(&key)), 10);
        assert_eq!(roster.pop_oldest(|key| living.contains(&key)), Some(key(0)));
        assert_eq!(roster.pop_oldest(|key| living.contains(&key)), Some(key(1000)));
        living.clear();
        assert_eq!(roster.pop_oldest(|key| living.contains(&key)), None);
    }
}
