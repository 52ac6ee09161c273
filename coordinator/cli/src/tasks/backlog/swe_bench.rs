//! SWE-bench instances, in the format of its data sets. Fields that a solution must not see (patches, tests)
//! are not read.

use std::path::{Path, PathBuf};

use docket_schema::task::TITLE_CHARS_MAX;
use serde::Deserialize;

use super::{ParsedBacklog, json, line::BacklogLine};

/// The location of the clones, and what an instance's task includes.
#[derive(Debug, Clone)]
pub(crate) struct SweBenchOptions {
    /// The folder that contains them.
    pub(crate) folder: PathBuf,
    /// Whether hints are part of the task. They were written after the issue, some of them with its solution.
    pub(crate) include_hints: bool,
}

#[derive(Debug, Deserialize)]
struct SweBenchInstance {
    instance_id: String,
    repo: String,
    base_commit: String,
    problem_statement: String,
    #[serde(default)]
    hints_text: Option<String>,
}

/// Reads the instances of a text.
pub(super) fn read_instances(text: &str, clones: &SweBenchOptions, read: &mut ParsedBacklog) {
    let ParsedBacklog { entries, faults, .. } = read;
    json::for_each_object(text, faults, |line, object, faults| {
        match json::parse_foreign_object(object).and_then(|instance| instance_to_line(instance, clones)) {
            Ok(task) => entries.push((line, task)),
            Err(why) => faults.add(line, why),
        }
    });
}

fn is_word(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.chars().all(legal) && !text.starts_with('.') && !text.starts_with('-')
}

fn instance_to_line(instance: SweBenchInstance, clones: &SweBenchOptions) -> Result<BacklogLine, String> {
    let SweBenchInstance { instance_id, repo, base_commit, problem_statement, hints_text } = instance;
    if !is_word(&instance_id) || instance_id.len() > TITLE_CHARS_MAX {
        return Err(
            "`instance_id` must be letters, digits, -, _ and ., such as django__django-11099".to_owned()
        );
    }
    if !(7..=64).contains(&base_commit.len()) || !base_commit.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err("`base_commit` must be a commit id".to_owned());
    }
    let folder = find_clone(&repo, &clones.folder)?;
    if problem_statement.trim().is_empty() {
        return Err("`problem_statement` is empty".to_owned());
    }
    let mut text = problem_statement.replace("\r\n", "\n");
    if let Some(hints) = hints_text.filter(|hints| clones.include_hints && !hints.trim().is_empty()) {
        text.push_str("\n\nHints:\n");
        text.push_str(&hints.replace("\r\n", "\n"));
    }
    let line = BacklogLine {
        text,
        title: Some(instance_id.clone()),
        dedup: Some(instance_id),
        repo: Some(folder),
        commit: Some(base_commit),
        ..BacklogLine::default()
    };
    line.validate()?;
    Ok(line)
}

/// Finds the folder of `owner/name`, under that path or with `__` in place of the slash, as SWE-bench names its
/// own.
fn find_clone(repo: &str, folder: &Path) -> Result<PathBuf, String> {
    let (owner, name) = repo
        .split_once('/')
        .filter(|(owner, name)| is_word(owner) && is_word(name))
        .ok_or_else(|| "`repo` must be OWNER/NAME".to_owned())?;
    let places = [folder.join(owner).join(name), folder.join(format!("{owner}__{name}"))];
    places.iter().find(|place| place.is_dir()).cloned().ok_or_else(|| {
        format!(
            "`repo`: no clone of {repo}; run `git clone https://github.com/{repo} {}`",
            places[1].display()
        )
    })
}
