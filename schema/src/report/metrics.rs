//! The twelve metrics, their targets and sums.
//!
//! Each is a fraction of two integers, so that a week's value is the fraction of its tasks' sums: exact in
//! any order. A denominator of 0 means "not measured", never 0 or 1.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A metric. [`TaskMeasurement`](super::TaskMeasurement) defines how each is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Completed and accepted tasks, of those that ended on their own.
    TaskSuccessRate,
    /// Applied edits that no person changed by hand afterward, of all attempted edits.
    PatchApplyRate,
    /// Tasks whose tree builds after the changes.
    BuildPassRate,
    /// Tasks whose tests pass after the changes.
    TestPassRate,
    /// Tasks with a test failure that did not exist before.
    RegressionRate,
    /// Tasks whose work had to be edited again after it was reported done.
    ReworkRate,
    /// Average time from the first lease to the first plan.
    TimeToPlanS,
    /// Average time from the first lease to completion.
    TimeToCompleteS,
    /// Tool calls that failed or were refused, of those with a known outcome; calls made by the runtime
    /// itself are not counted.
    ToolErrorRate,
    /// Tool calls denied by policy, per task.
    PolicyDenialRate,
    /// Sandbox violations per task that ran in a sandbox.
    SandboxViolationRate,
    /// Required artifacts that exist.
    ArtifactCompleteness,
}

/// Whether a target is a minimum or a maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TargetBound {
    /// The target or more.
    AtLeast,
    /// The target or less.
    AtMost,
}

impl Metric {
    /// All twelve metrics, in display order.
    pub const ALL: [Self; 12] = [
        Self::TaskSuccessRate,
        Self::PatchApplyRate,
        Self::BuildPassRate,
        Self::TestPassRate,
        Self::RegressionRate,
        Self::ReworkRate,
        Self::TimeToPlanS,
        Self::TimeToCompleteS,
        Self::ToolErrorRate,
        Self::PolicyDenialRate,
        Self::SandboxViolationRate,
        Self::ArtifactCompleteness,
    ];

    /// Returns the metric's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TaskSuccessRate => "task_success_rate",
            Self::PatchApplyRate => "patch_apply_rate",
            Self::BuildPassRate => "build_pass_rate",
            Self::TestPassRate => "test_pass_rate",
            Self::RegressionRate => "regression_rate",
            Self::ReworkRate => "rework_rate",
            Self::TimeToPlanS => "time_to_plan_s",
            Self::TimeToCompleteS => "time_to_complete_s",
            Self::ToolErrorRate => "tool_error_rate",
            Self::PolicyDenialRate => "policy_denial_rate",
            Self::SandboxViolationRate => "sandbox_violation_rate",
            Self::ArtifactCompleteness => "artifact_completeness",
        }
    }

    /// Returns the target in thousandths, and whether it is a minimum or a maximum.
    const fn target_milli(self) -> (TargetBound, u64) {
        match self {
            Self::TaskSuccessRate => (TargetBound::AtLeast, 800),
            Self::PatchApplyRate => (TargetBound::AtLeast, 950),
            Self::BuildPassRate | Self::TestPassRate => (TargetBound::AtLeast, 850),
            Self::RegressionRate | Self::PolicyDenialRate => (TargetBound::AtMost, 50),
            Self::ReworkRate => (TargetBound::AtMost, 150),
            Self::TimeToPlanS => (TargetBound::AtMost, 120_000),
            Self::TimeToCompleteS => (TargetBound::AtMost, 900_000),
            Self::ToolErrorRate => (TargetBound::AtMost, 20),
            Self::SandboxViolationRate => (TargetBound::AtMost, 0),
            Self::ArtifactCompleteness => (TargetBound::AtLeast, 1000),
        }
    }

    /// Whether its numerator is in milliseconds and its value in seconds.
    pub const fn is_time(self) -> bool {
        matches!(self, Self::TimeToPlanS | Self::TimeToCompleteS)
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// A fraction of two counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Ratio {
    /// The numerator; in milliseconds for times.
    pub of: u64,
    /// The denominator; 0 means not measured.
    pub all: u64,
}

