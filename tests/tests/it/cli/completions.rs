//! Completions: a real bash reads its script and completes by it; the other shells' scripts name every command.

use std::{ffi::OsStr, path::Path};

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{TestProgram, run_program};

/// What bash offers for a line whose last word is to be completed.
async fn offered_completions(script: &Path, line: &str) -> Result<Vec<String>> {
    // As readline calls it: the words, which of them, and the command, the word and the one before.
    let ask = r#"
set -eu
source "$1"
complete -p docket > /dev/null
read -ra COMP_WORDS <<< "$2"
case "$2" in *' ') COMP_WORDS+=("") ;; esac
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
COMP_LINE="$2" COMP_POINT=${#2}
_docket docket "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}" || true
if [ "${#COMPREPLY[@]}" -gt 0 ]; then printf '%s\n' "${COMPREPLY[@]}"; fi
"#;
    let args: [&OsStr; 7] = [
        "--noprofile".as_ref(),
        "--norc".as_ref(),
        "-c".as_ref(),
        ask.as_ref(),
        "bash".as_ref(),
        script.as_os_str(),
        line.as_ref(),
    ];
    let said = run_program(TestProgram::Bash, Path::new("/"), &[], &args).await?;
    ensure!(said.stderr.is_empty(), "{line}: {}", said.stderr);
    Ok(said.into_stdout()?.lines().map(ToOwned::to_owned).collect())
}

#[tokio::test]
async fn bash_completes_commands_and_flags() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let env = [("DOCKET_HOME", folder.path().as_os_str())];
    let script = folder.path().join("docket.bash");
    std::fs::write(
        &script,
        run_program(TestProgram::Docket, folder.path(), &env, &["completions", "bash"])
            .await?
            .into_stdout()?,
    )?;
    // The line, what must be offered, and what must not be.
    let lines: [(&str, &[&str], &[&str]); 9] = [
        ("docket ", &["submit", "ps", "top", "verify", "--json"], &["--failpoints"]),
        ("docket ver", &["verify"], &["ps", "submit"]),
        ("docket archive ", &["list", "restore", "--older-than"], &["submit"]),
        ("docket archive li", &["list"], &["restore"]),
        ("docket verify --", &["--tools", "--gates", "--archives", "--json", "--home"], &["--repo"]),
        ("docket submit --pri", &["--priority"], &["--json"]),
        ("docket --color ", &["auto", "always", "never"], &["submit"]),
        ("docket worker --", &["--slots", "--queues"], &["--failpoints"]),
        ("docket nothing-like-it", &[], &["submit", "--json"]),
    ];
    for (line, has, lacks) in lines {
        let offers = offered_completions(&script, line).await?;
        let is_there = |word: &&&str| offers.iter().any(|offer| offer == **word);
        let missing: Vec<_> = has.iter().filter(|word| !is_there(word)).collect();
        let wrong: Vec<_> = lacks.iter().filter(is_there).collect();
        ensure!(
            missing.is_empty() && wrong.is_empty(),
            "`{line}`: no {missing:?}, but {wrong:?}: {offers:?}"
        );
    }
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        let script = run_program(TestProgram::Docket, folder.path(), &env, &["completions", shell])
            .await?
            .into_stdout()?;
        for word in ["submit", "verify", "archive", "restore", "older-than"] {
            ensure!(script.contains(word), "{shell} does not know {word}");
        }
        ensure!(!script.contains("failpoints"), "{shell} completes what no help names");
    }
    let refused =
        run_program(TestProgram::Docket, folder.path(), &env, &["completions", "bash", "--json"]).await?;
    let said: serde_json::Value = serde_json::from_str(refused.stderr.trim()).context("JSON")?;
    ensure!(refused.code() == Some(2) && said["exit"] == 2, "{refused:?}");
    Ok(())
}
