//! Cron timetables: five-field cron expressions in a time zone. Pure; time zone data is compiled in.
//!
//! Daylight saving changes follow `croner` (after Vixie cron): a time that does not exist fires once, at the
//! first moment after the gap; a time that exists twice fires once, the first time. Interval fields (`*`,
//! `*/5` in minute or hour) follow real time instead: they skip times that do not exist and fire in both
//! occurrences of a repeated hour.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use croner::{
    Cron, Direction,
    parser::{CronParser, Seconds, Year},
};
use docket_schema::ids::Timestamp;

/// The fields, in order.
const FIELDS: [&str; 5] = ["minute", "hour", "day of the month", "month", "day of the week"];

/// Longest cron line, in bytes.
const CRON_BYTES_MAX: usize = 256;

/// An invalid timetable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct TimetableError {
    /// `cron` or `tz`.
    pub field: &'static str,
    /// The problem, for people.
    pub detail: String,
}

/// A parsed cron expression with its time zone; see the module.
#[derive(Debug, Clone)]
pub struct CronTimetable {
    cron: Cron,
    zone: Tz,
}

impl CronTimetable {
    /// Parses both arguments.
    ///
    /// # Errors
    /// Names the invalid argument and, for `cron`, the invalid field.
    pub fn new(cron: &str, tz: &str) -> Result<Self, TimetableError> {
        let wrong = |field, detail| Err(TimetableError { field, detail });
        let Ok(zone) = tz.parse::<Tz>() else {
            let detail = format!("`{tz}` is not a time zone; use a name such as Europe/Berlin, or UTC");
            return wrong("tz", detail);
        };
        if cron.len() > CRON_BYTES_MAX {
            return wrong("cron", format!("a cron expression has at most {CRON_BYTES_MAX} bytes"));
        }
        if !cron.trim_start().starts_with('@') {
            check_fields(cron)?;
        }
        match parse_cron(cron) {
            Ok(cron) => Ok(Self { cron, zone }),
            Err(error) => wrong("cron", format!("`{cron}` is not a cron expression: {error}")),
        }
    }

    /// Returns the first firing after `after`, if any.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        self.find_occurrence(after, false, Direction::Forward)
    }

    /// Returns the last firing at or before `until`, if any.
    pub fn last_until(&self, until: Timestamp) -> Option<Timestamp> {
        self.find_occurrence(until, true, Direction::Backward)
    }

    fn find_occurrence(&self, from: Timestamp, inclusive: bool, direction: Direction) -> Option<Timestamp> {
        let from = DateTime::<Utc>::from_timestamp_micros(from.0)?.with_timezone(&self.zone);
        let found = match direction {
            Direction::Forward => self.cron.find_next_occurrence(&from, inclusive),
            Direction::Backward => self.cron.find_previous_occurrence(&from, inclusive),
        };
        found.ok().map(|found| Timestamp(found.timestamp_micros()))
    }
}

fn parse_cron(cron: &str) -> Result<Cron, croner::errors::CronError> {
    CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build().parse(cron)
}

