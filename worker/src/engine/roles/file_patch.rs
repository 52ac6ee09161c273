//! Sub-protocol that changes one file through a role that sees nothing else of the tree: the runtime shows the file,
//! the role replies with a patch, and the runtime applies it. Pure.
//!
//! The patch is in the apply_patch format; any form that `edit_file` reads is accepted. A patch that names another
//! file is always rejected (D3): the call that applies it is made for this file. A patch that cannot be applied is
//! retried, first with the current file, then with the rejected hunks (D4).

use docket_schema::{
    content::{Content, WorkspacePath},
    run::{EngineFact, FinishedCall, RunStarted, RunState, ToolStatus},
};
use serde_json::json;

use super::role_conversation;
use crate::engine::core::decision::{Decision, RoleStart};
use crate::tools;

/// Tries per file: the first, one with the current file, one with the rejected hunks.
const TRIES_MAX: u32 = 3;

/// The instructions for a role that replies with a patch.
pub(in crate::engine) const PATCH_INSTRUCTIONS: &str = "\
Answer with one patch in this format and nothing else:
*** Begin Patch
*** Update File: path/of/the/file
@@ a line that stands above the place, such as a function's head
 a line that stays
-a line that goes
+a line that comes
 a line that stays
*** End Patch
Quote lines exactly as they stand, with two or three that stay around each change. A file that is not there yet is \
written whole: `*** Add File: path` and then every line with a `+` before it. You may change the one file that you are \
shown: a patch that names another is refused. If the file needs no change, answer with the single word UNCHANGED.
";

/// A change to one file.
pub(in crate::engine) struct FilePatchTask<'a> {
    /// The role that makes it.
    pub(in crate::engine) role: &'a str,
    /// Its purpose, in one line; distinct for each step.
    pub(in crate::engine) about: String,
    /// The file.
    pub(in crate::engine) path: &'a WorkspacePath,
    /// The task, and everything the role should know about it.
    pub(in crate::engine) instructions: Vec<Content>,
}

/// How it ended.
pub(in crate::engine) enum FilePatchOutcome {
    /// The file was changed: the runtime's message.
    Applied(Content),
    /// No change was needed: the runtime's message.
    Unchanged(Content),
    /// All tries failed: the reason.
    GivenUp(String),
}

/// Advances the change of the file.
///
/// # Errors
/// The decision, while it is in progress.
pub(in crate::engine) fn advance_patch(
    run: &RunState,
    pins: &RunStarted,
    patch: &FilePatchTask<'_>,
) -> Result<FilePatchOutcome, Decision> {
    let work = &run.engine_state;
    let at = role_conversation::is_active_role(run, patch.role, &patch.about);
    if at
        && uses_current_rules(pins)
        && work.finished_calls.is_empty()
        && work.tries.min(work.counted_invalid_answers()) >= TRIES_MAX
        && let Some(problem) = &work.problem
    {
        return Ok(FilePatchOutcome::GivenUp(problem.clone()));
    }
    match work.finished_calls.last() {
        Some(done) if is_show_file_result(done, patch.path) && (!at || work.problem.is_some()) => {
            if done.status != ToolStatus::Ok {
                return Ok(FilePatchOutcome::GivenUp(result_text(done)));
            }
            Err(role_conversation::start_role(run, Vec::new(), patch_opening(run, pins, patch, done)))
        }
        Some(done) if at && is_patch_result(done) => {
            if done.status == ToolStatus::Ok {
                return Ok(FilePatchOutcome::Applied(done.content.clone()));
            }
            let args = &done.tool.args;
            let written = if pins.settings.role_rules > 0 { args["content"].as_str() } else { None };
            let problem = append_refused_patch(run, result_text(done), args["patch"].as_str().or(written));
            retry_patch(run, pins, patch, problem)
        }
        Some(_) | None if at => {
            let said = role_conversation::inline_text(role_conversation::require_final_reply(run, pins)?);
            match parse_patch_reply(patch.path, said, uses_current_rules(pins)) {
                Ok(Some((tool, args))) => {
                    Err(role_conversation::call_own_tools(run, Vec::new(), vec![(tool, args)]))
                }
                Ok(None) => Ok(FilePatchOutcome::Unchanged(format!("{} needs no change", patch.path).into())),
                Err(problem) => {
                    let refused = (pins.settings.role_rules > 0).then_some(said);
                    retry_patch(run, pins, patch, append_refused_patch(run, problem, refused))
                }
            }
        }
        Some(_) | None => {
            Err(role_conversation::call_own_tools(run, Vec::new(), vec![show_file_call(pins, patch)]))
        }
    }
}

