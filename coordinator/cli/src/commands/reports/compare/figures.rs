//! What tasks cost and came to, added up by variant. Pure.
//!
//! A task's figures are those of all its runs and of all that they gave away, each event counted where it was written: a
//! history that several runs share counts once.

use std::collections::BTreeSet;

use docket_schema::{
    event::{Envelope, TypedEvent as _},
    ids::{TaskId, Turn},
    message::{ModelRef, Usage},
    run::{Models, OtherModel, Purpose, RunEvent, RunStarted},
    task::{TaskBlockedWhy, TaskRecord, TaskSpec, TaskState},
    wire::TaskView,
};

/// What tasks are compared over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) model: ModelRef,
    pub(super) explore: Option<ModelRef>,
    pub(super) fallback: Option<ModelRef>,
    pub(super) engine: String,
}

impl Variant {
    /// What a task asks for.
    pub(super) fn asked(spec: &TaskSpec) -> Self {
        let (explore, fallback) = (spec.explore_model.clone(), spec.fallback_model.clone());
        Self { model: spec.model.clone(), explore, fallback, engine: spec.engine.clone() }
    }

    /// What a run was given.
    pub(super) fn of(pins: &RunStarted) -> Self {
        let other = |other: &Option<Box<OtherModel>>| other.as_ref().map(|other| other.model.clone());
        let models = &pins.models;
        let (explore, fallback) = (other(&models.explore), other(&models.fallback));
        Self { model: models.main.clone(), explore, fallback, engine: pins.engine.name.clone() }
    }
}

/// A task that was looked at.
#[derive(Debug, Clone)]
pub(super) struct Tried {
    pub(super) task: TaskId,
    /// Title and text: what makes two tasks the same.
    pub(super) asked: (String, String),
    pub(super) variant: Variant,
    pub(super) state: TaskState,
    /// Nothing more comes of it by itself.
    pub(super) is_settled: bool,
    /// Why it ended otherwise than well.
    pub(super) message: Option<String>,
    pub(super) spent: Spent,
}

/// What the runs of a task took.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Spent {
    pub(super) turns: u64,
    pub(super) usage: Usage,
    pub(super) cost_nusd: u64,
    /// Some of it was answered by a model whose price is not known.
    pub(super) unpriced: bool,
    /// From first to last event of each run; none before the first has ended.
    pub(super) wall_ms: Option<u64>,
    /// What models, waits for them, tools and checks took; likewise.
    pub(super) worked_ms: Option<u64>,
}

impl Spent {
    /// Adds a run's own events. `models` are those that it ended with.
    pub(super) fn add(&mut self, events: &[Envelope], models: &Models) {
        let mut turns: BTreeSet<Turn> = BTreeSet::new();
        let (mut models, mut asked) = (models.clone(), models.main.clone());
        for event in events {
            // What this build cannot read it cannot count; `docket verify` says so.
            match RunEvent::decode(&event.kind, event.version, event.payload.as_str()) {
                Ok(RunEvent::RunStarted(started)) => models = started.models,
                Ok(RunEvent::Forked(forked)) => {
                    if let Some(others) = forked.models {
                        models = others;
                    }
                }
                Ok(RunEvent::ModelRequested(request)) => {
                    if request.purpose == Purpose::Decide {
                        turns.insert(event.turn);
                    }
                    asked = request.model;
                }
                Ok(RunEvent::ModelAnswered(answer)) => {
                    self.usage = self.usage.plus(answer.usage);
                    self.cost_nusd = self.cost_nusd.saturating_add(answer.cost_nusd);
                    self.unpriced |= !models.terms_of(&asked).priced;
                }
                Ok(_) | Err(_) => {}
            }
        }
        self.turns += turns.len() as u64;
    }

