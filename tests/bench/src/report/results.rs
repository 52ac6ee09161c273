//! Results: values by name and reasons for missing ones, as a table or as one flat object.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Map, Value, json};

use crate::report::{
    FigureGroup, Samples,
    figures::{BenchFigure, FIGURES, FigureTarget},
};

/// Default reason for a missing figure.
const NOT_REACHED: &str = "its group ended before it was measured";

/// Values and reasons.
#[derive(Debug, Default)]
pub(crate) struct BenchReport {
    values: BTreeMap<&'static str, f64>,
    reasons: BTreeMap<&'static str, String>,
    /// Figures of a measured group that are missing or impossible.
    required: Vec<&'static str>,
    failed: bool,
}

impl BenchReport {
    /// Sets a figure. A value that is not a number counts as missing.
    pub(crate) fn set(&mut self, name: &'static str, value: f64) {
        debug_assert!(FIGURES.iter().any(|figure| figure.name == name), "{name} is not a figure");
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

    /// Sets the reason for one missing figure.
    pub(crate) fn set_missing(&mut self, name: &'static str, reason: impl Into<String>) {
        self.reasons.insert(name, reason.into());
    }

    /// Sets the reason for all figures of a group without a value.
    pub(crate) fn set_rest_missing(&mut self, group: FigureGroup, reason: &str) {
        for figure in FIGURES.iter().filter(|figure| figure.group == group) {
            if !self.values.contains_key(figure.name) {
                self.reasons.entry(figure.name).or_insert_with(|| reason.to_owned());
            }
        }
    }

    /// Records the failure of a group: it is the reason for its missing figures, and the command
    /// fails.
    pub(crate) fn fail_group(&mut self, group: FigureGroup, reason: &str) {
        self.failed = true;
        self.set_rest_missing(group, reason);
    }

    /// Checks that a measured group provided all of its figures; returns one line for each missing one, which
    /// makes the command fail.
    pub(crate) fn check_complete(&mut self, group: FigureGroup) -> Vec<String> {
        let mut faults = Vec::new();
        for figure in FIGURES.iter().filter(|figure| figure.group == group) {
            let name = figure.name;
            let fault = match self.values.get(name) {
                None => format!("figure {name} was not measured: {}", self.missing_reason(name)),
                Some(value) if !figure.lower_bound.allows(*value) => {
                    format!("figure {name} is {value}, which is impossible")
                }
                Some(_) => continue,
            };
            faults.push(fault);
            self.required.push(name);
        }
        self.failed |= !faults.is_empty();
        faults
    }

    /// Returns whether a group failed or a figure is missing.
    pub(crate) const fn has_failed(&self) -> bool {
        self.failed
    }

    fn missing_reason(&self, name: &str) -> &str {
        self.reasons.get(name).map_or(NOT_REACHED, String::as_str)
    }

    /// Returns the figures that miss their target.
    pub(crate) fn missed_targets(&self) -> Vec<&'static str> {
        let missed = FIGURES.iter().filter(|figure| {
            self.values.get(figure.name).is_some_and(|value| figure.target.is_met(*value) == Some(false))
        });
        missed.map(|figure| figure.name).collect()
    }

    /// Returns one flat object: each figure by its name; if it is null, `NAME_reason` says why.
    pub(crate) fn to_json(&self, about: Map<String, Value>) -> Value {
        let mut all = about;
        for BenchFigure { name, .. } in FIGURES {
            match self.values.get(name) {
                Some(value) => {
                    all.insert(name.to_owned(), json!(round_value(*value)));
                }
                None => {
                    all.insert(name.to_owned(), Value::Null);
                    all.insert(format!("{name}_reason"), json!(self.missing_reason(name)));
                }
            }
        }
        all.insert("targets_missed".to_owned(), json!(self.missed_targets()));
        all.insert("figures_owed".to_owned(), json!(self.required));
        Value::Object(all)
    }

