//! Two runs beside each other: which turns are the same, where they part, what differs there. Pure.

use docket_schema::{event::Envelope, message::Part};

use super::{
    detail::Detail,
    doc::{Tone, Writer},
    files,
    page::Subject,
    shelf::{Loaded, Place, Side, Want},
    skeleton::{Row, Run},
};
use crate::display::money;

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
    let longest = this.rows.len().max(other.rows.len());
    let one = |at: usize| match (this.rows.get(at), other.rows.get(at)) {
        (Some(left), Some(right)) => of_rows(this, left, other, right),
        (Some(_), None) | (None, Some(_)) | (None, None) => Sameness::Alone,
    };
    (0..longest).map(one).collect()
}

fn last<'a>(run: &'a Run, row: &Row) -> Option<&'a Envelope> {
    run.events.get(row.events.end.checked_sub(1)?)
}

fn of_rows(this: &Run, left: &Row, other: &Run, right: &Row) -> Sameness {
    if last(this, left).map(|event| event.hash) == last(other, right).map(|event| event.hash) {
        return Sameness::Shared;
    }
    let (left, right) = (Detail::of(this, left), Detail::of(other, right));
    if decided(&left) != decided(&right) {
        return Sameness::Decision;
    }
    if results(&left) == results(&right) { Sameness::Same } else { Sameness::Results }
}

/// What the model said and called. Reasoning is left out: providers sign it, so it never is the same.
fn decided(detail: &Detail) -> Vec<&Part> {
    let parts = detail.answered.iter().flat_map(|answer| &answer.parts);
    parts.filter(|part| !matches!(part, Part::Thinking { .. })).collect()
}

/// Names of what was decided and of what came of it: equal where [`of_rows`] says that they are the same.
pub(super) fn names(detail: &Detail) -> (String, String) {
    let name = |text: String| blake3::hash(text.as_bytes()).to_hex()[..16].to_owned();
    (name(format!("{:?}", decided(detail))), name(format!("{:?}", results(detail))))
}

fn results(detail: &Detail) -> impl PartialEq + std::fmt::Debug + '_ {
    let calls: Vec<_> =
        detail.calls.iter().map(|call| call.result.as_ref().map(|e| (e.status, &e.content))).collect();
    let gates: Vec<_> = detail.gates.iter().map(|gate| (&gate.spec.name, gate.passed)).collect();
    (calls, gates, &detail.changes, &detail.by_hand, &detail.ended)
}

/// The pane: how the turn compares, both decisions, and what differs between both trees after it.
pub(super) fn runs(out: &mut Writer<'_>, subject: Subject<'_>, at: usize) {
    let Some(other) = subject.other else {
        return out.line(Tone::Dim, "no other run is loaded; w asks for one");
    };
    let this = subject.run;
    let want = Want::Sameness(this.events.len(), other.events.len());
    let Some(Loaded::Sameness(all)) = out.need(want, "") else { return };
    summary(out, this, other, &all);
    let Some(row) = this.rows.get(at) else { return };
    out.gap();
    let here = all.get(at).copied().unwrap_or(Sameness::Alone);
    let tone = if here.differs() { Tone::Warn } else { Tone::Good };
    out.line(tone, &format!("turn {}: {}", row.turn, here.words()));
    one(out, "this", this, row);
    let Some(theirs) = other.rows.get(at) else { return };
    one(out, "other", other, theirs);
    if here == Sameness::Shared {
        return;
    }
    out.heading(&format!("the other run's files after turn {}, seen from this run's", row.turn));
    files::differences(out, files::after(row), Place { side: Side::Other, end: theirs.events.end });
}

fn summary(out: &mut Writer<'_>, this: &Run, other: &Run, all: &[Sameness]) {
    out.line(Tone::Bold, &format!("this run {} and run {}", this.id.short(), other.id.short()));
    let turns = |run: &Run| run.rows.last().map_or(0, |row| row.turn.0);
    let cost = |run: &Run| run.rows.last().map_or(0, |row| row.cost_so_far_nusd);
    for (name, run) in [("this", this), ("other", other)] {
        let text = format!("{}, {} turns, {}", run.standing.word(), turns(run), money(cost(run)));
        out.pair(name, &text);
    }
    let part = all.iter().position(|same| same.differs());
    let text = match part.map(|at| (at, this.rows.get(at).or_else(|| other.rows.get(at)))) {
        Some((_, Some(row))) => {
            format!("they part at turn {}; d and D go from difference to difference", row.turn)
        }
        Some((_, None)) | None => "they do not differ".to_owned(),
    };
    out.line(Tone::Plain, &text);
}

fn one(out: &mut Writer<'_>, name: &str, run: &Run, row: &Row) {
    let detail = Detail::of(run, row);
    let calls: Vec<String> = detail.calls.iter().map(|call| crate::events::call(&call.made)).collect();
    let said = detail.texts().map(crate::events::first_line).find(|text| !text.is_empty());
    out.pair(name, &format!("{}, {}", row.fate.word(), money(row.cost_nusd)));
    out.pair("said", said.as_deref().unwrap_or(""));
    out.pair("called", &calls.join("; "));
}
