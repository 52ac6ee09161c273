//! A backlog file: JSON Lines, a task each. What is wrong is told with its line and field, of all lines at once.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use docket_schema::{content::WorkPath, policy::Policy};
use serde::{Deserialize, Deserializer};

use crate::{
    fail::{Exit, FailWith as _, Failure, Outcome},
    policy,
};

/// Faults that are shown of one file.
const FAULTS_MAX: usize = 10;

/// A task of the file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    /// What is asked.
    pub(crate) text: String,
    /// Its title, where the text's first line is none.
    #[serde(default)]
    pub(crate) title: Option<String>,
    /// The shell line that tests the work.
    #[serde(default)]
    pub(crate) tests: Option<String>,
    /// Paths that must exist at the end.
    #[serde(default, deserialize_with = "paths")]
    pub(crate) requires: Vec<WorkPath>,
    /// Shell lines that make a fresh workspace ready.
    #[serde(default)]
    pub(crate) setup: Vec<String>,
    /// What the model may do: a file, from the folder of the backlog.
    #[serde(default, rename = "policy")]
    policy_file: Option<PathBuf>,
    /// What that file says.
    #[serde(skip)]
    pub(crate) policy: Option<Policy>,
}

fn paths<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<WorkPath>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    let path = |text: String| {
        WorkPath::new(text.as_str()).ok_or_else(|| {
            let must = "must be relative and stay inside the repository, as src/lib.rs";
            serde::de::Error::custom(format!("`requires`: `{text}` {must}"))
        })
    };
    texts.into_iter().map(path).collect()
}

/// Whether a file is a backlog by its name.
pub(crate) fn is_backlog(file: &Path) -> bool {
    let ending = file.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ["jsonl", "ndjson"].iter().any(|known| ending.eq_ignore_ascii_case(known)))
}

/// The tasks of a file, in its order.
///
/// # Errors
/// Usage, with every line that is wrong, its field and what it must be.
pub(crate) fn read(file: &Path) -> Outcome<Vec<Line>> {
    let text = std::fs::read_to_string(file).fail_with(Exit::Usage, || {
        format!("cannot read the backlog {}; is it UTF-8 text?", file.display())
    })?;
    tasks(&text, &file.display().to_string())
}

/// The tasks of a text that came from `name`; errors as [`read`].
pub(crate) fn tasks(text: &str, name: &str) -> Outcome<Vec<Line>> {
    let (mut lines, mut faults) = (Vec::new(), Vec::new());
    let mut met: BTreeMap<(Option<String>, String), usize> = BTreeMap::new();
    let numbered = text.trim_start_matches('\u{feff}').lines().enumerate();
    for (nth, line) in numbered.map(|(at, line)| (at + 1, line)).filter(|(_, line)| !line.trim().is_empty()) {
        match parsed(line).and_then(|line| with_policy(line, name)) {
            Ok(line) => {
                if let Some(first) = met.insert((line.title.clone(), line.text.clone()), nth) {
                    faults.push(format!("{name}:{nth}: the same task as in line {first}"));
                }
                lines.push(line);
            }
            Err(why) => faults.push(format!("{name}:{nth}: {why}")),
        }
    }
    if let Some(more) = faults.len().checked_sub(FAULTS_MAX).filter(|more| *more > 0) {
        faults.truncate(FAULTS_MAX);
        faults.push(format!("and {more} more"));
    }
    match faults.is_empty() {
        false => Err(Failure::new(Exit::Usage, faults.join("\n"))),
        true if lines.is_empty() => Err(Failure::new(
            Exit::Usage,
            format!(
                "{name} holds no task: each line is an object with `text`, as {{\"text\": \"Mend the rounding\"}}"
            ),
        )),
        true => Ok(lines),
    }
}

/// A line with the policy that it names.
fn with_policy(mut line: Line, backlog: &str) -> Result<Line, String> {
    if let Some(file) = &line.policy_file {
        let file = Path::new(backlog).parent().unwrap_or(Path::new("")).join(file);
        line.policy = Some(policy::read(&file).map_err(|failure| format!("`policy`: {:#}", failure.error))?);
    }
    Ok(line)
}

fn parsed(line: &str) -> Result<Line, String> {
    // Without the place that serde_json adds: the line is named already.
    let words = |error: serde_json::Error| {
        let text = error.to_string();
        text.rsplit_once(" at line ").map_or(text.clone(), |(text, _)| text.to_owned())
    };
    let line: Line = serde_json::from_str(line).map_err(words)?;
    if line.text.trim().is_empty() {
        return Err("`text` is empty; say what is to be done".to_owned());
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(text: &str) -> Outcome<Vec<Line>> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("b.jsonl");
        std::fs::write(&file, text).expect("written");
        read(&file)
    }

    #[test]
    fn tasks_come_in_their_order_and_empty_lines_are_none() {
        let all = "\u{feff}{\"text\": \"one\"}\r\n\n{\"text\": \"two\", \"title\": \"T\", \"tests\": \"make test\", \
                   \"requires\": [\"a/b\"], \"setup\": [\"make\"]}";
        let lines = reading(all).expect("read");
        assert_eq!(lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>(), ["one", "two"]);
        let two = &lines[1];
        assert_eq!((two.title.as_deref(), two.tests.as_deref()), (Some("T"), Some("make test")));
        assert_eq!((two.requires[0].to_string(), two.setup[0].as_str()), ("a/b".to_owned(), "make"));
    }

    #[test]
    fn every_wrong_line_is_told_with_its_number_and_field() {
        let bad = "{\"text\": \"a\"}\n{\"txt\": \"b\"}\nnot json\n{\"text\": \" \"}\n{\"text\": \"a\"}\n\
                   {\"text\": \"c\", \"requires\": [\"../x\"]}\n{\"text\": 5}\n";
        let failure = reading(bad).expect_err("faults");
        assert_eq!(failure.exit, Exit::Usage);
        let said = format!("{:#}", failure.error);
        for words in [
            "b.jsonl:2: unknown field `txt`, expected one of `text`, `title`",
            "b.jsonl:3: expected",
            "b.jsonl:4: `text` is empty",
            "b.jsonl:5: the same task as in line 1",
            "b.jsonl:6: `requires`: `../x` must be relative",
            "b.jsonl:7: invalid type: integer `5`, expected a string",
        ] {
            assert!(said.contains(words), "{words} in {said}");
        }
        assert!(reading("\n").expect_err("none").error.to_string().contains("holds no task"));
        let many = "x\n".repeat(30);
        assert!(reading(&many).expect_err("many").error.to_string().ends_with("and 20 more"));
    }

    #[test]
    fn a_backlog_is_told_by_its_name() {
        for (name, is) in
            [("a.jsonl", true), ("b/A.JSONL", true), ("c.ndjson", true), ("d.json", false), ("-", false)]
        {
            assert_eq!(is_backlog(Path::new(name)), is, "{name}");
        }
    }
}
