//! Engine `react`, version 1: a hybrid ReAct loop. The model decides each step on what it sees;
//! the engine holds the loop, its caps, and the end (A1).
//!
//! Rules, in this order: wishes of people and limits; children that are out; calls that wait; failed checks that can be
//! mended without a model, or that cannot run; a compaction that has begun; a failed, cut or empty answer is asked again; an answer
//! without a tool call is a refusal, a blocker or the claim to be done, which the gates check, as they do where all
//! that the task requires is there and tested; else a model is asked (`models` says which), up to the turn cap, once
//! its request fits, unless it does not get on and a person is; and no call is made that the budgets do not pay for.

use std::collections::BTreeSet;

use docket_schema::{
    content::Content,
    ids::Turn,
    message::{CallId, StopReason, ToolUse},
    run::{
        AboutCall, BlockedWhy, EngineRef, ExternalTool, FailureKind, Limit, ModelFailed, Phase, Purpose,
        RunOutcome, RunSettings, RunStarted, RunState, Verdict, begins_plan, is_cut, is_outage,
    },
    tool::RecoveryClass,
};

use super::{
    Act, Decision, Engine, ModelCall, PlannedTool, answer_tokens_max, blockers, budget, compaction,
    delegation, early_end, escalation, manner_of, models, planning, role_of, texts_of, verification,
};
use crate::{
    policy::{self, Reach},
    tools,
};

/// What the model is told after an answer that said nothing.
pub(super) const NUDGE_EMPTY: &str = "Your last answer was empty. Call a tool to go on; or, if the work is done, say in a \
                           sentence what you did; or begin with `BLOCKED:` and say what you need.";

/// What the model is told after an answer that a limit cut before it called a tool.
pub(super) const NUDGE_CUT: &str = "Your last answer was cut at the limit of what one answer may hold. Go on in smaller parts: think less at once, and write a large file with several calls.";

/// What a model is told that goes on behind another one's refusal.
pub(super) const NUDGE_REFUSED: &str = "The last answer above is another model's. Go on with the task; or say in a sentence why \
                             you do not.";

/// How a model says that it cannot go on.
const BLOCKED_MARK: &str = "BLOCKED:";

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct React;

impl Engine for React {
    fn id(&self) -> EngineRef {
        EngineRef { name: "react".to_owned(), version: 1 }
    }

    fn decide(&self, run: &RunState) -> Decision {
        budget::within(run, |pins| next(run, pins))
    }
}

/// What is next, whatever it costs.
fn next(run: &RunState, pins: &RunStarted) -> Decision {
    if let Some(decision) = wishes_and_limits(run) {
        return decision;
    }
    if let Some(decision) = delegation::waits(run) {
        return decision;
    }
    if !run.wanted.is_empty() {
        return run_tools(run, pins);
    }
    if let Some(decision) = verification::mend(run, pins) {
        return decision;
    }
    if let Some(decision) = verification::undecided(run, pins) {
        return decision;
    }
    if let Some(decision) = compaction::under_way(run, pins) {
        return decision;
    }
    if let Some(failure) = &run.last_failure {
        return ask_again(run, pins, failure);
    }
    let unheeded = stopped(run, pins);
    if let Some(Unheeded::Ends(decision)) = unheeded {
        return *decision;
    }
    if unheeded.is_none() && run.answered_without_tools && !run.transcript.has_notes() {
        return said_it_is_done(run, pins);
    }
    if let Some(decision) = early_end::decision(run, pins) {
        return decision;
    }
    let unheard = !run.work.heard.is_empty();
    if run.empty_counted() >= pins.settings.empty_answers_max && !unheard {
        let message = format!("{} empty answers in a row", run.empty_answers);
        return end(run, failed(FailureKind::EmptyAnswers, &message));
    }
    if run.corrections_counted() > pins.settings.corrections_max {
        return end(run, failed(FailureKind::Gates, &verification::still_failing(run, pins)));
    }
    if run.turn.0 >= turns_allowed(run, &pins.settings) {
        let message = format!("the cap of {} turns is reached", turns_allowed(run, &pins.settings));
        return end(run, failed(FailureKind::TurnLimit, &message));
    }
    let question = blockers::question(run, &pins.settings);
    if let Some(question) = question.or_else(|| escalation::question(run, &pins.settings)) {
        let act = Act::Block { question, why: BlockedWhy::Escalated, about: None };
        return Decision { phase: run.phase, act };
    }
    if let Some(decision) = compaction::due(run, pins) {
        return decision;
    }
    let nudge = match unheeded {
        Some(Unheeded::AskedAgain(nudge)) => Some(nudge),
        Some(Unheeded::Ends(_)) | None if run.empty_answers > 0 => Some(NUDGE_EMPTY),
        Some(Unheeded::Ends(_)) | None => planning::reminder(run, pins),
    };
    ask(run, pins, Asking { turn: run.turn.next(), wait_ms: 0, nudge: nudge.map(str::to_owned) })
}

