//! One file changed by a role that sees nothing else of the tree: the runtime shows it, the role answers with a patch,
//! the runtime applies that. Pure.
//!
//! The patch is in the apply_patch format; any form that `edit_file` reads is taken. One that names another file is
//! refused, whatever it says (D3): the call that applies it is made for the one file. What cannot be applied is tried
//! again, first with the file as it is, then with the hunks that were refused (D4).

use docket_schema::{
    content::{Content, WorkPath},
    run::{Done, Fact, RunStarted, RunState, ToolStatus},
};
use serde_json::json;

use super::seat;
use crate::engine::core::decision::{Begins, Decision};
use crate::tools;

/// Tries at one file: the first, one with the file as it is, one with what was refused.
const TRIES_MAX: u32 = 3;

/// What is wanted of whoever answers with a patch.
pub(in crate::engine) const HOW: &str = "\
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

/// One file that is to be changed.
pub(in crate::engine) struct Patch<'a> {
    /// The role that does it.
    pub(in crate::engine) role: &'a str,
    /// What for, in a line; another for each step.
    pub(in crate::engine) about: String,
    /// The file.
    pub(in crate::engine) path: &'a WorkPath,
    /// What is to be done, and what whoever does it should know.
    pub(in crate::engine) words: Vec<Content>,
}

/// How it ended.
pub(in crate::engine) enum Patched {
    /// The file was changed: the runtime's words.
    Done(Content),
    /// It need not be: the runtime's words.
    Unchanged(Content),
    /// All tries failed: why.
    GivenUp(String),
}

/// What is next for the file.
///
/// # Errors
/// The decision, while it is under way.
pub(in crate::engine) fn patched(
    run: &RunState,
    pins: &RunStarted,
    patch: &Patch<'_>,
) -> Result<Patched, Decision> {
    let work = &run.work;
    let at = seat::is_at(run, patch.role, &patch.about);
    if at
        && is_newer(pins)
        && work.done.is_empty()
        && work.tries.min(work.invalid_counted()) >= TRIES_MAX
        && let Some(problem) = &work.problem
    {
        return Ok(Patched::GivenUp(problem.clone()));
    }
    match work.done.last() {
        Some(done) if shows(done, patch.path) && (!at || work.problem.is_some()) => {
            if done.status != ToolStatus::Ok {
                return Ok(Patched::GivenUp(words_of(done)));
            }
            Err(seat::begin(run, Vec::new(), opening(run, pins, patch, done)))
        }
        Some(done) if at && applies(done) => {
            if done.status == ToolStatus::Ok {
                return Ok(Patched::Done(done.content.clone()));
            }
            let args = &done.tool.args;
            let written = if pins.settings.role_rules > 0 { args["content"].as_str() } else { None };
            let problem = with_refused(run, words_of(done), args["patch"].as_str().or(written));
            again(run, pins, patch, problem)
        }
        Some(_) | None if at => {
            let said = seat::words(seat::speak(run, pins)?);
            match read(patch.path, said, is_newer(pins)) {
                Ok(Some((tool, args))) => Err(seat::call(run, Vec::new(), vec![(tool, args)])),
                Ok(None) => Ok(Patched::Unchanged(format!("{} needs no change", patch.path).into())),
                Err(problem) => {
                    let refused = (pins.settings.role_rules > 0).then_some(said);
                    again(run, pins, patch, with_refused(run, problem, refused))
                }
            }
        }
        Some(_) | None => Err(seat::call(run, Vec::new(), vec![show(pins, patch)])),
    }
}

/// What was wrong, with what was refused where the last try comes next.
fn with_refused(run: &RunState, problem: String, refused: Option<&str>) -> String {
    match refused.filter(|_| run.work.tries + 1 >= TRIES_MAX) {
        Some(refused) => format!("{problem}\nThe patch was:\n{refused}"),
        None => problem,
    }
}

/// Another try, with the file as it is now; or none is left.
fn again(run: &RunState, pins: &RunStarted, patch: &Patch<'_>, problem: String) -> Result<Patched, Decision> {
    let is_last = run.work.tries >= TRIES_MAX;
    if is_last && !is_newer(pins) {
        return Ok(Patched::GivenUp(problem));
    }
    let facts = vec![Fact::Invalid { what: "patch".to_owned(), problem }];
    // Also of the last one the log says that it was refused; what follows from it comes after.
    Err(if is_last { seat::conclude(run, facts) } else { seat::call(run, facts, vec![show(pins, patch)]) })
}

/// Whether the run goes by the rules of today: names of files are taken as they stand, and each refused patch is told.
const fn is_newer(pins: &RunStarted) -> bool {
    pins.settings.role_rules > 1
}

