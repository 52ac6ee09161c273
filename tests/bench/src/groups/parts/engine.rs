//! The engine alone: prompts built from a project's files, and compaction of a conversation of 150,000
//! tokens. Entirely in memory.

use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use docket_schema::{
    content::BlobRef,
    ids::{DecisionHash, Epoch, EventHash, RunId, Seq, TaskId},
    message::{CallId, MessagePart, StopReason, TokenUsage, ToolUse},
    run::{
        CallPurpose, Compacted, EventMeta, ModelAnswered, ModelRequested, PolicyVerdict, RunEvent,
        RunPrompts, RunState, ToolFinished, ToolRequested, ToolStatus,
    },
    tool::{RecoveryClass, ToolFacts},
};
use docket_worker::{
    engine::{
        self, Action,
        prompt::{self, InstructionFile, ProjectLayer},
    },
    tools,
};
use serde_json::json;

use crate::{
    harness::{backlog::LeasedRun, synthetic_events},
    report::{BenchReport, EffortLevel, Samples},
};

/// Number of files in a typical and in a large project.
const USUAL_PROJECT_FILES: usize = 1000;
const LARGE_PROJECT_FILES: usize = 50_000;
/// Tokens of the compacted conversation, at three bytes per token as the engine counts them.
const CONVERSATION_TOKENS: usize = 150_000;
/// The model's window: the conversation nearly fills it.
const WINDOW_TOKENS: u64 = 160_000;
/// Size of a result: a file of about a hundred lines.
const RESULT_BYTES: usize = 4000;

pub(crate) async fn measure(effort: EffortLevel, report: &mut BenchReport) -> anyhow::Result<()> {
    // Long CPU-bound work, kept off the runtime's threads.
    let rounds = effort.large_edits();
    let (usual, large, shorter) = tokio::task::spawn_blocking(move || -> anyhow::Result<_> {
        Ok((
            time_prompts(USUAL_PROJECT_FILES, rounds)?,
            time_prompts(LARGE_PROJECT_FILES, rounds)?,
            time_compactions(rounds)?,
        ))
    })
    .await??;
    report.set_percentile("prompt_1k_files_ms", &usual, 50);
    report.set_percentile("prompt_50k_files_ms", &large, 50);
    report.set_percentile("compaction_150k_ms", &shorter, 50);
    Ok(())
}

/// Measures system prompt and task, built from loaded paths and instructions, in milliseconds.
fn time_prompts(files: usize, rounds: usize) -> anyhow::Result<Samples> {
    let mut paths: Vec<String> =
        (0..files).map(|n| format!("src/part_{}/area_{}/file_{n}.rs", n % 61, n % 13)).collect();
    paths.push("Cargo.toml".to_owned());
    paths.sort();
    let told = InstructionFile { path: "AGENTS.md".to_owned(), text: "Keep to the style.\n".repeat(400) };
    let (specs, text) = (tools::core_tool_specs(), "Mend what is wrong in part 7.\n".repeat(100));
    let mut samples = Samples::default();
    for _ in 0..rounds {
        let started = Instant::now();
        let project = ProjectLayer::from_files(&paths, vec![told.clone()]);
        let system = prompt::system_prompt(&specs, &project);
        let task = prompt::task_prompt("A task", &text, &[], prompt::estimate_complexity("A task", &text, 0));
        samples.push(started.elapsed().as_secs_f64() * 1e3);
        ensure!(system.contains("Rust (cargo)") && system.len() + task.len() < prompt::PROMPT_BYTES_MAX);
    }
    Ok(samples)
}

