//! Equal values get one number.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasher, BuildHasherDefault, Hash};

/// SipHash with a fixed key: the default, since most keys hold what a target chose.
pub(crate) type KeyedHash = BuildHasherDefault<DefaultHasher>;

/// Numbers distinct values from 0 on, in the order of their first sight.
///
/// A value is stored twice, so `K` should be small or shared.
#[derive(Clone, Debug)]
pub(crate) struct Interner<K, S = KeyedHash> {
    values: Vec<K>,
    numbers: HashMap<K, u32, S>,
}

impl<K: Clone + Eq + Hash, S: BuildHasher + Default> Interner<K, S> {
    /// The number of `value` if it has one. Allocates nothing.
    pub(crate) fn find<Q>(&self, value: &Q) -> Option<u32>
    where
        K: std::borrow::Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.numbers.get(value).copied()
    }

    /// The number of `value`, a new one on first sight; nothing when `max` values are held and
    /// this is another.
    pub(crate) fn intern(&mut self, value: K, max: u32) -> Option<u32> {
        if let Some(number) = self.find(&value) {
            return Some(number);
        }
        let number = u32::try_from(self.values.len()).ok().filter(|&n| n < max)?;
        self.values.push(value.clone());
        self.numbers.insert(value, number);
        Some(number)
    }

    /// The value of a number that [`Interner::intern`] gave.
    pub(crate) fn get(&self, number: u32) -> &K {
        &self.values[number as usize]
    }

    /// All values, by number.
    pub(crate) fn values(&self) -> &[K] {
        &self.values
    }
}

impl<K, S: Default> Default for Interner<K, S> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            numbers: HashMap::default(),
        }
    }
}
