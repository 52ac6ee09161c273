//! Backlog files: docket's own lines of JSON, Markdown checklists, issues of GitHub, instances of SWE-bench.
//! Whatever the form, a task is a [`Line`]. What is wrong is told with its line and field, of all lines at once.

mod github;
mod json;
mod line;
mod markdown;
mod swe_bench;
#[cfg(test)]
mod tests;

use crate::tasks::policy_file;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use docket_schema::{ids::TaskId, policy::Policy, system::Budget};

pub(crate) use github::{LabelPriority, parse_label_priority};
pub(crate) use line::BacklogLine;
pub(crate) use swe_bench::SweBenchOptions;

use crate::output::error::{CliError, CliResult, ExitKind, FailWith as _};

/// Faults that are shown of one file; with --json more of them are.
const FAULTS_SHOWN_MAX: usize = 10;
/// Faults of one file after which the rest of it is not looked at.
const FAULTS_KEPT: usize = 1000;
/// Largest file, in bytes: it is held in memory.
pub(crate) const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Most tasks of one file.
pub(crate) const TASKS_MAX: usize = 100_000;

/// The form of a backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BacklogFormat {
    /// docket's own: JSON objects, one a line or in an array
    Jsonl,
    /// A checklist: `- [ ] a task`, with what is indented under it
    Markdown,
    /// Issues, as `gh issue list --json number,title,body,labels,url,state` or the REST API gives them
    Github,
    /// Instances of SWE-bench: JSON objects, one a line or in an array
    SweBench,
}

impl BacklogFormat {
    /// The word of `--format`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Markdown => "markdown",
            Self::Github => "github",
            Self::SweBench => "swe-bench",
        }
    }

    /// The form of a file, by its name's ending and by what it holds.
    pub(crate) fn detect(file: &Path, text: &str) -> Option<Self> {
        let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or("").to_ascii_lowercase();
        if matches!(ending.as_str(), "md" | "markdown" | "mdx") {
            return Some(Self::Markdown);
        }
        let start = text.trim_start().trim_start_matches('[').trim_start();
        if start.starts_with('{') {
            return Some(Self::detect_from_object(start));
        }
        if matches!(ending.as_str(), "jsonl" | "ndjson" | "json") {
            return Some(Self::Jsonl);
        }
        let has_box = || text.lines().any(|line| line.contains("[ ] ") || line.contains("[x] "));
        has_box().then_some(Self::Markdown)
    }

    /// By the names of the first object's fields; it need not be whole.
    fn detect_from_object(text: &str) -> Self {
        let first: String =
            text.lines().take(40).collect::<Vec<_>>().join("\n").chars().take(64 * 1024).collect();
        let has = |name: &str| first.contains(&format!("\"{name}\""));
        if has("instance_id") && (has("problem_statement") || has("base_commit")) {
            Self::SweBench
        } else if has("number") && has("title") && !has("text") {
            Self::Github
        } else {
            Self::Jsonl
        }
    }
}

/// What a form needs beside its text.
#[derive(Debug, Clone)]
pub(crate) struct BacklogOptions {
    /// The form.
    pub(crate) format: BacklogFormat,
    /// For issues: the priorities of labels.
    pub(crate) labels: Vec<LabelPriority>,
    /// For SWE-bench: where clones are.
    pub(crate) clones: Option<SweBenchOptions>,
}

/// Everything that is wrong with a file; what is shown of it is bounded.
#[derive(Debug, Default)]
pub(crate) struct BacklogFaults {
    shown: Vec<(usize, String)>,
    count: usize,
    is_of_all: bool,
}

/// Longest text of a fault, in characters: it may repeat what the file holds.
const FAULT_CHARS_MAX: usize = 400;

impl BacklogFaults {
    /// A fault of this line.
    pub(crate) fn add(&mut self, line: usize, what: impl Into<String>) {
        self.count += 1;
        if self.shown.len() < FAULTS_KEPT {
            self.shown.push((line, what.into().chars().take(FAULT_CHARS_MAX).collect()));
        }
    }

    /// A fault of this line that is all tasks' and cannot be left out with it: tasks without the limit that a person
    /// wanted for them cost what nobody wanted to pay.
    pub(crate) fn add_for_all_tasks(&mut self, line: usize, what: impl Into<String>) {
        self.is_of_all = true;
        self.add(line, what);
    }

    /// Whether one of them is all tasks'.
    pub(crate) const fn is_of_all(&self) -> bool {
        self.is_of_all
    }

    /// So many that what follows is not looked at.
    pub(crate) fn has_reached_limit(&self) -> bool {
        self.count >= FAULTS_KEPT
    }

    /// Each with its line and its field, if it is one field's.
    pub(crate) fn list_with_fields(&self) -> Vec<(usize, Option<&str>, &str)> {
        let field = |what: &'_ str| -> Option<usize> { what.strip_prefix('`')?.find('`') };
        let mut all: Vec<(usize, Option<&str>, &str)> = self
            .shown
            .iter()
            .map(|(line, what)| (*line, field(what).map(|end| &what[1..=end]), what.as_str()))
            .collect();
        all.sort_by_key(|(line, ..)| *line);
        all
    }

