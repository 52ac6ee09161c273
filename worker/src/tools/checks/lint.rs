//! The linters of a batch of edits (A11): run on the files it changed, and said in the result of its last
//! call.
//!
//! Called by the driver's workbench after a batch. A linter that does not end in time or is not there is
//! told, never an error of the edit.
//!
//! What was found before the run changed a file is not the run's: a linter runs on a file before the first edit of
//! it as well, and only what came since is listed and counted.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    content::WorkPath,
    ids::BlobHash,
    redact::Redactor,
    run::LinterSpec,
    tool::{LintBefore, LintSeen, LintStatus},
};

use crate::lint::{Finding, findings, is_for, is_of_project, line};
use crate::{
    shell::as_check,
    tools::{
        commands::run_command::as_text,
        context::{
            runner::{CommandOutput, CommandSpec, Ended, RunnerError},
            tool_context::ToolContext,
        },
        file_access::files::{load, os},
        text::output::{cut, printable},
    },
};

/// Characters of all findings that the model is shown: more than a screenful is one cause, or no lint at all.
const FINDINGS_CHARS_MAX: usize = 2000;

/// Characters of what is new, where findings are no longer listed as they come.
const NEW_CHARS_MAX: usize = 1000;

/// Findings of a file that are remembered: with more the file is no longer looked at by what is new in it.
const BEFORE_MAX: usize = 2000;

/// Exit status of a shell that does not find a program.
const NOT_FOUND: i32 = 127;

/// A batch of edits to be linted.
pub struct Edited<'a> {
    /// Linters as pinned.
    pub linters: &'a [LinterSpec],
    /// Files that the batch changed, in any order; those that are gone are left out.
    pub files: &'a [WorkPath],
    /// Linters that are known not to be installed, or never to end in time: they are neither run nor told
    /// again.
    pub missing: &'a BTreeSet<String>,
    /// What each linter found, by its name, before the run changed the files that it tells.
    pub before: &'a BTreeMap<String, LintBefore>,
    /// Time limit of each.
    pub timeout_ms: u64,
    /// Whether findings are listed; else only counted.
    pub listed: bool,
}

/// What linters said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Linted {
    /// For the model, to follow the result's own text; empty where there is nothing to say.
    pub text: String,
    /// All that they printed, where `text` holds a part.
    pub full: Option<String>,
    /// One for each linter that has files here.
    pub seen: Vec<LintSeen>,
}

/// What one linter finds before files are changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Before {
    /// This.
    Found(LintBefore),
    /// Nothing is known: its time limit ended it.
    TimedOut,
}

/// What else a run changed, or is about to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changing {
    /// Files of those to be edited that the run made itself: all in them is new.
    pub made: Vec<WorkPath>,
    /// Files that are about to be made.
    pub making: Vec<WorkPath>,
    /// Files that the run changed already.
    pub changed: Vec<WorkPath>,
}

/// Runs linters on files that are about to be changed for the first time; by their names. One that looks at the whole
/// project runs once, before the first change of all: later it would find what the run did elsewhere.
pub async fn lint_before(
    context: ToolContext<'_>,
    edited: &Edited<'_>,
    changing: &Changing,
) -> BTreeMap<String, Before> {
    let mut all = BTreeMap::new();
    for linter in edited.linters.iter().filter(|linter| !edited.missing.contains(&linter.name)) {
        let known = edited.before.get(&linter.name);
        let is_new =
            |path: &&WorkPath| is_for(linter, path) && known.is_none_or(|known| !known.files.contains(path));
        let of_project = is_of_project(linter);
        if of_project && (known.is_some() || changing.changed.iter().any(|path| is_for(linter, path))) {
            continue;
        }
        let making = changing.making.iter().filter(|_| of_project);
        let own: Vec<WorkPath> = edited.files.iter().chain(making).filter(is_new).cloned().collect();
        let made = changing.made.iter().filter(is_new).cloned();
        if own.is_empty() {
            continue;
        }
        // An error of the sandbox says nothing of the linter.
        let Ok(checked) = check(context, linter, edited, &own).await else { continue };
        let before = match checked {
            (LintStatus::TimedOut, _) => Before::TimedOut,
            (LintStatus::Missing, _) => continue,
            (LintStatus::Clean | LintStatus::Findings, said) => {
                let found = found(&said).into_iter();
                let mut lines = LineTexts::new(context);
                let findings: Vec<String> =
                    found.map(|found| lines.mark(&found)).take(BEFORE_MAX + 1).collect();
                if findings.len() > BEFORE_MAX {
                    continue;
                }
                Before::Found(LintBefore { files: own.into_iter().chain(made).collect(), findings })
            }
        };
        all.insert(linter.name.clone(), before);
    }
    all
}

