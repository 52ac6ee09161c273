//! The declared figures, their meaning and their measured values.

use std::{future::Future, time::Duration};

use serde_json::{Value, json};

use crate::output::display;

/// A part that takes longer is treated as hung, so that the other parts are still measured.
const PART_TIMEOUT: Duration = Duration::from_secs(120);

/// A group of figures that are measured together: its name, and each figure with its meaning. If
/// the measurement fails, all of them are missing.
pub(super) struct BenchPart(&'static str, &'static [(&'static str, &'static str)]);

pub(super) const STORE_PART: BenchPart = BenchPart(
    "store",
    &[
        ("raw_commits_per_s", "4 KiB written and fsynced, one after another: the disk without docket"),
        ("appends_per_s", "durable appends of 32 runs at once"),
        ("append_ratio", "the same, divided by raw commits"),
        ("submit_tasks_per_s", "tasks submitted to the store, 1,000 per request"),
        ("drain_tasks_per_s", "tasks leased and completed at the store, without a run process"),
    ],
);
pub(super) const POSTGRES_PART: BenchPart = BenchPart(
    "PostgreSQL",
    &[("appends_per_s_postgres", "durable appends of 32 runs at once, on PostgreSQL")],
);
pub(super) const RUNS_PART: BenchPart = BenchPart(
    "runs",
    &[
        ("submit_to_run_ms_p50", "submit to the first event of the run process, on an idle queue"),
        ("drain_isolated_tasks_per_s", "two-turn tasks, one run process each, two slots per CPU"),
        (TURN_OVERHEAD, "a turn with a file tool and an instant model reply"),
        (RUN_MEMORY, "resident memory of a run process after 20 turns"),
        ("rss_supervisor_mb", "resident memory of the supervising worker"),
    ],
);
pub(super) const SANDBOX_PART: BenchPart = BenchPart(
    "sandbox",
    &[
        ("spawn_sandboxed_ms_p50", "starting and ending a command in the sandbox"),
        ("sandbox_overhead_ms_p50", "the same, minus the time without the sandbox"),
    ],
);
pub(super) const FILES_PART: BenchPart = BenchPart(
    "files",
    &[
        ("materialize_ms", "creating a workspace from a repository of 4,000 files"),
        ("snapshot_ms_p50", "a snapshot of it after a command changed one file"),
    ],
);
pub(super) const TURN_OVERHEAD: &str = "turn_overhead_ms_p50";
pub(super) const RUN_MEMORY: &str = "rss_run_mb";

