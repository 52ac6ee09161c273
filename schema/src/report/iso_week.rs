//! Week identifiers for reports: ISO 8601, starting Monday 00:00 UTC, such as `2026-W47`.

use chrono::{DateTime, Datelike as _, NaiveDate, Weekday};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::ids::{ParseIdError, Timestamp, deserialize_from_text, serialize_as_text};

const WEEK_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// An ISO week within the years 1 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IsoWeek {
    year: i32,
    week: u32,
}

impl IsoWeek {
    /// Returns the week of a time; the first supported week if the time is out of range.
    pub fn from_timestamp(at: Timestamp) -> Self {
        let first = Self { year: 1, week: 1 };
        let week = DateTime::from_timestamp_micros(at.0).map(|at| at.iso_week());
        week.map(|week| Self { year: week.year(), week: week.week() }).filter(Self::is_legal).unwrap_or(first)
    }

    fn is_legal(&self) -> bool {
        (1..=9999).contains(&self.year) && self.monday().is_some()
    }

    fn monday(&self) -> Option<NaiveDate> {
        NaiveDate::from_isoywd_opt(self.year, self.week, Weekday::Mon)
    }

    /// Returns the start of the week.
    pub fn begins_at(&self) -> Timestamp {
        let midnight = self.monday().and_then(|day| day.and_hms_opt(0, 0, 0));
        Timestamp(midnight.map_or(0, |at| at.and_utc().timestamp_micros()))
    }

    /// Returns the start of the next week.
    pub fn ends_at(&self) -> Timestamp {
        self.begins_at().plus_ms(WEEK_MS)
    }

    /// Returns the week `weeks` before this one.
    #[must_use]
    pub fn weeks_before(&self, weeks: u32) -> Self {
        let back =
            i64::try_from(WEEK_MS).unwrap_or(i64::MAX).saturating_mul(1000).saturating_mul(weeks.into());
        Self::from_timestamp(Timestamp(self.begins_at().0.saturating_sub(back)))
    }
}

impl std::fmt::Display for IsoWeek {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-W{:02}", self.year, self.week)
    }
}

impl std::str::FromStr for IsoWeek {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let wrong =
            || ParseIdError { expected: "ISO week (2026-W47)", text: text.chars().take(80).collect() };
        let (year, week) = text.split_once("-W").ok_or_else(wrong)?;
        let digits = |text: &str, len| text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(year, 4) || !digits(week, 2) {
            return Err(wrong());
        }
        let week =
            Self { year: year.parse().map_err(|_| wrong())?, week: week.parse().map_err(|_| wrong())? };
        if week.is_legal() { Ok(week) } else { Err(wrong()) }
    }
}

serialize_as_text!(IsoWeek);
deserialize_from_text!(IsoWeek);

impl JsonSchema for IsoWeek {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "IsoWeek".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "description": "An ISO week, as `2026-W47`." })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("an instant")
    }

    #[test]
    fn week_starts_on_monday_and_belongs_to_the_year_of_its_thursday() {
        for (instant, week) in [
            ("2026-11-23T00:00:00Z", "2026-W48"),
            ("2026-11-22T23:59:59.999999Z", "2026-W47"),
            ("2027-01-03T12:00:00Z", "2026-W53"),
            ("2027-01-04T00:00:00Z", "2027-W01"),
            ("2024-12-30T00:00:00Z", "2025-W01"),
        ] {
            assert_eq!(IsoWeek::from_timestamp(at(instant)).to_string(), week, "{instant}");
        }
        let week: IsoWeek = "2026-W48".parse().expect("legal");
        assert_eq!(week.begins_at(), at("2026-11-23T00:00:00Z"));
        assert_eq!(week.ends_at(), at("2026-11-30T00:00:00Z"));
        assert_eq!(week.weeks_before(48).to_string(), "2025-W52");
    }

    #[test]
    fn invalid_week_is_rejected() {
        for wrong in ["2026-W54", "2025-W53", "2026-W00", "2026W47", "26-W47", "2026-W7", "2026-W+7", ""] {
            wrong.parse::<IsoWeek>().expect_err(wrong);
        }
    }
}
