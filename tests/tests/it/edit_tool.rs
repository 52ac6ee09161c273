//! `docket tool edit_file --jsonl`: the edit engine as a program, one case a line.

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{Tool, run_reading};
use serde_json::{Value, json};

/// The answers to `cases`, in order.
async fn answers(cases: &[Value]) -> Result<Vec<Value>> {
    let folder = tempfile::tempdir()?;
    let input = folder.path().join("cases.jsonl");
    let lines: Vec<String> = cases.iter().map(Value::to_string).collect();
    std::fs::write(&input, lines.join("\n"))?;
    let args = ["tool", "edit_file", "--jsonl"];
    let out = run_reading(Tool::Docket, folder.path(), &input, &args).await?.ok()?;
    out.lines().map(|line| serde_json::from_str(line).context("an answer is no JSON")).collect()
}

#[tokio::test]
async fn hints_reach_the_engine() -> Result<()> {
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
    let answers = answers(&asked).await?;
    ensure!(answers.len() == cases.len(), "{} answers", answers.len());
    for ((hint, after, error), answer) in cases.into_iter().zip(answers) {
        ensure!(answer["id"] == hint && answer["after"] == json!(after), "{answer}");
        ensure!(answer["error"].as_str().unwrap_or_default().contains(error), "{answer}");
    }
    Ok(())
}
