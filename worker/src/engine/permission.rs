//! What policy says of a call, and what a person said where policy asks (E12). Pure: policies are pinned, answers
//! are recorded.

use docket_schema::{
    message::ToolUse,
    policy::Ruling,
    run::{Permit, RunState, Verdict},
};

use crate::{
    policy::{self, Asking, Reach, Sight},
    tools,
};

/// Files that the run changed and whose text no role is shown, for a policy speaks against it.
pub(super) fn unseen(run: &RunState) -> Vec<String> {
    let looks = Sight::of(&run.policies).through(&[tools::READ_FILE], Asking::Hides);
    // Nobody is asked for one file of many.
    let changed = run.overlay.keys().map(ToString::to_string).filter(|_| !looks.is_all());
    changed.filter(|path| !looks.sees(path)).collect()
}

/// The policies' verdict, and what a person said where they ask.
pub(super) fn says(run: &RunState, tool: &ToolUse) -> Verdict {
    // What is handed in by a card is words.
    if run.policies.is_empty() || tools::is_card(&tool.name) {
        return Verdict::Allow { rule: "builtin".to_owned() };
    }
    // What the runtime shows of files is read all the same: rules for reading speak of it.
    let read = (tool.call.is_own()
        && matches!(tool.name.as_str(), tools::SHOW_FILE | tools::SHOW_CHANGES | tools::SURVEY))
    .then(|| ToolUse { name: tools::READ_FILE.to_owned(), ..tool.clone() });
    let said = policy::judge(&run.policies, read.as_ref().unwrap_or(tool), Reach::of(run));
    let rule = said.rule.clone();
    match (said.ruling, run.permits.of(&tool.call)) {
        (Ruling::Allow, _) | (Ruling::Ask, Some(Permit::Yes)) => Verdict::Allow { rule },
        (Ruling::Ask, None) if run.permits.always(&rule) => Verdict::Allow { rule },
        (Ruling::Ask, Some(Permit::No(words))) if words.is_empty() => {
            Verdict::Deny { rule, reason: "a person was asked, and said no".to_owned() }
        }
        (Ruling::Ask, Some(Permit::No(words))) => {
            Verdict::Deny { rule, reason: format!("a person was asked, and says: {words}") }
        }
        (Ruling::Ask, None) => {
            let why = if said.reason.is_empty() { String::new() } else { format!(" ({})", said.reason) };
            let question = format!(
                "May the model do this, which rule `{rule}` asks about{why}?\n  {}\nIt is part of: {}\nAnswer `yes` for this \
                 call, `always` for all that this rule asks about in this run, or `no` with words for the model.",
                said.about,
                whole(tool)
            );
            Verdict::Ask { rule, question }
        }
        (Ruling::Deny, _) => {
            let why = if said.reason.is_empty() { "it is not allowed here".to_owned() } else { said.reason };
            Verdict::Deny { rule, reason: format!("{why}: {}", said.about) }
        }
    }
}

/// A call as people read it.
fn whole(tool: &ToolUse) -> String {
    let line = tool.args.get("command").and_then(|line| line.as_str());
    let text = line.map_or_else(|| format!("{} {}", tool.name, tool.args), str::to_owned);
    let mut short: String = text.chars().take(QUESTION_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Characters of a call that a question shows.
const QUESTION_CHARS_MAX: usize = 1000;
