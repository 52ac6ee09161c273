//! `run_command`: any shell line, in the sandbox that the runner is.

use docket_schema::{content::WorkPath, redact::Redactor};

use super::put_back;
use crate::calls::folder_path;
use crate::{
    shell::refusal,
    tools::{
        context::{
            runner::{CommandOutput, CommandSpec, Ended},
            tool_context::{TimeLimit, ToolContext, ToolOutcome, ToolSettings},
        },
        file_access::files::{FileError, os},
        text::{
            output::{cut, printable},
            signature::{error_line, error_signature},
        },
    },
};

pub(crate) use crate::calls::{CommandArgs as Args, RUN_COMMAND as NAME};

pub(crate) const DESCRIPTION: &str = "Runs a shell line in the workspace and answers with its exit status and output. \
    Long output is cut in the middle. No process outlives the call. Use read_file, edit_file and search_codebase \
    rather than cat, sed and grep.";

/// Characters of a command line: longer ones are scripts and belong in a file.
const COMMAND_CHARS_MAX: usize = 32 * 1024;

pub(crate) async fn run(context: ToolContext<'_>, args: Args) -> ToolOutcome {
    run_as(context, args, NAME, |_| String::new()).await
}

/// Runs it as the tool `name`, behind words that depend on the folder it is run in.
pub(crate) async fn run_as(
    context: ToolContext<'_>,
    args: Args,
    name: &str,
    entering: fn(Option<&WorkPath>) -> String,
) -> ToolOutcome {
    let mut spec = match plan(context, args) {
        Ok(spec) => spec,
        Err(text) => return ToolOutcome::error(name, text),
    };
    let limit = context.settings.time_limit(spec.timeout_ms);
    let before = put_back::before(context, &spec.shell, spec.cwd.as_ref());
    spec.shell.insert_str(0, &entering(spec.cwd.as_ref()));
    match context.runner.run(CommandSpec { timeout_ms: limit.ms, ..spec }).await {
        Ok(output) => {
            let mut outcome = answer(&output, limit, context.settings);
            outcome.content.extend_from_slice(before.put_back(context).as_bytes());
            outcome
        }
        Err(error) => {
            let own = error.output.as_ref().map(|output| answer(output, limit, context.settings));
            ToolOutcome::not_run(name, &error, own)
        }
    }
}

fn plan(context: ToolContext<'_>, args: Args) -> Result<CommandSpec, String> {
    if args.command.trim().is_empty() {
        return Err("`command` is empty".to_owned());
    }
    if args.command.contains('\0') {
        return Err("`command` holds a NUL character".to_owned());
    }
    if args.command.len() > COMMAND_CHARS_MAX {
        return Err(format!(
            "`command` is longer than {COMMAND_CHARS_MAX} bytes: write a script into a file and run that"
        ));
    }
    if let Some(why) = refusal(&args.command) {
        return Err(format!("this command is not run, for {why}. Name what it should act on more narrowly"));
    }
    let most = context.settings.command_timeout_ms_max;
    let timeout_ms = match args.timeout_s.map(|s| s.saturating_mul(1000)) {
        Some(ms) if ms > most => return Err(format!("`timeout_s` must be at most {}", most / 1000)),
        Some(ms) => ms,
        None => context.settings.command_timeout_ms,
    };
    let cwd = folder_path(args.cwd.as_deref()).map_err(|error| format!("`cwd`: {error}"))?;
    if let Some(cwd) = &cwd {
        match context.root.metadata(os(cwd)) {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => return Err(format!("`cwd`: `{cwd}` is no folder")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(format!("`cwd`: {}", FileError::Missing(cwd.clone())));
            }
            Err(_) => return Err(format!("`cwd`: {}", FileError::Outside(cwd.clone()))),
        }
    }
    Ok(CommandSpec { shell: args.command, cwd, timeout_ms })
}

fn answer(output: &CommandOutput, limit: TimeLimit, settings: &ToolSettings) -> ToolOutcome {
    let text = as_text(output, &settings.redactor);
    let (shown, was_cut) = cut(&text, settings.output_chars_max);
    let mut outcome = ended(output.ended, limit, &text);
    outcome.content.extend_from_slice(shown.as_bytes());
    outcome.content.extend_from_slice(protected(&output.put_back).as_bytes());
    outcome.full = was_cut.then(|| text.into_bytes());
    outcome
}

/// What is told of protected paths that a command changed.
pub(crate) fn protected(put_back: &[String]) -> String {
    if put_back.is_empty() {
        return String::new();
    }
    let names: Vec<String> = put_back.iter().map(|name| printable(name.as_bytes())).collect();
    format!(
        "[made as before again: {}; hooks and configuration of git, and docket's own, cannot be changed by a run]\n",
        names.join(", ")
    )
}

/// Both streams, each under its name where it has anything.
pub(crate) fn as_text(output: &CommandOutput, redactor: &Redactor) -> String {
    let mut text = String::new();
    for (name, stream) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        if stream.total_bytes > 0 {
            text.push_str(&format!("{name}:\n{}", printable(&stream.joined())));
            if !text.ends_with('\n') {
                text.push('\n');
            }
        }
    }
    redactor.text(&text).into_owned()
}