    /// How many.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// A line each, the first of the file first.
    pub(crate) fn format_lines(&self, name: &str) -> Vec<String> {
        let mut shown = self.shown.clone();
        shown.sort_by_key(|(line, _)| *line);
        shown.truncate(FAULTS_SHOWN_MAX);
        let mut lines: Vec<String> =
            shown.iter().map(|(line, what)| format!("{name}:{line}: {what}")).collect();
        let more = self.count - lines.len();
        if more > 0 {
            let rest = if self.has_reached_limit() { "; what follows was not looked at" } else { "" };
            lines.push(format!("and {more} more{rest}"));
        }
        lines
    }

    /// All of them as one failure.
    pub(crate) fn to_error(&self, name: &str) -> CliError {
        CliError::new(ExitKind::Usage, self.format_lines(name).join("\n"))
    }
}

/// What a file held that is no task to be done.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub(crate) struct SkippedEntries {
    /// Boxes that are ticked, issues that are closed.
    pub(crate) done: usize,
    /// Pull requests among issues.
    pub(crate) pull_requests: usize,
}

/// What was read of a file.
#[derive(Debug, Default)]
pub(crate) struct ParsedBacklog {
    /// Its tasks, with their lines.
    pub(crate) entries: Vec<(usize, BacklogLine)>,
    /// What is wrong.
    pub(crate) faults: BacklogFaults,
    /// What is no task.
    pub(crate) skipped: SkippedEntries,
    /// Lines that repeat an earlier one, and that one.
    pub(crate) repeated: Vec<(usize, usize)>,
    /// What its tasks may use together, by a line of its own.
    pub(crate) budget: Option<Budget>,
}

/// Whether a file is a backlog by its name.
pub(crate) fn is_backlog(file: &Path) -> bool {
    let ending = file.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ["jsonl", "ndjson"].iter().any(|known| ending.eq_ignore_ascii_case(known)))
}

/// The tasks of a text, in its order.
pub(crate) fn parse(text: &str, reading: &BacklogOptions) -> ParsedBacklog {
    let text = text.trim_start_matches('\u{feff}');
    let mut read = ParsedBacklog::default();
    match reading.format {
        BacklogFormat::Jsonl => {
            let ParsedBacklog { entries, faults, budget, .. } = &mut read;
            json::for_each_object(text, faults, |at, line, faults| match json::parse_item(line) {
                Ok(json::BacklogItem::Task(line)) => entries.push((at, *line)),
                Ok(json::BacklogItem::Budget(_)) if budget.is_some() => {
                    let why = "`budget`: the file has one already; it is of all its tasks together";
                    faults.add_for_all_tasks(at, why);
                }
                Ok(json::BacklogItem::Budget(said)) => *budget = Some(said),
                Err(why) if json::is_budget_object(line) => faults.add_for_all_tasks(at, why),
                Err(why) => faults.add(at, why),
            });
        }
        BacklogFormat::Markdown => markdown::read_checklist(text, &mut read),
        BacklogFormat::Github => github::read_issues(text, &reading.labels, &mut read),
        BacklogFormat::SweBench => match &reading.clones {
            Some(clones) => swe_bench::read_instances(text, clones, &mut read),
            None => read
                .faults
                .add(1, "these are instances of SWE-bench; say with --repos DIR where the clones are"),
        },
    }
    if let Some((line, _)) = read.entries.get(TASKS_MAX) {
        read.faults.add(*line, format!("a file has at most {TASKS_MAX} tasks; split it"));
        read.entries.truncate(TASKS_MAX);
    }
    drop_duplicates(&mut read);
    order_by_dependencies(&mut read);
    read
}

