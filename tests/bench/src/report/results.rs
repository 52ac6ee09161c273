//! What was measured: values by name, reasons for what is missing, as a table or as one flat object.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Map, Value, json};

use crate::report::{
    Group, Samples,
    figures::{FIGURES, Figure, Target},
};

/// Why a figure is missing, where nothing else was said.
const NOT_REACHED: &str = "its group did not get that far";

/// Values and reasons.
#[derive(Debug, Default)]
pub(crate) struct Report {
    values: BTreeMap<&'static str, f64>,
    reasons: BTreeMap<&'static str, String>,
    /// Figures that a measured group owes and that are missing or cannot be true.
    owed: Vec<&'static str>,
    failed: bool,
}

impl Report {
    /// Sets a figure. A value that is no number counts as missing.
    pub(crate) fn set(&mut self, name: &'static str, value: f64) {
        debug_assert!(FIGURES.iter().any(|figure| figure.name == name), "{name} is no figure");
        if value.is_finite() {
            self.values.insert(name, value);
        } else {
            self.reasons.insert(name, "too few samples".to_owned());
        }
    }

    /// Sets a figure to a percentile of samples.
    pub(crate) fn set_percentile(&mut self, name: &'static str, samples: &Samples, percent: u32) {
        self.set(name, samples.percentile(percent).unwrap_or(f64::NAN));
    }

    /// Says why one figure is missing.
    pub(crate) fn lacks(&mut self, name: &'static str, reason: impl Into<String>) {
        self.reasons.insert(name, reason.into());
    }

    /// Says why the figures of a group that have no value are missing.
    pub(crate) fn lacks_rest_of(&mut self, group: Group, reason: &str) {
        for figure in FIGURES.iter().filter(|figure| figure.group == group) {
            if !self.values.contains_key(figure.name) {
                self.reasons.entry(figure.name).or_insert_with(|| reason.to_owned());
            }
        }
    }

    /// A group broke off: its missing figures have this reason, and the command fails.
    pub(crate) fn broke(&mut self, group: Group, reason: &str) {
        self.failed = true;
        self.lacks_rest_of(group, reason);
    }

    /// Looks whether a group that was measured gave all of its figures; one line for each that it did not, and the
    /// command fails.
    pub(crate) fn check(&mut self, group: Group) -> Vec<String> {
        let mut faults = Vec::new();
        for figure in FIGURES.iter().filter(|figure| figure.group == group) {
            let name = figure.name;
            let fault = match self.values.get(name) {
                None => format!("figure {name} was not measured: {}", self.reason(name)),
                Some(value) if !figure.least.allows(*value) => {
                    format!("figure {name} is {value}, which no measurement gives")
                }
                Some(_) => continue,
            };
            faults.push(fault);
            self.owed.push(name);
        }
        self.failed |= !faults.is_empty();
        faults
    }

    /// Whether a group broke off, or owes a figure.
    pub(crate) const fn failed(&self) -> bool {
        self.failed
    }

    fn reason(&self, name: &str) -> &str {
        self.reasons.get(name).map_or(NOT_REACHED, String::as_str)
    }

    /// The figures that miss their target.
    pub(crate) fn missed(&self) -> Vec<&'static str> {
        let missed = FIGURES.iter().filter(|figure| {
            self.values.get(figure.name).is_some_and(|value| figure.target.is_met(*value) == Some(false))
        });
        missed.map(|figure| figure.name).collect()
    }

    /// One flat object: each figure by its name; where it is null, `NAME_reason` says why.
    pub(crate) fn json(&self, about: Map<String, Value>) -> Value {
        let mut all = about;
        for Figure { name, .. } in FIGURES {
            match self.values.get(name) {
                Some(value) => {
                    all.insert(name.to_owned(), json!(rounded(*value)));
                }
                None => {
                    all.insert(name.to_owned(), Value::Null);
                    all.insert(format!("{name}_reason"), json!(self.reason(name)));
                }
            }
        }
        all.insert("targets_missed".to_owned(), json!(self.missed()));
        all.insert("figures_owed".to_owned(), json!(self.owed));
        Value::Object(all)
    }

    /// A table for people, without what nobody asked for.
    pub(crate) fn table(&self) -> String {
        let width = FIGURES.iter().map(|figure| figure.name.len()).max().unwrap_or_default();
        let mut out =
            format!("{:width$}  {:>12}  {:>11}  {:7}  what\n", "figure", "value", "target", "verdict");
        for Figure { name, target, what, .. } in FIGURES {
            if !self.values.contains_key(name) && self.reason(name) == LEFT_OUT {
                continue;
            }
            let bound = match target {
                Target::None => "–".to_owned(),
                Target::AtLeast(bound) => format!("≥ {}", shown(bound)),
                Target::AtMost(bound) => format!("≤ {}", shown(bound)),
            };
            let (value, verdict, what) = match self.values.get(name) {
                Some(value) => {
                    let verdict = match target.is_met(*value) {
                        None => "",
                        Some(true) => "met",
                        Some(false) => "MISSED",
                    };
                    (shown(*value), verdict, what.to_owned())
                }
                None => ("–".to_owned(), "", format!("{what} (not measured: {})", self.reason(name))),
            };
            let _ = writeln!(out, "{name:width$}  {value:>12}  {bound:>11}  {verdict:7}  {what}");
        }
        out
    }
}

