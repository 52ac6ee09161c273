//! Automatic fixes tried when a final check fails, before the model is asked again (A12): the linter's own fix, then
//! patterns for the remaining findings. Only files that the run changed are written.

use std::collections::BTreeMap;

use docket_schema::{
    content::WorkspacePath,
    ids::BlobHash,
    run::{CheckFix, GateSpec},
};

use crate::lint;
use crate::{
    project::config_files::is_config_file,
    tools::{
        context::{
            runner::{CommandEnd, CommandSpec, RunnerError},
            tool_context::{ToolContext, ToolOutcome},
        },
        file_access::files::{load_file, replace_file},
        text::output::printable_text,
    },
};

/// Fixes what it can of the failed check `gate`. If nothing could be fixed, that is not an error: the check runs
/// again and reports it.
pub async fn fix_failed_check(context: ToolContext<'_>, gate: &GateSpec) -> ToolOutcome {
    let Some(mend) = &gate.mend else {
        return ToolOutcome::ok(format!("{} has no way to be mended\n", gate.name));
    };
    match try_fixes(context, gate, mend).await {
        Ok(outcome) => outcome,
        Err(error) => ToolOutcome::error_midway(&gate.name, error.to_string()),
    }
}

async fn try_fixes(
    context: ToolContext<'_>,
    gate: &GateSpec,
    mend: &CheckFix,
) -> Result<ToolOutcome, RunnerError> {
    let before = file_hashes(context, mend);
    let mut told = Vec::new();
    let hangs = match &mend.command {
        Some(command) => run_linter_fix(context, command, &mut told).await? == CommandEnd::TimedOut,
        None => false,
    };
    if !hangs {
        let (ended, said) = run_line(context, mend.imports.as_ref().unwrap_or(&gate.command)).await?;
        let patterns = match (ended, &mend.imports) {
            // With several linters, the exit status of the last one does not cover the others.
            (_, Some(_)) => apply_pattern_fixes(context, mend, &said, lint::fix_missing_imports),
            (CommandEnd::Exit(0), None) => Vec::new(),
            (_, None) => apply_pattern_fixes(context, mend, &said, lint::fix_findings),
        };
        // An added import may be out of order: the linter formats what patterns wrote.
        if let Some(command) = mend.command.as_ref().filter(|_| !patterns.is_empty()) {
            told.extend(patterns);
            run_linter_fix(context, command, &mut told).await?;
        } else {
            told.extend(patterns);
        }
    }
    let after = file_hashes(context, mend);
    let changed: Vec<WorkspacePath> = after
        .into_iter()
        .filter(|(path, hash)| before.get(path) != Some(hash))
        .map(|(path, _)| path)
        .collect();
    let names: Vec<String> = changed.iter().map(ToString::to_string).collect();
    let mut text = match names.is_empty() {
        true => format!("The check `{}` failed; nothing of that could be mended without you.\n", gate.name),
        false => format!("The check `{}` failed and was mended without you.\n", gate.name),
    };
    for line in told {
        text.push_str(&format!("- {line}\n"));
    }
    text.push_str(&match names.is_empty() {
        true => "It changed nothing.\n".to_owned(),
        false => format!("Read again before you edit: {}\n", names.join(", ")),
    });
    let mut outcome = ToolOutcome::ok(text);
    outcome.facts.may_have_changed_tree = true;
    outcome.facts.changed = changed;
    Ok(outcome)
}

/// Runs the linter's own fix and returns how it ended.
async fn run_linter_fix(
    context: ToolContext<'_>,
    command: &str,
    told: &mut Vec<String>,
) -> Result<CommandEnd, RunnerError> {
    let ended = run_line(context, command).await?.0;
    let words = match ended {
        CommandEnd::Exit(status) => format!("exit status {status}"),
        CommandEnd::Signal(signal) => format!("ended by signal {signal}"),
        CommandEnd::TimedOut => "ended after its time limit".to_owned(),
        CommandEnd::Exceeded(what) => format!("ended, for it used more {} than allowed", what.as_noun()),
    };
    told.push(format!("its own fix: `{command}` ({words})"));
    Ok(ended)
}