/// Brings each task behind those that it waits for, in the order of the file otherwise, and names of lines that
/// were dropped to those that stay. What waits for nobody, or for itself, is a fault.
fn order_by_dependencies(read: &mut ParsedBacklog) {
    let mut at: HashMap<&str, usize> = HashMap::new();
    let mut bad: Vec<(usize, String)> = Vec::new();
    for (n, (line, task)) in read.entries.iter().enumerate() {
        if let Some(key) = &task.key
            && let first = *at.entry(key).or_insert(n)
            && first != n
        {
            bad.push((*line, format!("`key`: line {} is called `{key}` already", read.entries[first].0)));
        }
    }
    let mut waits: Vec<Vec<usize>> = vec![Vec::new(); read.entries.len()];
    for (n, (line, task)) in read.entries.iter().enumerate() {
        for name in &task.after {
            match at.get(name.as_str()) {
                Some(first) => waits[n].push(*first),
                None if name.parse::<TaskId>().is_ok() => {}
                None => bad
                    .push((*line, format!("`after`: no line has the key `{name}`, and it is no task's id"))),
            }
        }
    }
    // Each is placed once all that it waits for are; a stack of its own, for a chain may be as long as the file.
    let (mut state, mut order) = (vec![0_u8; waits.len()], Vec::with_capacity(waits.len()));
    for n in 0..waits.len() {
        let mut stack = vec![(n, 0)];
        while let Some((task, next)) = stack.pop() {
            if next == 0 && state[task] != 0 {
                continue;
            }
            state[task] = 1;
            match waits[task].get(next) {
                None => {
                    state[task] = 2;
                    order.push(task);
                }
                Some(first) => {
                    stack.push((task, next + 1));
                    if state[*first] == 1 {
                        bad.push((
                            read.entries[task].0,
                            format!("`after`: it waits for itself, by line {}", read.entries[*first].0),
                        ));
                    } else {
                        stack.push((*first, 0));
                    }
                }
            }
        }
    }
    let moved = order.iter().enumerate().any(|(at, n)| at != *n);
    if bad.is_empty() && moved {
        let mut old: Vec<Option<(usize, BacklogLine)>> =
            std::mem::take(&mut read.entries).into_iter().map(Some).collect();
        read.entries = order.into_iter().filter_map(|n| old[n].take()).collect();
    }
    // Told once: what is dropped here is no fault of what waits for it.
    let dropped: std::collections::HashSet<usize> = bad.iter().map(|(line, _)| *line).collect();
    read.entries.retain(|(line, _)| !dropped.contains(line));
    for (line, why) in bad {
        read.faults.add(line, why);
    }
}

/// Drops what is asked twice: under one key, or alike in all but when it is to run.
fn drop_duplicates(read: &mut ParsedBacklog) {
    let mut met: HashMap<[u8; 32], usize> = HashMap::new();
    let repeated = &mut read.repeated;
    read.entries.retain(|(at, line)| {
        let identity = match &line.dedup {
            Some(key) => blake3::hash(format!("key {key}").as_bytes()),
            None => blake3::hash(line.identity_text().as_bytes()),
        };
        let first = *met.entry(*identity.as_bytes()).or_insert(*at);
        if first != *at {
            repeated.push((*at, first));
        }
        first == *at
    });
}

/// Reads the policies that lines name, each file once; `folder` is the backlog's.
pub(crate) fn load_policies(read: &mut ParsedBacklog, folder: &Path) {
    let mut files: HashMap<PathBuf, Result<Policy, String>> = HashMap::new();
    let faults = &mut read.faults;
    read.entries.retain_mut(|(at, line)| {
        let Some(file) = &line.policy else { return true };
        let file = folder.join(file);
        let said = |file: &PathBuf| {
            policy_file::read_policy_file(file).map_err(|failure| format!("`policy`: {:#}", failure.error))
        };
        match files.entry(file).or_insert_with_key(said) {
            Ok(rules) => line.rules = Some(rules.clone()),
            Err(why) => faults.add(*at, why.clone()),
        }
        line.rules.is_some()
    });
}

/// The tasks of a file of docket's own form, for who tries each of them in the same way.
///
/// # Errors
/// Usage, with every line that is wrong, its field and what it must be.
pub(crate) fn read_backlog(file: &Path) -> CliResult<Vec<BacklogLine>> {
    let text = std::fs::read_to_string(file).fail_with(ExitKind::Usage, || {
        format!("cannot read the backlog {}; is it UTF-8 text?", file.display())
    })?;
    parse_tasks(&text, &file.display().to_string())
}

/// The tasks of a text that came from `name`; errors as [`read`].
pub(crate) fn parse_tasks(text: &str, name: &str) -> CliResult<Vec<BacklogLine>> {
    let mut read =
        parse(text, &BacklogOptions { format: BacklogFormat::Jsonl, labels: Vec::new(), clones: None });
    load_policies(&mut read, Path::new(name).parent().unwrap_or(Path::new("")));
    for (at, first) in &read.repeated {
        read.faults.add(*at, format!("the same task as in line {first}"));
    }
    for (at, line) in &read.entries {
        if let Some(field) = line.field_fixed_by_compare() {
            read.faults
                .add(*at, format!("`{field}` is for `docket import`; here flags say it, of all tasks alike"));
        }
    }
    if read.budget.is_some() {
        read.faults.add(1, "`budget` is for `docket import`; here flags say it, of all tasks alike");
    }
    if read.faults.count() > 0 {
        return Err(read.faults.to_error(name));
    }
    if read.entries.is_empty() {
        return Err(no_tasks_error(name));
    }
    Ok(read.entries.into_iter().map(|(_, line)| line).collect())
}

/// A file without a task.
pub(crate) fn no_tasks_error(name: &str) -> CliError {
    CliError::new(
        ExitKind::Usage,
        format!(
            "{name} holds no task: each line is an object with `text`, as {{\"text\": \"Mend the rounding\"}}"
        ),
    )
}
