//! `run_command`: runs any shell line through the sandboxed runner.

use docket_schema::{content::WorkspacePath, redact::Redactor};

use super::config_restore;
use crate::calls::parse_folder_path;
use crate::{
    shell::refusal_reason,
    tools::{
        context::{
            runner::{CommandEnd, CommandOutput, CommandSpec},
            tool_context::{TimeLimit, ToolContext, ToolOutcome, ToolSettings},
        },
        file_access::files::{FileError, os_path},
        text::{
            output::{cut_middle, printable_text},
            signature::{error_line, error_signature},
        },
    },
};

pub(crate) use crate::calls::{CommandArgs, RUN_COMMAND as NAME};

pub(crate) const DESCRIPTION: &str = "Runs a shell line in the workspace and answers with its exit status and output. \
    Long output is cut in the middle. No process outlives the call. Use read_file, edit_file and search_codebase \
    rather than cat, sed and grep.";

/// Longest command line, in characters; longer ones are scripts and belong in a file.
const COMMAND_CHARS_MAX: usize = 32 * 1024;

pub(crate) async fn run(context: ToolContext<'_>, args: CommandArgs) -> ToolOutcome {
    run_as_tool(context, args, NAME, |_| String::new()).await
}

/// Runs a command as the tool `name`, prefixed with words that depend on its folder.
pub(crate) async fn run_as_tool(
    context: ToolContext<'_>,
    args: CommandArgs,
    name: &str,
    entering: fn(Option<&WorkspacePath>) -> String,
) -> ToolOutcome {
    let mut spec = match plan_command(context, args) {
        Ok(spec) => spec,
        Err(text) => return ToolOutcome::error(name, text),
    };
    let limit = context.settings.time_limit(spec.timeout_ms);
    let before = config_restore::back_up_configs(context, &spec.shell, spec.cwd.as_ref());
    spec.shell.insert_str(0, &entering(spec.cwd.as_ref()));
    match context.runner.run(CommandSpec { timeout_ms: limit.ms, ..spec }).await {
        Ok(output) => {
            let mut outcome = to_outcome(&output, limit, context.settings);
            outcome.content.extend_from_slice(before.restore_replaced(context).as_bytes());
            outcome
        }
        Err(error) => {
            let own = error.output.as_ref().map(|output| to_outcome(output, limit, context.settings));
            ToolOutcome::from_runner_error(name, &error, own)
        }
    }
}

fn plan_command(context: ToolContext<'_>, args: CommandArgs) -> Result<CommandSpec, String> {
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
    if let Some(why) = refusal_reason(&args.command) {
        return Err(format!("this command is not run, for {why}. Name what it should act on more narrowly"));
    }
    let most = context.settings.command_timeout_ms_max;
    let timeout_ms = match args.timeout_s.map(|s| s.saturating_mul(1000)) {
        Some(ms) if ms > most => return Err(format!("`timeout_s` must be at most {}", most / 1000)),
        Some(ms) => ms,
        None => context.settings.command_timeout_ms,
    };
    let cwd = parse_folder_path(args.cwd.as_deref()).map_err(|error| format!("`cwd`: {error}"))?;
    if let Some(cwd) = &cwd {
        match context.root.metadata(os_path(cwd)) {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => return Err(format!("`cwd`: `{cwd}` is no folder")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(format!("`cwd`: {}", FileError::Missing(cwd.clone())));
            }
            Err(_) => return Err(format!("`cwd`: {}", FileError::OutsideWorkspace(cwd.clone()))),
        }
    }
    Ok(CommandSpec { shell: args.command, cwd, timeout_ms })
}

fn to_outcome(output: &CommandOutput, limit: TimeLimit, settings: &ToolSettings) -> ToolOutcome {
    let text = format_output(output, &settings.redactor);
    let (shown, was_cut) = cut_middle(&text, settings.output_chars_max);
    let mut outcome = outcome_from_end(output.ended, limit, &text);
    outcome.content.extend_from_slice(shown.as_bytes());
    outcome.content.extend_from_slice(format_restored_paths(&output.restored_paths).as_bytes());
    outcome.full_output = was_cut.then(|| text.into_bytes());
    outcome
}

/// Formats the note about protected paths that a command changed.
pub(crate) fn format_restored_paths(put_back: &[String]) -> String {
    if put_back.is_empty() {
        return String::new();
    }
    let names: Vec<String> = put_back.iter().map(|name| printable_text(name.as_bytes())).collect();
    format!(
        "[made as before again: {}; hooks and configuration of git, and docket's own, cannot be changed by a run]\n",
        names.join(", ")
    )
}

/// Formats both streams, each under its name unless it is empty.
pub(crate) fn format_output(output: &CommandOutput, redactor: &Redactor) -> String {
    let mut text = String::new();
    for (name, stream) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        if stream.total_bytes > 0 {
            text.push_str(&format!("{name}:\n{}", printable_text(&stream.to_bytes())));
            if !text.ends_with('\n') {
                text.push('\n');
            }
        }
    }
    redactor.redact_text(&text).into_owned()
}

