//! Estimates how much planning a task needs before its first change (A15): none, a few sentences, or a page.
//!
//! A person sets it, or it is estimated from the text of the task. It is advice: a model that knows better may
//! deviate, and nothing is refused because of it.

use docket_schema::run::TaskComplexity;

/// A task of fewer characters than this is small, unless something else indicates otherwise.
const SMALL_CHARS: usize = 300;
/// A task of more characters than this is large.
const LARGE_CHARS: usize = 1500;
/// A task with this many list items is large.
const LARGE_LIST_ITEMS: usize = 8;
/// A task with this many required paths is large.
const LARGE_REQUIRED_PATHS: usize = 5;

/// Words that indicate work across a code base.
const WIDE_SCOPE_WORDS: [&str; 12] = [
    "refactor",
    "redesign",
    "rewrite",
    "migrate",
    "migration",
    "architecture",
    "throughout",
    "everywhere",
    "concurren",
    "backwards compat",
    "from scratch",
    "end to end",
];
/// Words that indicate work in one place.
const NARROW_SCOPE_WORDS: [&str; 7] =
    ["typo", "rename", "bump", "comment", "spelling", "one line", "one-line"];

/// Estimates the complexity of a task from its text.
pub fn estimate_complexity(title: &str, text: &str, requires: usize) -> TaskComplexity {
    let words = format!("{title}\n{text}").to_lowercase();
    let chars = words.chars().count();
    let points = text.lines().filter(|line| is_list_item(line)).count();
    let wide = WIDE_SCOPE_WORDS.iter().filter(|word| words.contains(*word)).count();
    let large = chars > LARGE_CHARS || points >= LARGE_LIST_ITEMS || requires >= LARGE_REQUIRED_PATHS;
    if large || wide >= 2 {
        return TaskComplexity::High;
    }
    let small = chars < SMALL_CHARS && points < 3 && requires <= 1 && wide == 0;
    let narrow = NARROW_SCOPE_WORDS.iter().any(|word| words.contains(word)) && wide == 0;
    if small || (narrow && points < 3) { TaskComplexity::Low } else { TaskComplexity::Medium }
}

/// `- a`, `* a`, `1. a`, `2) a`.
fn is_list_item(line: &str) -> bool {
    let line = line.trim_start();
    let numbered = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("- ")
        || line.starts_with("* ")
        || (numbered.len() < line.len() && numbered.starts_with([')', '.']))
}

/// Returns the planning requested from the model before its first change.
pub(super) const fn planning_instruction(complexity: TaskComplexity) -> Option<&'static str> {
    match complexity {
        TaskComplexity::Low => None,
        TaskComplexity::Medium => Some(
            "Say below your plan, in two or three sentences, what you are going to change, where and why. \
             Leave it out if the change turns out to be small.",
        ),
        TaskComplexity::High => Some(
            "This task looks large. Explore first. Then write below your plan what you intend: which files \
             change and what becomes of each, what new ones are for, in which order, what could break and how \
             you will see that it did not. Deviate where the code shows you better, and say so.",
        ),
    }
}
