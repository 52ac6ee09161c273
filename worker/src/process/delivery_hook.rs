//! Runs the user's own command after a delivery, for example to open a pull request.
//!
//! The command comes from the user's settings and never from a repository. Variable data reaches it only through the
//! environment: no text of a model is ever part of a command line. Called by the CLI's delivery.

use std::{ffi::OsString, path::Path, time::Duration};

use super::trusted::{ChildExit, TrustedSpec, run_trusted};

/// Most hook output that is kept, in bytes; a hook that writes a thousand times as much is killed.
pub const HOOK_OUTPUT_BYTES_MAX: usize = 8 * 1024;

/// Secrets of docket that a hook does not get.
const WITHHELD_VARIABLES: [&str; 4] = ["DOCKET_TOKEN", "DATABASE_URL", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"];

/// How a hook ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookResult {
    /// Exit status, if it has one.
    pub exit_status: Option<i32>,
    /// The end of its output, or why it did not finish.
    pub output: String,
}

/// Runs `command` with the shell in `cwd`, with docket's own environment overlaid with `env`.
pub async fn run_hook(command: &str, cwd: &Path, env: &[(&str, OsString)], timeout: Duration) -> HookResult {
    let own = std::env::vars_os().filter(|(name, _)| !WITHHELD_VARIABLES.iter().any(|kept| name == kept));
    let more = env.iter().map(|(name, value)| (OsString::from(*name), value.clone()));
    let spec = TrustedSpec {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), command.into()],
        cwd: cwd.to_owned(),
        env: own.chain(more).collect(),
        stdin: Vec::new(),
        timeout,
        stdout_bytes_max: HOOK_OUTPUT_BYTES_MAX * 1000,
    };
    match run_trusted(spec).await {
        Ok(ended) => {
            let text = format!(
                "{}{}",
                String::from_utf8_lossy(&ended.stdout),
                String::from_utf8_lossy(&ended.stderr)
            );
            let (exit, signal) = match ended.exit {
                ChildExit::Exit(status) => (Some(status), String::new()),
                ChildExit::Signal(signal) => (None, format!("ended by signal {signal}\n")),
            };
            HookResult { exit_status: exit, output: format!("{signal}{}", output_tail(&text)) }
        }
        Err(error) => HookResult { exit_status: None, output: error.to_string() },
    }
}

fn output_tail(text: &str) -> &str {
    let mut from = text.len().saturating_sub(HOOK_OUTPUT_BYTES_MAX);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn hook_gets_its_environment_and_a_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let env = [("DOCKET_TITLE", OsString::from("$(touch pwned); `touch pwned`"))];
        let run = |line: &'static str, ms| run_hook(line, dir.path(), &env, Duration::from_millis(ms));
        let said = run("echo \"$DOCKET_TITLE\"; echo e >&2; exit 3", 20_000).await;
        assert_eq!(
            said,
            HookResult { exit_status: Some(3), output: "$(touch pwned); `touch pwned`\ne\n".to_owned() }
        );
        assert!(!dir.path().join("pwned").exists());
        let late = run("sleep 600", 100).await;
        assert!(late.exit_status.is_none() && late.output.contains("was killed"), "{late:?}");
        let killed = run("kill -9 $$", 20_000).await;
        assert_eq!(killed, HookResult { exit_status: None, output: "ended by signal 9\n".to_owned() });
        let long = run("yes 0123456789 | head -c 100000", 20_000).await;
        assert_eq!((long.exit_status, long.output.len()), (Some(0), HOOK_OUTPUT_BYTES_MAX));
    }
}