/// Runs one linter on these files.
async fn check(
    context: ToolContext<'_>,
    linter: &LinterSpec,
    edited: &Edited<'_>,
    files: &[WorkPath],
) -> Result<(LintStatus, String), RunnerError> {
    let timeout_ms = context.settings.time_limit(edited.timeout_ms).ms;
    let shell = as_check(&line(&linter.check, files)).into_owned();
    let spec = CommandSpec { shell, cwd: None, timeout_ms };
    Ok(status_of(&context.runner.run(spec).await?))
}

/// The findings in an output; where its form is not known, each line is one.
fn found(said: &str) -> Vec<Finding> {
    let known = findings(said);
    if !known.is_empty() {
        return known;
    }
    let plain = |line: &str| Finding {
        path: String::new(),
        line: 0,
        column: 0,
        code: String::new(),
        message: line.to_owned(),
        is_safe: false,
    };
    said.lines().filter(|line| !line.trim().is_empty()).map(plain).collect()
}

/// The lines that findings are about, as they stand.
struct LineTexts<'a> {
    context: ToolContext<'a>,
    files: BTreeMap<String, Vec<String>>,
}

impl<'a> LineTexts<'a> {
    const fn new(context: ToolContext<'a>) -> Self {
        Self { context, files: BTreeMap::new() }
    }

    fn of(&mut self, found: &Finding) -> String {
        let name = found.path.strip_prefix("./").unwrap_or(&found.path);
        let lines = self.files.entry(name.to_owned()).or_insert_with(|| {
            let loaded = WorkPath::new(name).and_then(|path| load(self.context.root, &path).ok());
            let text = loaded.map(|loaded| String::from_utf8_lossy(&loaded.bytes).into_owned());
            text.unwrap_or_default().lines().map(|line| line.trim().to_owned()).collect()
        });
        found.line.checked_sub(1).and_then(|at| lines.get(at)).cloned().unwrap_or_default()
    }

    /// A finding without its place: two short hashes, of its file and words, and of its line's text.
    fn mark(&mut self, found: &Finding) -> String {
        let path = found.path.strip_prefix("./").unwrap_or(&found.path);
        let message: String = found.message.chars().filter(|c| !c.is_ascii_digit()).collect();
        let short =
            |text: &str| BlobHash::of(text.as_bytes()).to_string().chars().take(8).collect::<String>();
        format!("{}{}", short(&format!("{path}\n{}\n{message}", found.code)), short(&self.of(found)))
    }
}

/// For each finding, whether it is none of those before: the same on the same line first, then the same anywhere in
/// its file.
fn are_new(marks: &[String], before: &[String]) -> Vec<bool> {
    let mut left: Vec<&str> = before.iter().map(String::as_str).collect();
    let mut new = vec![true; marks.len()];
    for length in [16, 8] {
        for (mark, new) in marks.iter().zip(&mut new).filter(|(_, new)| **new) {
            if let Some(at) = left.iter().position(|old| old.get(..length) == mark.get(..length)) {
                left.swap_remove(at);
                *new = false;
            }
        }
    }
    new
}

/// Runs the linters of these files, one after the other. `first`: what they found in those of them that were never
/// changed before.
pub async fn lint(
    context: ToolContext<'_>,
    edited: &Edited<'_>,
    mut first: BTreeMap<String, Before>,
) -> Linted {
    let mut linted = Linted::default();
    let there = |path: &&WorkPath| context.root.symlink_metadata(os(path)).is_ok_and(|meta| meta.is_file());
    let mut files: Vec<&WorkPath> = edited.files.iter().filter(there).collect();
    files.sort_unstable();
    files.dedup();
    for linter in edited.linters {
        let own: Vec<WorkPath> =
            files.iter().filter(|path| is_for(linter, path)).map(|path| (*path).clone()).collect();
        if own.is_empty() || edited.missing.contains(&linter.name) {
            continue;
        }
        let first = match first.remove(&linter.name) {
            // It would not end this time either.
            Some(Before::TimedOut) => {
                linted.take(linter, edited, LintStatus::TimedOut, &Sorted::default());
                continue;
            }
            Some(Before::Found(first)) => Some(first),
            None => None,
        };
        let Ok((status, said)) = check(context, linter, edited, &own).await else { continue };
        let known = edited.before.get(&linter.name).map_or(&[][..], |before| &before.findings);
        let known = [known, first.as_ref().map_or(&[][..], |first| &first.findings)].concat();
        let sorted = Sorted::of(context, said, &known);
        let status = match status {
            LintStatus::Findings if sorted.new.is_empty() && sorted.old > 0 => LintStatus::Clean,
            other => other,
        };
        linted.take(linter, edited, status, &sorted);
        if let Some(seen) = linted.seen.last_mut() {
            seen.before = first;
        }
    }
    linted
}

