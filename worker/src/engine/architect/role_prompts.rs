//! Prompts of the `architect` roles: their instructions and the openings of their conversations. Pure.

use docket_schema::{
    content::Content,
    run::{CheckVerdict, FinishedStep, PlanStep, RunStarted, RunState, StepKind},
};

use super::{super::roles::role_conversation, change_plan};

/// Characters of a step's output when it is reported to other roles.
const OUTPUT_CHARS_MAX: usize = 1500;

pub(super) const ARCHITECT_PROMPT: &str = "\
You are the architect of a change of a repository. You plan it, and others carry your plan out, action by action, without \
asking you again. Look at the files that matter before you plan, with few calls; you change nothing yourself. Whoever \
edits a file is a small model: it sees that one file, the action's words, and what was done to the file before. It knows \
nothing of the task, of the project's rules and of other files. Say in the hints what it must know of them: names, \
signatures, formats.

Answer with one JSON object and nothing else:
{\"actions\": [
  {\"kind\": \"edit\", \"file\": \"src/a.py\", \"description\": \"what is to be changed in it\", \"hints\": \"what to know\"},
  {\"kind\": \"command\", \"cmd\": \"a shell line\", \"expect\": \"pass\"},
  {\"kind\": \"message\", \"text\": \"words for people\"}
]}
A file that is not there yet is made by `edit`, too. `expect` is `pass` or `fail`, by the exit status. Order the actions so \
that each can rely on those before it, and keep each edit small enough to be done at once. The project's own tests and \
linters run at the end by themselves: plan commands only for what they do not do. If the task cannot be planned without \
an answer of a person, answer `BLOCKED:` and the question.
";

pub(super) const CODER_PROMPT: &str = "\
You change one file of a repository as you are told, and no other. Do what is said and no more; keep the style that is there.
";

pub(super) const VERIFIER_PROMPT: &str = "\
You verify a change of a repository before it is handed over. You are told the task, what was planned and done, the whole \
difference, and what the project's checks said. Judge by the difference: whether it does what the task asks for, all of \
it, and breaks nothing that you can see. Style is no reason to reject, and neither is what the task does not ask for.

Answer with one JSON object and nothing else: {\"verdict\": \"accept\", \"reason\": \"one or two sentences\"} or \
{\"verdict\": \"reject\", \"reason\": \"what is missing or wrong, so that somebody else can plan it\"}.
";

/// Returns the architect's first message: the task, and after a failed plan everything known about the failure.
pub(super) fn architect_opening(run: &RunState, pins: &RunStarted) -> Vec<Content> {
    let mut opening = vec![role_conversation::task_content(pins)];
    let work = &run.engine_state;
    let Some(why) = &work.plan_drop_reason else { return opening };
    opening.push(
        format!(
            "You planned before, and are asked again: {why}\nWhat was done is in the repository. Plan what is left, or \
             another way; not what is done."
        )
        .into(),
    );
    if let Some(steps) = format_step_results(run) {
        opening.push(steps);
    }
    let summaries: Vec<String> =
        work.summaries.iter().map(|(path, text)| format!("{path}:\n{text}")).collect();
    if !summaries.is_empty() {
        opening.push(format!("What was changed, file by file:\n{}", summaries.join("\n")).into());
    }
    for check in &work.failed_checks {
        opening.push(format!("The check `{}` said:", check.name).into());
        opening.push(check.content.clone());
    }
    opening
}

/// Renders the results of the steps, in order.
fn format_step_results(run: &RunState) -> Option<Content> {
    let lines = run.engine_state.finished_steps.iter().map(|end| {
        let how = if end.success { "is done" } else { "failed" };
        format!("- Action {} {how}: {}", end.step + 1, truncate_output(&end.output))
    });
    let lines: Vec<String> = lines.collect();
    (!lines.is_empty()).then(|| format!("What your actions came to:\n{}", lines.join("\n")).into())
}

/// Returns the coder's instructions for a step.
pub(super) fn coder_instructions(step: &PlanStep, hints: &str) -> Vec<Content> {
    let mut words: Vec<Content> = vec![format!("What is to be changed: {}", step.text).into()];
    if !hints.trim().is_empty() {
        words.push(format!("What to know: {hints}").into());
    }
    words
}

/// Returns the coder's instructions for fixing an earlier change.
pub(super) fn fix_instructions(what: &str, said: Vec<Content>) -> Vec<Content> {
    let mut words: Vec<Content> = vec![
        format!(
            "{what}\nMend the cause in the file below, if it lies there. If what is said of it is right as it is, because \
             another file will use it, say UNCHANGED."
        )
        .into(),
        "What was said:".into(),
    ];
    words.extend(said);
    words
}

/// Describes a failed step in one line.
pub(super) fn describe_failed_step(failed: &FinishedStep, steps: &[PlanStep]) -> String {
    let step = steps.get(failed.step as usize);
    let what = match step.map(|step| &step.kind) {
        Some(StepKind::Edit { path, .. }) => format!(", the edit of {path},"),
        Some(StepKind::Command { command, expect }) if expect == change_plan::EXPECT_FAIL => {
            return format!("action {}, `{command}`, was to fail and did not", failed.step + 1);
        }
        Some(StepKind::Command { command, .. }) => format!(", `{command}`,"),
        Some(StepKind::Message | StepKind::Free | StepKind::Tests { .. }) | None => String::new(),
    };
    let said = match &failed.output {
        Content::Text(text) => super::super::rules::escalation::excerpt_first_line(text.trim()),
        Content::B64(_) | Content::Blob(_) => String::new(),
    };
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    format!("action {}{what} failed{said}", failed.step + 1)
}

/// Returns the verifier's first message: the task, the steps, the diff, and the results of the checks.
pub(super) fn verifier_opening(run: &RunState, pins: &RunStarted, changes: &Content) -> Vec<Content> {
    let mut opening = vec![role_conversation::task_content(pins)];
    opening.push(format_plan(run));
    opening.push("The whole difference, from the repository as it was to what it is now:".into());
    opening.push(changes.clone());
    let checks = role_conversation::current_round_checks(run, pins);
    if checks.is_empty() {
        opening.push("The project has no checks that could be run.".into());
    }
    for check in checks {
        let how = match check.verdict {
            CheckVerdict::Passed | CheckVerdict::Excused => "passed",
            CheckVerdict::Failed | CheckVerdict::NoLongerRuns => "failed",
            CheckVerdict::Undecided => "did not run, and says nothing of the work",
        };
        opening.push(format!("The check `{}` {how}:", check.name).into());
        opening.push(check.content.clone());
    }
    opening
}

/// Renders the current plan.
fn format_plan(run: &RunState) -> Content {
    let lines = run.engine_state.plan.iter().flatten().enumerate().map(|(nth, step)| {
        let what = match &step.kind {
            StepKind::Edit { path, .. } => format!("edit {path}: {}", step.text),
            StepKind::Command { command, .. } => format!("run `{command}`"),
            StepKind::Message | StepKind::Free | StepKind::Tests { .. } => format!("say: {}", step.text),
        };
        format!("{}. {what}", nth + 1)
    });
    let again = match run.engine_state.plans {
        0 | 1 => String::new(),
        plans => format!(" (plan {plans}; the ones before did not come to their end)"),
    };
    format!("What was planned and done{again}:\n{}", lines.collect::<Vec<_>>().join("\n")).into()
}

fn truncate_output(content: &Content) -> String {
    match content {
        Content::Text(text) => {
            let mut short: String = text.trim().chars().take(OUTPUT_CHARS_MAX).collect();
            if short.len() < text.trim().len() {
                short.push('…');
            }
            short
        }
        Content::B64(_) | Content::Blob(_) => "(too long to be quoted)".to_owned(),
    }
}
