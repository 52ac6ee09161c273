//! Two runs beside each other: which turns are the same, where they part, what differs there. Pure.

use docket_schema::{event::Envelope, history::TurnSummary};

use super::{
    doc::{Tone, Writer},
    files,
    page::Subject,
    run::Run,
    shelf::{Loaded, Place, Side, Want},
};
use crate::output::display::money;

/// How a turn of this run compares with the other run's turn of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sameness {
    /// The very same events: history that both runs share.
    Shared,
    /// Another recording with the same decision and the same results.
    Same,
    /// The model decided otherwise.
    Decision,
    /// The same decision, with other results.
    Results,
    /// Only one of the runs has it.
    Alone,
}

impl Sameness {
    /// Whether there is something to look at.
    pub(super) const fn differs(self) -> bool {
        match self {
            Self::Shared | Self::Same => false,
            Self::Decision | Self::Results | Self::Alone => true,
        }
    }

    /// One letter for the timeline.
    pub(super) const fn mark(self) -> &'static str {
        match self {
            Self::Shared | Self::Same => "=",
            Self::Decision | Self::Results => "≠",
            Self::Alone => "+",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Shared => "shared: the very same events",
            Self::Same => "the same decision and the same results",
            Self::Decision => "the model decided otherwise",
            Self::Results => "the same decision, other results",
            Self::Alone => "only one of the runs has this turn",
        }
    }
}

/// Compares all turns, by their place, up to the end of the longer run.
pub(super) fn sameness(this: &Run, other: &Run) -> Vec<Sameness> {
    let longest = this.turns().len().max(other.turns().len());
    let one = |at: usize| match (this.turns().get(at), other.turns().get(at)) {
        (Some(left), Some(right)) => of_rows(this, left, other, right),
        (Some(_), None) | (None, Some(_)) | (None, None) => Sameness::Alone,
    };
    (0..longest).map(one).collect()
}

fn last<'a>(run: &'a Run, row: &TurnSummary) -> Option<&'a Envelope> {
    run.events().get(row.events.end.checked_sub(1)?)
}

fn of_rows(this: &Run, left: &TurnSummary, other: &Run, right: &TurnSummary) -> Sameness {
    if last(this, left).map(|event| event.hash) == last(other, right).map(|event| event.hash) {
        return Sameness::Shared;
    }
    let (left, right) = (this.history.detail(left), other.history.detail(right));
    if left.decision_digest() != right.decision_digest() {
        return Sameness::Decision;
    }
    if left.results_digest() == right.results_digest() { Sameness::Same } else { Sameness::Results }
}

/// The pane: how the turn compares, both decisions, and what differs between both trees after it.
pub(super) fn runs(out: &mut Writer<'_>, subject: Subject<'_>, at: usize) {
    let Some(other) = subject.other else {
        return out.line(Tone::Dim, "no other run is loaded; w asks for one");
    };
    let this = subject.run;
    let want = Want::Sameness(this.events().len(), other.events().len());
    let Some(Loaded::Sameness(all)) = out.need(want, "") else { return };
    summary(out, this, other, &all);
    let Some(row) = this.turns().get(at) else { return };
    out.gap();
    let here = all.get(at).copied().unwrap_or(Sameness::Alone);
    let tone = if here.differs() { Tone::Warn } else { Tone::Good };
    out.line(tone, &format!("turn {}: {}", row.turn, here.words()));
    one(out, "this", this, row);
    let Some(theirs) = other.turns().get(at) else { return };
    one(out, "other", other, theirs);
    if here == Sameness::Shared {
        return;
    }
    out.heading(&format!("the other run's files after turn {}, seen from this run's", row.turn));
    files::differences(out, files::after(row), Place { side: Side::Other, end: theirs.events.end });
}

fn summary(out: &mut Writer<'_>, this: &Run, other: &Run, all: &[Sameness]) {
    out.line(Tone::Bold, &format!("this run {} and run {}", this.id.short(), other.id.short()));
    let turns = |run: &Run| run.turns().last().map_or(0, |row| row.turn.0);
    let cost = |run: &Run| run.turns().last().map_or(0, |row| row.cost_so_far.nusd);
    for (name, run) in [("this", this), ("other", other)] {
        let text = format!("{}, {} turns, {}", run.history.status().label(), turns(run), money(cost(run)));
        out.pair(name, &text);
    }
    let part = all.iter().position(|same| same.differs());
    let text = match part.map(|at| (at, this.turns().get(at).or_else(|| other.turns().get(at)))) {
        Some((_, Some(row))) => {
            format!("they part at turn {}; d and D go from difference to difference", row.turn)
        }
        Some((_, None)) | None => "they do not differ".to_owned(),
    };
    out.line(Tone::Plain, &text);
}

fn one(out: &mut Writer<'_>, name: &str, run: &Run, row: &TurnSummary) {
    let detail = run.history.detail(row);
    let calls: Vec<String> =
        detail.calls.iter().map(|call| crate::output::events::call(&call.tool)).collect();
    let said = detail.texts().map(crate::output::events::first_line).find(|text| !text.is_empty());
    out.pair(name, &format!("{}, {}", row.outcome.label(), money(row.cost.nusd)));
    out.pair("said", said.as_deref().unwrap_or(""));
    out.pair("called", &calls.join("; "));
}
