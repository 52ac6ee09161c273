//! The pane of figures: tokens, cost, hashes, places in the log, times. Pure.

use docket_schema::{history::TurnSummary, ids::Timestamp, message::Usage, run::ModelRequested};

use super::{
    doc::{Tone, Writer},
    run::Run,
};
use crate::output::{
    display::{duration, money},
    events,
};

/// Everything that can be counted of a turn.
pub(super) fn ledger(out: &mut Writer<'_>, run: &Run, row: &TurnSummary) {
    let detail = run.history.detail(row);
    let priced = run.history.pins().is_some_and(|pins| pins.models.are_priced());
    let cost = |nusd| if priced { money(nusd) } else { "unknown: no price for this model".to_owned() };
    out.line(Tone::Bold, "this turn");
    out.pair("tokens", &tokens(row.cost.usage));
    out.pair("cost", &cost(row.cost.nusd));
    out.pair("took", &took(row.began_at, row.ended_at));
    out.pair("began", &row.began_at.to_string());
    out.pair("ended", &row.ended_at.to_string());
    let ran: u64 = detail.calls.iter().filter_map(|call| call.result.as_ref()).map(|e| e.duration_ms).sum();
    out.pair("tools", &format!("{} calls, {} in all", detail.calls.len(), duration(ran)));
    for answer in detail.answers() {
        let model = format!(
            "first byte after {}, whole after {}",
            duration(answer.first_byte_ms),
            duration(answer.total_ms)
        );
        out.pair("model", &model);
        out.pair("stopped", &format!("{:?}", answer.stop));
    }
    out.heading("up to here");
    out.pair("tokens", &tokens(row.cost_so_far.usage));
    out.pair("cost", &cost(row.cost_so_far.nusd));
    if let Some(first) = run.turns().first() {
        out.pair("time", &took(first.began_at, row.ended_at));
    }
    out.heading("proof");
    for call in &detail.model_calls {
        proof(out, &call.intent);
    }
    let tree = detail.tree.map(|tree| tree.to_string());
    out.pair("tree", tree.as_deref().unwrap_or("no snapshot in this turn"));
    places(out, run, row);
}

fn proof(out: &mut Writer<'_>, asked: &ModelRequested) {
    out.pair("asked", &format!("{}, attempt {}, for {:?}", asked.model, asked.attempt, asked.purpose));
    out.pair("decision", &asked.decision.to_string());
    out.pair("request", &format!("{} ({} bytes)", asked.request, asked.request_bytes));
    if asked.worst_case_nusd > 0 {
        out.pair("at most", &money(asked.worst_case_nusd));
    }
}

fn places(out: &mut Writer<'_>, run: &Run, row: &TurnSummary) {
    let events = run.history.events_of(row);
    if let (Some(first), Some(last)) = (events.first(), events.last()) {
        out.pair("events", &format!("{} to {} of {}", first.seq, last.seq, last.stream));
        out.pair("head", &last.hash.to_string());
        out.pair("epoch", &last.epoch.to_string());
    }
    out.heading("events");
    for event in events {
        let text = format!(
            "{:>6} {} {}",
            event.seq.to_string(),
            events::clock(event.recorded_at),
            events::summary(event)
        );
        out.line(Tone::Plain, &text);
    }
}

fn tokens(usage: Usage) -> String {
    let Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, .. } = usage;
    let cache = match (cache_read_tokens, cache_write_tokens) {
        (0, 0) => String::new(),
        (read, written) => format!("; cache: {read} read, {written} written"),
    };
    format!("{input_tokens} in, {output_tokens} out{cache}")
}

fn took(from: Timestamp, to: Timestamp) -> String {
    duration(to.ms_since(from))
}