    /// Adds up how long the runs took.
    pub(super) fn time(&mut self, view: &TaskView) {
        let ended = view.runs.iter().filter_map(|run| Some(run.ended_at?.ms_since(run.started_at?)));
        self.wall_ms = ended.reduce(u64::saturating_add);
    }
}

/// Sums and medians over some tries of one variant.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sum {
    pub(super) tasks: usize,
    pub(super) succeeded: usize,
    /// Neither ended nor waiting for a person.
    pub(super) under_way: usize,
    pub(super) turns: u64,
    pub(super) turns_median: Option<u64>,
    pub(super) usage: Usage,
    /// None where some of it is not known.
    pub(super) cost_nusd: Option<u64>,
    pub(super) wall_ms_median: Option<u64>,
    pub(super) worked_ms_median: Option<u64>,
}

impl Sum {
    pub(super) fn of<'a>(tries: impl Iterator<Item = &'a Tried>) -> Self {
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

    /// Of a hundred tasks; none of none.
    pub(super) fn success_percent(&self) -> Option<usize> {
        (self.succeeded * 100 + self.tasks / 2).checked_div(self.tasks)
    }
}

/// Whether nothing more will come of it by itself. One that waits for its provider goes on by itself; one that waits for
/// what it gave away goes on with that, which is a task of the batch as well.
pub(super) fn is_settled(task: &TaskRecord) -> bool {
    task.state.is_ended()
        || (task.state == TaskState::Blocked && task.blocked_why != Some(TaskBlockedWhy::Outage))
}

/// The middle one; of an even number the mean of the two in the middle.
fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some(u64::midpoint(values[middle - 1], upper))
}

/// The variants in the order in which they were first met.
pub(super) fn variants(tries: &[Tried]) -> Vec<Variant> {
    let mut all: Vec<Variant> = Vec::new();
    for tried in tries {
        if !all.contains(&tried.variant) {
            all.push(tried.variant.clone());
        }
    }
    all
}

/// The tasks, likewise.
pub(super) fn tasks(tries: &[Tried]) -> Vec<&(String, String)> {
    let mut all = Vec::new();
    for tried in tries {
        if !all.contains(&&tried.asked) {
            all.push(&tried.asked);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(state: TaskState, turns: u64, wall_ms: Option<u64>, unpriced: bool) -> Tried {
        let usage = Usage { input_tokens: 10 * turns, output_tokens: turns, ..Usage::default() };
        Tried {
            task: TaskId(uuid::Uuid::from_u128(1)),
            asked: ("a".to_owned(), "a".to_owned()),
            variant: Variant {
                model: "openai:x".parse().expect("a model"),
                explore: None,
                fallback: None,
                engine: "react".to_owned(),
            },
            is_settled: state.is_ended(),
            state,
            message: None,
            spent: Spent {
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
    fn tries_are_added_up() {
        let all = [
            tried(TaskState::Completed, 4, Some(100), false),
            tried(TaskState::Discarded, 9, Some(300), false),
            tried(TaskState::Running, 2, None, false),
        ];
        let sum = Sum::of(all.iter());
        assert_eq!((sum.tasks, sum.succeeded, sum.under_way, sum.success_percent()), (3, 1, 1, Some(33)));
        assert_eq!((sum.turns, sum.turns_median, sum.wall_ms_median), (15, Some(4), Some(200)));
        assert_eq!(sum.worked_ms_median, Some(100));
        assert_eq!((sum.usage.input_tokens, sum.usage.output_tokens, sum.cost_nusd), (150, 15, Some(105)));
    }

    #[test]
    fn an_unknown_price_makes_the_sum_unknown_and_never_zero() {
        let all = [tried(TaskState::Completed, 1, None, false), tried(TaskState::Completed, 1, None, true)];
        assert_eq!(Sum::of(all.iter()).cost_nusd, None);
        assert_eq!(Sum::of(all[..1].iter()).cost_nusd, Some(7));
        assert_eq!(Sum::of([].iter()).success_percent(), None);
    }
}
