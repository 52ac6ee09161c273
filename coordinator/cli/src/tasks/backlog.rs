//! Backlog files: docket's own JSON Lines, Markdown checklists, GitHub issues, SWE-bench instances. Every
//! format yields [`BacklogLine`]s. All faults of a file are reported together, with line and field.

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

/// Maximum number of faults shown per file; --json shows more.
const FAULTS_SHOWN_MAX: usize = 10;
/// Number of faults after which the rest of a file is skipped.
const FAULTS_KEPT: usize = 1000;
/// Size limit of a file in bytes: it is held in memory.
pub(crate) const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Maximum number of tasks per file.
pub(crate) const TASKS_MAX: usize = 100_000;

/// The format of a backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BacklogFormat {
    /// docket's own: JSON objects, one per line or in an array
    Jsonl,
    /// A checklist: `- [ ] a task`, with details indented under it
    Markdown,
    /// Issues, as returned by `gh issue list --json number,title,body,labels,url,state` or the REST API
    Github,
    /// SWE-bench instances: JSON objects, one per line or in an array
    SweBench,
}

impl BacklogFormat {
    /// The value of `--format`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Markdown => "markdown",
            Self::Github => "github",
            Self::SweBench => "swe-bench",
        }
    }

    /// Detects the format of a file from its extension and contents.
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

    /// Detects the format from the field names of the first object, which may be incomplete.
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

/// Options of a format.
#[derive(Debug, Clone)]
pub(crate) struct BacklogOptions {
    pub(crate) format: BacklogFormat,
    /// For issues: the priorities of labels.
    pub(crate) labels: Vec<LabelPriority>,
    /// For SWE-bench: the location of clones.
    pub(crate) clones: Option<SweBenchOptions>,
}

/// All faults of a file; only a limited number is shown.
#[derive(Debug, Default)]
pub(crate) struct BacklogFaults {
    shown: Vec<(usize, String)>,
    count: usize,
    is_of_all: bool,
}

/// Maximum length of a fault in characters: it may repeat content of the file.
const FAULT_CHARS_MAX: usize = 400;

impl BacklogFaults {
    /// Adds a fault of this line.
    pub(crate) fn add(&mut self, line: usize, what: impl Into<String>) {
        self.count += 1;
        if self.shown.len() < FAULTS_KEPT {
            self.shown.push((line, what.into().chars().take(FAULT_CHARS_MAX).collect()));
        }
    }

    /// Adds a fault of this line that concerns all tasks, so that it cannot be skipped with the line: tasks
    /// without their intended limit could cost more than anyone wants to pay.
    pub(crate) fn add_for_all_tasks(&mut self, line: usize, what: impl Into<String>) {
        self.is_of_all = true;
        self.add(line, what);
    }

    /// Whether one of them concerns all tasks.
    pub(crate) const fn is_of_all(&self) -> bool {
        self.is_of_all
    }

    /// Whether there are so many that the rest is skipped.
    pub(crate) fn has_reached_limit(&self) -> bool {
        self.count >= FAULTS_KEPT
    }

    /// Returns each fault with its line and, if known, its field.
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

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Formats one line per fault, in the order of the file.
    pub(crate) fn format_lines(&self, name: &str) -> Vec<String> {
        let mut shown = self.shown.clone();
        shown.sort_by_key(|(line, _)| *line);
        shown.truncate(FAULTS_SHOWN_MAX);
        let mut lines: Vec<String> =
            shown.iter().map(|(line, what)| format!("{name}:{line}: {what}")).collect();
        let more = self.count - lines.len();
        if more > 0 {
            let rest = if self.has_reached_limit() { "; the rest was not checked" } else { "" };
            lines.push(format!("and {more} more{rest}"));
        }
        lines
    }

    /// Combines all of them in one error.
    pub(crate) fn to_error(&self, name: &str) -> CliError {
        CliError::new(ExitKind::Usage, self.format_lines(name).join("\n"))
    }
}

/// Entries of a file that are not open tasks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub(crate) struct SkippedEntries {
    /// Checked boxes and closed issues.
    pub(crate) done: usize,
    /// Pull requests among issues.
    pub(crate) pull_requests: usize,
}

/// The contents of a backlog file.
#[derive(Debug, Default)]
pub(crate) struct ParsedBacklog {
    /// Its tasks, with their lines.
    pub(crate) entries: Vec<(usize, BacklogLine)>,
    pub(crate) faults: BacklogFaults,
    pub(crate) skipped: SkippedEntries,
    /// Lines that repeat an earlier one, with that line.
    pub(crate) repeated: Vec<(usize, usize)>,
    /// The shared budget of its tasks, if a line sets one.
    pub(crate) budget: Option<Budget>,
}

/// Whether a file is a backlog according to its name.
pub(crate) fn is_backlog(file: &Path) -> bool {
    let ending = file.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ["jsonl", "ndjson"].iter().any(|known| ending.eq_ignore_ascii_case(known)))
}

