//! Delegation rules: whether a run may delegate, what its children may use, and that it waits for them. Pure.
//!
//! A run that pins no depth decides as if delegation did not exist, so that older logs stay valid.

use docket_schema::{
    message::ToolUse,
    run::{BlockedReason, PolicyVerdict, RoleSpec, RunSpending, RunStarted, RunState, WriteScope},
};

use crate::engine::core::{
    call_class::is_write_tool,
    call_options::current_role,
    decision::Decision,
    definition::{Engine, RoleDefinition},
};
use crate::tools;

/// What a child may use of its parent's remaining budget; `None` = as configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ChildBudget {
    pub(crate) tokens: Option<u64>,
    pub(crate) cost_nusd: Option<u64>,
    pub(crate) time_ms: Option<u64>,
}

/// Whether a call delegates work. Such calls form their own batches.
pub(crate) fn is_delegation(pins: &RunStarted, tool: &ToolUse) -> bool {
    pins.settings.delegation_depth_max > 0 && tool.name == tools::DELEGATE
}

/// Returns why no run of an engine with these roles can delegate; `None` if one can. Without roles, every tool is
/// available.
pub fn cannot_delegate_reason(engine: &str, roles: &[RoleDefinition]) -> Option<String> {
    let has = |role: &RoleDefinition| role.tools.iter().any(|tool| tool == tools::DELEGATE);
    if roles.is_empty() || roles.iter().any(has) {
        return None;
    }
    let why = if roles.iter().all(|role| role.tools.is_empty()) {
        "none of its roles calls tools"
    } else {
        "none of its roles has the tool `delegate`; where they are yours to define, name it in the `tools` of one"
    };
    Some(format!("a run of the engine `{engine}` gives nothing away: {why}"))
}

/// Returns the message for a model whose role delegates what it may not do itself: a writing child's changes are
/// merged into the workspace like its parent's own, and a child's test command runs as a command that its parent
/// wrote.
pub(in crate::engine) fn delegation_denied_reason(
    role: &RoleSpec,
    pins: &RunStarted,
    tool: &ToolUse,
) -> Option<String> {
    let changes = |name: &String| *name == tools::RUN_COMMAND || is_write_tool(name);
    let may_write = role.writes == WriteScope::Any && role.may.iter().any(changes);
    if !is_delegation(pins, tool) {
        return None;
    }
    // Invalid arguments have no effect.
    let asked = tools::parse_delegate_args(tool).ok()?;
    if asked.writes && !may_write {
        return Some(format!(
            "the role `{}` gives only away what reads, for it may not write everything itself: leave `writes` out",
            role.name
        ));
    }
    let may_run = role.has_tool(tools::RUN_COMMAND)
        || role.has_tool(tools::RUN_TESTS) && asked.test_command == pins.tests;
    (asked.test_command.is_some() && !may_run).then(|| {
        format!(
            "the role `{}` runs no commands, so it gives a piece none that tests it: leave `tests` out",
            role.name
        )
    })
}

/// Returns the tools denied to a child because its parent may not use equivalent ones. A role that may run commands
/// may do anything, and so may a run without roles.
pub(crate) fn tools_denied_to_children(
    engine: &dyn Engine,
    run: &RunState,
    pins: &RunStarted,
) -> Vec<String> {
    let Some(role) = current_role(run, pins) else { return Vec::new() };
    let may = |tool: &str| role.has_tool(tool) && engine.allows_tool(run, tool);
    if may(tools::RUN_COMMAND) {
        return Vec::new();
    }
    let may_write = role.writes == WriteScope::Any
        && tools::mutating_tool_names().any(|tool| is_write_tool(tool) && may(tool));
    let other = |tool: &&str| if is_write_tool(tool) { !may_write } else { !may(tool) };
    // A server's tool may do anything, and the child's worker may have other servers.
    tools::mutating_tool_names().filter(other).chain(["mcp__*"]).map(str::to_owned).collect()
}

/// Whether a delegating call wants the child's changes.
pub(in crate::engine) fn requests_changes(tool: &ToolUse) -> bool {
    tools::parse_delegate_args(tool).is_ok_and(|asked| asked.writes)
}

