//! Batches of the calls requested by a model's reply: the policy verdict on each, what recovery may do with it, and
//! the phase they belong to. Pure.

use docket_schema::{
    message::ToolUse,
    run::{BlockedCall, BlockedReason, PolicyVerdict, RunPhase, RunStarted, RunState},
    tool::RecoveryClass,
};

use super::{
    super::core::{
        call_class::{call_label_names, call_recovery_class, is_write_tool},
        decision::{Action, Decision, PlannedTool},
    },
    delegation, permission, planning,
};
use crate::tools;

/// Returns the next batch of waiting calls: all of them up to one with possible effects outside the workspace, which
/// is a batch of its own, begun after everything before it is durable. Delegated tasks together with the run's own
/// usage may take `time_max_ms`.
pub(in crate::engine) fn next_tool_batch(run: &RunState, pins: &RunStarted, time_max_ms: u64) -> Decision {
    let confined = run.sandbox.backend != "none";
    let mut batch: Vec<PlannedTool> = Vec::new();
    let mut given_away: Vec<&ToolUse> = Vec::new();
    for (nth, tool) in run.pending_calls.iter().enumerate() {
        let delegates = delegation::is_delegation(pins, tool);
        if nth > 0 && delegates != delegation::is_delegation(pins, &run.pending_calls[nth - 1]) {
            break;
        }
        let class =
            if delegates { RecoveryClass::Workspace } else { call_recovery_class(run, pins, tool, confined) };
        let mut policy = permission::call_verdict(run, pins, tool);
        if delegates && matches!(policy, PolicyVerdict::Allow { .. }) {
            policy = delegation::check_delegation_limits(run, pins, &given_away, tool, time_max_ms)
                .unwrap_or(policy);
        }
        let asks = matches!(policy, PolicyVerdict::Ask { .. });
        // A call denied by policy has no effects.
        let denied = matches!(policy, PolicyVerdict::Deny { .. }) && !run.policies.is_empty();
        let alone = asks || (class == RecoveryClass::External && !denied);
        if alone && !batch.is_empty() {
            break;
        }
        // Everything before it is done and durable; a person may take any time.
        if let PolicyVerdict::Ask { rule, question } = policy {
            let about = Some(BlockedCall { call: tool.call.clone(), rule });
            let act = Action::Block { question: question.into(), why: BlockedReason::Policy, about };
            return Decision { phase: run.phase, act };
        }
        batch.push(PlannedTool {
            call: tool.call.clone(),
            tool: tool.name.clone(),
            class,
            policy,
            labels: call_label_names(pins, tool),
        });
        if delegates
            && matches!(batch.last().map(|planned| &planned.policy), Some(PolicyVerdict::Allow { .. }))
        {
            given_away.push(tool);
        }
        if alone {
            break;
        }
    }
    let phase = batch_phase(run, pins, &batch);
    Decision { phase, act: Action::RunTools(batch) }
}

/// Returns the phase of a batch (A17): the furthest of its calls.
fn batch_phase(run: &RunState, pins: &RunStarted, batch: &[PlannedTool]) -> RunPhase {
    let looks = if planning::is_planning(run, pins) { RunPhase::Planning } else { RunPhase::Exploring };
    let of = |tool: &PlannedTool| match tool.tool.as_str() {
        name if !tools::set_has_tool(pins.settings.tool_set, name) => looks,
        name if is_write_tool(name) && run.fix_is_next => RunPhase::Fixing,
        "create_file" => RunPhase::Creating,
        name if is_write_tool(name) => RunPhase::Editing,
        "run_tests" | "run_command" | "venv_run" => RunPhase::Testing,
        _ => looks,
    };
    let rank = |phase: &RunPhase| match phase {
        RunPhase::Exploring => 0,
        RunPhase::Planning => 1,
        RunPhase::Testing => 2,
        RunPhase::Creating => 3,
        RunPhase::Editing => 4,
        RunPhase::Fixing => 5,
        RunPhase::Verifying => 6,
    };
    batch.iter().map(of).max_by_key(rank).unwrap_or(run.phase)
}