/// What follows a failed attempt: a person, another attempt of this model or of the one that stands in, a shorter
/// request, or the end.
pub(super) fn ask_again(run: &RunState, pins: &RunStarted, failure: &ModelFailed) -> Decision {
    if failure.needs_person {
        let question = Content::Text(failure.message.clone());
        let act = Act::Block { question, why: BlockedWhy::Provider, about: None };
        return Decision { phase: run.phase, act };
    }
    let chosen = models::chosen(run, pins);
    let (turn, nudge) = (run.turn, None);
    if pins.models.are_several() && run.asking.failed.as_ref().is_some_and(|failed| failed != chosen.model) {
        // It is not the one that failed: nothing is gained by waiting.
        let shorter =
            if compaction::fits(run, pins, chosen.terms) { None } else { compaction::due(run, pins) };
        return shorter.unwrap_or_else(|| ask(run, pins, Asking { turn, wait_ms: 0, nudge }));
    }
    let Some(wait_ms) = failure.retry_in_ms else {
        if let Some(decision) = compaction::due(run, pins) {
            return decision;
        }
        return given_up(run, pins, failure, &failure.message);
    };
    let attempts = if chosen.stands_in {
        run.asking.failures_of(chosen.model).attempts
    } else {
        run.failed_attempts - run.forgiven_attempts
    };
    if attempts >= pins.settings.model_attempts_max {
        let message = format!("{attempts} attempts failed; the last one: {}", failure.message);
        return given_up(run, pins, failure, &message);
    }
    ask(run, pins, Asking { turn, wait_ms, nudge })
}

/// No attempt is left. Where the provider is only away the run rests: another one would pay again for what this
/// one knows.
fn given_up(run: &RunState, pins: &RunStarted, failure: &ModelFailed, message: &str) -> Decision {
    if pins.settings.rest_at_outage && is_outage(failure) {
        let act = Act::Block {
            question: Content::Text(message.to_owned()),
            why: BlockedWhy::Provider,
            about: None,
        };
        return Decision { phase: run.phase, act };
    }
    // Who never answered in this run would refuse the next one likewise.
    if pins.settings.model_rules > 0
        && !is_outage(failure)
        && run.asking.failed.is_some()
        && run.asking.failed != run.asking.answered_by
    {
        let message = format!("{message}; another run would meet the same: mend it, then `docket retry`");
        return end(run, failed(FailureKind::Configuration, &message));
    }
    end(run, failed(FailureKind::Model, message))
}

