//! Lints a batch of edits (A11): runs the linters on the changed files and appends the findings to the batch's last
//! result.
//!
//! Called by the run loop after a batch. A linter that times out or is not installed is reported, but is never an
//! error of the edit.
//!
//! Existing findings are not blamed on the run: a linter also runs on a file before its first edit, and only newer
//! findings are listed and counted.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    content::WorkspacePath,
    ids::BlobHash,
    redact::Redactor,
    run::LinterSpec,
    tool::{LintBaseline, LintResult, LintStatus},
};

use crate::lint::{LintFinding, applies_to, checks_whole_project, parse_findings, render_command};
use crate::{
    shell::with_pipefail,
    tools::{
        commands::run_command::format_output,
        context::{
            runner::{CommandEnd, CommandOutput, CommandSpec, RunnerError},
            tool_context::ToolContext,
        },
        file_access::files::{load_file, os_path},
        text::output::{cut_middle, printable_text},
    },
};

/// Longest list of findings for the model, in characters: more than a screenful has a single cause, or is not lint.
const FINDINGS_CHARS_MAX: usize = 2000;

/// Longest list of new findings, in characters, once findings are no longer listed after each edit.
const NEW_FINDINGS_CHARS_MAX: usize = 1000;

/// Most baseline findings remembered per file; a file with more is no longer checked for new findings.
const BASELINE_FINDINGS_MAX: usize = 2000;

/// Exit status of a shell that does not find a program.
const EXIT_NOT_FOUND: i32 = 127;

/// A batch of edits to lint.
pub struct LintBatch<'a> {
    /// The pinned linters.
    pub linters: &'a [LinterSpec],
    /// Files that the batch changed, in any order; deleted ones are skipped.
    pub files: &'a [WorkspacePath],
    /// Linters known to be missing or to time out: they are neither run nor reported again.
    pub unavailable: &'a BTreeSet<String>,
    /// What each linter, by name, found before the run changed the files.
    pub baseline: &'a BTreeMap<String, LintBaseline>,
    /// Time limit of each linter, in milliseconds.
    pub timeout_ms: u64,
    /// Whether findings are listed; otherwise they are only counted.
    pub list_findings: bool,
}

/// Result of linting a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LintReport {
    /// Text for the model, appended to the result's own; empty if there is nothing to report.
    pub text: String,
    /// The complete output, if `text` contains only a part.
    pub full_output: Option<String>,
    /// One result for each linter that handles these files.
    pub seen: Vec<LintResult>,
}

/// What one linter finds before files are changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LintBaselineResult {
    /// The findings.
    Found(LintBaseline),
    /// Unknown: the linter timed out.
    TimedOut,
}

/// The run's other changes, past and upcoming.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchChanges {
    /// Edited files that the run created itself: all their findings are new.
    pub created: Vec<WorkspacePath>,
    /// Files that are about to be created.
    pub about_to_create: Vec<WorkspacePath>,
    /// Files that the run has already changed.
    pub already_changed: Vec<WorkspacePath>,
}

/// Runs linters on files that are about to be changed for the first time; returns the results by linter name. A
/// linter for the whole project runs once, before the first change of all: later it would also find the run's other
/// changes.
pub async fn lint_baseline(
    context: ToolContext<'_>,
    edited: &LintBatch<'_>,
    changing: &BatchChanges,
) -> BTreeMap<String, LintBaselineResult> {
    let mut all = BTreeMap::new();
    for linter in edited.linters.iter().filter(|linter| !edited.unavailable.contains(&linter.name)) {
        let known = edited.baseline.get(&linter.name);
        let is_new = |path: &&WorkspacePath| {
            applies_to(linter, path) && known.is_none_or(|known| !known.files.contains(path))
        };
        let of_project = checks_whole_project(linter);
        if of_project
            && (known.is_some() || changing.already_changed.iter().any(|path| applies_to(linter, path)))
        {
            continue;
        }
        let making = changing.about_to_create.iter().filter(|_| of_project);
        let own: Vec<WorkspacePath> = edited.files.iter().chain(making).filter(is_new).cloned().collect();
        let made = changing.created.iter().filter(is_new).cloned();
        if own.is_empty() {
            continue;
        }
        // A sandbox error says nothing about the linter.
        let Ok(checked) = run_linter(context, linter, edited, &own).await else { continue };
        let before = match checked {
            (LintStatus::TimedOut, _) => LintBaselineResult::TimedOut,
            (LintStatus::Missing, _) => continue,
            (LintStatus::Clean | LintStatus::Findings, said) => {
                let found = findings_or_lines(&said).into_iter();
                let mut lines = LineTextCache::new(context);
                let findings: Vec<String> =
                    found.map(|found| lines.fingerprint(&found)).take(BASELINE_FINDINGS_MAX + 1).collect();
                if findings.len() > BASELINE_FINDINGS_MAX {
                    continue;
                }
                LintBaselineResult::Found(LintBaseline {
                    files: own.into_iter().chain(made).collect(),
                    findings,
                })
            }
        };
        all.insert(linter.name.clone(), before);
    }
    all
}