impl Ratio {
    /// Not measured.
    pub const NONE: Self = Self { of: 0, all: 0 };

    /// Creates the ratio of one item that is either true or false; `None` means unknown.
    pub fn from_bool(so: Option<bool>) -> Self {
        so.map_or(Self::NONE, |so| Self { of: u64::from(so), all: 1 })
    }

    /// Creates the ratio of one item with an amount; `None` means unknown.
    pub fn from_amount(amount: Option<u64>) -> Self {
        amount.map_or(Self::NONE, |of| Self { of, all: 1 })
    }

    const fn plus(self, other: Self) -> Self {
        Self { of: self.of.saturating_add(other.of), all: self.all.saturating_add(other.all) }
    }
}

/// Whether a target is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TargetVerdict {
    /// The target is met.
    Met,
    /// The target is missed.
    Missed,
    /// The log contains no data for it.
    NotMeasured,
}

/// All metrics of one or more tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetricTally([Ratio; 12]);

impl MetricTally {
    /// Returns one metric.
    pub const fn get(&self, metric: Metric) -> Ratio {
        self.0[metric.index()]
    }

    /// Sets one metric.
    pub const fn set(&mut self, metric: Metric, ratio: Ratio) {
        self.0[metric.index()] = ratio;
    }

    /// Returns the sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let mut sum = self;
        for metric in Metric::ALL {
            sum.set(metric, self.get(metric).plus(other.get(metric)));
        }
        sum
    }

    /// Adds the counts of a delegated task: edits, calls, denials and violations, which are still counted for
    /// one task. All other metrics are those of the task as a whole.
    #[must_use]
    pub fn with_delegated(self, child: Self) -> Self {
        let mut sum = self;
        for metric in [Metric::PatchApplyRate, Metric::ToolErrorRate] {
            sum.set(metric, self.get(metric).plus(child.get(metric)));
        }
        for metric in [Metric::PolicyDenialRate, Metric::SandboxViolationRate] {
            let own = self.get(metric);
            let is_measured = own.all > 0;
            sum.set(
                metric,
                if is_measured { Ratio { all: own.all, ..own.plus(child.get(metric)) } } else { own },
            );
        }
        sum
    }

    /// Compares the metrics with their targets.
    pub fn to_views(&self) -> Vec<MetricView> {
        Metric::ALL.into_iter().map(|metric| MetricView::from_ratio(metric, self.get(metric))).collect()
    }

    /// Restores the tally from views; a missing metric is not measured.
    pub fn from_views(views: &[MetricView]) -> Self {
        let mut tally = Self::default();
        for view in views {
            tally.set(view.metric, view.ratio);
        }
        tally
    }
}

/// A metric compared with its target.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricView {
    /// The metric.
    pub metric: Metric,
    /// The value, for times in seconds; none if not measured.
    pub value: Option<f64>,
    /// The underlying fraction; add these to combine tasks.
    pub ratio: Ratio,
    /// The target.
    pub target: f64,
    /// Whether the target is a minimum or a maximum.
    pub side: TargetBound,
    /// Whether the target is met.
    pub verdict: TargetVerdict,
}