fn show(pins: &RunStarted, patch: &Patch<'_>) -> (&'static str, serde_json::Value) {
    let most = context_bytes_max(pins, patch.role);
    let path = patch.path.to_string();
    if most == 0 {
        return (tools::SHOW_FILE, json!({ "path": path }));
    }
    // Of a larger file the parts that the words speak of.
    let about: Vec<&str> = patch.words.iter().map(seat::words).collect();
    // A quarter stays for what was refused and what was done before; the file has what the words leave of the rest.
    let most = match pins.settings.role_rules {
        0 => most,
        _ => {
            let words: u64 = fitted(&patch.words, most / 4).iter().map(bytes_of).sum();
            (most - most / 4).saturating_sub(words).max(most / 4)
        }
    };
    (tools::SHOW_FILE, json!({ "path": path, "bytes_max": most, "about": about.join("\n") }))
}

/// How many bytes whoever patches may begin with (D8); 0 = no limit. A token has three bytes or more.
fn context_bytes_max(pins: &RunStarted, role: &str) -> u64 {
    let role = pins.roles.iter().find(|pinned| pinned.name == role);
    role.map_or(0, |role| role.context_tokens_max).saturating_mul(3)
}

fn bytes_of(content: &Content) -> u64 {
    match content {
        Content::Text(text) => text.len() as u64,
        Content::B64(bytes) => bytes.len() as u64,
        Content::Blob(blob) => blob.bytes,
    }
}

/// Words in so many bytes: of what is longer than what is left for it, the beginning and the end.
fn fitted(words: &[Content], most: u64) -> Vec<Content> {
    let mut left = most;
    let fit = |content: &Content| {
        let bytes = bytes_of(content);
        let fitting = match content {
            _ if bytes <= left => content.clone(),
            Content::Text(text) => shortened(text, left).into(),
            Content::B64(_) | Content::Blob(_) => {
                format!("[{bytes} bytes, more than this role may begin with, are left out]").into()
            }
        };
        left = left.saturating_sub(bytes);
        fitting
    };
    words.iter().map(fit).collect()
}

/// A third of `most` from the beginning, and the rest from the end: that is where logs say what failed.
fn shortened(text: &str, most: u64) -> String {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let head = text.floor_char_boundary(most / 3);
    let tail = text.ceil_char_boundary(text.len().saturating_sub(most - most / 3)).max(head);
    format!("{}\n[… {} bytes are left out …]\n{}", &text[..head], tail - head, &text[tail..])
}

fn opening(run: &RunState, pins: &RunStarted, patch: &Patch<'_>, shown: &Done) -> Begins {
    // A quarter for what is to be done, one for what was refused and what was done before, the rest for the file.
    let quarter = match (context_bytes_max(pins, patch.role), pins.settings.role_rules) {
        (0, _) | (_, 0) => u64::MAX,
        (most, _) => most / 4,
    };
    let mut opening = fitted(&patch.words, quarter);
    if let Some(summary) = run.work.summaries.get(patch.path) {
        let before = format!("What was done to `{}` before: {summary}", patch.path);
        opening.extend(fitted(&[before.into()], quarter / 4));
    }
    opening.push(format!("The file `{}`, as it is:", patch.path).into());
    opening.push(shown.content.clone());
    if let Some(problem) = &run.work.problem {
        let problem = format!("Your last patch could not be applied, and nothing was changed:\n{problem}");
        opening.extend(fitted(&[problem.into()], quarter / 4 * 3));
    }
    Begins { role: patch.role.to_owned(), about: patch.about.clone(), opening }
}

fn shows(done: &Done, path: &WorkPath) -> bool {
    done.tool.name == tools::SHOW_FILE && done.tool.args["path"] == path.to_string()
}

/// Whether it is a call that applied a patch.
pub(in crate::engine) fn applies(done: &Done) -> bool {
    done.tool.call.is_own() && matches!(done.tool.name.as_str(), "edit_file" | "create_file")
}

fn words_of(done: &Done) -> String {
    match &done.content {
        Content::Text(text) => text.clone(),
        Content::B64(_) | Content::Blob(_) => "its message is too long to be quoted".to_owned(),
    }
}

/// The call that applies an answer; none where it says that nothing is to be changed. `exact` = a file is named by its
/// whole path.
fn read(
    path: &WorkPath,
    said: &str,
    exact: bool,
) -> Result<Option<(&'static str, serde_json::Value)>, String> {
    let name = path.to_string();
    let other = |named: &str| if exact { !is_exactly(&name, named) } else { is_another(&name, named) };
    let other_by_git = |named: &str| {
        let bare = named.strip_prefix("a/").or_else(|| named.strip_prefix("b/")).unwrap_or(named);
        other(named) && other(bare)
    };
    if said.trim().trim_matches(|c| "`*.".contains(c)) == "UNCHANGED" {
        return Ok(None);
    }
    let foreign = || {
        let mut in_headers = if exact { docket_edit::patch_files(said) } else { Vec::new() };
        in_headers.retain(|header| named(said).all(|named| named != header));
        let first = named(said).find(|named| other(named)).map(str::to_owned);
        match first.or_else(|| in_headers.into_iter().find(|header| other_by_git(header))) {
            Some(other) => Err(format!("it changes `{other}`, and only `{name}` may be changed")),
            None => Ok(()),
        }
    };
    if let Some((file, content)) = added(said) {
        if if exact { other(&file) } else { !docket_edit::is_same_file(&name, &file) } {
            return Err(format!("it adds `{file}`, and only `{name}` may be changed"));
        }
        foreign()?;
        return Ok(Some(("create_file", json!({ "path": name, "content": content }))));
    }
    if exact {
        foreign()?;
    }
    // Whatever the tool would refuse for its form alone is told without a call.
    docket_edit::read_patch(Some(&name), said).map_err(|error| error.to_string())?;
    foreign()?;
    Ok(Some(("edit_file", json!({ "path": name, "patch": said }))))
}