/// Adds the rejected patch to the problem if the last try comes next.
fn append_refused_patch(run: &RunState, problem: String, refused: Option<&str>) -> String {
    match refused.filter(|_| run.engine_state.tries + 1 >= TRIES_MAX) {
        Some(refused) => format!("{problem}\nThe patch was:\n{refused}"),
        None => problem,
    }
}

/// Retries with the current file, or gives up after the last try.
fn retry_patch(
    run: &RunState,
    pins: &RunStarted,
    patch: &FilePatchTask<'_>,
    problem: String,
) -> Result<FilePatchOutcome, Decision> {
    let is_last = run.engine_state.tries >= TRIES_MAX;
    if is_last && !uses_current_rules(pins) {
        return Ok(FilePatchOutcome::GivenUp(problem));
    }
    let facts = vec![EngineFact::Invalid { what: "patch".to_owned(), problem }];
    // The rejection of the last try is recorded too; its consequences come after it.
    Err(if is_last {
        role_conversation::record_facts(run, facts)
    } else {
        role_conversation::call_own_tools(run, facts, vec![show_file_call(pins, patch)])
    })
}

/// Whether the run uses the current rules: file names are read literally, and each rejected patch is reported.
const fn uses_current_rules(pins: &RunStarted) -> bool {
    pins.settings.role_rules > 1
}

fn show_file_call(pins: &RunStarted, patch: &FilePatchTask<'_>) -> (&'static str, serde_json::Value) {
    let most = context_bytes_max(pins, patch.role);
    let path = patch.path.to_string();
    if most == 0 {
        return (tools::SHOW_FILE, json!({ "path": path }));
    }
    // For a larger file, the parts that the instructions mention.
    let about: Vec<&str> = patch.instructions.iter().map(role_conversation::inline_text).collect();
    // A quarter is reserved for the rejected patch and earlier changes; the file gets what the instructions leave of
    // the rest.
    let most = match pins.settings.role_rules {
        0 => most,
        _ => {
            let words: u64 = fit_contents(&patch.instructions, most / 4).iter().map(content_bytes).sum();
            (most - most / 4).saturating_sub(words).max(most / 4)
        }
    };
    (tools::SHOW_FILE, json!({ "path": path, "bytes_max": most, "about": about.join("\n") }))
}

/// Returns how many bytes the opening of a patch conversation may have (D8); 0 = no limit. A token has three bytes or
/// more.
fn context_bytes_max(pins: &RunStarted, role: &str) -> u64 {
    let role = pins.roles.iter().find(|pinned| pinned.name == role);
    role.map_or(0, |role| role.context_tokens_max).saturating_mul(3)
}

fn content_bytes(content: &Content) -> u64 {
    match content {
        Content::Text(text) => text.len() as u64,
        Content::B64(bytes) => bytes.len() as u64,
        Content::Blob(blob) => blob.bytes,
    }
}

/// Fits texts into `most` bytes; a text longer than its remaining space keeps its beginning and end.
fn fit_contents(words: &[Content], most: u64) -> Vec<Content> {
    let mut left = most;
    let fit = |content: &Content| {
        let bytes = content_bytes(content);
        let fitting = match content {
            _ if bytes <= left => content.clone(),
            Content::Text(text) => truncate_middle(text, left).into(),
            Content::B64(_) | Content::Blob(_) => {
                format!("[{bytes} bytes, more than this role may begin with, are left out]").into()
            }
        };
        left = left.saturating_sub(bytes);
        fitting
    };
    words.iter().map(fit).collect()
}

/// Keeps a third of `most` from the beginning and the rest from the end, where logs report failures.
fn truncate_middle(text: &str, most: u64) -> String {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let head = text.floor_char_boundary(most / 3);
    let tail = text.ceil_char_boundary(text.len().saturating_sub(most - most / 3)).max(head);
    format!("{}\n[… {} bytes are left out …]\n{}", &text[..head], tail - head, &text[tail..])
}

