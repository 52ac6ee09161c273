//! What an old result is made, where a conversation has become too long: the one place for a strategy of one's own.
//!
//! A strategy is chosen by what the run pinned, and what it made stands in the log: a run that is replayed reads the
//! words, not the strategy. Pure. To add one: implement [`Pruning`], and choose it in [`pruning_of`].

use docket_schema::{
    content::Content,
    message::{CallId, ToolUse},
    run::RunState,
    tool::ToolSet,
};

use super::result_line::format_result_line;

/// Answers of the model that stay as they are, with the results of their calls, the last ones.
pub(super) const RETAINED_STEPS: usize = 5;

/// A way to make an old result shorter.
pub(crate) trait PruningStrategy: Sync {
    /// What stands in the result's place. What is no shorter leaves the result as it is.
    fn prune_result(&self, tool: &ToolUse, content: &Content, is_error: bool) -> String;

    /// How many of the model's last answers, each with its results, it leaves whole where that gains enough to be worth
    /// it; the usual number where it does not.
    fn full_result_steps(&self) -> usize {
        RETAINED_STEPS
    }
}

/// The strategy of a run: by its tools, for only the wide set has one that shows the rest.
pub(super) fn pruning_strategy(run: &RunState) -> &'static dyn PruningStrategy {
    match run.pins.as_ref().map(|pins| pins.settings.tool_set) {
        Some(ToolSet::Wide) => &HeadTailPruning,
        Some(ToolSet::Core) | None => &OneLinePruning,
    }
}

/// A line: what ran, what came of it, how much that was, and how it began.
pub(crate) struct OneLinePruning;

impl PruningStrategy for OneLinePruning {
    fn prune_result(&self, tool: &ToolUse, content: &Content, is_error: bool) -> String {
        format!("[{}]", format_result_line(tool, Some(content), is_error))
    }
}

/// The beginning and the end, and by which call the rest is read (C6).
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
        // What was made shorter before has all that it is to have.
        if chars <= HEAD_CHARS + TAIL_CHARS || text.contains(&note) {
            return text.clone();
        }
        let at = |nth: usize| text.char_indices().nth(nth).map_or(text.len(), |(at, _)| at);
        let (head, tail) = (&text[..at(HEAD_CHARS)], &text[at(chars - TAIL_CHARS)..]);
        let left_out = chars - HEAD_CHARS - TAIL_CHARS;
        format!("{head}\n[{left_out} {note}]\n{tail}")
    }

    // An answer and its results are two messages: 24 of them (C6: the last 20 to 30).
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

    /// A worked example: a strategy of one's own. What is missing is its choice in [`pruning_of`].
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
