//! Runs the engine on a stream of cases, so that it can be scored against any corpus: `docket tool
//! edit_file --jsonl`.

use std::{
    io::{self, BufRead, Write},
    time::Instant,
};

use docket_schema::tool::EditLevel;
use serde::{Deserialize, Serialize};

use super::{
    edit::{Edit, EditHint},
    patch_formats::parse_patch,
    plan::apply_edits,
};

#[derive(Deserialize)]
struct EditCase {
    id: serde_json::Value,
    before: String,
    #[serde(default)]
    edits: Vec<CaseEdit>,
    patch: Option<String>,
    path: Option<String>,
}

#[derive(Deserialize)]
struct CaseEdit {
    search: String,
    replace: String,
    near_line: Option<usize>,
    occurrence: Option<usize>,
    replace_all: Option<usize>,
}

impl From<CaseEdit> for Edit {
    fn from(case: CaseEdit) -> Self {
        let hint = EditHint {
            near_line: case.near_line,
            occurrence: case.occurrence,
            replace_all: case.replace_all,
            ..EditHint::default()
        };
        Self { search: case.search, replace: case.replace, hint }
    }
}

#[derive(Serialize)]
struct CaseResult {
    id: serde_json::Value,
    ok: bool,
    after: Option<String>,
    level: Option<EditLevel>,
    error: Option<String>,
    ms: f64,
}

impl CaseResult {
    fn from_error(id: serde_json::Value, error: String, ms: f64) -> Self {
        Self { id, ok: false, after: None, level: None, error: Some(error), ms }
    }
}

/// Reads cases as JSON lines and writes one result line `{"id","ok","after","level","error","ms"}` for each.
///
/// A case is `{"id","before","edits":[{"search","replace"}]}`, with optional fields of [`EditHint`] next to
/// search and replace, or `{"id","before","patch","path"}` with a patch in another format. An invalid line
/// gets a result as well, with its line number (from 1) if it has no id.
///
/// # Errors
/// Returns an error if reading or writing fails.
pub fn edit_jsonl(reader: impl BufRead, mut writer: impl Write) -> io::Result<()> {
    for (at, line) in reader.split(b'\n').enumerate() {
        let line = line?;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let start = Instant::now();
        let case = match parse_case(&line) {
            Ok(case) => case,
            Err((id, error)) => {
                let id = id.unwrap_or_else(|| (at + 1).into());
                let error = format!("line {} is no case: {error}", at + 1);
                write_result(&mut writer, &CaseResult::from_error(id, error, 0.0))?;
                continue;
            }
        };
        let edits = match &case.patch {
            Some(_) if !case.edits.is_empty() => {
                Err("edits and patch are given together: give one of them".to_owned())
            }
            Some(patch) => parse_patch(case.path.as_deref(), patch).map_err(|error| error.to_string()),
            None => Ok(case.edits.into_iter().map(Edit::from).collect()),
        };
        let result = edits.and_then(|edits: Vec<Edit>| {
            apply_edits(case.before.as_bytes(), &edits).map_err(|error| error.to_string())
        });
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let answer = match result {
            Ok(applied) => CaseResult {
                id: case.id,
                ok: true,
                level: Some(applied.loosest_level()),
                after: Some(String::from_utf8_lossy(&applied.after).into_owned()),
                error: None,
                ms,
            },
            Err(error) => CaseResult::from_error(case.id, error, ms),
        };
        write_result(&mut writer, &answer)?;
    }
    writer.flush()
}

fn write_result(mut writer: impl Write, answer: &CaseResult) -> io::Result<()> {
    serde_json::to_writer(&mut writer, answer)?;
    writer.write_all(b"\n")
}

/// Parses the case of a line. The error holds the id, if there is one, and the parse error.
fn parse_case(line: &[u8]) -> Result<EditCase, (Option<serde_json::Value>, serde_json::Error)> {
    let value: serde_json::Value = serde_json::from_slice(line).map_err(|error| (None, error))?;
    let id = value.get("id").filter(|id| !id.is_null()).cloned();
    EditCase::deserialize(value).map_err(|error| (id, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_gets_one_result() {
        let input = br#"{"id":7,"before":"a\r\nb\r\n","edits":[{"search":"a\nb","replace":"a\nc"}]}
{"id":"x","before":"a\n","edits":[{"search":"q","replace":"r"}]}
"#;
        let mut out = Vec::new();
        edit_jsonl(&input[..], &mut out).expect("cases");
        let lines: Vec<serde_json::Value> = String::from_utf8(out)
            .expect("UTF-8")
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!((&lines[0]["id"], &lines[0]["after"]), (&7.into(), &"a\r\nc\r\n".into()));
        assert_eq!((&lines[1]["ok"], &lines[1]["after"]), (&false.into(), &serde_json::Value::Null));
    }

    #[test]
    fn invalid_line_gets_an_error_and_is_skipped() {
        let input = br#"{"id":"a","before":7,"edits":[]}
no JSON
{"before":"a","edits":[]}
{"id":"b","before":"a\n","edits":[{"search":"a","replace":"b"}],"patch":"@@ -1 +1 @@\n-a\n+b\n"}
{"id":"c","before":"a\n","edits":[{"search":"a","replace":"b","replace_all":true}]}
{"id":"d","before":"a\n","edits":[{"search":"a","replace":"b"}]}
"#;
        let mut out = Vec::new();
        edit_jsonl(&input[..], &mut out).expect("answers");
        let text = String::from_utf8(out).expect("UTF-8");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let said: Vec<_> = lines.iter().map(|line| (line["id"].clone(), line["ok"] == true)).collect();
        let want = [("a".into(), false), (2.into(), false), (3.into(), false), ("b".into(), false)];
        assert_eq!(said[..4], want);
        assert_eq!(said[4..], [("c".into(), false), ("d".into(), true)]);
    }
}
