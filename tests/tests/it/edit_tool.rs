//! `docket tool edit_file --jsonl`: the edit engine as a program, one case a line.

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{TestProgram, run_with_input};
use serde_json::{Value, json};

/// The answers to `cases`, in order.
async fn edit_answers(cases: &[Value]) -> Result<Vec<Value>> {
    let folder = tempfile::tempdir()?;
    let lines: Vec<String> = cases.iter().map(Value::to_string).collect();
    let args = ["tool", "edit_file", "--jsonl"];
    let out = run_with_input(TestProgram::Docket, folder.path(), &[], &args, lines.join("\n").as_bytes())
        .await?
        .into_stdout()?;
    out.lines().map(|line| serde_json::from_str(line).context("an answer is no JSON")).collect()
}

#[tokio::test]
async fn hints_are_passed_to_the_edit_engine() -> Result<()> {
    let before = "go(1)\na\ngo(1)\n";
    let case = |hint: Value| {
        let mut edit = json!({"search": "go(1)", "replace": "go(2)"});
        for (key, value) in hint.as_object().into_iter().flatten() {
            edit[key] = value.clone();
        }
        json!({"id": hint, "before": before, "edits": [edit]})
    };
    let cases = [
        (json!({}), None, "matches 2 places"),
        (json!({"occurrence": 2}), Some("go(1)\na\ngo(2)\n"), ""),
        (json!({"near_line": 1}), Some("go(2)\na\ngo(1)\n"), ""),
        (json!({"replace_all": 2}), Some("go(2)\na\ngo(2)\n"), ""),
        (json!({"replace_all": 3}), None, "replace_all says 3 places, but search matches 2 places"),
        (json!({"occurrence": 3}), None, "occurrence is 3, but search matches 2 places"),
        (json!({"replace_all": 2, "occurrence": 1}), None, "give replace_all alone"),
    ];
    let asked: Vec<Value> = cases.iter().map(|(hint, _, _)| case(hint.clone())).collect();
    let answers = edit_answers(&asked).await?;
    ensure!(answers.len() == cases.len(), "{} answers", answers.len());
    for ((hint, after, error), answer) in cases.into_iter().zip(answers) {
        ensure!(answer["id"] == hint && answer["after"] == json!(after), "{answer}");
        ensure!(answer["error"].as_str().unwrap_or_default().contains(error), "{answer}");
    }
    Ok(())
}

#[tokio::test]
async fn other_patch_formats_are_parsed() -> Result<()> {
    let before = "one\r\ntwo\r\n";
    let patches = [
        "--- a/f\n+++ b/f\n@@ -7,2 +7,2 @@\n one\n-two\n+2\n",
        "*** Begin Patch\n*** Update File: f\n@@\n-two\n+2\n*** End Patch\n",
        "<<<<<<< SEARCH\ntwo\n=======\n2\n>>>>>>> REPLACE\n",
    ];
    let mut cases: Vec<Value> =
        patches.iter().map(|patch| json!({"id": 1, "before": before, "path": "f", "patch": patch})).collect();
    cases.push(json!({"id": 1, "before": before, "path": "g", "patch": patches[0]}));
    let answers = edit_answers(&cases).await?;
    for answer in &answers[..3] {
        ensure!(answer["after"] == "one\r\n2\r\n", "{answer}");
    }
    ensure!(
        answers[3]["error"].as_str().unwrap_or_default().contains("one call for each file"),
        "{}",
        answers[3]
    );
    Ok(())
}
