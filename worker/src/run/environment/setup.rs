//! Setup commands of a task: run in its workspace before the first model call, and again whenever a workspace is
//! recreated.

use std::time::Instant;

use docket_schema::{
    redact::Redactor,
    run::{RunSettings, SetupFinished},
};

use super::sandbox_runner::SandboxRunner;
use crate::run::errors::start_error::StartError;
use crate::tools;

/// Exit status of a shell that did not find a program, fixed by POSIX.
const COMMAND_NOT_FOUND: i32 = 127;

/// Time limit for the program lookup, in milliseconds.
const PROGRAM_CHECK_MS_MAX: u64 = 10_000;

/// Runs setup lines, in order.
///
/// # Errors
/// A line failed. In an unprepared workspace the run would only waste its turns.
pub(in crate::run) async fn run_setup(
    commands: &[String],
    settings: &RunSettings,
    runner: &SandboxRunner,
    redactor: &Redactor,
) -> Result<Vec<SetupFinished>, StartError> {
    let mut done = Vec::new();
    for command in commands {
        let started = Instant::now();
        let asked = tools::CommandSpec {
            shell: command.clone(),
            cwd: None,
            timeout_ms: settings.command_timeout_ms_max,
        };
        let output = tools::CommandRunner::run(runner, asked)
            .await
            .map_err(|error| StartError::from_environment_error(&error))?;
        let mut bytes = output.stdout.to_bytes();
        bytes.extend_from_slice(&output.stderr.to_bytes());
        let printable = tools::printable_text(&bytes);
        let (text, _) =
            tools::cut_middle(&redactor.redact_text(&printable), settings.output_chars_max as usize);
        let exit = match output.ended {
            tools::CommandEnd::Exit(status) => Some(status),
            tools::CommandEnd::Signal(_) | tools::CommandEnd::TimedOut | tools::CommandEnd::Exceeded(_) => {
                None
            }
        };
        match exit {
            Some(0) => {}
            Some(COMMAND_NOT_FOUND) if is_program_absent(command, runner).await? => {
                return Err(StartError::CommandMissing(setup_failure_message(command, output.ended, &text)));
            }
            Some(_) | None => {
                return Err(StartError::Environment(setup_failure_message(command, output.ended, &text)));
            }
        }
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        done.push(SetupFinished { command: command.clone(), exit, content: text.into(), duration_ms });
    }
    Ok(done)
}

/// Checks whether the first program of a line is missing in the sandbox. The exit status alone is not proof: a script
/// may return the same one, or a later program of the line may be misspelled.
async fn is_program_absent(line: &str, runner: &SandboxRunner) -> Result<bool, StartError> {
    let Some(program) = first_program(line) else { return Ok(false) };
    // A program inside the workspace is the task's own responsibility.
    let shell = format!(
        "case {program} in \"$PWD\"/*) exit 0 ;; */*) [ -e {program} ] ;; *) command -v {program} >/dev/null ;; esac"
    );
    let asked = tools::CommandSpec { shell, cwd: None, timeout_ms: PROGRAM_CHECK_MS_MAX };
    let output = tools::CommandRunner::run(runner, asked)
        .await
        .map_err(|error| StartError::from_environment_error(&error))?;
    Ok(matches!(output.ended, tools::CommandEnd::Exit(status) if status != 0))
}

/// Returns the first program of a shell line if it is named literally and lies outside the workspace.
fn first_program(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    loop {
        let end = rest.find(|c: char| c.is_whitespace() || ";&|<>".contains(c)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        let is_plain =
            |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._/+@:-".contains(&b));
        rest = behind.trim_start();
        if let Some((variable, value)) = word.split_once('=') {
            // If the line sets `PATH` or uses a computed value, the lookup here proves nothing.
            let is_name = variable.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            if !is_name || variable == "PATH" || !is_plain(value) {
                return None;
            }
            continue;
        }
        let is_outside = word.starts_with('/') || !word.contains('/');
        let is_program = !word.is_empty() && !word.starts_with('-') && is_plain(word) && is_outside;
        // Skip functions defined by the line itself.
        return (is_program && !rest.starts_with('(')).then_some(word);
    }
}

fn setup_failure_message(command: &str, ended: tools::CommandEnd, said: &str) -> String {
    let how = match ended {
        tools::CommandEnd::Exit(status) => format!("with exit status {status}"),
        tools::CommandEnd::Signal(signal) => format!("by signal {signal}"),
        tools::CommandEnd::TimedOut => "because it timed out".to_owned(),
        tools::CommandEnd::Exceeded(what) => format!("because it used more {} than allowed", what.as_noun()),
    };
    match said.trim_end() {
        "" => format!("the setup command `{command}` failed {how} and printed nothing"),
        said => format!("the setup command `{command}` failed {how}: {said}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use docket_sandbox::{BackendChoice, Sandbox, SandboxConfig, workspace_owner};

    #[test]
    fn first_program_is_a_plain_word_outside_of_the_workspace() {
        for (line, program) in [
            ("cargo fetch --locked", Some("cargo")),
            ("  npm ci && npm run build", Some("npm")),
            ("make;true", Some("make")),
            ("CI=1 NODE_ENV=test yarn install", Some("yarn")),
            ("/opt/bin/prepare x", Some("/opt/bin/prepare")),
            ("PATH=/nowhere cargo fetch", None),
            ("X=$(id) cargo", None),
            ("./prepare.sh", None),
            ("tools/prepare", None),
            ("$TOOL x", None),
            ("'a b' c", None),
            ("f() { return 127; }; f", None),
            ("f () { return 127; }; f", None),
            ("(exit 127)", None),
            ("", None),
            ("A=1", None),
        ] {
            assert_eq!(first_program(line), program, "{line}");
        }
    }

    #[tokio::test]
    async fn only_an_absent_program_is_the_workers_fault() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        std::fs::write(folder.join("own.sh"), "exit 127\n").unwrap();
        if let Some((uid, gid)) = workspace_owner() {
            std::os::unix::fs::chown(&folder, Some(uid), Some(gid)).unwrap();
        }
        let config = SandboxConfig::new(BackendChoice::None, &folder);
        let runner = SandboxRunner(Sandbox::prepare(config).await.unwrap());
        let of_workspace = folder.join("absent").to_string_lossy().into_owned();
        let is_of_worker = async |line: &str| {
            let lines = [line.to_owned()];
            let redactor = Redactor::new(Vec::<String>::new());
            match run_setup(&lines, &RunSettings::default(), &runner, &redactor).await {
                Err(StartError::CommandMissing(_)) => true,
                Err(StartError::Environment(said)) => {
                    assert!(said.contains("exit status 127"), "{said}");
                    false
                }
                other => panic!("{line}: {other:?}"),
            }
        };
        for line in ["no-such-program-here --x", "/no/such/folder/prepare", "CI=1 no-such-program-here"] {
            assert!(is_of_worker(line).await, "{line}");
        }
        for line in ["exit 127", "sh own.sh", "true && no-such-program-here", "./absent.sh", &of_workspace] {
            assert!(!is_of_worker(line).await, "{line}");
        }
    }
}