fn patch_opening(
    run: &RunState,
    pins: &RunStarted,
    patch: &FilePatchTask<'_>,
    shown: &FinishedCall,
) -> RoleStart {
    // A quarter for the instructions, one for the rejected patch and earlier changes, the rest for the file.
    let quarter = match (context_bytes_max(pins, patch.role), pins.settings.role_rules) {
        (0, _) | (_, 0) => u64::MAX,
        (most, _) => most / 4,
    };
    let mut opening = fit_contents(&patch.instructions, quarter);
    if let Some(summary) = run.engine_state.summaries.get(patch.path) {
        let before = format!("What was done to `{}` before: {summary}", patch.path);
        opening.extend(fit_contents(&[before.into()], quarter / 4));
    }
    opening.push(format!("The file `{}`, as it is:", patch.path).into());
    opening.push(shown.content.clone());
    if let Some(problem) = &run.engine_state.problem {
        let problem = format!("Your last patch could not be applied, and nothing was changed:\n{problem}");
        opening.extend(fit_contents(&[problem.into()], quarter / 4 * 3));
    }
    RoleStart { role: patch.role.to_owned(), about: patch.about.clone(), opening }
}

fn is_show_file_result(done: &FinishedCall, path: &WorkspacePath) -> bool {
    done.tool.name == tools::SHOW_FILE && done.tool.args["path"] == path.to_string()
}

/// Whether the call applied a patch.
pub(in crate::engine) fn is_patch_result(done: &FinishedCall) -> bool {
    done.tool.call.is_runtime() && matches!(done.tool.name.as_str(), "edit_file" | "create_file")
}

fn result_text(done: &FinishedCall) -> String {
    match &done.content {
        Content::Text(text) => text.clone(),
        Content::B64(_) | Content::Blob(_) => "its message is too long to be quoted".to_owned(),
    }
}

/// Returns the call that applies a reply; `None` if it says that nothing needs to change. `exact` = a file is named
/// by its full path.
fn parse_patch_reply(
    path: &WorkspacePath,
    said: &str,
    exact: bool,
) -> Result<Option<(&'static str, serde_json::Value)>, String> {
    let name = path.to_string();
    let other =
        |named: &str| if exact { !is_same_path(&name, named) } else { names_another_file(&name, named) };
    let other_by_git = |named: &str| {
        let bare = named.strip_prefix("a/").or_else(|| named.strip_prefix("b/")).unwrap_or(named);
        other(named) && other(bare)
    };
    if said.trim().trim_matches(|c| "`*.".contains(c)) == "UNCHANGED" {
        return Ok(None);
    }
    let foreign = || {
        let mut in_headers = if exact { docket_edit::patch_files(said) } else { Vec::new() };
        in_headers.retain(|header| section_files(said).all(|named| named != header));
        let first = section_files(said).find(|named| other(named)).map(str::to_owned);
        match first.or_else(|| in_headers.into_iter().find(|header| other_by_git(header))) {
            Some(other) => Err(format!("it changes `{other}`, and only `{name}` may be changed")),
            None => Ok(()),
        }
    };
    if let Some((file, content)) = parse_added_file(said) {
        if if exact { other(&file) } else { !docket_edit::is_same_file(&name, &file) } {
            return Err(format!("it adds `{file}`, and only `{name}` may be changed"));
        }
        foreign()?;
        return Ok(Some(("create_file", json!({ "path": name, "content": content }))));
    }
    if exact {
        foreign()?;
    }
    // Problems of form that the tool would reject are reported without a call.
    docket_edit::parse_patch(Some(&name), said).map_err(|error| error.to_string())?;
    foreign()?;
    Ok(Some(("edit_file", json!({ "path": name, "patch": said }))))
}

/// Returns all files that a reply's sections name, including those after the one that would be applied.
fn section_files(said: &str) -> impl Iterator<Item = &str> {
    let marks = ["*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "];
    said.lines().filter_map(move |line| marks.iter().find_map(|mark| line.strip_prefix(mark))).map(str::trim)
}

/// Whether a name refers to another file, more strictly than the edit engine: that one treats leading folders as
/// those above the workspace, but here they are the workspace's own.
fn names_another_file(path: &str, named: &str) -> bool {
    let bare = named.trim_start_matches("./");
    let bare = bare.strip_prefix("a/").or_else(|| bare.strip_prefix("b/")).unwrap_or(bare);
    let deeper = !named.starts_with('/') && bare.strip_suffix(path).is_some_and(|rest| rest.ends_with('/'));
    deeper || !docket_edit::is_same_file(path, named)
}

/// Whether a name is this path, relative or from where commands see the workspace. A shorter name, or one with other
/// leading folders, may be another file's.
fn is_same_path(path: &str, named: &str) -> bool {
    tools::strip_workspace_prefix(named).trim_start_matches("./") == path
}

