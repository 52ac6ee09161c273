//! Formats the facts that engines record: one line per fact, the same everywhere.

use docket_schema::run::{Concluded, EngineFact, PlanStep, RoleBegan, StepKind};

use crate::output::event_format;

/// Formats all facts of a conclusion on one line.
pub(crate) fn format_conclusion(event: &Concluded) -> String {
    event.facts.iter().map(format_fact).collect::<Vec<_>>().join("; ")
}

/// Formats the start of a role.
pub(crate) fn format_role(event: &RoleBegan) -> String {
    if event.about.is_empty() { event.role.clone() } else { format!("{}: {}", event.role, event.about) }
}

/// Formats a step of a plan.
pub(crate) fn format_plan_step(step: &PlanStep) -> String {
    match &step.kind {
        StepKind::Free => step.text.clone(),
        StepKind::Edit { path, .. } => format!("edit {path}: {}", step.text),
        StepKind::Command { command, .. } => format!("run `{command}`"),
        StepKind::Tests { path: None } => "run the tests".to_owned(),
        StepKind::Tests { path: Some(path) } => format!("run the tests of {path}"),
        StepKind::Message => format!("say: {}", step.text),
    }
}

fn format_fact(fact: &EngineFact) -> String {
    match fact {
        EngineFact::Planned { steps } => match steps.as_slice() {
            [] => "nothing left to plan".to_owned(),
            [one] => format!("a plan of one step: {}", format_plan_step(one)),
            many => format!(
                "a plan of {} steps: {}",
                many.len(),
                many.iter().map(format_plan_step).collect::<Vec<_>>().join(" · ")
            ),
        },
        EngineFact::Invalid { what, problem } => format!("the {what} is invalid: {problem}"),
        EngineFact::StepEnded { step, success: true, .. } => format!("step {} is done", step + 1),
        EngineFact::StepEnded { step, success: false, output } => {
            format!("step {} failed: {}", step + 1, event_format::first_line(output))
        }
        EngineFact::Judged { verdict, reason } if reason.is_empty() => {
            format!("verdict: {}", verdict.as_str())
        }
        EngineFact::Judged { verdict, reason } => format!("verdict: {}: {reason}", verdict.as_str()),
        EngineFact::PlanDropped { reason } => format!("plan dropped: {reason}"),
        EngineFact::PhaseBegan { phase } => format!("phase {phase}"),
        EngineFact::Artifact { name, .. } => format!("artifact {name}"),
        EngineFact::Answered { role, content } => match summarize_answer(content) {
            Some(gist) => format!("the {role} replied: {gist}"),
            None => format!("the {role} replied"),
        },
        EngineFact::Summarized { path, text } => format!("{path}: {text}"),
        EngineFact::Calls { calls } => {
            let calls: Vec<String> = calls.iter().map(event_format::format_tool_call).collect();
            format!("the runtime calls {}", calls.join(", "))
        }
        EngineFact::Correcting { reason } => format!("correcting: {reason}"),
        EngineFact::QualityGate { gate, verdict, reason } if reason.is_empty() => {
            format!("quality gate {gate}: {}", verdict.as_str())
        }
        EngineFact::QualityGate { gate, verdict, reason } => {
            format!("quality gate {gate}: {}: {reason}", verdict.as_str())
        }
        EngineFact::LastTurn { turn, reason } => format!("turn {turn} is the last: {reason}"),
    }
}

/// Summarizes a role's reply: the deciding word and the first line of its explanation.
fn summarize_answer(content: &serde_json::Value) -> Option<String> {
    let text = |field: &&str| content.get(*field)?.as_str().map(str::trim).filter(|text| !text.is_empty());
    let decides = ["action", "verdict", "outcome"].iter().find_map(text);
    let says = ["summary", "reason", "brief", "question", "design"].iter().find_map(text);
    let says = says.or_else(|| content.as_str()).map(|text| event_format::first_line(&text.into()));
    match (decides, says) {
        (Some(decides), Some(says)) => Some(format!("{decides}: {says}")),
        (Some(decides), None) => Some(decides.to_owned()),
        (None, says) => says,
    }
}

#[cfg(test)]
mod tests {
    use docket_schema::{content::WorkspacePath, ids::DecisionHash, run::ReviewVerdict};

    use super::*;

    #[test]
    fn facts_are_formatted_on_one_line() {
        let path = WorkspacePath::new("a.py").expect("a path");
        let steps = vec![
            PlanStep { text: "add f".into(), kind: StepKind::Edit { path, hints: String::new() } },
            PlanStep { text: String::new(), kind: StepKind::Tests { path: None } },
        ];
        let facts = vec![
            EngineFact::Planned { steps },
            EngineFact::StepEnded { step: 0, success: false, output: "no such file\nat all".into() },
            EngineFact::Judged { verdict: ReviewVerdict::Retry, reason: "it is not there".into() },
            EngineFact::Answered {
                role: "tester".into(),
                content: serde_json::json!({"outcome": "failed", "summary": "test_f fails\nas before"}),
            },
        ];
        assert_eq!(
            format_conclusion(&Concluded { facts, decision: DecisionHash::hash_bytes(b"") }),
            "a plan of 2 steps: edit a.py: add f · run the tests; step 1 failed: no such file; verdict: retry: it is not there; the tester replied: failed: test_f fails"
        );
    }
}