/// The files that an answer's sections name, all of them: also those behind the one that would be applied.
fn named(said: &str) -> impl Iterator<Item = &str> {
    let marks = ["*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "];
    said.lines().filter_map(move |line| marks.iter().find_map(|mark| line.strip_prefix(mark))).map(str::trim)
}

/// Whether a name is another file's, beyond what the edit engine tells: it takes folders that stand before a path for
/// those above the workspace, and in one they are the workspace's own.
fn is_another(path: &str, named: &str) -> bool {
    let bare = named.trim_start_matches("./");
    let bare = bare.strip_prefix("a/").or_else(|| bare.strip_prefix("b/")).unwrap_or(bare);
    let deeper = !named.starts_with('/') && bare.strip_suffix(path).is_some_and(|rest| rest.ends_with('/'));
    deeper || !docket_edit::is_same_file(path, named)
}

/// Whether a name is this path, as it stands or from where commands see the workspace. A shorter one, or one with other
/// folders before it, may be another file's.
fn is_exactly(path: &str, named: &str) -> bool {
    tools::within(named).trim_start_matches("./") == path
}

/// The file that an answer writes whole, and its text.
fn added(said: &str) -> Option<(String, String)> {
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
    fn an_answer_is_a_call_for_the_one_file() {
        let path = WorkPath::new("src/a.py").expect("a path");
        let update = "*** Begin Patch\n*** Update File: src/a.py\n-x\n+y\n*** End Patch";
        let (tool, args) = read(&path, update, true).expect("is read").expect("a call");
        assert_eq!((tool, args["patch"].as_str()), ("edit_file", Some(update)));
        let add = "```\n*** Begin Patch\n*** Add File: src/a.py\n+x = 1\n+\n+y = 2\n*** End Patch\n```";
        let (tool, args) = read(&path, add, true).expect("is read").expect("a call");
        assert_eq!((tool, args["content"].as_str()), ("create_file", Some("x = 1\n\ny = 2\n")));
        assert_eq!(read(&path, "UNCHANGED", true), Ok(None));
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
                assert!(read(&path, said, exact).is_err_and(|told| told.contains(why)), "{exact} {said}");
            }
        }
    }

    #[test]
    fn a_file_is_named_by_its_whole_path() {
        let path = WorkPath::new("src/a.py").expect("a path");
        let forms = |named: &str| {
            [
                format!("*** Begin Patch\n*** Update File: {named}\n-x\n+y\n*** End Patch"),
                format!("*** Begin Patch\n*** Add File: {named}\n+y\n*** End Patch"),
                format!("--- {named}\n+++ {named}\n@@\n-x\n+y\n"),
            ]
        };
        for named in ["src/a.py", "./src/a.py", "/workspace/src/a.py"] {
            for patch in forms(named) {
                assert!(matches!(read(&path, &patch, true), Ok(Some(_))), "{patch}");
            }
        }
        // The prefixes of git stand in the headers of a diff.
        for named in ["a/src/a.py", "b/src/a.py"] {
            let [update, add, diff] = forms(named);
            assert!(matches!(read(&path, &diff, true), Ok(Some(_))), "{diff}");
            for patch in [update, add] {
                assert!(
                    read(&path, &patch, true).is_err_and(|told| told.contains("only `src/a.py`")),
                    "{patch}"
                );
            }
        }
        let root = WorkPath::new("a.py").expect("a path");
        for named in ["/workspace/lib/a.py", "/elsewhere/a.py", "lib/a.py"] {
            for patch in forms(named) {
                assert!(read(&root, &patch, true).is_err_and(|told| told.contains("only `a.py`")), "{patch}");
            }
        }
        // Another file may have that name.
        for named in ["a.py", "./a.py", "lib/src/a.py", "lib/a.py", "/a.py", "/work/project/src/a.py"] {
            for patch in forms(named) {
                assert!(
                    read(&path, &patch, true).is_err_and(|told| told.contains("only `src/a.py`")),
                    "{patch}"
                );
            }
        }
        assert!(forms("a.py").iter().all(|patch| read(&path, patch, false).is_ok()), "as in older logs");
    }
}
