//! GitHub issues, as returned by `gh issue list --json number,title,body,labels,url,state` and the REST API.

use docket_schema::task::TITLE_CHARS_MAX;
use serde::Deserialize;

use super::{BacklogFaults, ParsedBacklog, json, line::BacklogLine};

/// A label and the priority of issues with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LabelPriority {
    label: String,
    priority: i16,
}

/// Parses `LABEL=N`.
pub(crate) fn parse_label_priority(text: &str) -> Result<LabelPriority, String> {
    let must = || "it must be LABEL=N, such as bug=10".to_owned();
    let (label, priority) = text.rsplit_once('=').ok_or_else(must)?;
    let priority = priority.trim().parse().map_err(|_| must())?;
    if label.trim().is_empty() {
        Err(must())
    } else {
        Ok(LabelPriority { label: label.trim().to_owned(), priority })
    }
}

#[derive(Debug, Deserialize)]
struct GithubIssue {
    number: u64,
    title: String,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    labels: Vec<GithubLabel>,
    #[serde(default)]
    html_url: Option<String>,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    state: Option<String>,
    #[serde(default)]
    pull_request: Option<serde::de::IgnoredAny>,
}

/// The REST API used to return plain names.
#[derive(Debug)]
struct GithubLabel(String);

impl<'de> Deserialize<'de> for GithubLabel {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = match serde_json::Value::deserialize(from)? {
            serde_json::Value::String(name) => Some(name),
            serde_json::Value::Object(label) => {
                label.get("name").and_then(|name| name.as_str()).map(str::to_owned)
            }
            _ => None,
        };
        name.map(Self).ok_or_else(|| serde::de::Error::custom("a label is a name, or an object with one"))
    }
}

/// Reads the open issues of a text.
pub(super) fn read_issues(text: &str, priorities: &[LabelPriority], read: &mut ParsedBacklog) {
    let ParsedBacklog { entries, faults, skipped, .. } = read;
    json::for_each_object(text, faults, |line, object, faults: &mut BacklogFaults| {
        let issue: GithubIssue = match json::parse_foreign_object(object) {
            Ok(issue) => issue,
            Err(why) => return faults.add(line, why),
        };
        let url = issue.html_url.clone().or_else(|| issue.url.clone());
        let is_pull = issue.pull_request.is_some() || url.as_ref().is_some_and(|url| url.contains("/pull/"));
        if is_pull {
            skipped.pull_requests += 1;
        } else if issue.state.as_ref().is_some_and(|state| !state.eq_ignore_ascii_case("open")) {
            skipped.done += 1;
        } else {
            match issue_to_line(issue, url, priorities) {
                Ok(task) => entries.push((line, task)),
                Err(why) => faults.add(line, why),
            }
        }
    });
}

fn issue_to_line(
    issue: GithubIssue,
    url: Option<String>,
    priorities: &[LabelPriority],
) -> Result<BacklogLine, String> {
    let title = issue.title.trim();
    if title.is_empty() {
        return Err("`title` is empty".to_owned());
    }
    let mut text = format!("{title}\n");
    if let Some(body) = issue.body.as_deref().map(str::trim).filter(|body| !body.is_empty()) {
        text.push('\n');
        text.push_str(&body.replace("\r\n", "\n"));
        text.push('\n');
    }
    if let Some(url) = &url {
        text.push_str(&format!("\n(Issue #{}: {url})\n", issue.number));
    }
    let number = format!(" (#{})", issue.number);
    let room = TITLE_CHARS_MAX - number.len();
    let mut short: String = title.chars().filter(|c| !c.is_control()).take(room).collect();
    short.push_str(&number);
    let has = |label: &str| issue.labels.iter().any(|GithubLabel(own)| own.eq_ignore_ascii_case(label));
    let priority = priorities.iter().filter(|of| has(&of.label)).map(|of| of.priority).max();
    let line = BacklogLine { text, title: Some(short), dedup: url, priority, ..BacklogLine::default() };
    line.validate()?;
    Ok(line)
}
