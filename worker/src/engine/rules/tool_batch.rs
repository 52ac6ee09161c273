//! The calls that a model's answer asked for, a batch at a time: what policy says of each, what recovery may do with it, and
//! the phase that they stand for. Pure.

use docket_schema::{
    message::ToolUse,
    run::{AboutCall, BlockedWhy, Phase, RunStarted, RunState, Verdict},
    tool::RecoveryClass,
};

use super::{
    super::core::{
        call_class::{class_of, is_write, label_names},
        decision::{Act, Decision, PlannedTool},
    },
    delegation, permission, planning,
};
use crate::tools;

/// The next batch of the calls that wait: all of them up to one whose effects may leave the
/// workspace, which is a batch of its own, begun after what precedes it is durable. Pieces that are given away may use `time_max_ms` together
/// with what the run used.
pub(in crate::engine) fn run_tools(run: &RunState, pins: &RunStarted, time_max_ms: u64) -> Decision {
    let confined = run.sandbox.backend != "none";
    let mut batch: Vec<PlannedTool> = Vec::new();
    let mut given_away: Vec<&ToolUse> = Vec::new();
    for (nth, tool) in run.wanted.iter().enumerate() {
        let delegates = delegation::delegates(pins, tool);
        if nth > 0 && delegates != delegation::delegates(pins, &run.wanted[nth - 1]) {
            break;
        }
        let class = if delegates { RecoveryClass::Workspace } else { class_of(run, pins, tool, confined) };
        let mut policy = permission::verdict(run, pins, tool);
        if delegates && matches!(policy, Verdict::Allow { .. }) {
            policy = delegation::denied(run, pins, &given_away, tool, time_max_ms).unwrap_or(policy);
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
