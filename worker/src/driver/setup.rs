//! Setup commands of a task: run in its workspace before the model is asked, and again where a workspace is made again.

use std::time::Instant;

use docket_schema::{
    redact::Redactor,
    run::{RunSettings, SetupFinished},
};

use super::start::{SandboxRunner, StartError};
use crate::tools;

/// Exit status of a shell that did not find a program, fixed by POSIX.
const COMMAND_NOT_FOUND: i32 = 127;

/// Runs setup lines, in order.
///
/// # Errors
/// One failed: a run in a workspace that is not ready would only waste its turns.
pub(super) async fn setup(
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
        let output =
            tools::Runner::run(runner, asked).await.map_err(|error| StartError::environment(&error))?;
        let mut bytes = output.stdout.joined();
        bytes.extend_from_slice(&output.stderr.joined());
        let printable = tools::printable(&bytes);
        let (text, _) = tools::cut(&redactor.text(&printable), settings.output_chars_max as usize);
        let exit = match output.ended {
            tools::Ended::Exit(status) => Some(status),
            tools::Ended::Signal(_) | tools::Ended::TimedOut | tools::Ended::Exceeded(_) => None,
        };
        match exit {
            Some(0) => {}
            Some(COMMAND_NOT_FOUND) => {
                return Err(StartError::CommandMissing(setup_failed(command, output.ended, &text)));
            }
            Some(_) | None => {
                return Err(StartError::Environment(setup_failed(command, output.ended, &text)));
            }
        }
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        done.push(SetupFinished { command: command.clone(), exit, content: text.into(), duration_ms });
    }
    Ok(done)
}

fn setup_failed(command: &str, ended: tools::Ended, said: &str) -> String {
    let how = match ended {
        tools::Ended::Exit(status) => format!("with exit status {status}"),
        tools::Ended::Signal(signal) => format!("by signal {signal}"),
        tools::Ended::TimedOut => "for it did not end in time".to_owned(),
        tools::Ended::Exceeded(what) => format!("for it used more {} than allowed", what.noun()),
    };
    match said.trim_end() {
        "" => format!("the setup command `{command}` failed {how} and printed nothing"),
        said => format!("the setup command `{command}` failed {how}: {said}"),
    }
}