/// Values by figure name.
pub(super) type MeasuredValues = Vec<(&'static str, f64)>;

/// All figures to be measured, in display order.
#[derive(Debug, Default)]
pub(super) struct BenchReport(Vec<BenchFigure>);

#[derive(Debug)]
struct BenchFigure {
    name: &'static str,
    meaning: &'static str,
    /// The value, or the reason it is missing.
    value: Result<f64, String>,
    /// Whether the figure was skipped, and so is not missing.
    is_skipped: bool,
}

impl BenchReport {
    /// Measures one part.
    pub(super) async fn measure_part(
        &mut self,
        part: BenchPart,
        measure: impl Future<Output = anyhow::Result<MeasuredValues>>,
    ) {
        display::print_note(&format!("measuring: {}", part.0));
        let measured = match tokio::time::timeout(PART_TIMEOUT, Box::pin(measure)).await {
            Ok(Ok(values)) => Ok(values),
            Ok(Err(error)) => Err(display::collapse_whitespace(&format!("{error:#}"))),
            Err(_) => Err(format!("not finished after {} s", PART_TIMEOUT.as_secs())),
        };
        self.add_values(&part, &measured);
    }

    /// Records the values of a part, or the reason its measurement failed.
    fn add_values(&mut self, part: &BenchPart, measured: &Result<MeasuredValues, String>) {
        self.0.extend(part.1.iter().map(|(name, meaning)| {
            let value = measured.as_ref().map_err(String::clone).and_then(|values| {
                let found =
                    values.iter().find(|(found, value)| found == name && value.is_finite() && *value > 0.0);
                found.map(|(_, value)| *value).ok_or_else(|| "the measurement returned no value".to_owned())
            });
            BenchFigure { name, meaning, value, is_skipped: false }
        }));
    }

    /// Marks a part as skipped.
    pub(super) fn skip_part(&mut self, part: BenchPart, reason: &str) {
        let row = |(name, meaning): &(&'static str, &'static str)| BenchFigure {
            name,
            meaning,
            value: Err(reason.to_owned()),
            is_skipped: true,
        };
        self.0.extend(part.1.iter().map(row));
    }

    /// Returns a measured value.
    pub(super) fn value(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|row| row.name == name)?.value.as_ref().ok().copied()
    }

    /// Returns the missing figures with the reasons.
    pub(super) fn missing_figures(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let missing = self.0.iter().filter(|row| !row.is_skipped);
        missing.filter_map(|row| Some((row.name, row.value.as_ref().err()?.as_str())))
    }

    /// Returns one flat object with each figure by name; for a null figure, `NAME_reason` gives the
    /// reason.
    pub(super) fn to_json(&self, mut all: Value) -> Value {
        for BenchFigure { name, value, .. } in &self.0 {
            match value {
                Ok(value) => all[name] = json!((value * 1000.0).round() / 1000.0),
                Err(reason) => {
                    all[name] = Value::Null;
                    all[format!("{name}_reason")] = json!(reason);
                }
            }
        }
        all["figures_missing"] = self.missing_figures().map(|(name, _)| name).collect();
        all
    }

    /// Formats one line per figure.
    pub(super) fn format_table(&self) -> String {
        let width = self.0.iter().map(|row| row.name.len()).max().unwrap_or_default();
        let lines = self.0.iter().map(|BenchFigure { name, meaning, value, .. }| match value {
            Ok(value) if *value < 100.0 => format!("{name:width$}  {value:>8.2}  {meaning}"),
            Ok(value) => format!("{name:width$}  {value:>8.0}  {meaning}"),
            Err(reason) => format!("{name:width$}  {:>8}  {meaning} (not measured: {reason})", "-"),
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Returns the median, or NaN for no samples.
pub(super) fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the number of occurrences per second.
pub(super) fn per_second(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_without_a_valid_value_is_reported_missing() {
        for value in [None, Some(0.0), Some(-1.0), Some(f64::NAN)] {
            let mut report = BenchReport::default();
            let snapshot = value.map(|value| ("snapshot_ms_p50", value));
            let values = [("materialize_ms", 7.0)].into_iter().chain(snapshot).collect();
            report.add_values(&FILES_PART, &Ok(values));
            let missing: Vec<_> = report.missing_figures().map(|(name, _)| name).collect();
            assert_eq!(missing, ["snapshot_ms_p50"]);
            let json = report.to_json(json!({}));
            assert_eq!((&json["materialize_ms"], &json["snapshot_ms_p50"]), (&json!(7.0), &Value::Null));
            assert_eq!(json["figures_missing"], json!(["snapshot_ms_p50"]));
        }
    }

    #[test]
    fn failed_part_is_missing_but_skipped_part_is_not() {
        let mut report = BenchReport::default();
        report.add_values(&SANDBOX_PART, &Err("no namespaces".to_owned()));
        report.skip_part(POSTGRES_PART, "no server");
        let missing: Vec<_> = report.missing_figures().collect();
        assert_eq!(
            missing,
            SANDBOX_PART.1.iter().map(|(name, _)| (*name, "no namespaces")).collect::<Vec<_>>()
        );
        assert_eq!(report.to_json(json!({}))["appends_per_s_postgres_reason"], "no server");
        assert!(report.format_table().contains("(not measured: no server)"));
    }
}