/// Checks each field separately, so that the error names the invalid one.
fn check_fields(cron: &str) -> Result<(), TimetableError> {
    let wrong = |detail| Err(TimetableError { field: "cron", detail });
    let fields: Vec<&str> = cron.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let detail = format!(
            "`{cron}` has {} fields; a cron expression has five: minute, hour, day of the month, month, day \
             of the week",
            fields.len()
        );
        return wrong(detail);
    }
    for (n, (field, name)) in fields.iter().zip(FIELDS).enumerate() {
        let mut alone = ["*"; FIELDS.len()];
        alone[n] = *field;
        if let Err(error) = parse_cron(&alone.join(" ")) {
            return wrong(format!("the {name} `{field}` is invalid: {error}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instant(text: &str) -> Timestamp {
        text.parse().expect("an instant")
    }

    /// Lists every firing within (`from`, `to`].
    fn firings(cron: &str, tz: &str, from: &str, to: &str) -> Vec<String> {
        let table = CronTimetable::new(cron, tz).expect("reads");
        let (mut all, mut after) = (Vec::new(), instant(from));
        while let Some(next) = table.next_after(after).filter(|next| *next <= instant(to)) {
            all.push(next.to_string()[..16].to_owned());
            // Searching backwards finds the same firing from any time before the next one.
            assert_eq!(table.last_until(next), Some(next), "{cron}");
            if let Some(beyond) = table.next_after(next) {
                assert_eq!(table.last_until(Timestamp(beyond.0 - 1)), Some(next), "{cron} before {beyond}");
            }
            after = next;
        }
        all
    }

    #[test]
    fn skipped_or_repeated_local_time_fires_once() {
        // Berlin, 2026: 02:00 becomes 03:00 on March 29th, 03:00 becomes 02:00 on October 25th.
        let spring = firings("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", "2026-03-30T12:00:00Z");
        assert_eq!(spring, ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]);
        let autumn = firings("30 2 * * *", "Europe/Berlin", "2026-10-24T00:00:00Z", "2026-10-26T12:00:00Z");
        assert_eq!(autumn, ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"]);
        // New York changes on other dates than Berlin; Lord Howe changes by half an hour.
        let york = firings("15 2 * * *", "America/New_York", "2026-03-08T00:00:00Z", "2026-03-09T12:00:00Z");
        assert_eq!(york, ["2026-03-08T07:00", "2026-03-09T06:15"]);
        let howe =
            firings("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", "2026-04-05T23:00:00Z");
        assert_eq!(howe, ["2026-04-04T14:45", "2026-04-05T15:15"]);
    }

    #[test]
    fn intervals_follow_real_time() {
        let spring = firings("0 * * * *", "Europe/Berlin", "2026-03-28T23:30:00Z", "2026-03-29T03:30:00Z");
        assert_eq!(spring, ["2026-03-29T00:00", "2026-03-29T01:00", "2026-03-29T02:00", "2026-03-29T03:00"]);
        let autumn = firings("*/30 * * * *", "Europe/Berlin", "2026-10-24T23:45:00Z", "2026-10-25T02:00:00Z");
        assert_eq!(autumn.len(), 5, "{autumn:?}");
    }

    #[test]
    fn weekdays_nicknames_and_impossible_dates() {
        let week = firings("0 3 * * 1-5", "Europe/Berlin", "2026-11-20T00:00:00Z", "2026-11-24T12:00:00Z");
        assert_eq!(week, ["2026-11-20T02:00", "2026-11-23T02:00", "2026-11-24T02:00"]);
        assert_eq!(
            firings("@daily", "UTC", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ["2026-01-02T00:00"]
        );
        assert_eq!(
            CronTimetable::new("0 0 30 2 *", "UTC")
                .expect("reads")
                .next_after(instant("2026-01-01T00:00:00Z")),
            None
        );
    }

    #[test]
    fn errors_name_the_wrong_field() {
        for (cron, tz, field, words) in [
            ("0 25 * * *", "UTC", "cron", "the hour `25`"),
            ("61 * * * *", "UTC", "cron", "the minute `61`"),
            ("0 0 32 * *", "UTC", "cron", "the day of the month `32`"),
            ("0 0 * 13 *", "UTC", "cron", "the month `13`"),
            ("0 0 * * 8", "UTC", "cron", "the day of the week `8`"),
            ("0 0 * *", "UTC", "cron", "has 4 fields"),
            ("0 0 0 * * *", "UTC", "cron", "has 6 fields"),
            ("", "UTC", "cron", "has 0 fields"),
            ("@sometimes", "UTC", "cron", "`@sometimes` is not a cron expression"),
            ("0 0 * * *", "Mars/Olympus", "tz", "`Mars/Olympus` is not a time zone"),
        ] {
            let error = CronTimetable::new(cron, tz).expect_err(cron);
            assert!(error.field == field && error.detail.contains(words), "{cron}: {error:?}");
        }
    }
}