/// The head of an answer and the facts that follow from how a command ended.
pub(crate) fn ended(ended: Ended, limit: TimeLimit, text: &str) -> ToolOutcome {
    let line = match ended {
        Ended::Exit(status) => format!("exit status {status}\n"),
        Ended::Signal(signal) => format!("ended by signal {signal}\n"),
        Ended::TimedOut if limit.is_budget => format!(
            "ended after {:.1} s, for the run's budget of time is used up\n",
            limit.ms as f64 / 1000.0
        ),
        Ended::TimedOut => format!("ended after its time limit of {} s\n", limit.ms / 1000),
        Ended::Exceeded(what) => format!("ended, for it used more {} than allowed\n", what.noun()),
    };
    let mut outcome = ToolOutcome::ok(line.clone());
    outcome.is_error = !matches!(ended, Ended::Exit(_));
    outcome.facts.may_have_changed_tree = true;
    outcome.facts.timed_out = ended == Ended::TimedOut;
    outcome.facts.exceeded = match ended {
        Ended::Exceeded(what) => Some(what),
        Ended::Exit(_) | Ended::Signal(_) | Ended::TimedOut => None,
    };
    outcome.facts.exit = match ended {
        Ended::Exit(status) => Some(status),
        Ended::Signal(_) | Ended::TimedOut | Ended::Exceeded(_) => None,
    };
    if ended != Ended::Exit(0) {
        let said = error_line(text).unwrap_or_default();
        outcome.facts.error_signature = Some(error_signature(&format!("{} {said}", line.trim_end())));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::testing::Workspace;

    #[test]
    fn status_and_both_streams_come_back() {
        let mut w = Workspace::new(&[("sub/x", "")]);
        let out = w.call(NAME, json!({"command": "ls; echo no >&2; exit 3", "cwd": "./sub"}));
        assert_eq!(out.text(), "exit status 3\nstdout:\nx\nstderr:\nno\n");
        assert_eq!((out.facts.exit, out.is_error, out.facts.may_have_changed_tree), (Some(3), false, true));
        assert!(out.facts.error_signature.is_some());
        let out = w.call(NAME, json!({"command": "true"}));
        assert_eq!((out.text().as_ref(), out.facts.error_signature.clone()), ("exit status 0\n", None));
    }

    #[test]
    fn long_output_keeps_both_ends_and_is_kept_whole() {
        let mut w = Workspace::new(&[]);
        let out = w.call(NAME, json!({"command": "seq 1 5000"}));
        let text = out.text();
        assert!(text.starts_with("exit status 0\nstdout:\n1\n2\n") && text.ends_with("4999\n5000\n"));
        assert!(text.chars().count() < 4200, "{}", text.len());
        let full = String::from_utf8(out.full.expect("was cut")).expect("text");
        assert_eq!(full.lines().count(), 5001);
    }

    #[test]
    fn a_time_limit_ends_it() {
        let mut w = Workspace::new(&[]);
        let out = w.call(NAME, json!({"command": "sleep 60", "timeout_s": 1}));
        assert!(out.is_error && out.facts.timed_out && out.facts.exit.is_none());
        assert!(out.text().starts_with("ended after its time limit of 1 s"));
    }

    /// Of a command whose end is not learned nobody knows what it did: the tree is walked.
    #[test]
    fn what_breaks_midway_may_have_changed_the_tree() {
        let mut w = Workspace::new(&[("test.sh", "echo tested > tested\n")]);
        w.breaks();
        let calls = [(NAME, json!({"command": "echo x > made"}), "made"), ("run_tests", json!({}), "tested")];
        for (tool, args, made) in calls {
            let out = w.call(tool, args);
            assert!(out.is_error && out.text().contains("the sandbox is lost"), "{}", out.text());
            assert!(out.facts.may_have_changed_tree && w.path(made).exists(), "{tool}");
        }
    }

    #[test]
    fn no_command_goes_on_beyond_the_runs_time() {
        let mut w = Workspace::new(&[]);
        w.settings.time_ends_at = Some(std::time::Instant::now() + std::time::Duration::from_millis(300));
        for tool in
            [(NAME, json!({"command": "sleep 60"})), (NAME, json!({"command": "sleep 60", "timeout_s": 50}))]
        {
            let out = w.call(tool.0, tool.1);
            assert!(out.is_error && out.facts.timed_out, "{}", out.text());
            assert!(out.text().contains("the run's budget of time is used up"), "{}", out.text());
        }
    }

    #[test]
    fn what_cannot_or_shall_not_run_is_told() {
        let mut w = Workspace::new(&[("file", "")]);
        w.link("out", "/etc");
        for (args, want) in [
            (json!({"command": "rm -rf /"}), "not run, for it removes a root"),
            (json!({"command": " "}), "`command` is empty"),
            (json!({"command": "ls", "cwd": "../.."}), "`cwd`: `../..` is not a path"),
            (json!({"command": "ls", "cwd": "out"}), "leads out of the workspace"),
            (json!({"command": "ls", "cwd": "file"}), "is no folder"),
            (json!({"command": "ls", "cwd": "none"}), "does not exist"),
            (json!({"command": "ls", "timeout_s": 301}), "`timeout_s` must be at most 300"),
            (json!({"command": "ls", "timeout": 500}), "`timeout` is unknown"),
        ] {
            let out = w.call(NAME, args);
            assert!(out.is_error && out.text().contains(want), "{}", out.text());
            assert!(!out.facts.may_have_changed_tree);
        }
    }
}
