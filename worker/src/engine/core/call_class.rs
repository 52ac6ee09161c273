//! What a tool call does: its labels, and what recovery may do with it. By its tool and its arguments alone, as far as the
//! run's pins and policies tell. Pure.

use docket_schema::{
    message::ToolUse,
    run::{ExternalTool, RunStarted, RunState},
    tool::RecoveryClass,
};

use crate::{
    policy::{self, Reach},
    tools,
};

/// What it does, as its intent tells.
pub(in crate::engine) fn label_names(pins: &RunStarted, tool: &ToolUse) -> Vec<String> {
    let labels = match (tool.call.is_own(), pins.external(&tool.name)) {
        (true, _) => tools::labels(&tool.name, &tool.args),
        (false, Some(external)) => external_labels(external),
        (false, None) => tools::labels_in(pins.settings.tool_set, &tool.name, &tool.args),
    };
    let labels = serde_json::to_value(labels);
    labels.and_then(serde_json::from_value).expect("labels are words in JSON")
}

/// What recovery may do with a call. `confined` = commands run in a sandbox.
pub(in crate::engine) fn class_of(
    run: &RunState,
    pins: &RunStarted,
    tool: &ToolUse,
    confined: bool,
) -> RecoveryClass {
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
pub(in crate::engine) fn is_write(name: &str) -> bool {
    let labels = tools::labels(name, &serde_json::Value::Null);
    labels.iter().any(|label| matches!(label, tools::Label::Writes | tools::Label::Deletes))
}
