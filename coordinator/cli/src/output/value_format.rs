//! Formats values that several commands show.

use docket_schema::system::{Budget, MemoryScope};

use crate::output::display;

/// Formats a budget.
pub(crate) fn format_budget(budget: &Budget) -> String {
    let money = budget.cost_nusd.map(display::format_money);
    let tokens = budget.tokens.map(|tokens| format!("{tokens} tokens"));
    let both: Vec<String> = money.into_iter().chain(tokens).collect();
    if both.is_empty() { "no budget".to_owned() } else { both.join(" and ") }
}

/// Formats the scope of a memory.
pub(crate) fn format_memory_scope(scope: &MemoryScope) -> String {
    match scope {
        MemoryScope::Repository(source) => display::sanitize_line(source).into_owned(),
        MemoryScope::Queue(queue) => format!("queue {queue}"),
    }
}