/// An answer without a tool call that is no claim to be done.
enum Unheeded {
    Ends(Box<Decision>),
    /// With these words.
    AskedAgain(&'static str),
}

/// Whether the last answer was no claim to be done: a refusal, cut, or of a model that only explores.
fn stopped(run: &RunState, pins: &RunStarted) -> Option<Unheeded> {
    let stop = run.asking.stop.as_ref()?;
    let ends = |act| Some(Unheeded::Ends(Box::new(Decision { phase: run.phase, act })));
    if pins.settings.heed_stops && is_cut(stop) {
        if run.asking.cuts >= pins.settings.empty_answers_max {
            let message = format!(
                "{} answers in a row were cut at the limit of {} tokens; raise run.output_tokens_max or split the task",
                run.asking.cuts,
                answer_tokens_max(pins, models::chosen(run, pins).terms)
            );
            let result = failed(FailureKind::Model, &message);
            return ends(end(run, result).act);
        }
        return Some(Unheeded::AskedAgain(NUDGE_CUT));
    }
    if models::only_explored(run, pins) {
        return Some(Unheeded::AskedAgain(models::NUDGE_TAKE_OVER));
    }
    if planning::stopped_early(run, pins) && blocked_question(run.last_text.as_ref(), true).is_none() {
        return Some(Unheeded::AskedAgain(planning::STOPPED_EARLY));
    }
    if *stop != StopReason::Refusal
        && let Some(words) = planning::nothing_done(run, pins)
        && blocked_question(run.last_text.as_ref(), true).is_none()
    {
        return Some(Unheeded::AskedAgain(words));
    }
    if pins.settings.heed_stops && *stop == StopReason::Refusal && !run.transcript.has_notes() {
        let asked = models::chosen(run, pins).model;
        if run.asking.answered_by.as_ref().is_some_and(|answered| answered != asked) {
            return Some(Unheeded::AskedAgain(NUDGE_REFUSED));
        }
        let words = match &run.last_text {
            Some(Content::Text(text)) if run.answered_without_tools => format!(": {}", text.trim()),
            Some(_) | None => ", without a word of why".to_owned(),
        };
        let question = Content::Text(format!("The model refuses to go on with the task{words}"));
        return ends(Act::Block { question, why: BlockedWhy::Escalated, about: None });
    }
    None
}

pub(super) fn wishes_and_limits(run: &RunState) -> Option<Decision> {
    if run.cancel_requested {
        return Some(end(run, RunOutcome::Cancelled));
    }
    if run.limit == Some(Limit::Batch) {
        let said = run.limit_said.as_deref().unwrap_or("its batch has used up what it may");
        let act = Act::Block { question: said.into(), why: BlockedWhy::Budget, about: None };
        return run.wanted.is_empty().then_some(Decision { phase: run.phase, act });
    }
    if let (Some(Limit::Money), Some(said)) = (run.limit, &run.limit_said) {
        // Not the run's own: its batch cannot pay for a model without a price.
        return Some(end(run, failed(FailureKind::Configuration, said)));
    }
    if let Some(limit) = run.limit {
        let which = match limit {
            Limit::Time => "time",
            Limit::Tokens => "tokens",
            Limit::Money => "money",
            Limit::Batch => "its batch",
        };
        return Some(end(run, failed(FailureKind::Limit, &format!("the budget of {which} is used up"))));
    }
    if let Some(message) = used_too_much(run) {
        return Some(end(run, failed(FailureKind::Limit, &message)));
    }
    // A pause waits until the batch in hand is done, so that no call is left without its result.
    (run.pause_requested && run.wanted.is_empty()).then_some(Decision { phase: run.phase, act: Act::Pause })
}

/// What to say where commands were ended for using too much in so many turns that none should follow.
fn used_too_much(run: &RunState) -> Option<String> {
    let max = run.pins.as_ref()?.settings.exceeded_max as usize;
    let turns: BTreeSet<Turn> = run.exceeded.iter().map(|(turn, _)| *turn).collect();
    if max == 0 || turns.len() < max || !run.wanted.is_empty() {
        return None;
    }
    let mut nouns: Vec<&str> = run.exceeded.iter().map(|(_, what)| what.noun()).collect();
    nouns.sort_unstable();
    nouns.dedup();
    let nouns = nouns.join(", ");
    Some(format!(
        "in {} turns commands were ended for using more than they may ({nouns}); raise the limit in [worker] if the \
         work needs it",
        turns.len()
    ))
}

pub(super) const fn turns_allowed(run: &RunState, settings: &RunSettings) -> u32 {
    let (turns, corrections) = (run.before.0.0, run.corrections.saturating_sub(run.before.1));
    let more = turns.saturating_add(corrections.saturating_mul(settings.correction_turns));
    settings.turns_max.saturating_add(more)
}

/// A request of a model.
pub(super) struct Asking {
    pub(super) turn: Turn,
    pub(super) wait_ms: u64,
    pub(super) nudge: Option<String>,
}

pub(super) fn ask(run: &RunState, pins: &RunStarted, asking: Asking) -> Decision {
    let attempt = run.failed_attempts + 1;
    let chosen = models::chosen(run, pins);
    let messages = run.transcript.conversation(asking.nudge.as_deref());
    let (system, tools) = texts_of(run, pins);
    let call = ModelCall {
        call: CallId::model(asking.turn, attempt),
        purpose: Purpose::Decide,
        turn: asking.turn,
        attempt,
        model: chosen.model.clone(),
        role: run.work.role.clone(),
        system,
        tools,
        nudge: asking.nudge,
        output_tokens_max: answer_tokens_max(pins, chosen.terms),
        wait_ms: asking.wait_ms,
        manner: manner_of((pins, role_of(run, pins)), Purpose::Decide, chosen.model, &messages),
        messages,
    };
    Decision { phase: run.phase, act: Act::CallModel(Box::new(call)) }
}

/// The next batch of the calls that wait: all of them up to one whose effects may leave the
/// workspace, which is a batch of its own, begun after what precedes it is durable.
pub(super) fn run_tools(run: &RunState, pins: &RunStarted) -> Decision {
    let confined = run.sandbox.backend != "none";
    let mut batch: Vec<PlannedTool> = Vec::new();
    let mut given_away: Vec<&ToolUse> = Vec::new();
    for (nth, tool) in run.wanted.iter().enumerate() {
        let delegates = delegation::delegates(pins, tool);
        if nth > 0 && delegates != delegation::delegates(pins, &run.wanted[nth - 1]) {
            break;
        }
        let class = if delegates { RecoveryClass::Workspace } else { class_of(run, pins, tool, confined) };
        let mut policy = models::verdict(run, pins, tool);
        if delegates && matches!(policy, Verdict::Allow { .. }) {
            policy = delegation::denied(run, pins, &given_away, tool).unwrap_or(policy);
        }
        let asks = matches!(policy, Verdict::Ask { .. });
        // What policy denies reaches nowhere.
        let denied = matches!(policy, Verdict::Deny { .. }) && !run.policies.is_empty();
        let alone = asks || (class == RecoveryClass::External && !denied);
        if alone && !batch.is_empty() {
            break;
        }
        // What comes before it is done and durable; a person has the time that it takes.
        if let Verdict::Ask { rule, question } = policy {
            let about = Some(AboutCall { call: tool.call.clone(), rule });
            let act = Act::Block { question: question.into(), why: BlockedWhy::Policy, about };
            return Decision { phase: run.phase, act };
        }
        batch.push(PlannedTool {
            call: tool.call.clone(),
            tool: tool.name.clone(),
            class,
            policy,
            labels: label_names(pins, tool),
        });
        if delegates && matches!(batch.last().map(|planned| &planned.policy), Some(Verdict::Allow { .. })) {
            given_away.push(tool);
        }
        if alone {
            break;
        }
    }
    let phase = phase_of(run, pins, &batch);
    Decision { phase, act: Act::RunTools(batch) }
}

fn label_names(pins: &RunStarted, tool: &ToolUse) -> Vec<String> {
    let labels = match (tool.call.is_own(), pins.external(&tool.name)) {
        (true, _) => tools::labels(&tool.name, &tool.args),
        (false, Some(external)) => external_labels(external),
        (false, None) => tools::labels_in(pins.settings.tool_set, &tool.name, &tool.args),
    };
    let labels = serde_json::to_value(labels);
    labels.and_then(serde_json::from_value).expect("labels are words in JSON")
}

fn class_of(run: &RunState, pins: &RunStarted, tool: &ToolUse, confined: bool) -> RecoveryClass {
    let set = pins.settings.tool_set;
    let is_own = tool.call.is_own();
    if let Some(external) = pins.external(&tool.name) {
        return external_class(run, external, tool, confined);
    }
    if (is_own || tools::has(set, &tool.name))
        && policy::network(&run.policies, tool, Reach::of(run)).is_some()
    {
        return RecoveryClass::External;
    }
    let class = match is_own {
        true => tools::recovery_class(&tool.name, &tool.args),
        false => tools::recovery_class_in(set, &tool.name, &tool.args),
    };
    match class {
        RecoveryClass::Reads => RecoveryClass::Reads,
        RecoveryClass::Workspace if confined => RecoveryClass::Workspace,
        RecoveryClass::Workspace | RecoveryClass::External => RecoveryClass::External,
    }
}

/// What a call of a server's tool does, in the words of the server.
fn external_labels(tool: &ExternalTool) -> Vec<tools::Label> {
    let reads = tool.read_only.then_some(tools::Label::Reads);
    reads.into_iter().chain([tools::Label::External]).collect()
}

/// What recovery may do with it: in the sandbox nothing of it reaches beyond the workspace; where it has the network,
/// its hints say whether the same call may be made again.
fn external_class(run: &RunState, external: &ExternalTool, tool: &ToolUse, confined: bool) -> RecoveryClass {
    let reaches_out = !confined || policy::network(&run.policies, tool, Reach::of(run)).is_some();
    match (external.read_only, external.idempotent) {
        (true, _) => RecoveryClass::Reads,
        (false, true) => RecoveryClass::Workspace,
        (false, false) if reaches_out => RecoveryClass::External,
        (false, false) => RecoveryClass::Workspace,
    }
}

/// Whether a tool of this name changes files by itself.
pub(super) fn is_write(name: &str) -> bool {
    let labels = tools::labels(name, &serde_json::Value::Null);
    labels.iter().any(|label| matches!(label, tools::Label::Writes | tools::Label::Deletes))
}

/// The phase that a batch stands for (A17): the furthest of its calls.
fn phase_of(run: &RunState, pins: &RunStarted, batch: &[PlannedTool]) -> Phase {
    let looks = if planning::is_planning(run, pins) { Phase::Planning } else { Phase::Exploring };
    let of = |tool: &PlannedTool| match tool.tool.as_str() {
        name if !tools::has(pins.settings.tool_set, name) => looks,
        name if is_write(name) && run.fixing => Phase::Fixing,
        "create_file" => Phase::Creating,
        name if is_write(name) => Phase::Editing,
        "run_tests" | "run_command" | "venv_run" => Phase::Testing,
        _ => looks,
    };
    let rank = |phase: &Phase| match phase {
        Phase::Exploring => 0,
        Phase::Planning => 1,
        Phase::Testing => 2,
        Phase::Creating => 3,
        Phase::Editing => 4,
        Phase::Fixing => 5,
        Phase::Verifying => 6,
    };
    batch.iter().map(of).max_by_key(rank).unwrap_or(run.phase)
}

fn said_it_is_done(run: &RunState, pins: &RunStarted) -> Decision {
    if let Some(question) = blocked_question(run.last_text.as_ref(), pins.settings.heed_stops) {
        return Decision {
            phase: run.phase,
            act: Act::Block { question, why: BlockedWhy::Model, about: None },
        };
    }
    let checks = verification::checks(run, pins);
    if run.gates_passed || checks.is_empty() {
        return end(run, RunOutcome::Succeeded);
    }
    verification::check(run, pins, checks)
}

/// The question of an answer that begins with the mark; `anywhere`: or has it at the beginning of a line, bare or
/// in Markdown.
pub(super) fn blocked_question(text: Option<&Content>, anywhere: bool) -> Option<Content> {
    match text {
        Some(Content::Text(text)) => {
            let begins = |at: usize| {
                let line = text[at..].trim_start_matches(|c: char| c.is_whitespace() || "*_#>".contains(c));
                line.strip_prefix(BLOCKED_MARK)
            };
            let first = text.trim_start().strip_prefix(BLOCKED_MARK);
            let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
            let question = first.or_else(|| lines.filter(|_| anywhere).find_map(begins))?;
            // A plan behind it is none of the question's.
            let plan = question.lines().position(|line| anywhere && begins_plan(line));
            let plan = plan.map(|line| question.lines().take(line).map(|line| line.len() + 1).sum::<usize>());
            let question = plan.and_then(|end| question.get(..end)).unwrap_or(question);
            let question = question.trim_matches(|c: char| c.is_whitespace() || "*_".contains(c));
            let question =
                if question.is_empty() { "The model is blocked and does not say by what." } else { question };
            Some(Content::Text(question.to_owned()))
        }
        Some(Content::B64(_) | Content::Blob(_)) | None => None,
    }
}

pub(super) fn end(run: &RunState, result: RunOutcome) -> Decision {
    let phase = if result == RunOutcome::Succeeded { Phase::Verifying } else { run.phase };
    Decision { phase, act: Act::End { result, summary: run.last_text.clone() } }
}

pub(super) fn failed(why: FailureKind, message: &str) -> RunOutcome {
    RunOutcome::Failed { why, message: message.to_owned() }
}