/// Why a figure was not measured that nobody asked for.
pub(crate) const LEFT_OUT: &str = "left out by --only";

/// Three digits after the point are more than any of these is good for.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// A number as a person reads it: digits that matter, thousands apart.
fn shown(value: f64) -> String {
    if value.abs() < 100.0 {
        let text = format!("{value:.2}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_with_the_digits_that_matter() {
        let cases = [
            (0.5, "0.5"),
            (4.0, "4"),
            (12.345, "12.35"),
            (999.6, "1,000"),
            (1234567.0, "1,234,567"),
            (250.0, "250"),
        ];
        for (value, text) in cases {
            assert_eq!(shown(value), text);
        }
    }

    #[test]
    fn a_table_tells_what_could_not_be_measured_and_not_what_nobody_asked_for() {
        let mut report = Report::default();
        report.set("cold_start_ms", 120.0);
        report.lacks_rest_of(Group::Postgres, "no server");
        report.lacks_rest_of(Group::Fold, LEFT_OUT);
        let table = report.table();
        assert!(table.contains("cold_start_ms") && table.contains("(not measured: no server)"), "{table}");
        let of_fold = FIGURES.iter().filter(|figure| figure.group == Group::Fold);
        assert!(of_fold.clone().count() > 0);
        of_fold.for_each(|figure| assert!(!table.contains(&format!("\n{} ", figure.name)), "{table}"));
    }

    #[test]
    fn a_measured_group_owes_all_of_its_figures() {
        let mut report = Report::default();
        let of_edit = || FIGURES.iter().filter(|figure| figure.group == Group::Edit);
        for figure in of_edit() {
            report.set(figure.name, 1.0);
        }
        assert!(report.check(Group::Edit).is_empty() && !report.failed());
        assert!(of_edit().count() > 1, "each of them is left out in turn below");
        for left_out in of_edit() {
            for value in [None, Some(f64::NAN), Some(0.0), Some(-1.0)] {
                let mut report = Report::default();
                of_edit()
                    .filter(|figure| figure.name != left_out.name)
                    .for_each(|one| report.set(one.name, 1.0));
                value.into_iter().for_each(|value| report.set(left_out.name, value));
                let faults = report.check(Group::Edit);
                assert!(faults.len() == 1 && faults[0].contains(left_out.name), "{faults:?}");
                assert!(report.failed());
                assert_eq!(report.json(Map::new())["figures_owed"], json!([left_out.name]));
            }
        }
    }

    #[test]
    fn a_figure_that_may_be_nothing_is_not_owed_where_it_is() {
        let mut report = Report::default();
        report.set("submit_to_start_ms_p50", 0.0);
        let faults = report.check(Group::Latency);
        assert!(!faults.iter().any(|fault| fault.contains("submit_to_start_ms_p50 ")), "{faults:?}");
        assert!(faults.iter().any(|fault| fault.contains("submit_to_start_ms_p99 ")), "{faults:?}");
    }

    #[test]
    fn what_is_missing_is_null_with_a_reason_and_never_zero() {
        let mut report = Report::default();
        report.set("cold_start_ms", 120.0);
        report.set("run_30_turns_ms", f64::NAN);
        report.lacks_rest_of(Group::Postgres, "no server");
        let json = report.json(Map::new());
        assert_eq!(json["cold_start_ms"], json!(120.0));
        assert_eq!(json["targets_missed"], json!(["cold_start_ms"]));
        assert_eq!(json["run_30_turns_ms"], Value::Null);
        assert_eq!(json["run_30_turns_ms_reason"], json!("too few samples"));
        assert_eq!(json["append_ratio_postgres"], Value::Null);
        assert_eq!(json["append_ratio_postgres_reason"], json!("no server"));
        assert_eq!(json["fold_events_per_s_reason"], json!(NOT_REACHED));
        let values = json.as_object().expect("an object").values();
        assert!(values.into_iter().all(|value| !value.is_object()), "the object is flat");
        assert!(
            report.table().lines().any(|line| line.starts_with("cold_start_ms") && line.contains("MISSED"))
        );
    }
}
