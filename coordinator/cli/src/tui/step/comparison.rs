//! Comparison of two runs: which turns are equal, where they diverge, and what differs there. Pure.

use docket_schema::{event::Envelope, history::TurnSummary};

use super::{
    content_cache::{ContentRequest, LoadedContent, RunSide, TreePosition},
    files,
    page::PageRuns,
    pane_text::{PaneWriter, TextTone},
    run::Run,
};
use crate::output::display::format_money;

/// How a turn of this run compares with the other run's turn of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnComparison {
    /// The same events: history that both runs share.
    Shared,
    /// A different recording with the same decision and the same results.
    Same,
    /// The model decided differently.
    DifferentDecision,
    /// The same decision with different results.
    DifferentResults,
    /// Only one of the runs has it.
    OnlyInOne,
}

impl TurnComparison {
    pub(super) const fn is_different(self) -> bool {
        match self {
            Self::Shared | Self::Same => false,
            Self::DifferentDecision | Self::DifferentResults | Self::OnlyInOne => true,
        }
    }

    /// One letter for the timeline.
    pub(super) const fn symbol(self) -> &'static str {
        match self {
            Self::Shared | Self::Same => "=",
            Self::DifferentDecision | Self::DifferentResults => "≠",
            Self::OnlyInOne => "+",
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::Shared => "shared: the same events",
            Self::Same => "the same decision and the same results",
            Self::DifferentDecision => "the model decided differently",
            Self::DifferentResults => "the same decision, different results",
            Self::OnlyInOne => "only one of the runs has this turn",
        }
    }
}

/// Compares all turns by position, up to the end of the longer run.
pub(super) fn compare_runs(this: &Run, other: &Run) -> Vec<TurnComparison> {
    let longest = this.turns().len().max(other.turns().len());
    let one = |at: usize| match (this.turns().get(at), other.turns().get(at)) {
        (Some(left), Some(right)) => compare_turns(this, left, other, right),
        (Some(_), None) | (None, Some(_)) | (None, None) => TurnComparison::OnlyInOne,
    };
    (0..longest).map(one).collect()
}

fn last_event<'a>(run: &'a Run, row: &TurnSummary) -> Option<&'a Envelope> {
    run.events().get(row.events.end.checked_sub(1)?)
}

fn compare_turns(this: &Run, left: &TurnSummary, other: &Run, right: &TurnSummary) -> TurnComparison {
    if last_event(this, left).map(|event| event.hash) == last_event(other, right).map(|event| event.hash) {
        return TurnComparison::Shared;
    }
    let (left, right) = (this.history.turn_detail(left), other.history.turn_detail(right));
    if left.decision_digest() != right.decision_digest() {
        return TurnComparison::DifferentDecision;
    }
    if left.results_digest() == right.results_digest() {
        TurnComparison::Same
    } else {
        TurnComparison::DifferentResults
    }
}

/// Renders the pane: how the turn compares, both decisions, and the differences between both trees after it.
pub(super) fn render_comparison(out: &mut PaneWriter<'_>, subject: PageRuns<'_>, at: usize) {
    let Some(other) = subject.other else {
        return out.write_line(TextTone::Dim, "no other run is loaded; press w to load one");
    };
    let this = subject.run;
    let want = ContentRequest::Comparison(this.events().len(), other.events().len());
    let Some(LoadedContent::Comparison(all)) = out.require(want, "") else { return };
    render_summary(out, this, other, &all);
    let Some(row) = this.turns().get(at) else { return };
    out.write_gap();
    let here = all.get(at).copied().unwrap_or(TurnComparison::OnlyInOne);
    let tone = if here.is_different() { TextTone::Warn } else { TextTone::Good };
    out.write_line(tone, &format!("turn {}: {}", row.turn, here.description()));
    render_turn(out, "this", this, row);
    let Some(theirs) = other.turns().get(at) else { return };
    render_turn(out, "other", other, theirs);
    if here == TurnComparison::Shared {
        return;
    }
    out.write_heading(&format!("the other run's files after turn {}, compared with this run's", row.turn));
    files::render_tree_diff(
        out,
        files::tree_after(row),
        TreePosition { side: RunSide::Other, end: theirs.events.end },
    );
}

fn render_summary(out: &mut PaneWriter<'_>, this: &Run, other: &Run, all: &[TurnComparison]) {
    out.write_line(TextTone::Bold, &format!("this run {} and run {}", this.id.short(), other.id.short()));
    let turns = |run: &Run| run.turns().last().map_or(0, |row| row.turn.0);
    let cost = |run: &Run| run.turns().last().map_or(0, |row| row.cost_so_far.nusd);
    for (name, run) in [("this", this), ("other", other)] {
        let text =
            format!("{}, {} turns, {}", run.history.status().label(), turns(run), format_money(cost(run)));
        out.write_pair(name, &text);
    }
    let part = all.iter().position(|same| same.is_different());
    let text = match part.map(|at| (at, this.turns().get(at).or_else(|| other.turns().get(at)))) {
        Some((_, Some(row))) => {
            format!("the runs diverge at turn {}; d and D move between differences", row.turn)
        }
        Some((_, None)) | None => "the runs do not differ".to_owned(),
    };
    out.write_line(TextTone::Plain, &text);
}

fn render_turn(out: &mut PaneWriter<'_>, name: &str, run: &Run, row: &TurnSummary) {
    let detail = run.history.turn_detail(row);
    let calls: Vec<String> =
        detail.calls.iter().map(|call| crate::output::event_format::format_tool_call(&call.tool)).collect();
    let said =
        detail.answer_texts().map(crate::output::event_format::first_line).find(|text| !text.is_empty());
    out.write_pair(name, &format!("{}, {}", row.outcome.label(), format_money(row.cost.nusd)));
    out.write_pair("said", said.as_deref().unwrap_or(""));
    out.write_pair("called", &calls.join("; "));
}