/// What a linter found, by whether it was there before the run.
#[derive(Default)]
struct Sorted {
    said: String,
    new: Vec<Finding>,
    old: usize,
}

impl Sorted {
    fn of(context: ToolContext<'_>, said: String, before: &[String]) -> Self {
        let all = found(&said);
        let mut lines = LineTexts::new(context);
        let marks: Vec<String> = all.iter().map(|found| lines.mark(found)).collect();
        let are_new = are_new(&marks, before);
        let new: Vec<Finding> =
            all.into_iter().zip(&are_new).filter(|(_, new)| **new).map(|(found, _)| found).collect();
        let old = are_new.len() - new.len();
        Self { said, new, old }
    }

    /// What is new, a line each.
    fn lines(&self) -> String {
        let line = |found: &Finding| {
            let Finding { path, line, column, code, message, .. } = found;
            let code = if code.is_empty() { String::new() } else { format!("{code} ") };
            match (path.is_empty(), column) {
                (true, _) => format!("{message}\n"),
                (false, 0) => format!("{path}:{line}: {code}{message}\n"),
                (false, _) => format!("{path}:{line}:{column}: {code}{message}\n"),
            }
        };
        self.new.iter().map(line).collect()
    }

    /// As the model reads of the rest.
    fn rest(&self) -> String {
        match self.old {
            0 => String::new(),
            1 => "\n(1 finding more was there before this run: it is not yours to mend)".to_owned(),
            old => format!("\n({old} findings more were there before this run: they are not yours to mend)"),
        }
    }
}

fn status_of(output: &CommandOutput) -> (LintStatus, String) {
    let status = match output.ended {
        Ended::Exit(0) => LintStatus::Clean,
        Ended::Exit(NOT_FOUND) => LintStatus::Missing,
        Ended::TimedOut => LintStatus::TimedOut,
        Ended::Exit(_) | Ended::Signal(_) | Ended::Exceeded(_) => LintStatus::Findings,
    };
    let (out, err) = (printable(&output.stdout.joined()), printable(&output.stderr.joined()));
    let said = match (out.trim().is_empty(), err.trim().is_empty()) {
        (false, true) => out,
        (true, false) => err,
        (true, true) => String::new(),
        (false, false) => as_text(output, &Redactor::default()),
    };
    (status, said)
}

