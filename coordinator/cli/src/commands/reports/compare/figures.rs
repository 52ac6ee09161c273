//! Costs and outcomes of tasks, aggregated by variant. Pure.
//!
//! A task's figures include all of its runs and everything they delegated. Each event counts in the
//! run that recorded it, so history shared by several runs counts once.

use std::collections::BTreeSet;

use docket_schema::{
    api::TaskView,
    event::{Envelope, TypedEvent as _},
    ids::{TaskId, Turn},
    message::{ModelRef, TokenUsage},
    run::{CallPurpose, OtherModel, RunEvent, RunModels, RunStarted},
    task::{TaskBlockedReason, TaskRecord, TaskSpec, TaskState},
};

/// What differs between the compared tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ComparedVariant {
    pub(super) model: ModelRef,
    pub(super) explore: Option<ModelRef>,
    pub(super) fallback: Option<ModelRef>,
    pub(super) engine: String,
}

impl ComparedVariant {
    /// Returns the variant that a task requests.
    pub(super) fn from_spec(spec: &TaskSpec) -> Self {
        let (explore, fallback) = (spec.explore_model.clone(), spec.fallback_model.clone());
        Self { model: spec.model.clone(), explore, fallback, engine: spec.engine.clone() }
    }

    /// Returns the variant that a run was started with.
    pub(super) fn from_run(pins: &RunStarted) -> Self {
        let other = |other: &Option<Box<OtherModel>>| other.as_ref().map(|other| other.model.clone());
        let models = &pins.models;
        let (explore, fallback) = (other(&models.explore), other(&models.fallback));
        Self { model: models.main.clone(), explore, fallback, engine: pins.engine.name.clone() }
    }
}

/// A measured task.
#[derive(Debug, Clone)]
pub(super) struct ComparedTask {
    pub(super) task: TaskId,
    /// Title and text; tasks are the same if both match.
    pub(super) title_and_text: (String, String),
    pub(super) variant: ComparedVariant,
    pub(super) state: TaskState,
    /// Whether the task will not change further by itself.
    pub(super) is_settled: bool,
    /// Why the task did not complete.
    pub(super) message: Option<String>,
    pub(super) spent: TaskFigures,
}

/// Figures of the runs of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TaskFigures {
    pub(super) turns: u64,
    pub(super) usage: TokenUsage,
    pub(super) cost_nusd: u64,
    /// Whether a model without a known price answered some calls.
    pub(super) unpriced: bool,
    /// From the first to the last event of each run; `None` until a run has ended.
    pub(super) wall_ms: Option<u64>,
    /// Time spent in models, waits for them, tools and checks; `None` likewise.
    pub(super) worked_ms: Option<u64>,
}

impl TaskFigures {
    /// Adds a run's own events. `models` are the models at its end.
    pub(super) fn add_run(&mut self, events: &[Envelope], models: &RunModels) {
        let mut turns: BTreeSet<Turn> = BTreeSet::new();
        let (mut models, mut asked) = (models.clone(), models.main.clone());
        for event in events {
            // Events this build cannot decode are not counted; `docket verify` reports them.
            match RunEvent::decode(&event.kind, event.version, event.payload.as_str()) {
                Ok(RunEvent::RunStarted(started)) => models = started.models,
                Ok(RunEvent::Forked(forked)) => {
                    if let Some(others) = forked.models {
                        models = others;
                    }
                }
                Ok(RunEvent::ModelRequested(request)) => {
                    if request.purpose == CallPurpose::Decide {
                        turns.insert(event.turn);
                    }
                    asked = request.model;
                }
                Ok(RunEvent::ModelAnswered(answer)) => {
                    self.usage = self.usage.plus(answer.usage);
                    self.cost_nusd = self.cost_nusd.saturating_add(answer.cost_nusd);
                    self.unpriced |= !models.terms_for(&asked).priced;
                }
                Ok(_) | Err(_) => {}
            }
        }
        self.turns += turns.len() as u64;
    }

    /// Adds up the wall time of the runs.
    pub(super) fn set_wall_time(&mut self, view: &TaskView) {
        let ended = view.runs.iter().filter_map(|run| Some(run.ended_at?.ms_since(run.started_at?)));
        self.wall_ms = ended.reduce(u64::saturating_add);
    }
}

/// Sums and medians over the tries of one variant.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct VariantSummary {
    pub(super) tasks: usize,
    pub(super) succeeded: usize,
    /// Tasks that have neither ended nor wait for a person.
    pub(super) under_way: usize,
    pub(super) turns: u64,
    pub(super) turns_median: Option<u64>,
    pub(super) usage: TokenUsage,
    /// `None` if part of the cost is unknown.
    pub(super) cost_nusd: Option<u64>,
    pub(super) wall_ms_median: Option<u64>,
    pub(super) worked_ms_median: Option<u64>,
}