    /// Returns a table for people, without figures that were not requested.
    pub(crate) fn to_table(&self) -> String {
        let width = FIGURES.iter().map(|figure| figure.name.len()).max().unwrap_or_default();
        let mut out =
            format!("{:width$}  {:>12}  {:>11}  {:7}  what\n", "figure", "value", "target", "verdict");
        for BenchFigure { name, target, description: what, .. } in FIGURES {
            if !self.values.contains_key(name) && self.missing_reason(name) == LEFT_OUT {
                continue;
            }
            let bound = match target {
                FigureTarget::None => "–".to_owned(),
                FigureTarget::AtLeast(bound) => format!("≥ {}", format_number(bound)),
                FigureTarget::AtMost(bound) => format!("≤ {}", format_number(bound)),
            };
            let (value, verdict, what) = match self.values.get(name) {
                Some(value) => {
                    let verdict = match target.is_met(*value) {
                        None => "",
                        Some(true) => "met",
                        Some(false) => "MISSED",
                    };
                    (format_number(*value), verdict, what.to_owned())
                }
                None => ("–".to_owned(), "", format!("{what} (not measured: {})", self.missing_reason(name))),
            };
            let _ = writeln!(out, "{name:width$}  {value:>12}  {bound:>11}  {verdict:7}  {what}");
        }
        out
    }
}

/// Reason for a figure that was not requested.
pub(crate) const LEFT_OUT: &str = "left out by --only";

/// Three decimals are more precise than any of these figures.
fn round_value(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Formats a number for people: significant digits, with thousands separators.
fn format_number(value: f64) -> String {
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
    fn numbers_are_formatted_with_significant_digits() {
        let cases = [
            (0.5, "0.5"),
            (4.0, "4"),
            (12.345, "12.35"),
            (999.6, "1,000"),
            (1234567.0, "1,234,567"),
            (250.0, "250"),
        ];
        for (value, text) in cases {
            assert_eq!(format_number(value), text);
        }
    }

    #[test]
    fn table_lists_unmeasured_figures_but_not_left_out_groups() {
        let mut report = BenchReport::default();
        report.set("cold_start_ms", 120.0);
        report.set_rest_missing(FigureGroup::Postgres, "no server");
        report.set_rest_missing(FigureGroup::Fold, LEFT_OUT);
        let table = report.to_table();
        assert!(table.contains("cold_start_ms") && table.contains("(not measured: no server)"), "{table}");
        let of_fold = FIGURES.iter().filter(|figure| figure.group == FigureGroup::Fold);
        assert!(of_fold.clone().count() > 0);
        of_fold.for_each(|figure| assert!(!table.contains(&format!("\n{} ", figure.name)), "{table}"));
    }

    #[test]
    fn measured_group_must_set_all_of_its_figures() {
        let mut report = BenchReport::default();
        let of_edit = || FIGURES.iter().filter(|figure| figure.group == FigureGroup::Edit);
        for figure in of_edit() {
            report.set(figure.name, 1.0);
        }
        assert!(report.check_complete(FigureGroup::Edit).is_empty() && !report.has_failed());
        assert!(of_edit().count() > 1, "each of them is left out in turn below");
        for left_out in of_edit() {
            for value in [None, Some(f64::NAN), Some(0.0), Some(-1.0)] {
                let mut report = BenchReport::default();
                of_edit()
                    .filter(|figure| figure.name != left_out.name)
                    .for_each(|one| report.set(one.name, 1.0));
                value.into_iter().for_each(|value| report.set(left_out.name, value));
                let faults = report.check_complete(FigureGroup::Edit);
                assert!(faults.len() == 1 && faults[0].contains(left_out.name), "{faults:?}");
                assert!(report.has_failed());
                assert_eq!(report.to_json(Map::new())["figures_owed"], json!([left_out.name]));
            }
        }
    }

    #[test]
    fn zero_is_accepted_where_it_is_allowed() {
        let mut report = BenchReport::default();
        report.set("submit_to_start_ms_p50", 0.0);
        let faults = report.check_complete(FigureGroup::Latency);
        assert!(!faults.iter().any(|fault| fault.contains("submit_to_start_ms_p50 ")), "{faults:?}");
        assert!(faults.iter().any(|fault| fault.contains("submit_to_start_ms_p99 ")), "{faults:?}");
    }

    #[test]
    fn missing_figure_is_null_with_a_reason() {
        let mut report = BenchReport::default();
        report.set("cold_start_ms", 120.0);
        report.set("run_30_turns_ms", f64::NAN);
        report.set_rest_missing(FigureGroup::Postgres, "no server");
        let json = report.to_json(Map::new());
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
            report
                .to_table()
                .lines()
                .any(|line| line.starts_with("cold_start_ms") && line.contains("MISSED"))
        );
    }
}