/// Runs one linter on these files.
async fn run_linter(
    context: ToolContext<'_>,
    linter: &LinterSpec,
    edited: &LintBatch<'_>,
    files: &[WorkspacePath],
) -> Result<(LintStatus, String), RunnerError> {
    let timeout_ms = context.settings.time_limit(edited.timeout_ms).ms;
    let shell = with_pipefail(&render_command(&linter.check, files)).into_owned();
    let spec = CommandSpec { shell, cwd: None, timeout_ms };
    Ok(lint_status(&context.runner.run(spec).await?))
}

/// Parses the findings in an output; in an unknown format each line counts as one.
fn findings_or_lines(said: &str) -> Vec<LintFinding> {
    let known = parse_findings(said);
    if !known.is_empty() {
        return known;
    }
    let plain = |line: &str| LintFinding {
        path: String::new(),
        line: 0,
        column: 0,
        code: String::new(),
        message: line.to_owned(),
        has_safe_fix: false,
    };
    said.lines().filter(|line| !line.trim().is_empty()).map(plain).collect()
}

/// Caches the current text of the lines with findings.
struct LineTextCache<'a> {
    context: ToolContext<'a>,
    files: BTreeMap<String, Vec<String>>,
}

impl<'a> LineTextCache<'a> {
    const fn new(context: ToolContext<'a>) -> Self {
        Self { context, files: BTreeMap::new() }
    }

    fn line_text(&mut self, found: &LintFinding) -> String {
        let name = found.path.strip_prefix("./").unwrap_or(&found.path);
        let lines = self.files.entry(name.to_owned()).or_insert_with(|| {
            let loaded = WorkspacePath::new(name).and_then(|path| load_file(self.context.root, &path).ok());
            let text = loaded.map(|loaded| String::from_utf8_lossy(&loaded.bytes).into_owned());
            text.unwrap_or_default().lines().map(|line| line.trim().to_owned()).collect()
        });
        found.line.checked_sub(1).and_then(|at| lines.get(at)).cloned().unwrap_or_default()
    }

    /// Identifies a finding independently of its position: two short hashes, of its file and message and of its
    /// line's text.
    fn fingerprint(&mut self, found: &LintFinding) -> String {
        let path = found.path.strip_prefix("./").unwrap_or(&found.path);
        let message: String = found.message.chars().filter(|c| !c.is_ascii_digit()).collect();
        let short = |text: &str| {
            BlobHash::hash_bytes(text.as_bytes()).to_string().chars().take(8).collect::<String>()
        };
        format!("{}{}", short(&format!("{path}\n{}\n{message}", found.code)), short(&self.line_text(found)))
    }
}