/// Parses the tasks of a text in its order.
pub(crate) fn parse(text: &str, reading: &BacklogOptions) -> ParsedBacklog {
    let text = text.trim_start_matches('\u{feff}');
    let mut read = ParsedBacklog::default();
    match reading.format {
        BacklogFormat::Jsonl => {
            let ParsedBacklog { entries, faults, budget, .. } = &mut read;
            json::for_each_object(text, faults, |at, line, faults| match json::parse_item(line) {
                Ok(json::BacklogItem::Task(line)) => entries.push((at, *line)),
                Ok(json::BacklogItem::Budget(_)) if budget.is_some() => {
                    let why = "`budget`: the file already has one; it applies to all its tasks together";
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
                .add(1, "these are SWE-bench instances; give the folder of the clones with --repos DIR"),
        },
    }
    if let Some((line, _)) = read.entries.get(TASKS_MAX) {
        read.faults.add(*line, format!("a file can have at most {TASKS_MAX} tasks; split it"));
        read.entries.truncate(TASKS_MAX);
    }
    drop_duplicates(&mut read);
    order_by_dependencies(&mut read);
    read
}

/// Orders each task after its dependencies, otherwise as in the file, and redirects references to dropped
/// duplicates. An unknown or circular dependency is a fault.
fn order_by_dependencies(read: &mut ParsedBacklog) {
    let mut at: HashMap<&str, usize> = HashMap::new();
    let mut bad: Vec<(usize, String)> = Vec::new();
    for (n, (line, task)) in read.entries.iter().enumerate() {
        if let Some(key) = &task.key
            && let first = *at.entry(key).or_insert(n)
            && first != n
        {
            bad.push((*line, format!("`key`: line {} already has the key `{key}`", read.entries[first].0)));
        }
    }
    let mut waits: Vec<Vec<usize>> = vec![Vec::new(); read.entries.len()];
    for (n, (line, task)) in read.entries.iter().enumerate() {
        for name in &task.after {
            match at.get(name.as_str()) {
                Some(first) => waits[n].push(*first),
                None if name.parse::<TaskId>().is_ok() => {}
                None => bad
                    .push((*line, format!("`after`: no line has the key `{name}`, and it is not a task id"))),
            }
        }
    }
    // A task is placed after all its dependencies; an explicit stack, because a chain may be as long as the
    // file.
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
                            format!("`after`: it depends on itself, through line {}", read.entries[*first].0),
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
    // Reported once: a dropped line is not a fault of the lines that depend on it.
    let dropped: std::collections::HashSet<usize> = bad.iter().map(|(line, _)| *line).collect();
    read.entries.retain(|(line, _)| !dropped.contains(line));
    for (line, why) in bad {
        read.faults.add(line, why);
    }
}

/// Drops duplicates: the same key, or equal except for the scheduled time.
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

/// Reads the policies that lines refer to, each file once; `folder` is the backlog's.
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

/// Reads the tasks of a file in docket's own format, for commands that run each of them in the same way.
///
/// # Errors
/// Fails with a usage error that lists every invalid line, its field and what it must be.
pub(crate) fn read_backlog(file: &Path) -> CliResult<Vec<BacklogLine>> {
    let text = std::fs::read_to_string(file).fail_with(ExitKind::Usage, || {
        format!("cannot read the backlog {}; is it UTF-8 text?", file.display())
    })?;
    parse_tasks(&text, &file.display().to_string())
}

/// Parses the tasks of a text from `name`; same errors as [`read_backlog`].
pub(crate) fn parse_tasks(text: &str, name: &str) -> CliResult<Vec<BacklogLine>> {
    let mut read =
        parse(text, &BacklogOptions { format: BacklogFormat::Jsonl, labels: Vec::new(), clones: None });
    load_policies(&mut read, Path::new(name).parent().unwrap_or(Path::new("")));
    for (at, first) in &read.repeated {
        read.faults.add(*at, format!("duplicate of the task in line {first}"));
    }
    for (at, line) in &read.entries {
        if let Some(field) = line.field_fixed_by_compare() {
            read.faults.add(
                *at,
                format!(
                    "`{field}` only works with `docket import`; here it is set by flags, for all tasks alike"
                ),
            );
        }
    }
    if read.budget.is_some() {
        read.faults
            .add(1, "`budget` only works with `docket import`; here it is set by flags, for all tasks alike");
    }
    if read.faults.count() > 0 {
        return Err(read.faults.to_error(name));
    }
    if read.entries.is_empty() {
        return Err(no_tasks_error(name));
    }
    Ok(read.entries.into_iter().map(|(_, line)| line).collect())
}

/// The error for a file without tasks.
pub(crate) fn no_tasks_error(name: &str) -> CliError {
    CliError::new(
        ExitKind::Usage,
        format!(
            "{name} contains no task: each line is an object with `text`, such as {{\"text\": \"Fix the rounding\"}}"
        ),
    )
}
