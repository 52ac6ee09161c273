//! Priorities: their range and parsing.

use std::fmt;

use serde::{
    Deserializer,
    de::{self, Unexpected, Visitor},
};

/// Priorities are within ± this value.
pub const PRIORITY_MAX: i16 = 1000;

/// Deserializes a priority. An invalid number is reported with the range of priorities instead of that of the
/// type. Whether a priority is within the range is checked by [`check_priority`](super::check_priority),
/// because a log may contain others.
pub(crate) fn read_priority<'de, D: Deserializer<'de>>(from: D) -> Result<i16, D::Error> {
    struct Priority;

    impl Visitor<'_> for Priority {
        type Value = i16;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a number within -{PRIORITY_MAX} and {PRIORITY_MAX}")
        }

        fn visit_i64<E: de::Error>(self, n: i64) -> Result<i16, E> {
            n.try_into().map_err(|_| E::invalid_value(Unexpected::Signed(n), &self))
        }

        fn visit_u64<E: de::Error>(self, n: u64) -> Result<i16, E> {
            n.try_into().map_err(|_| E::invalid_value(Unexpected::Unsigned(n), &self))
        }
    }

    from.deserialize_i16(Priority)
}
