//! Priorities: their range, and how a number is read as one.

use std::fmt;

use serde::{
    Deserializer,
    de::{self, Unexpected, Visitor},
};

/// Priorities lie within ± this.
pub const PRIORITY_MAX: i16 = 1000;

/// Reads a priority. A number that is none is told with the range of priorities, and not with that of the type; whether a
/// priority is in that range is [`check_priority`](super::check_priority)'s to say, because a log may hold another.
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
