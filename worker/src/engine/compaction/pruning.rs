//! Strategies for shortening old results in a conversation that has become too long; the one place to add another.
//!
//! The strategy follows from the run's pins, and its output is recorded in the log: a replay reads the text, not the
//! strategy. Pure. To add one, implement [`PruningStrategy`] and select it in [`pruning_strategy`].

use docket_schema::{
    content::Content,
    message::{CallId, ToolUse},
    run::RunState,
    tool::ToolSet,
};

use super::result_line::format_result_line;

/// The last replies of the model that stay unchanged, with the results of their calls.
pub(super) const RETAINED_STEPS: usize = 5;

/// A way to shorten an old result.
pub(crate) trait PruningStrategy: Sync {
    /// Returns the replacement of a result. If it is not shorter, the result stays unchanged.
    fn prune_result(&self, tool: &ToolUse, content: &Content, is_error: bool) -> String;

    /// Returns how many of the model's last replies keep their full results if that still saves enough; otherwise the
    /// usual number applies.
    fn full_result_steps(&self) -> usize {
        RETAINED_STEPS
    }
}

/// Returns the strategy of a run, by its tools: only the wide set has a tool that shows the rest.
pub(super) fn pruning_strategy(run: &RunState) -> &'static dyn PruningStrategy {
    match run.pins.as_ref().map(|pins| pins.settings.tool_set) {
        Some(ToolSet::Wide) => &HeadTailPruning,
        Some(ToolSet::Core) | None => &OneLinePruning,
    }
}

/// One line: the call, its outcome, its size, and its beginning.
pub(crate) struct OneLinePruning;

impl PruningStrategy for OneLinePruning {
    fn prune_result(&self, tool: &ToolUse, content: &Content, is_error: bool) -> String {
        format!("[{}]", format_result_line(tool, Some(content), is_error))
    }
}

/// The beginning and the end, and the call that reads the rest (C6).
pub(crate) struct HeadTailPruning;

/// Characters of the beginning.
const HEAD_CHARS: usize = 1000;
/// Characters of the end.
const TAIL_CHARS: usize = 500;

impl PruningStrategy for HeadTailPruning {
    fn prune_result(&self, tool: &ToolUse, content: &Content, is_error: bool) -> String {
        let Content::Text(text) = content else {
            return OneLinePruning.prune_result(tool, content, is_error);
        };
        let (chars, note) = (text.chars().count(), omission_note(&tool.call));
        // A result that was shortened before is not shortened again.
        if chars <= HEAD_CHARS + TAIL_CHARS || text.contains(&note) {
            return text.clone();
        }
        let at = |nth: usize| text.char_indices().nth(nth).map_or(text.len(), |(at, _)| at);
        let (head, tail) = (&text[..at(HEAD_CHARS)], &text[at(chars - TAIL_CHARS)..]);
        let left_out = chars - HEAD_CHARS - TAIL_CHARS;
        format!("{head}\n[{left_out} {note}]\n{tail}")
    }

    // A reply and its results are two messages: 24 of them (C6: the last 20 to 30).
    fn full_result_steps(&self) -> usize {
        12
    }
}

fn omission_note(call: &CallId) -> String {
    format!("characters left out; read_output shows them, with call `{call}`")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A worked example of a custom strategy. Only its selection in [`pruning_strategy`] is missing.
    struct LastLinePruning;

    impl PruningStrategy for LastLinePruning {
        fn prune_result(&self, tool: &ToolUse, content: &Content, is_error: bool) -> String {
            match content {
                Content::Text(text) => text.lines().last().unwrap_or_default().to_owned(),
                Content::B64(_) | Content::Blob(_) => OneLinePruning.prune_result(tool, content, is_error),
            }
        }
    }

    #[test]
    fn custom_strategy_needs_one_function() {
        let strategies: [&dyn PruningStrategy; 2] = [&LastLinePruning, &HeadTailPruning];
        let pruned = strategies.map(|of| of.prune_result(&call(), &"1\n2\n3".to_owned().into(), false));
        assert_eq!(pruned, ["3", "1\n2\n3"]);
    }

    fn call() -> ToolUse {
        let (name, args) = ("run_command".to_owned(), json!({"command": "seq 9"}));
        ToolUse { call: CallId("t3-1".to_owned()), name, args, malformed: None }
    }

    #[test]
    fn head_and_tail_are_retained_with_a_note() {
        let text = format!("{}{}{}", "ä".repeat(1000), "m".repeat(700), "ö".repeat(500));
        let pruned = HeadTailPruning.prune_result(&call(), &text.into(), false);
        let note = "[700 characters left out; read_output shows them, with call `t3-1`]";
        assert_eq!(pruned, format!("{}\n{note}\n{}", "ä".repeat(1000), "ö".repeat(500)));
        assert_eq!(HeadTailPruning.prune_result(&call(), &pruned.clone().into(), false), pruned);
    }

    #[test]
    fn short_text_is_unchanged_and_binary_becomes_one_line() {
        let text = "x".repeat(HEAD_CHARS + TAIL_CHARS);
        assert_eq!(HeadTailPruning.prune_result(&call(), &text.clone().into(), false), text);
        let line = HeadTailPruning.prune_result(&call(), &Content::B64("AA==".to_owned()), true);
        assert_eq!(line, "[run_command `seq 9`: failed, 4 bytes]");
    }
}