impl VariantSummary {
    pub(super) fn from_tasks<'a>(tries: impl Iterator<Item = &'a ComparedTask>) -> Self {
        let mut sum = Self { cost_nusd: Some(0), ..Self::default() };
        let (mut turns, mut walls, mut worked) = (Vec::new(), Vec::new(), Vec::new());
        for tried in tries {
            let spent = &tried.spent;
            sum.tasks += 1;
            sum.succeeded += usize::from(tried.state == TaskState::Completed);
            sum.under_way += usize::from(!tried.is_settled);
            sum.turns += spent.turns;
            sum.usage = sum.usage.plus(spent.usage);
            let known = sum.cost_nusd.filter(|_| !spent.unpriced);
            sum.cost_nusd = known.map(|cost| cost.saturating_add(spent.cost_nusd));
            turns.push(spent.turns);
            walls.extend(spent.wall_ms);
            worked.extend(spent.worked_ms);
        }
        let (wall_ms_median, worked_ms_median) = (median(walls), median(worked));
        Self { turns_median: median(turns), wall_ms_median, worked_ms_median, ..sum }
    }

    /// Returns the percentage of completed tasks; `None` without tasks.
    pub(super) fn success_percent(&self) -> Option<usize> {
        (self.succeeded * 100 + self.tasks / 2).checked_div(self.tasks)
    }
}

/// Whether the task will not change further by itself. A task that waits for its provider continues
/// by itself; one that waits for delegated tasks continues with them, and they are in the batch
/// too.
pub(super) fn is_settled(task: &TaskRecord) -> bool {
    task.state.is_ended()
        || (task.state == TaskState::Blocked && task.blocked_why != Some(TaskBlockedReason::Outage))
}

/// Returns the median; for an even count, the mean of the two middle values.
fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some(u64::midpoint(values[middle - 1], upper))
}

/// Returns the variants in order of first appearance.
pub(super) fn distinct_variants(tries: &[ComparedTask]) -> Vec<ComparedVariant> {
    let mut all: Vec<ComparedVariant> = Vec::new();
    for tried in tries {
        if !all.contains(&tried.variant) {
            all.push(tried.variant.clone());
        }
    }
    all
}

/// Returns the tasks in order of first appearance.
pub(super) fn distinct_tasks(tries: &[ComparedTask]) -> Vec<&(String, String)> {
    let mut all = Vec::new();
    for tried in tries {
        if !all.contains(&&tried.title_and_text) {
            all.push(&tried.title_and_text);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared_task(state: TaskState, turns: u64, wall_ms: Option<u64>, unpriced: bool) -> ComparedTask {
        let usage = TokenUsage { input_tokens: 10 * turns, output_tokens: turns, ..TokenUsage::default() };
        ComparedTask {
            task: TaskId(uuid::Uuid::from_u128(1)),
            title_and_text: ("a".to_owned(), "a".to_owned()),
            variant: ComparedVariant {
                model: "openai:x".parse().expect("a model"),
                explore: None,
                fallback: None,
                engine: "react".to_owned(),
            },
            is_settled: state.is_ended(),
            state,
            message: None,
            spent: TaskFigures {
                turns,
                usage,
                cost_nusd: 7 * turns,
                unpriced,
                wall_ms,
                worked_ms: wall_ms.map(|ms| ms / 2),
            },
        }
    }

    #[test]
    fn figures_are_summed_per_variant() {
        let all = [
            compared_task(TaskState::Completed, 4, Some(100), false),
            compared_task(TaskState::Discarded, 9, Some(300), false),
            compared_task(TaskState::Running, 2, None, false),
        ];
        let sum = VariantSummary::from_tasks(all.iter());
        assert_eq!((sum.tasks, sum.succeeded, sum.under_way, sum.success_percent()), (3, 1, 1, Some(33)));
        assert_eq!((sum.turns, sum.turns_median, sum.wall_ms_median), (15, Some(4), Some(200)));
        assert_eq!(sum.worked_ms_median, Some(100));
        assert_eq!((sum.usage.input_tokens, sum.usage.output_tokens, sum.cost_nusd), (150, 15, Some(105)));
    }

    #[test]
    fn unknown_price_makes_the_sum_unknown() {
        let all = [
            compared_task(TaskState::Completed, 1, None, false),
            compared_task(TaskState::Completed, 1, None, true),
        ];
        assert_eq!(VariantSummary::from_tasks(all.iter()).cost_nusd, None);
        assert_eq!(VariantSummary::from_tasks(all[..1].iter()).cost_nusd, Some(7));
        assert_eq!(VariantSummary::from_tasks([].iter()).success_percent(), None);
    }
}
