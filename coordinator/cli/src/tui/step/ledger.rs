//! The ledger pane: tokens, cost, hashes, log positions, times. Pure.

use docket_schema::{history::TurnSummary, ids::Timestamp, message::TokenUsage, run::ModelRequested};

use super::{
    pane_text::{PaneWriter, TextTone},
    run::Run,
};
use crate::output::{
    display::{format_duration, format_money},
    event_format,
};

/// Renders all figures of a turn.
pub(super) fn render_ledger(out: &mut PaneWriter<'_>, run: &Run, row: &TurnSummary) {
    let detail = run.history.turn_detail(row);
    let priced = run.history.pins().is_some_and(|pins| pins.models.has_all_prices());
    let cost = |nusd| if priced { format_money(nusd) } else { "unknown: no price for this model".to_owned() };
    out.write_line(TextTone::Bold, "this turn");
    out.write_pair("tokens", &format_tokens(row.cost.usage));
    out.write_pair("cost", &cost(row.cost.nusd));
    out.write_pair("took", &format_elapsed(row.began_at, row.ended_at));
    out.write_pair("began", &row.began_at.to_string());
    out.write_pair("ended", &row.ended_at.to_string());
    let ran: u64 = detail.calls.iter().filter_map(|call| call.result.as_ref()).map(|e| e.duration_ms).sum();
    out.write_pair("tools", &format!("{} calls, {} in total", detail.calls.len(), format_duration(ran)));
    for answer in detail.model_answers() {
        let model = format!(
            "first byte after {}, complete after {}",
            format_duration(answer.first_byte_ms),
            format_duration(answer.total_ms)
        );
        out.write_pair("model", &model);
        out.write_pair("stopped", &format!("{:?}", answer.stop));
    }
    out.write_heading("up to here");
    out.write_pair("tokens", &format_tokens(row.cost_so_far.usage));
    out.write_pair("cost", &cost(row.cost_so_far.nusd));
    if let Some(first) = run.turns().first() {
        out.write_pair("time", &format_elapsed(first.began_at, row.ended_at));
    }
    out.write_heading("proof");
    for call in &detail.model_calls {
        render_proof(out, &call.intent);
    }
    let tree = detail.tree.map(|tree| tree.to_string());
    out.write_pair("tree", tree.as_deref().unwrap_or("no snapshot in this turn"));
    render_events(out, run, row);
}

fn render_proof(out: &mut PaneWriter<'_>, asked: &ModelRequested) {
    out.write_pair("asked", &format!("{}, attempt {}, for {:?}", asked.model, asked.attempt, asked.purpose));
    out.write_pair("decision", &asked.decision.to_string());
    out.write_pair("request", &format!("{} ({} bytes)", asked.request, asked.request_bytes));
    if asked.worst_case_nusd > 0 {
        out.write_pair("at most", &format_money(asked.worst_case_nusd));
    }
}

fn render_events(out: &mut PaneWriter<'_>, run: &Run, row: &TurnSummary) {
    let events = run.history.turn_events(row);
    if let (Some(first), Some(last)) = (events.first(), events.last()) {
        out.write_pair("events", &format!("{} to {} of {}", first.seq, last.seq, last.stream));
        out.write_pair("head", &last.hash.to_string());
        out.write_pair("epoch", &last.epoch.to_string());
    }
    out.write_heading("events");
    for event in events {
        let text = format!(
            "{:>6} {} {}",
            event.seq.to_string(),
            event_format::format_time_of_day(event.recorded_at),
            event_format::format_event(event)
        );
        out.write_line(TextTone::Plain, &text);
    }
}

fn format_tokens(usage: TokenUsage) -> String {
    let TokenUsage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, .. } = usage;
    let cache = match (cache_read_tokens, cache_write_tokens) {
        (0, 0) => String::new(),
        (read, written) => format!("; cache: {read} read, {written} written"),
    };
    format!("{input_tokens} in, {output_tokens} out{cache}")
}

fn format_elapsed(from: Timestamp, to: Timestamp) -> String {
    format_duration(to.ms_since(from))
}