impl Linted {
    fn take(&mut self, linter: &LinterSpec, edited: &Edited<'_>, status: LintStatus, sorted: &Sorted) {
        let name = &linter.name;
        let count = u32::try_from(findings(&sorted.said).len()).unwrap_or(u32::MAX).max(1);
        let old = u32::try_from(sorted.old).unwrap_or(u32::MAX);
        let found = if old > 0 { u32::try_from(sorted.new.len()).unwrap_or(u32::MAX) } else { count };
        let told = match status {
            LintStatus::Clean if old > 0 => {
                Some(format!("{name} finds nothing new ({old} from before this run: not yours to mend)"))
            }
            LintStatus::Clean => None,
            LintStatus::Findings if !edited.listed => Some(format!(
                "{name} still finds something ({found}): the last corrections left as much as they mended. Read the \
                 file again as a whole before you change it; the project's checks run at the end.\n{}{}",
                cut(sorted.lines().trim_end(), NEW_CHARS_MAX).0,
                sorted.rest()
            )),
            LintStatus::Findings => {
                let lines = sorted.lines();
                let said = if old > 0 { &lines } else { &sorted.said };
                let (shown, was_cut) = cut(said.trim_end(), FINDINGS_CHARS_MAX);
                if was_cut {
                    self.full.get_or_insert_default().push_str(said);
                }
                let new = if old > 0 { ", new in this run" } else { "" };
                Some(format!("{name} finds{new}:\n{shown}{}", sorted.rest()))
            }
            LintStatus::TimedOut => Some(format!(
                "{name} did not end within {} s: what was changed is not linted",
                std::time::Duration::from_millis(edited.timeout_ms).as_secs_f64()
            )),
            LintStatus::Missing => Some(format!(
                "{name} is not installed or cannot run here: files of .{} are not linted by it in this run",
                linter.extensions.join(", .")
            )),
        };
        if let Some(told) = told {
            self.text.push_str(&format!("\n{told}\n"));
        }
        let findings = if status == LintStatus::Findings { found } else { 0 };
        self.seen.push(LintSeen { findings, old, ..LintSeen::plain(name, status) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::Workspace;

    fn linter(name: &str, check: &str) -> LinterSpec {
        let (project, fix, gates) = (None, None, true);
        LinterSpec {
            name: name.into(),
            extensions: vec!["py".into()],
            check: check.into(),
            project,
            fix,
            gates,
        }
    }

    fn run(linters: &[LinterSpec], missing: &[&str], listed: bool) -> Linted {
        let w = Workspace::new(&[("a.py", "x"), ("it's.py", ""), ("b.txt", "")]);
        let files =
            ["a.py", "it's.py", "a.py", "b.txt", "gone.py"].map(|path| WorkPath::new(path).expect("legal"));
        let missing = missing.iter().map(|name| (*name).to_owned()).collect();
        let before = BTreeMap::new();
        let edited =
            Edited { linters, files: &files, missing: &missing, before: &before, timeout_ms: 1000, listed };
        w.with(|context| Box::pin(async move { lint(context, &edited, BTreeMap::new()).await }))
    }

    #[test]
    fn findings_are_listed_for_the_files_of_the_language() {
        let linted =
            run(&[linter("lint", "for f in {files}; do echo \"$f:1:1: E1 bad\"; done; exit 1")], &[], true);
        assert_eq!(linted.text, "\nlint finds:\na.py:1:1: E1 bad\nit's.py:1:1: E1 bad\n");
        assert_eq!(linted.seen, [LintSeen { findings: 2, ..LintSeen::plain("lint", LintStatus::Findings) }]);
    }

    #[test]
    fn what_is_clean_is_silent_and_what_is_missing_is_told_once() {
        let linters = [linter("good", "true"), linter("none", "no-such-linter {files}")];
        let linted = run(&linters, &[], true);
        assert_eq!(
            linted.text,
            "\nnone is not installed or cannot run here: files of .py are not linted by it in this run\n"
        );
        let status: Vec<LintStatus> = linted.seen.iter().map(|seen| seen.status).collect();
        assert_eq!(status, [LintStatus::Clean, LintStatus::Missing]);
        let again = run(&linters, &["none"], true);
        assert_eq!((again.text.as_str(), again.seen.len()), ("", 1));
    }

    #[test]
    fn a_linter_that_hangs_is_ended_and_told() {
        let linted = run(&[linter("slow", "sleep 60")], &[], true);
        assert_eq!(linted.text, "\nslow did not end within 1 s: what was changed is not linted\n");
        assert_eq!(linted.seen[0].status, LintStatus::TimedOut);
    }

    #[test]
    fn findings_are_capped_and_after_too_many_corrections_only_counted() {
        let many =
            [linter("lint", "seq 1 3000 | sed 's/$/:1:1: E1 bad/; s/^/a.py:/' | cut -d: -f1,2,3,5; exit 1")];
        let linted = run(&many, &[], true);
        assert!(
            linted.text.chars().count() < 2200
                && linted.full.is_some_and(|full| full.lines().count() == 3000)
        );
        let counted = run(&[linter("lint", "echo 'a.py:1:1: E1 bad'; exit 1")], &[], false);
        assert!(counted.text.contains("lint still finds something (1)"), "{}", counted.text);
        assert!(
            counted.text.ends_with("\na.py:1:1: E1 bad\n"),
            "what is new is named all the same: {}",
            counted.text
        );
    }

    /// Says of each line with `bad` that it is.
    const BAD: &str = "for f in {files}; do grep -n bad \"$f\" | sed \"s|\\([0-9]*\\):.*\\(bad[0-9]*\\).*|$f:\\1:1: E1 \\2|\"; done; \
                       ! grep -q bad {files}";

    fn edit(before: &str, after: &str, listed: bool) -> (Linted, Linted) {
        let w = Workspace::new(&[("a.py", before)]);
        let (files, missing) = ([WorkPath::new("a.py").expect("legal")], BTreeSet::new());
        let linters = [linter("lint", BAD)];
        let edited = |before| Edited {
            linters: &linters,
            files: &files,
            missing: &missing,
            before,
            timeout_ms: 5000,
            listed,
        };
        let unknown = BTreeMap::new();
        let first = w.with(|context| {
            let edited = edited(&unknown);
            Box::pin(async move { lint_before(context, &edited, &Changing::default()).await })
        });
        w.write("a.py", after);
        let linted = w.with(|context| {
            let edited = edited(&unknown);
            Box::pin(async move { lint(context, &edited, first).await })
        });
        let before = linted.seen[0].before.clone().expect("what was there before is recorded");
        // As in a later batch, which knows it from the log.
        let known = BTreeMap::from([("lint".to_owned(), before)]);
        let later = w.with(|context| {
            let edited = edited(&known);
            Box::pin(async move {
                assert!(lint_before(context, &edited, &Changing::default()).await.is_empty(), "once a file");
                lint(context, &edited, BTreeMap::new()).await
            })
        });
        (linted, later)
    }

    #[test]
    fn what_was_found_before_the_run_is_neither_listed_nor_counted() {
        let many: String = (0..400).map(|n| format!("x = bad{n}\n")).collect();
        for (before, after) in [
            ("x = bad1\ny = 1\n", "\nx = bad1\ny = 2\n"),
            ("x = bad1\ny = 1\n", "x = 1 + bad1\ny = 1\n"),
            (&many, &format!("y = 1\n{many}")),
        ] {
            let (linted, later) = edit(before, after, true);
            assert_eq!(
                (linted.seen[0].status, linted.seen[0].findings),
                (LintStatus::Clean, 0),
                "{}",
                linted.text
            );
            assert!(linted.text.contains("lint finds nothing new ("), "{}", linted.text);
            assert_eq!((later.text, later.seen[0].status), (linted.text, LintStatus::Clean));
            assert!(later.seen[0].before.is_none(), "recorded once");
        }
    }

    #[test]
    fn a_linter_of_the_whole_project_is_heard_once_before_anything_is_changed() {
        let w = Workspace::new(&[("a.py", "x\n"), ("b.py", "x\n")]);
        let linters = [linter("all", "echo b.py:1:1: E1 bad; exit 1")];
        let path = |path: &str| WorkPath::new(path).expect("legal");
        let files = [path("a.py")];
        let before = |files: &[WorkPath], known: &BTreeMap<String, LintBefore>, changing: Changing| {
            let missing = BTreeSet::new();
            let edited = Edited {
                linters: &linters,
                files,
                missing: &missing,
                before: known,
                timeout_ms: 5000,
                listed: true,
            };
            w.with(|context| {
                let (edited, changing) = (&edited, &changing);
                Box::pin(async move { lint_before(context, edited, changing).await })
            })
        };
        let nothing = BTreeMap::new();
        let first = before(&files, &nothing, Changing::default());
        let Some(Before::Found(found)) = first.get("all") else { panic!("{first:?}") };
        assert_eq!(found.findings.len(), 1, "also of a file that is not changed yet");
        let making = Changing { making: vec![path("c.py")], ..Changing::default() };
        assert_eq!(before(&[], &nothing, making).len(), 1, "a new file may break another");
        let known = BTreeMap::from([("all".to_owned(), found.clone())]);
        assert!(before(&[path("b.py")], &known, Changing::default()).is_empty());
        let changed = Changing { changed: vec![path("b.py")], ..Changing::default() };
        assert!(before(&files, &nothing, changed).is_empty(), "too late");
    }

    #[test]
    fn what_is_new_is_named_among_any_number_of_old_findings() {
        let many: String = (0..400).map(|n| format!("x = bad{n}\n")).collect();
        for listed in [true, false] {
            let (linted, later) = edit(&many, &many.replace("= bad7\n", "= bad7\n\ny = bad1000\n"), listed);
            assert_eq!(
                (linted.seen[0].status, linted.seen[0].findings, linted.seen[0].old),
                (LintStatus::Findings, 1, 400)
            );
            assert!(
                linted.text.contains("a.py:10:1: E1 bad1000\n(400 findings more were there"),
                "{}",
                linted.text
            );
            assert!(!linted.text.contains("bad7\n"), "{}", linted.text);
            assert_eq!(later.text, linted.text);
        }
        // The same once more is one more.
        let (linted, _) = edit("bad1\n", "bad1\nbad1\n", true);
        assert_eq!((linted.seen[0].findings, linted.seen[0].old), (1, 1), "{}", linted.text);
    }
}