/// Whether a delegating call specifies a test command.
pub(in crate::engine) fn requests_tests(tool: &ToolUse) -> bool {
    tools::parse_delegate_args(tool).is_ok_and(|asked| asked.test_command.is_some())
}

/// Waits while children are running, whatever else the reply requested: that may depend on their results.
pub(in crate::engine) fn wait_for_children(run: &RunState) -> Option<Decision> {
    if run.delegation.waiting_calls.is_empty() {
        return None;
    }
    let names: Vec<String> = run.child_tasks.values().map(|child| format!("task {child}")).collect();
    let question = format!("It waits for what it gave away: {}", names.join(", ")).into();
    Some(Decision::block_run(run, question, BlockedReason::Child))
}

/// Returns why a call cannot delegate, after those of its batch that do.
pub(in crate::engine) fn check_delegation_limits(
    run: &RunState,
    pins: &RunStarted,
    before: &[&ToolUse],
    tool: &ToolUse,
    time_max_ms: u64,
) -> Option<PolicyVerdict> {
    let refuse = |rule: &str, reason: String| Some(PolicyVerdict::Deny { rule: rule.to_owned(), reason });
    let allowed = pins.settings.allowed_children();
    let made =
        run.delegation.children_created.saturating_add(u32::try_from(before.len()).unwrap_or(u32::MAX));
    if made >= allowed {
        let reason = format!("this run may give {allowed} tasks away in all, and has; do the rest yourself");
        return refuse("children_max", reason);
    }
    let calls: Vec<&ToolUse> = before.iter().copied().chain([tool]).collect();
    match allot_child_budgets(run, pins, &calls, time_max_ms).pop()? {
        Ok(_) => None,
        Err(reason) => refuse("child_budget", reason),
    }
}

/// Allots each of these calls, in order, a part of the run's remaining budget: the requested amount, otherwise half
/// of what those before it leave; or returns why it gets nothing. All of them and the run itself may take
/// `time_max_ms`.
pub(crate) fn allot_child_budgets(
    run: &RunState,
    pins: &RunStarted,
    calls: &[&ToolUse],
    time_max_ms: u64,
) -> Vec<Result<ChildBudget, String>> {
    let settings = &pins.settings;
    let RunSpending { tokens, cost_nusd, worked_ms } = run.model_attempts.spending(&run.totals);
    let mut tokens = RemainingBudget::new(settings.tokens_max, tokens, "tokens");
    let mut cost = RemainingBudget::new(settings.cost_max_nusd, cost_nusd, "nano-dollars");
    let mut time = RemainingBudget::new(time_max_ms, worked_ms, "milliseconds");
    let mut all = Vec::new();
    for tool in calls {
        let asked = tools::parse_delegate_args(tool).ok();
        let (wants_tokens, wants_nusd) =
            asked.map_or((None, None), |asked| (asked.budget_tokens, asked.budget_nusd));
        all.push(match (tokens.take(wants_tokens), cost.take(wants_nusd), time.take(None)) {
            (Err(why), _, _) | (_, Err(why), _) | (_, _, Err(why)) => Err(why),
            (Ok(tokens), Ok(cost_nusd), Ok(time_ms)) => Ok(ChildBudget { tokens, cost_nusd, time_ms }),
        });
    }
    all
}

/// The rest of a budget, if there is one.
struct RemainingBudget(Option<(u64, &'static str)>);

impl RemainingBudget {
    fn new(max: u64, spent: u64, unit: &'static str) -> Self {
        Self((max > 0).then(|| (max.saturating_sub(spent), unit)))
    }

    fn take(&mut self, wanted: Option<u64>) -> Result<Option<u64>, String> {
        let Some((left, unit)) = &mut self.0 else { return Ok(wanted) };
        let gets = wanted.unwrap_or(*left / 2);
        if gets > *left || gets == 0 {
            let asks = wanted.map_or_else(String::new, |wanted| format!(", and it asks for {wanted}"));
            return Err(format!("of this run's own budget {left} {unit} are left{asks}"));
        }
        *left -= gets;
        Ok(Some(gets))
    }
}