/// Marks each finding that has no counterpart in `before`: first an identical one on an identical line is matched,
/// then an identical one anywhere in the file.
fn new_finding_flags(marks: &[String], before: &[String]) -> Vec<bool> {
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

/// Runs the linters of these files one after the other. `first`: their findings in files that had never been changed
/// before.
pub async fn lint_batch(
    context: ToolContext<'_>,
    edited: &LintBatch<'_>,
    mut first: BTreeMap<String, LintBaselineResult>,
) -> LintReport {
    let mut linted = LintReport::default();
    let there =
        |path: &&WorkspacePath| context.root.symlink_metadata(os_path(path)).is_ok_and(|meta| meta.is_file());
    let mut files: Vec<&WorkspacePath> = edited.files.iter().filter(there).collect();
    files.sort_unstable();
    files.dedup();
    for linter in edited.linters {
        let own: Vec<WorkspacePath> =
            files.iter().filter(|path| applies_to(linter, path)).map(|path| (*path).clone()).collect();
        if own.is_empty() || edited.unavailable.contains(&linter.name) {
            continue;
        }
        let first = match first.remove(&linter.name) {
            // It would time out again.
            Some(LintBaselineResult::TimedOut) => {
                linted.add_result(linter, edited, LintStatus::TimedOut, &SortedFindings::default());
                continue;
            }
            Some(LintBaselineResult::Found(first)) => Some(first),
            None => None,
        };
        let Ok((status, said)) = run_linter(context, linter, edited, &own).await else { continue };
        let known = edited.baseline.get(&linter.name).map_or(&[][..], |before| &before.findings);
        let known = [known, first.as_ref().map_or(&[][..], |first| &first.findings)].concat();
        let sorted = SortedFindings::from_output(context, said, &known);
        let status = match status {
            LintStatus::Findings if sorted.new_findings.is_empty() && sorted.old_count > 0 => {
                LintStatus::Clean
            }
            other => other,
        };
        linted.add_result(linter, edited, status, &sorted);
        if let Some(seen) = linted.seen.last_mut() {
            seen.before = first;
        }
    }
    linted
}

/// A linter's findings, split into new ones and those from before the run.
#[derive(Default)]
struct SortedFindings {
    output: String,
    new_findings: Vec<LintFinding>,
    old_count: usize,
}

impl SortedFindings {
    fn from_output(context: ToolContext<'_>, said: String, before: &[String]) -> Self {
        let all = findings_or_lines(&said);
        let mut lines = LineTextCache::new(context);
        let marks: Vec<String> = all.iter().map(|found| lines.fingerprint(found)).collect();
        let are_new = new_finding_flags(&marks, before);
        let new: Vec<LintFinding> =
            all.into_iter().zip(&are_new).filter(|(_, new)| **new).map(|(found, _)| found).collect();
        let old = are_new.len() - new.len();
        Self { output: said, new_findings: new, old_count: old }
    }

    /// Formats the new findings, one per line.
    fn format_new_findings(&self) -> String {
        let line = |found: &LintFinding| {
            let LintFinding { path, line, column, code, message, .. } = found;
            let code = if code.is_empty() { String::new() } else { format!("{code} ") };
            match (path.is_empty(), column) {
                (true, _) => format!("{message}\n"),
                (false, 0) => format!("{path}:{line}: {code}{message}\n"),
                (false, _) => format!("{path}:{line}:{column}: {code}{message}\n"),
            }
        };
        self.new_findings.iter().map(line).collect()
    }

    /// Formats the note about older findings.
    fn format_old_note(&self) -> String {
        match self.old_count {
            0 => String::new(),
            1 => "\n(1 finding more was there before this run: it is not yours to mend)".to_owned(),
            old => format!("\n({old} findings more were there before this run: they are not yours to mend)"),
        }
    }
}

fn lint_status(output: &CommandOutput) -> (LintStatus, String) {
    let status = match output.ended {
        CommandEnd::Exit(0) => LintStatus::Clean,
        CommandEnd::Exit(EXIT_NOT_FOUND) => LintStatus::Missing,
        CommandEnd::TimedOut => LintStatus::TimedOut,
        CommandEnd::Exit(_) | CommandEnd::Signal(_) | CommandEnd::Exceeded(_) => LintStatus::Findings,
    };
    let (out, err) = (printable_text(&output.stdout.to_bytes()), printable_text(&output.stderr.to_bytes()));
    let said = match (out.trim().is_empty(), err.trim().is_empty()) {
        (false, true) => out,
        (true, false) => err,
        (true, true) => String::new(),
        (false, false) => format_output(output, &Redactor::default()),
    };
    (status, said)
}

impl LintReport {
    fn add_result(
        &mut self,
        linter: &LinterSpec,
        edited: &LintBatch<'_>,
        status: LintStatus,
        sorted: &SortedFindings,
    ) {
        let name = &linter.name;
        let count = u32::try_from(parse_findings(&sorted.output).len()).unwrap_or(u32::MAX).max(1);
        let old = u32::try_from(sorted.old_count).unwrap_or(u32::MAX);
        let found =
            if old > 0 { u32::try_from(sorted.new_findings.len()).unwrap_or(u32::MAX) } else { count };
        let told = match status {
            LintStatus::Clean if old > 0 => {
                Some(format!("{name} finds nothing new ({old} from before this run: not yours to mend)"))
            }
            LintStatus::Clean => None,
            LintStatus::Findings if !edited.list_findings => Some(format!(
                "{name} still finds something ({found}): the last corrections left as much as they mended. Read the \
                 file again as a whole before you change it; the project's checks run at the end.\n{}{}",
                cut_middle(sorted.format_new_findings().trim_end(), NEW_FINDINGS_CHARS_MAX).0,
                sorted.format_old_note()
            )),
            LintStatus::Findings => {
                let lines = sorted.format_new_findings();
                let said = if old > 0 { &lines } else { &sorted.output };
                let (shown, was_cut) = cut_middle(said.trim_end(), FINDINGS_CHARS_MAX);
                if was_cut {
                    self.full_output.get_or_insert_default().push_str(said);
                }
                let new = if old > 0 { ", new in this run" } else { "" };
                Some(format!("{name} finds{new}:\n{shown}{}", sorted.format_old_note()))
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
        self.seen.push(LintResult { findings, old, ..LintResult::without_findings(name, status) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::TestWorkspace;

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

    fn run(linters: &[LinterSpec], missing: &[&str], listed: bool) -> LintReport {
        let w = TestWorkspace::new(&[("a.py", "x"), ("it's.py", ""), ("b.txt", "")]);
        let files = ["a.py", "it's.py", "a.py", "b.txt", "gone.py"]
            .map(|path| WorkspacePath::new(path).expect("legal"));
        let missing = missing.iter().map(|name| (*name).to_owned()).collect();
        let before = BTreeMap::new();
        let edited = LintBatch {
            linters,
            files: &files,
            unavailable: &missing,
            baseline: &before,
            timeout_ms: 1000,
            list_findings: listed,
        };
        w.with_context(|context| Box::pin(async move { lint_batch(context, &edited, BTreeMap::new()).await }))
    }

    #[test]
    fn findings_are_listed_for_files_of_the_language() {
        let linted =
            run(&[linter("lint", "for f in {files}; do echo \"$f:1:1: E1 bad\"; done; exit 1")], &[], true);
        assert_eq!(linted.text, "\nlint finds:\na.py:1:1: E1 bad\nit's.py:1:1: E1 bad\n");
        assert_eq!(
            linted.seen,
            [LintResult { findings: 2, ..LintResult::without_findings("lint", LintStatus::Findings) }]
        );
    }

    #[test]
    fn clean_linter_is_silent_and_missing_linter_is_reported_once() {
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
    fn hanging_linter_is_stopped_and_reported() {
        let linted = run(&[linter("slow", "sleep 60")], &[], true);
        assert_eq!(linted.text, "\nslow did not end within 1 s: what was changed is not linted\n");
        assert_eq!(linted.seen[0].status, LintStatus::TimedOut);
    }

    #[test]
    fn findings_are_capped_and_only_counted_after_too_many_corrections() {
        let many =
            [linter("lint", "seq 1 3000 | sed 's/$/:1:1: E1 bad/; s/^/a.py:/' | cut -d: -f1,2,3,5; exit 1")];
        let linted = run(&many, &[], true);
        assert!(
            linted.text.chars().count() < 2200
                && linted.full_output.is_some_and(|full| full.lines().count() == 3000)
        );
        let counted = run(&[linter("lint", "echo 'a.py:1:1: E1 bad'; exit 1")], &[], false);
        assert!(counted.text.contains("lint still finds something (1)"), "{}", counted.text);
        assert!(
            counted.text.ends_with("\na.py:1:1: E1 bad\n"),
            "what is new is named all the same: {}",
            counted.text
        );
    }

    /// Reports each line that contains `bad`.
    const BAD_LINE_LINTER: &str = "for f in {files}; do grep -n bad \"$f\" | sed \"s|\\([0-9]*\\):.*\\(bad[0-9]*\\).*|$f:\\1:1: E1 \\2|\"; done; \
                       ! grep -q bad {files}";

    fn edit(before: &str, after: &str, listed: bool) -> (LintReport, LintReport) {
        let w = TestWorkspace::new(&[("a.py", before)]);
        let (files, missing) = ([WorkspacePath::new("a.py").expect("legal")], BTreeSet::new());
        let linters = [linter("lint", BAD_LINE_LINTER)];
        let edited = |before| LintBatch {
            linters: &linters,
            files: &files,
            unavailable: &missing,
            baseline: before,
            timeout_ms: 5000,
            list_findings: listed,
        };
        let unknown = BTreeMap::new();
        let first = w.with_context(|context| {
            let edited = edited(&unknown);
            Box::pin(async move { lint_baseline(context, &edited, &BatchChanges::default()).await })
        });
        w.write_file("a.py", after);
        let linted = w.with_context(|context| {
            let edited = edited(&unknown);
            Box::pin(async move { lint_batch(context, &edited, first).await })
        });
        let before = linted.seen[0].before.clone().expect("what was there before is recorded");
        // A later batch knows the baseline from the log.
        let known = BTreeMap::from([("lint".to_owned(), before)]);
        let later = w.with_context(|context| {
            let edited = edited(&known);
            Box::pin(async move {
                assert!(
                    lint_baseline(context, &edited, &BatchChanges::default()).await.is_empty(),
                    "once a file"
                );
                lint_batch(context, &edited, BTreeMap::new()).await
            })
        });
        (linted, later)
    }

    #[test]
    fn findings_from_before_the_run_are_neither_listed_nor_counted() {
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
    fn project_wide_linter_runs_once_before_the_first_change() {
        let w = TestWorkspace::new(&[("a.py", "x\n"), ("b.py", "x\n")]);
        let linters = [linter("all", "echo b.py:1:1: E1 bad; exit 1")];
        let path = |path: &str| WorkspacePath::new(path).expect("legal");
        let files = [path("a.py")];
        let before =
            |files: &[WorkspacePath], known: &BTreeMap<String, LintBaseline>, changing: BatchChanges| {
                let missing = BTreeSet::new();
                let edited = LintBatch {
                    linters: &linters,
                    files,
                    unavailable: &missing,
                    baseline: known,
                    timeout_ms: 5000,
                    list_findings: true,
                };
                w.with_context(|context| {
                    let (edited, changing) = (&edited, &changing);
                    Box::pin(async move { lint_baseline(context, edited, changing).await })
                })
            };
        let nothing = BTreeMap::new();
        let first = before(&files, &nothing, BatchChanges::default());
        let Some(LintBaselineResult::Found(found)) = first.get("all") else { panic!("{first:?}") };
        assert_eq!(found.findings.len(), 1, "also of a file that is not changed yet");
        let making = BatchChanges { about_to_create: vec![path("c.py")], ..BatchChanges::default() };
        assert_eq!(before(&[], &nothing, making).len(), 1, "a new file may break another");
        let known = BTreeMap::from([("all".to_owned(), found.clone())]);
        assert!(before(&[path("b.py")], &known, BatchChanges::default()).is_empty());
        let changed = BatchChanges { already_changed: vec![path("b.py")], ..BatchChanges::default() };
        assert!(before(&files, &nothing, changed).is_empty(), "too late");
    }

    #[test]
    fn new_findings_are_listed_among_many_old_ones() {
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
        // A second copy of the same finding is new.
        let (linted, _) = edit("bad1\n", "bad1\nbad1\n", true);
        assert_eq!((linted.seen[0].findings, linted.seen[0].old), (1, 1), "{}", linted.text);
    }
}
