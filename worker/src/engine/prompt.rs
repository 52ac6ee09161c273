//! The layers of the prompt: base, project, task (A16). Pure text from what the run executor saw when the run
//! started; the result is pinned in `RunStarted` and never rebuilt.
//!
//! Base and project form the system prompt and contain nothing about the task: all tasks on one tree share the same
//! bytes, so that a provider's cache serves the second from what the first paid for. Every part has a limit; together
//! they stay within [`PROMPT_BYTES_MAX`].

mod complexity;
mod project;

use docket_schema::{message::ToolSpec, run::TaskComplexity};

use crate::model::ROLE_MARK;
pub use complexity::estimate_complexity;
pub use project::{
    INSTRUCTIONS_BYTES_MAX, InstructionFile, ProjectLayer, ProjectStack, is_third_party_folder,
};

/// Longest task text included, in characters.
pub const TASK_CHARS_MAX: usize = 5000;
/// Limit for all layers, in bytes: 15,000 tokens (A16) of 3.5 bytes; code and English have about four.
pub const PROMPT_BYTES_MAX: usize = 52_500;

/// Required paths that are listed.
const REQUIRED_PATHS_LISTED_MAX: usize = 50;

const BASE_PROMPT: &str = "\
You are a software engineer who works alone in a repository, without anybody to talk to while you work. \
You see the repository and change it through tools only. Everything you do is recorded.

# How to work
- Look before you touch: read a file before you edit it, and search instead of guessing where things are.
- Change as little as the task needs. Keep the style, the names and the structure that are there.
- `edit_file` takes search and replace pairs; quote enough lines that the place is unique. \
`create_file` makes new files and never overwrites one. Project configuration is edited line by line, never replaced.
- Where there are tests, run them once before your first change: what fails then is not yours to mend.
- Run the tests after each step that could break something, and read what failed before you change anything again. \
The same failing attempt three times means that your picture is wrong: look again.
- Commands run in a sandbox without a network. Each starts in the repository's root with nothing left over of the one before.
- Decide small matters yourself. Do not add what was not asked for.

# Your plan
- Your first answer begins with a line `PLAN:` and the steps of the task, one a line, as `- [ ] step`. \
Give it again, with `- [x]` for what is done, whenever a step is done or the plan changes, beside the call that comes next.
- When the conversation grows too long its oldest part is made shorter. Your last plan, the files you changed, \
the commands you ran, the errors that are open and what people told you are kept by the runtime and stand behind the task.

# How to end
- When the work is done and its tests pass, answer without calling a tool: say in a few sentences what you changed and why. \
The project's checks then run; if they fail you go on.
- If you cannot go on without a person (a requirement that contradicts itself, an access you lack), \
answer with a text that begins `BLOCKED:` and ask one precise question.
";

/// Returns the system prompt: base and project layers.
pub fn system_prompt(tools: &[ToolSpec], project: &ProjectLayer) -> String {
    let mut out = match tools.iter().any(|tool| tool.name == "create_file") {
        true => String::from(BASE_PROMPT),
        // The wide set writes whole files, new and existing ones, with one tool.
        false => BASE_PROMPT.replace(
            "`create_file` makes new files and never overwrites one.",
            "`write_file` makes new files, and writes a whole one anew that was read before.",
        ),
    };
    out.push_str(&render_tools_layer(tools));
    out.push_str("\n# The project\n");
    out.push_str(&project.render_text());
    out
}

/// Returns the system prompt of a role: its own instructions, its tools, and the project if it sees that.
pub fn role_system_prompt(
    (name, words): (&str, &str),
    tools: &[ToolSpec],
    project: Option<&ProjectLayer>,
) -> String {
    let mut out = format!("{ROLE_MARK}{name}\n\n{words}");
    if !tools.is_empty() {
        out.push_str(&render_tools_layer(tools));
    }
    if let Some(project) = project {
        out.push_str("\n# The project\n");
        out.push_str(&project.render_text());
    }
    out
}

fn render_tools_layer(tools: &[ToolSpec]) -> String {
    let mut out = String::from("\n# Tools\n");
    for tool in tools {
        let gist = tool.description.split_terminator(". ").next().unwrap_or_default();
        out.push_str(&format!("- `{}`: {}\n", tool.name, gist.trim_end_matches('.')));
    }
    out
}

/// Returns the first user message: the task layer, normalized whatever its text was pasted from.
pub fn task_prompt(title: &str, text: &str, requires: &[String], complexity: TaskComplexity) -> String {
    let (title, text) = (normalize_text(title), normalize_text(text));
    let mut out = format!("# Task: {title}\n\n");
    let text = strip_title_line(&title, &text);
    let end = text.char_indices().nth(TASK_CHARS_MAX).map_or(text.len(), |(end, _)| end);
    out.push_str(&text[..end]);
    if end < text.len() {
        out.push_str("\n[… the task text is cut here]");
    }
    if !requires.is_empty() {
        out.push_str("\n\nThese paths must exist at the end:\n");
        for path in requires.iter().take(REQUIRED_PATHS_LISTED_MAX) {
            out.push_str(&format!("- {path}\n"));
        }
        if requires.len() > REQUIRED_PATHS_LISTED_MAX {
            out.push_str(&format!("- [… and {} more]\n", requires.len() - REQUIRED_PATHS_LISTED_MAX));
        }
    }
    if let Some(preview) = complexity::planning_instruction(complexity) {
        out.push_str(&format!("\n\n# Before your first change\n{preview}\n"));
    }
    out
}

/// Normalizes a text: lines end with `\n` alone and without trailing blanks, at most two empty ones in a row, and
/// none at the beginning or the end (E3). No content is removed; hidden characters are made visible when the prompt
/// is rendered.
fn normalize_text(text: &str) -> String {
    const EMPTY_MAX: usize = 2;
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(text.len());
    let mut empty = 0;
    for line in text.lines() {
        let line = line.trim_end();
        empty = if line.is_empty() { empty + 1 } else { 0 };
        if empty <= EMPTY_MAX && !(line.is_empty() && out.is_empty()) {
            out.push_str(line);
            out.push('\n');
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// Returns the text without a first line that only repeats the title.
fn strip_title_line<'a>(title: &str, text: &'a str) -> &'a str {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    if first.trim_start_matches('#').trim() == title.trim() { rest.trim_start_matches('\n') } else { text }
}

#[cfg(test)]
mod tests;