impl MetricView {
    /// Creates the view of a metric with this fraction.
    pub fn from_ratio(metric: Metric, ratio: Ratio) -> Self {
        let (side, milli) = metric.target_milli();
        let unit: u64 = if metric.is_time() { 1000 } else { 1 };
        let target = milli as f64 / 1000.0;
        if ratio.all == 0 {
            return Self { metric, value: None, ratio, target, side, verdict: TargetVerdict::NotMeasured };
        }
        let (of, all) = (u128::from(ratio.of) * 1000, u128::from(ratio.all));
        let at_target = u128::from(milli) * all * u128::from(unit);
        let met = match side {
            TargetBound::AtLeast => of >= at_target,
            TargetBound::AtMost => of <= at_target,
        };
        let verdict = if met { TargetVerdict::Met } else { TargetVerdict::Missed };
        let value = ratio.of as f64 / (ratio.all as f64 * unit as f64);
        Self { metric, value: Some(value), ratio, target, side, verdict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(metric: Metric, of: u64, all: u64) -> TargetVerdict {
        MetricView::from_ratio(metric, Ratio { of, all }).verdict
    }

    #[test]
    fn targets_match_the_specification_and_are_inclusive() {
        for (metric, (met, missed)) in [
            (Metric::TaskSuccessRate, ((80, 100), (79, 100))),
            (Metric::PatchApplyRate, ((95, 100), (94, 100))),
            (Metric::BuildPassRate, ((85, 100), (84, 100))),
            (Metric::TestPassRate, ((85, 100), (84, 100))),
            (Metric::RegressionRate, ((5, 100), (6, 100))),
            (Metric::ReworkRate, ((15, 100), (16, 100))),
            (Metric::TimeToPlanS, ((240_000, 2), (240_001, 2))),
            (Metric::TimeToCompleteS, ((900_000, 1), (900_001, 1))),
            (Metric::ToolErrorRate, ((2, 100), (3, 100))),
            (Metric::PolicyDenialRate, ((5, 100), (6, 100))),
            (Metric::SandboxViolationRate, ((0, 100), (1, 1000))),
            (Metric::ArtifactCompleteness, ((100, 100), (999, 1000))),
        ] {
            assert_eq!(verdict(metric, met.0, met.1), TargetVerdict::Met, "{metric:?}");
            assert_eq!(verdict(metric, missed.0, missed.1), TargetVerdict::Missed, "{metric:?}");
            assert_eq!(verdict(metric, 0, 0), TargetVerdict::NotMeasured, "{metric:?}");
            let word = serde_json::to_value(metric).expect("a word");
            assert_eq!(word, metric.as_str(), "one name everywhere");
        }
    }

    #[test]
    fn unmeasured_metric_has_no_value_and_changes_no_sum() {
        let mut one = MetricTally::default();
        one.set(Metric::TimeToPlanS, Ratio::from_amount(Some(90_000)));
        one.set(Metric::TaskSuccessRate, Ratio::from_bool(Some(true)));
        let sum = one.plus(MetricTally::default());
        assert_eq!(sum, one);
        let views = sum.to_views();
        assert_eq!(views.len(), 12);
        for view in &views {
            let measured = matches!(view.metric, Metric::TimeToPlanS | Metric::TaskSuccessRate);
            assert_eq!(view.value.is_some(), measured, "{view:?}");
        }
        let text = serde_json::to_string(&views[2]).expect("a view");
        assert!(text.contains(r#""value":null"#), "null, never 0: {text}");
        assert_eq!(MetricTally::from_views(&views), sum);
        assert_eq!(views[6].value, Some(90.0), "seconds");
    }

    #[test]
    fn delegated_work_counts_with_its_parent_task() {
        let tally = |edits, calls, denials, violations, well| {
            let mut tally = MetricTally::default();
            tally.set(Metric::PatchApplyRate, edits);
            tally.set(Metric::ToolErrorRate, calls);
            tally.set(Metric::PolicyDenialRate, denials);
            tally.set(Metric::SandboxViolationRate, violations);
            tally.set(Metric::TaskSuccessRate, Ratio::from_bool(Some(well)));
            tally
        };
        let ratio = |of, all| Ratio { of, all };
        let own = tally(ratio(1, 2), ratio(0, 3), ratio(1, 1), ratio(0, 1), true);
        let child = tally(ratio(2, 2), ratio(1, 4), ratio(2, 1), ratio(3, 1), false);
        let both = tally(ratio(3, 4), ratio(1, 7), ratio(3, 1), ratio(3, 1), true);
        assert_eq!(own.with_delegated(child), both);
        assert_eq!(own.with_delegated(MetricTally::default()), own, "one that did not begin");
        // Without a sandbox, its violations are unknown.
        let open = tally(ratio(1, 2), ratio(0, 3), ratio(1, 1), Ratio::NONE, true);
        assert_eq!(open.with_delegated(child).get(Metric::SandboxViolationRate), Ratio::NONE);
    }
}