/// Builds the head of an answer and the facts that follow from how a command ended.
pub(crate) fn outcome_from_end(ended: CommandEnd, limit: TimeLimit, text: &str) -> ToolOutcome {
    let line = match ended {
        CommandEnd::Exit(status) => format!("exit status {status}\n"),
        CommandEnd::Signal(signal) => format!("ended by signal {signal}\n"),
        CommandEnd::TimedOut if limit.is_run_budget => format!(
            "ended after {:.1} s, for the run's budget of time is used up\n",
            limit.ms as f64 / 1000.0
        ),
        CommandEnd::TimedOut => format!("ended after its time limit of {} s\n", limit.ms / 1000),
        CommandEnd::Exceeded(what) => format!("ended, for it used more {} than allowed\n", what.as_noun()),
    };
    let mut outcome = ToolOutcome::ok(line.clone());
    outcome.is_error = !matches!(ended, CommandEnd::Exit(_));
    outcome.facts.may_have_changed_tree = true;
    outcome.facts.timed_out = ended == CommandEnd::TimedOut;
    outcome.facts.exceeded = match ended {
        CommandEnd::Exceeded(what) => Some(what),
        CommandEnd::Exit(_) | CommandEnd::Signal(_) | CommandEnd::TimedOut => None,
    };
    outcome.facts.exit = match ended {
        CommandEnd::Exit(status) => Some(status),
        CommandEnd::Signal(_) | CommandEnd::TimedOut | CommandEnd::Exceeded(_) => None,
    };
    if ended != CommandEnd::Exit(0) {
        let said = error_line(text).unwrap_or_default();
        outcome.facts.error_signature = Some(error_signature(&format!("{} {said}", line.trim_end())));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::testing::TestWorkspace;

    #[test]
    fn status_and_both_streams_are_returned() {
        let mut w = TestWorkspace::new(&[("sub/x", "")]);
        let out = w.call_tool(NAME, json!({"command": "ls; echo no >&2; exit 3", "cwd": "./sub"}));
        assert_eq!(out.text(), "exit status 3\nstdout:\nx\nstderr:\nno\n");
        assert_eq!((out.facts.exit, out.is_error, out.facts.may_have_changed_tree), (Some(3), false, true));
        assert!(out.facts.error_signature.is_some());
        let out = w.call_tool(NAME, json!({"command": "true"}));
        assert_eq!((out.text().as_ref(), out.facts.error_signature.clone()), ("exit status 0\n", None));
    }

    #[test]
    fn long_output_is_cut_in_the_middle_and_stored_in_full() {
        let mut w = TestWorkspace::new(&[]);
        let out = w.call_tool(NAME, json!({"command": "seq 1 5000"}));
        let text = out.text();
        assert!(text.starts_with("exit status 0\nstdout:\n1\n2\n") && text.ends_with("4999\n5000\n"));
        assert!(text.chars().count() < 4200, "{}", text.len());
        let full = String::from_utf8(out.full_output.expect("was cut")).expect("text");
        assert_eq!(full.lines().count(), 5001);
    }

    #[test]
    fn time_limit_stops_the_command() {
        let mut w = TestWorkspace::new(&[]);
        let out = w.call_tool(NAME, json!({"command": "sleep 60", "timeout_s": 1}));
        assert!(out.is_error && out.facts.timed_out && out.facts.exit.is_none());
        assert!(out.text().starts_with("ended after its time limit of 1 s"));
    }

    /// If the end of a command is unknown, so is what it changed: the tree is walked.
    #[test]
    fn command_that_breaks_midway_may_have_changed_the_tree() {
        let mut w = TestWorkspace::new(&[("test.sh", "echo tested > tested\n")]);
        w.lose_sandbox();
        let calls = [(NAME, json!({"command": "echo x > made"}), "made"), ("run_tests", json!({}), "tested")];
        for (tool, args, made) in calls {
            let out = w.call_tool(tool, args);
            assert!(out.is_error && out.text().contains("the sandbox is lost"), "{}", out.text());
            assert!(out.facts.may_have_changed_tree && w.full_path(made).exists(), "{tool}");
        }
    }

    #[test]
    fn command_never_exceeds_the_time_budget_of_the_run() {
        let mut w = TestWorkspace::new(&[]);
        w.settings.deadline = Some(std::time::Instant::now() + std::time::Duration::from_millis(300));
        for tool in
            [(NAME, json!({"command": "sleep 60"})), (NAME, json!({"command": "sleep 60", "timeout_s": 50}))]
        {
            let out = w.call_tool(tool.0, tool.1);
            assert!(out.is_error && out.facts.timed_out, "{}", out.text());
            assert!(out.text().contains("the run's budget of time is used up"), "{}", out.text());
        }
    }

    #[test]
    fn invalid_commands_are_rejected_with_a_reason() {
        let mut w = TestWorkspace::new(&[("file", "")]);
        w.create_link("out", "/etc");
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
            let out = w.call_tool(NAME, args);
            assert!(out.is_error && out.text().contains(want), "{}", out.text());
            assert!(!out.facts.may_have_changed_tree);
        }
    }
}