async fn run_line(context: ToolContext<'_>, line: &str) -> Result<(CommandEnd, String), RunnerError> {
    let timeout_ms = context.settings.time_limit(context.settings.command_timeout_ms_max).ms;
    let output = context.runner.run(CommandSpec { shell: line.to_owned(), cwd: None, timeout_ms }).await?;
    let said = printable_text(&output.stdout.to_bytes()) + "\n" + &printable_text(&output.stderr.to_bytes());
    Ok((output.ended, said))
}

fn file_hashes(context: ToolContext<'_>, mend: &CheckFix) -> BTreeMap<WorkspacePath, BlobHash> {
    let hash = |path: &WorkspacePath| Some((path.clone(), load_file(context.root, path).ok()?.hash));
    mend.files.iter().filter_map(hash).collect()
}

/// A function that fixes findings in a file's bytes.
type FixFunction = fn(&WorkspacePath, &[u8], &[lint::LintFinding]) -> Option<lint::FixedFile>;

/// Applies patterns to each file and describes the fixes.
fn apply_pattern_fixes(
    context: ToolContext<'_>,
    mend: &CheckFix,
    said: &str,
    patterns: FixFunction,
) -> Vec<String> {
    let found = lint::parse_findings(said);
    let mut told = Vec::new();
    for path in mend.files.iter().filter(|path| !is_config_file(path)) {
        let name = path.to_string();
        let own: Vec<lint::LintFinding> =
            found.iter().filter(|finding| finding.is_in(&name)).cloned().collect();
        let Ok(loaded) = load_file(context.root, path) else { continue };
        let Some(mended) = patterns(path, &loaded.bytes, &own) else { continue };
        match replace_file(context.root, path, &loaded, &mended.after) {
            Ok(()) => told.push(format!("{name}, line {}", mended.fixes.join("; line "))),
            Err(error) => told.push(format!("{name} could not be written: {error}")),
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::TestWorkspace;

    fn gate(command: &str, fix: Option<&str>, files: &[&str]) -> GateSpec {
        let files = files.iter().map(|path| WorkspacePath::new(*path).expect("legal")).collect();
        let mend = Some(CheckFix { command: fix.map(str::to_owned), files, imports: None });
        GateSpec { name: "lint".into(), command: command.into(), mend }
    }

    fn run(w: &TestWorkspace, gate: &GateSpec) -> ToolOutcome {
        w.with_context(|context| Box::pin(async move { fix_failed_check(context, gate).await }))
    }

    #[test]
    fn linter_fix_runs_first_and_patterns_fix_the_rest() {
        let w = TestWorkspace::new(&[("a.py", "x = 1  \nTABS\n"), ("other.py", "y = 2  \n")]);
        let check =
            "grep -n ' $' *.py | sed 's/:\\([0-9]*\\):.*/:\\1:1: W291 trailing/'; ! grep -q ' $' *.py";
        let gate = gate(check, Some("sed -i s/TABS/tabs/ a.py"), &["a.py"]);
        let out = run(&w, &gate);
        assert_eq!(w.read_file("a.py"), "x = 1\ntabs\n");
        assert_eq!(w.read_file("other.py"), "y = 2  \n", "the run did not change it");
        assert_eq!(out.facts.changed, [WorkspacePath::new("a.py").expect("legal")]);
        assert!(out.facts.may_have_changed_tree && !out.is_error);
        let text = out.text();
        assert!(
            text.contains("a.py, line 1: trailing white space")
                && text.contains("Read again before you edit: a.py"),
            "{text}"
        );
    }

    /// Runs docket's Rust lint lines with the real rustfmt and cargo.
    #[test]
    fn rust_is_linted_and_formatted() {
        let files = ["Cargo.toml", "src/lib.rs", "src/it's.rs"];
        let w = TestWorkspace::new(&[
            (files[0], "[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n"),
            (files[1], "pub fn  f( ) -> HashMap<u8, u8> {\n    HashMap::new()\n}\n"),
            (files[2], "fn good() {}\n"),
        ]);
        let (names, text) = (Vec::new(), |_: &str| None);
        let linters =
            lint::resolve_linters(&lint::ProjectFiles { paths: &names, read_text: &text }, &BTreeMap::new());
        let rust: Vec<_> = linters.into_iter().filter(|linter| linter.extensions == ["rs"]).collect();
        let changed = [files[1], files[2]].map(|path| WorkspacePath::new(path).expect("legal"));
        let missing = std::collections::BTreeSet::new();
        let edited = crate::tools::LintBatch {
            linters: &rust,
            files: &changed,
            unavailable: &missing,
            baseline: &BTreeMap::new(),
            timeout_ms: 60_000,
            list_findings: true,
        };
        let said = w.with_context(|context| {
            Box::pin(crate::tools::checks::lint::lint_batch(context, &edited, BTreeMap::new()))
        });
        assert!(said.text.contains("rustfmt finds:\nDiff in src/lib.rs:1:"), "{}", said.text);
        assert!(said.text.contains("src/lib.rs:1:") && said.text.contains("HashMap"), "{}", said.text);
        for linter in &rust {
            let fix = linter.fix.as_ref().map(|fix| lint::render_command(fix, &changed));
            let own =
                gate(&lint::render_command(&linter.check, &changed), fix.as_deref(), &[files[1], files[2]]);
            run(&w, &own);
        }
        let after =
            "use std::collections::HashMap;\n\npub fn f() -> HashMap<u8, u8> {\n    HashMap::new()\n}\n";
        assert_eq!(
            (w.read_file(files[1]).as_str(), w.read_file(files[2]).as_str()),
            (after, "fn good() {}\n")
        );
        let said = w.with_context(|context| {
            Box::pin(crate::tools::checks::lint::lint_batch(context, &edited, BTreeMap::new()))
        });
        assert_eq!(said.text, "", "nothing is left");
    }

    #[test]
    fn pattern_fixes_are_formatted_and_hanging_fix_is_not_rerun() {
        let w = TestWorkspace::new(&[("a.py", "import re\n\nos.sep\n")]);
        let sorts = "echo >> fixed; sort -u a.py > b && mv b a.py";
        let check = "echo >> checked; echo 'a.py:3:1: F821 Undefined name `os`'; exit 1";
        run(&w, &gate(check, Some("echo >> fixed"), &["a.py"]));
        assert_eq!(w.read_file("a.py"), "import os\nimport re\n\nos.sep\n");
        assert_eq!(
            (w.read_file("fixed").len(), w.read_file("checked").len()),
            (2, 1),
            "once more behind the pattern"
        );
        run(&w, &gate(check, Some(sorts), &["a.py"]));
        assert_eq!(
            (w.read_file("fixed").len(), w.read_file("checked").len()),
            (3, 2),
            "nothing was there to mend"
        );
        let mut w = w;
        w.settings.command_timeout_ms_max = 300;
        let out = run(&w, &gate(check, Some("sleep 60"), &["a.py"]));
        assert!(out.text().contains("ended after its time limit"), "{}", out.text());
        assert_eq!(w.read_file("checked").len(), 2, "the check is not run behind a fix that hangs");
    }

    #[test]
    fn failing_tests_get_only_import_fixes() {
        let w = TestWorkspace::new(&[("a.py", "import re\nx = os.sep  \n")]);
        let mut gate = gate("false", None, &["a.py"]);
        if let Some(mend) = &mut gate.mend {
            let said = "a.py:1:8: F401 [*] `re` imported but unused\\na.py:2:5: F821 Undefined name `os`\\n";
            mend.imports = Some(format!(
                "(printf '{}a.py:2:11: W291 x\\n'; exit 1); (true)",
                said.replace('`', "\\140")
            ));
        }
        let out = run(&w, &gate);
        assert_eq!(w.read_file("a.py"), "import os\nimport re\nx = os.sep  \n");
        assert!(out.text().contains("line 2: missing import import os"), "{}", out.text());
    }

    #[test]
    fn unfixable_findings_are_left_and_reported() {
        let w = TestWorkspace::new(&[("a.py", "x = 1\n"), ("setup.py", "x = 1  \n")]);
        let out = run(
            &w,
            &gate(
                "echo 'a.py:1:1: E999 what'; echo 'setup.py:1:1: W291 x'; exit 1",
                None,
                &["a.py", "setup.py"],
            ),
        );
        assert!(out.facts.changed.is_empty() && out.text().contains("It changed nothing"), "{}", out.text());
        assert_eq!(w.read_file("setup.py"), "x = 1  \n", "configuration is not rewritten by patterns");
    }
}
