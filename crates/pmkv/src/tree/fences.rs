//! Keys that part ranges, in order, among which one is looked for.

/// Keys in order, each greater than the one before.
///
/// The bytes that all have in common are compared once, and the eight bytes behind these as a
/// number; only where these are the same, the rest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fences {
    /// How many bytes all have in common.
    common: usize,
    /// The eight bytes behind these, as a number.
    heads: Vec<u64>,
    /// Where each ends in `bytes`.
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

/// The first eight bytes as a number; a shorter key is as if zeros followed.
#[inline]
pub(super) fn head_of(bytes: &[u8]) -> u64 {
    if let Some(head) = bytes.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; 8];
    let len = bytes.len();
    head[..len].copy_from_slice(bytes);
    u64::from_be_bytes(head)
}

/// How many bytes two keys have in common.
pub(crate) fn common_bytes(one: &[u8], two: &[u8]) -> usize {
    one.iter().zip(two).take_while(|(a, b)| a == b).count()
}

impl Fences {
    /// Fences at keys that are in order.
    pub fn of<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Fences {
        let mut fences = Fences::default();
        for key in keys {
            fences.bytes.extend_from_slice(key);
            fences.ends.push(fences.bytes.len());
        }
        if let Some(last) = fences.len().checked_sub(1) {
            // All have in common as much as the first and the last.
            fences.common = common_bytes(fences.get(0), fences.get(last));
        }
        let heads = (0..fences.len()).map(|nth| head_of(&fences.get(nth)[fences.common..]));
        fences.heads = heads.collect();
        fences
    }

    /// The same with one more, which becomes number `nth`.
    pub fn with(&self, nth: usize, key: &[u8]) -> Fences {
        let common = match self.len() {
            0 => None,
            _ => self.get(0).get(..self.common),
        };
        let Some(rest) = common.and_then(|common| key.strip_prefix(common)) else {
            let (before, behind) = (self.iter().take(nth), self.iter().skip(nth));
            return Fences::of(before.chain([key]).chain(behind));
        };
        let start = nth.checked_sub(1).map_or(0, |before| self.ends[before]);
        let mut fences = self.clone();
        fences.bytes.splice(start..start, key.iter().copied());
        fences.ends.insert(nth, start);
        for end in &mut fences.ends[nth..] {
            *end += key.len();
        }
        fences.heads.insert(nth, head_of(rest));
        fences
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn get(&self, nth: usize) -> &[u8] {
        let start = nth.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[nth]]
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|nth| self.get(nth))
    }

    /// How many are less than a key, or the same.
    #[inline]
    pub fn up_to(&self, key: &[u8]) -> usize {
        self.search(key, |fence| fence <= key)
    }

    /// How many are less than a key.
    pub fn below(&self, key: &[u8]) -> usize {
        self.search(key, |fence| fence < key)
    }

    #[inline]
    fn search(&self, key: &[u8], is_before: impl Fn(&[u8]) -> bool) -> usize {
        let Some(first) = self.ends.first() else {
            return 0;
        };
        let common = &self.bytes[..*first][..self.common];
        let Some(rest) = key.strip_prefix(common) else {
            return if key < common { 0 } else { self.len() };
        };
        let head = head_of(rest);
        let mut at = self.heads.partition_point(|&other| other < head);
        if self.heads.get(at) == Some(&head) {
            let same = self.heads[at..].partition_point(|&other| other == head);
            let (mut low, mut high) = (at, at + same);
            while low < high {
                let middle = low + (high - low) / 2;
                if is_before(self.get(middle)) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            at = low;
        }
        at
    }
}

/// The shortest key that is greater than `below` and not greater than `key`, which is greater.
pub(crate) fn separator<'k>(below: &[u8], key: &'k [u8]) -> &'k [u8] {
    let common = common_bytes(below, key);
    &key[..(common + 1).min(key.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a search answers as a look at all. Method: keys of few different bytes, with and
    /// without common parts, zeros at their ends among them.
    #[test]
    fn searches_answer_as_a_look_at_all() {
        let mut state = 1u64;
        let mut chance = |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % bound
        };
        for round in 0..300 {
            let common = vec![b'a'; (round % 20) as usize];
            let mut key = |common: &[u8]| {
                let mut key = common.to_vec();
                for _ in 0..chance(12) {
                    key.push([0, 1, b'a', 255][chance(4) as usize]);
                }
                key
            };
            let mut keys: Vec<Vec<u8>> = (0..round % 50).map(|_| key(&common)).collect();
            keys.sort();
            keys.dedup();
            let fences = Fences::of(keys.iter().map(|key| &key[..]));
            assert!(fences.iter().eq(keys.iter().map(|key| &key[..])));
            let mut grown = Fences::default();
            for (nth, key) in keys.iter().enumerate().filter(|(nth, _)| nth % 2 == 0) {
                grown = grown.with(nth / 2, key);
            }
            for (nth, key) in keys.iter().enumerate().filter(|(nth, _)| nth % 2 == 1) {
                grown = grown.with(nth, key);
            }
            assert!(grown.iter().eq(keys.iter().map(|key| &key[..])));
            let mut wanted: Vec<Vec<u8>> = (0..50).map(|_| key(&common)).collect();
            wanted.extend((0..50).map(|_| key(&[])));
            wanted.extend(keys.iter().cloned());
            for key in wanted {
                let up_to = keys.iter().filter(|&other| *other <= key).count();
                let below = keys.iter().filter(|&other| *other < key).count();
                for fences in [&fences, &grown] {
                    assert_eq!((fences.up_to(&key), fences.below(&key)), (up_to, below));
                }
            }
        }
    }

    #[test]
    fn separators_part_their_keys() {
        for (below, key) in [
            ("", "a"),
            ("a", "ab"),
            ("ab", "b"),
            ("abc", "abd"),
            ("a", "a\0"),
        ] {
            let (below, key) = (below.as_bytes(), key.as_bytes());
            let found = separator(below, key);
            assert!(
                below < found && found <= key,
                "{below:?} {key:?}: {found:?}"
            );
        }
        assert_eq!(separator(b"house", b"mouse"), b"m");
    }
}
