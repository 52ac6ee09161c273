//! Edit distance from one text to many, 64 table cells at a time (Myers 1999, in Hyyrö's form for texts
//! of any length).

use std::collections::HashMap;

/// A text prepared for comparison with others, in an alphabet of its own characters.
#[derive(Debug)]
pub(crate) struct PreparedText {
    char_count: usize,
    /// Number of 64-bit words that the text takes.
    word_count: usize,
    alphabet: HashMap<char, u32>,
    /// For each character of the alphabet, `word_count` words with a bit for each position of the
    /// character. Character 0 represents any other character and has no positions.
    position_bits: Vec<u64>,
}

impl PreparedText {
    pub(crate) fn new(text: &[char]) -> Self {
        let words = text.len().div_ceil(64).max(1);
        let mut alphabet = HashMap::new();
        let mut places = vec![0; words];
        for (at, c) in text.iter().enumerate() {
            let next = u32::try_from(alphabet.len() + 1).unwrap_or(0);
            let letter = *alphabet.entry(*c).or_insert(next);
            if letter == next {
                places.resize(places.len() + words, 0);
            }
            places[letter as usize * words + at / 64] |= 1 << (at % 64);
        }
        Self { char_count: text.len(), word_count: words, alphabet, position_bits: places }
    }

    /// Encodes a text in this text's alphabet, for [`Self::distance`].
    pub(crate) fn encode_text(&self, text: &str) -> Vec<u32> {
        text.chars().map(|c| self.alphabet.get(&c).copied().unwrap_or(0)).collect()
    }

    /// Cost of a comparison with a text of `length` characters: the number of words it processes.
    pub(crate) const fn comparison_cost(&self, length: usize) -> usize {
        self.word_count.saturating_mul(length)
    }

    /// Returns the distance to `other` if it is at most `limit`.
    pub(crate) fn distance(&self, other: &[u32], limit: usize) -> Option<usize> {
        if self.char_count.abs_diff(other.len()) > limit {
            return None;
        }
        if self.char_count == 0 {
            return Some(other.len());
        }
        let mut up = vec![!0u64; self.word_count];
        let mut down = vec![0u64; self.word_count];
        let last = 1u64 << ((self.char_count - 1) % 64);
        let mut distance = self.char_count;
        for (at, letter) in other.iter().enumerate() {
            let places = &self.position_bits[*letter as usize * self.word_count..][..self.word_count];
            let (mut rises, mut falls) = (1u64, 0u64);
            let (mut end_rises, mut end_falls) = (0, 0);
            for ((up, down), place) in up.iter_mut().zip(&mut down).zip(places) {
                let vertical = place | *down;
                let equal = place | falls;
                let diagonal = (((equal & *up).wrapping_add(*up)) ^ *up) | equal;
                let higher = *down | !(diagonal | *up);
                let lower = *up & diagonal;
                (end_rises, end_falls) = (higher & last, lower & last);
                let (carried_up, carried_down) = (higher >> 63, lower >> 63);
                let (higher, lower) = ((higher << 1) | rises, (lower << 1) | falls);
                *up = lower | !(vertical | higher);
                *down = higher & vertical;
                (rises, falls) = (carried_up, carried_down);
            }
            // The last word holds the end of the text.
            distance = distance + usize::from(end_rises != 0) - usize::from(end_falls != 0);
            if distance > limit + (other.len() - at - 1) {
                return None;
            }
        }
        (distance <= limit).then_some(distance)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn distance_matches_reference_implementation(a in "[abc]{0,150}", b in "[abcd]{0,150}", limit in 0usize..160) {
            let text: Vec<char> = a.chars().collect();
            let compared = PreparedText::new(&text);
            let truth = strsim::levenshtein(&a, &b);
            prop_assert_eq!(compared.distance(&compared.encode_text(&b), limit), (truth <= limit).then_some(truth));
        }
    }

    #[test]
    fn distance_is_right_at_word_boundaries() {
        for length in [1, 63, 64, 65, 127, 128, 129] {
            let a = "ab".repeat(length)[..length].to_owned();
            let b = format!("x{}", &a[1..]);
            let compared = PreparedText::new(&a.chars().collect::<Vec<_>>());
            assert_eq!(compared.distance(&compared.encode_text(&a), 0), Some(0));
            assert_eq!(compared.distance(&compared.encode_text(&b), 3), Some(1), "{length}");
        }
    }
}