/// Measures levels 1 and 2, from the full state to the compacted one, in milliseconds.
fn time_compactions(rounds: usize) -> anyhow::Result<Samples> {
    let engine = engine::newest_engine("react").context("the engine")?;
    let mut samples = Samples::default();
    for _ in 0..rounds {
        // Generated again each time, because a state caches its counts.
        let mut log = LongConversation::generate()?;
        let started = Instant::now();
        let decision = engine.decide(&log.state);
        let Action::Compact(event) = decision.act else { bail!("the engine requests no compaction") };
        let Compacted { cleared, dropped, .. } = &*event;
        let done = (cleared.len(), dropped.len());
        log.push_event(*event)?;
        samples.push(started.elapsed().as_secs_f64() * 1e3);
        let left = log.state.transcript.conversation(None).bytes();
        ensure!(done.0 > 50 && done.1 > 10, "cleared and dropped: {done:?}");
        ensure!(left < (CONVERSATION_TOKENS * 3 / 2) as u64, "{left} bytes are left");
    }
    Ok(samples)
}

struct LongConversation {
    state: RunState,
}

impl LongConversation {
    /// Generates reads of files; every fourth one repeats the previous file.
    fn generate() -> anyhow::Result<Self> {
        let id = docket_coordinator::clock::new_id();
        let held = LeasedRun { task: TaskId(id), run: RunId(id), epoch: Epoch(1), seq: Seq(0) };
        let blob = BlobRef::for_bytes(b"x");
        let mut log = Self { state: RunState::default() };
        let mut begun =
            synthetic_events::long_run_started(held, RunPrompts { system: blob, tools: blob, task: blob });
        begun.models.terms.context_tokens = WINDOW_TOKENS;
        log.push_event(begun)?;
        for nth in 0..CONVERSATION_TOKENS * 3 / RESULT_BYTES {
            log.push_turn(nth)?;
        }
        Ok(log)
    }

    fn push_turn(&mut self, nth: usize) -> anyhow::Result<()> {
        let turn = self.state.turn.next();
        let (asked, call) = (CallId::for_model(turn, 1), CallId::for_tool(turn, 0));
        let model = self.state.pins.as_ref().context("it began")?.models.main.clone();
        self.push_event(ModelRequested {
            call: asked.clone(),
            purpose: CallPurpose::Decide,
            model,
            attempt: 1,
            decision: DecisionHash::ZERO,
            request: DecisionHash::ZERO,
            request_bytes: 0,
            nudge: None,
            worst_case_nusd: 0,
            output_tokens_max: None,
            role: None,
        })?;
        // The turn after every fourth file reads it again.
        let file = if nth % 4 == 1 { nth - 1 } else { nth };
        let args = json!({ "path": format!("src/file_{file}.rs") });
        let tool = ToolUse { call: call.clone(), name: "read_file".to_owned(), args, malformed: None };
        self.push_event(ModelAnswered {
            call: asked,
            parts: vec![
                MessagePart::Text { text: "I look at the next file.".into() },
                MessagePart::ToolUse(tool),
            ],
            stop: StopReason::ToolUse,
            usage: TokenUsage::default(),
            cost_nusd: 0,
            first_byte_ms: 0,
            total_ms: 0,
        })?;
        self.push_event(ToolRequested {
            call: call.clone(),
            tool: "read_file".to_owned(),
            class: RecoveryClass::Reads,
            policy: PolicyVerdict::Allow { rule: "builtin".to_owned() },
            labels: Vec::new(),
            decision: DecisionHash::ZERO,
        })?;
        let line = format!("{nth:>5} | let value = request.field(\"name\").unwrap_or_default();\n");
        self.push_event(ToolFinished {
            call,
            status: ToolStatus::Ok,
            content: line.repeat(RESULT_BYTES / line.len()).into(),
            full: None,
            facts: ToolFacts::default(),
            duration_ms: 0,
        })
    }

    fn push_event(&mut self, event: impl Into<RunEvent>) -> anyhow::Result<()> {
        let event = event.into();
        let opens = matches!(event, RunEvent::ModelRequested(_));
        let turn = if opens { self.state.turn.next() } else { self.state.turn };
        let meta = EventMeta { seq: self.state.seq.next(), hash: EventHash::ZERO, turn, epoch: Epoch(1) };
        self.state.apply(meta, event).context("the made-up run does not fold")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_built_and_a_long_conversation_is_compacted() {
        time_prompts(USUAL_PROJECT_FILES, 1).expect("prompts");
        time_compactions(1).expect("a compaction");
    }
}