/// Returns the file that a reply writes in full, and its text.
fn parse_added_file(said: &str) -> Option<(String, String)> {
    let mut lines = said.lines().skip_while(|line| !line.starts_with("*** Add File: "));
    let file = lines.next()?.strip_prefix("*** Add File: ")?.trim().to_owned();
    let body = lines.take_while(|line| !line.starts_with("*** "));
    let text: String = body.map(|line| format!("{}\n", line.strip_prefix('+').unwrap_or(line))).collect();
    Some((file, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_becomes_a_call_for_the_one_file() {
        let path = WorkspacePath::new("src/a.py").expect("a path");
        let update = "*** Begin Patch\n*** Update File: src/a.py\n-x\n+y\n*** End Patch";
        let (tool, args) = parse_patch_reply(&path, update, true).expect("is read").expect("a call");
        assert_eq!((tool, args["patch"].as_str()), ("edit_file", Some(update)));
        let add = "```\n*** Begin Patch\n*** Add File: src/a.py\n+x = 1\n+\n+y = 2\n*** End Patch\n```";
        let (tool, args) = parse_patch_reply(&path, add, true).expect("is read").expect("a call");
        assert_eq!((tool, args["content"].as_str()), ("create_file", Some("x = 1\n\ny = 2\n")));
        assert_eq!(parse_patch_reply(&path, "UNCHANGED", true), Ok(None));
        for (said, why) in [
            ("*** Begin Patch\n*** Update File: src/b.py\n-x\n+y\n*** End Patch", "src/b.py"),
            ("*** Begin Patch\n*** Add File: b.py\n+x\n*** End Patch", "only `src/a.py`"),
            ("*** Begin Patch\n*** Delete File: src/a.py\n*** End Patch", "delete"),
            ("*** Begin Patch\n*** Add File: src/a.py\n+x\n*** Add File: c.py\n+y\n*** End Patch", "c.py"),
            ("*** Begin Patch\n*** Update File: src/a.py\n-x\n+y\n*** Move to: d.py\n*** End Patch", "d.py"),
            ("*** Begin Patch\n*** Update File: old/src/a.py\n-x\n+y\n*** End Patch", "old/src/a.py"),
            ("I would rather not.", "no change"),
        ] {
            for exact in [true, false] {
                assert!(
                    parse_patch_reply(&path, said, exact).is_err_and(|told| told.contains(why)),
                    "{exact} {said}"
                );
            }
        }
    }

    #[test]
    fn only_the_full_path_names_the_file() {
        let path = WorkspacePath::new("src/a.py").expect("a path");
        let forms = |named: &str| {
            [
                format!("*** Begin Patch\n*** Update File: {named}\n-x\n+y\n*** End Patch"),
                format!("*** Begin Patch\n*** Add File: {named}\n+y\n*** End Patch"),
                format!("--- {named}\n+++ {named}\n@@\n-x\n+y\n"),
            ]
        };
        for named in ["src/a.py", "./src/a.py", "/workspace/src/a.py"] {
            for patch in forms(named) {
                assert!(matches!(parse_patch_reply(&path, &patch, true), Ok(Some(_))), "{patch}");
            }
        }
        // The prefixes of git in the headers of a diff.
        for named in ["a/src/a.py", "b/src/a.py"] {
            let [update, add, diff] = forms(named);
            assert!(matches!(parse_patch_reply(&path, &diff, true), Ok(Some(_))), "{diff}");
            for patch in [update, add] {
                assert!(
                    parse_patch_reply(&path, &patch, true)
                        .is_err_and(|told| told.contains("only `src/a.py`")),
                    "{patch}"
                );
            }
        }
        let root = WorkspacePath::new("a.py").expect("a path");
        for named in ["/workspace/lib/a.py", "/elsewhere/a.py", "lib/a.py"] {
            for patch in forms(named) {
                assert!(
                    parse_patch_reply(&root, &patch, true).is_err_and(|told| told.contains("only `a.py`")),
                    "{patch}"
                );
            }
        }
        // Another file may have that name.
        for named in ["a.py", "./a.py", "lib/src/a.py", "lib/a.py", "/a.py", "/work/project/src/a.py"] {
            for patch in forms(named) {
                assert!(
                    parse_patch_reply(&path, &patch, true)
                        .is_err_and(|told| told.contains("only `src/a.py`")),
                    "{patch}"
                );
            }
        }
        assert!(
            forms("a.py").iter().all(|patch| parse_patch_reply(&path, patch, false).is_ok()),
            "as in older logs"
        );
    }
}
