//! Classifies tool calls: their labels, and what recovery may do with them. Based only on tool and arguments, the
//! run's pins and policies. Pure.

use docket_schema::{
    message::ToolUse,
    run::{ExternalTool, RunStarted, RunState},
    tool::RecoveryClass,
};

use crate::{
    policy::{self, RuleScope},
    tools,
};

/// Returns the labels recorded in the call's intent.
pub(in crate::engine) fn call_label_names(pins: &RunStarted, tool: &ToolUse) -> Vec<String> {
    let labels = match (tool.call.is_runtime(), pins.external_tool(&tool.name)) {
        (true, _) => tools::call_labels(&tool.name, &tool.args),
        (false, Some(external)) => external_labels(external),
        (false, None) => tools::call_labels_in_set(pins.settings.tool_set, &tool.name, &tool.args),
    };
    let labels = serde_json::to_value(labels);
    labels.and_then(serde_json::from_value).expect("labels are words in JSON")
}

/// Returns what recovery may do with a call. `confined` = commands run in a sandbox.
pub(in crate::engine) fn call_recovery_class(
    run: &RunState,
    pins: &RunStarted,
    tool: &ToolUse,
    confined: bool,
) -> RecoveryClass {
    let set = pins.settings.tool_set;
    let is_own = tool.call.is_runtime();
    if let Some(external) = pins.external_tool(&tool.name) {
        return external_recovery_class(run, external, tool, confined);
    }
    if (is_own || tools::set_has_tool(set, &tool.name))
        && policy::network_grant(&run.policies, tool, RuleScope::for_run(run)).is_some()
    {
        return RecoveryClass::External;
    }
    let class = match is_own {
        true => tools::recovery_class(&tool.name, &tool.args),
        false => tools::recovery_class_in_set(set, &tool.name, &tool.args),
    };
    match class {
        RecoveryClass::Reads => RecoveryClass::Reads,
        RecoveryClass::Workspace if confined => RecoveryClass::Workspace,
        RecoveryClass::Workspace | RecoveryClass::External => RecoveryClass::External,
    }
}

/// Returns the labels of an MCP tool, according to the server.
fn external_labels(tool: &ExternalTool) -> Vec<tools::CallLabel> {
    let reads = tool.read_only.then_some(tools::CallLabel::Reads);
    reads.into_iter().chain([tools::CallLabel::External]).collect()
}

/// Returns what recovery may do with an MCP call: in the sandbox it has no effect outside the workspace; if it has
/// the network, its hints say whether the same call may be repeated.
fn external_recovery_class(
    run: &RunState,
    external: &ExternalTool,
    tool: &ToolUse,
    confined: bool,
) -> RecoveryClass {
    let reaches_out =
        !confined || policy::network_grant(&run.policies, tool, RuleScope::for_run(run)).is_some();
    match (external.read_only, external.idempotent) {
        (true, _) => RecoveryClass::Reads,
        (false, true) => RecoveryClass::Workspace,
        (false, false) if reaches_out => RecoveryClass::External,
        (false, false) => RecoveryClass::Workspace,
    }
}

/// Whether a tool of this name changes files itself.
pub(in crate::engine) fn is_write_tool(name: &str) -> bool {
    let labels = tools::call_labels(name, &serde_json::Value::Null);
    labels.iter().any(|label| matches!(label, tools::CallLabel::Writes | tools::CallLabel::Deletes))
}
