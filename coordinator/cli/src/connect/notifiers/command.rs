//! Notification by a program that reads the notification on standard input; exit status 0 counts as delivered.
//!
//! The command comes from the coordinator's own settings, never from a repository. It is not run by a shell,
//! and no model output is part of its command line. Its process group is killed when the attempt ends.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use docket_coordinator::notify::{DeliveryAttemptResult, NotificationMessage};
use docket_schema::api::NotificationBody;
use docket_worker::process::{ChildExit, TrustedError, TrustedSpec, run_trusted};

/// Maximum output before it is killed.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;
/// Characters of the end of its output that are shown.
const OUTPUT_TAIL_CHARS_MAX: usize = 200;
/// Environment variables passed on: what programs need to find others, and locale settings.
const PASSED_ENV_VARS: [&str; 6] = ["PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR"];
/// The PATH used if none is set.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Delivers notifications by running a program.
pub(crate) struct CommandNotifier {
    /// Absolute path.
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    /// Working directory.
    pub(crate) cwd: PathBuf,
    pub(crate) timeout: Duration,
}

impl CommandNotifier {
    /// Makes one delivery attempt.
    pub(crate) async fn deliver(
        &self,
        letter: &NotificationMessage,
        body: &NotificationBody,
        mut json: Vec<u8>,
    ) -> DeliveryAttemptResult {
        json.push(b'\n');
        let spec = TrustedSpec {
            program: self.program.clone(),
            args: self.args.iter().map(OsString::from).collect(),
            cwd: self.cwd.clone(),
            env: build_env(letter, body),
            stdin: json,
            timeout: self.timeout,
            stdout_bytes_max: OUTPUT_BYTES_MAX,
        };
        let refused = |why: String| DeliveryAttemptResult::Failed { why, retry_after_ms: None };
        match run_trusted(spec).await {
            Ok(ended) => {
                let said = if ended.stderr.trim_ascii().is_empty() { &ended.stdout } else { &ended.stderr };
                let said = format_output_tail(said);
                match ended.exit {
                    ChildExit::Exit(0) => DeliveryAttemptResult::Delivered,
                    ChildExit::Exit(status) => {
                        refused(format!("the command exited with status {status}{said}"))
                    }
                    ChildExit::Signal(signal) => {
                        refused(format!("the command was killed by signal {signal}{said}"))
                    }
                }
            }
            Err(error @ TrustedError::Start { .. }) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                refused(format!("the command cannot be started: {cause}"))
            }
            Err(TrustedError::TimedOut { timeout_ms, .. }) => {
                refused(format!("the command did not finish within {timeout_ms} ms and was killed"))
            }
            Err(
                error @ (TrustedError::NotAbsolute { .. }
                | TrustedError::Io { .. }
                | TrustedError::OutputTooLarge { .. }),
            ) => refused(error.to_string()),
        }
    }
}

/// Builds its environment: the variables passed on, and those that describe the notification.
fn build_env(letter: &NotificationMessage, body: &NotificationBody) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> = vec![("PATH".into(), DEFAULT_PATH.into())];
    let mut set = |name: &str, value: OsString| {
        env.retain(|(known, _)| known != name);
        env.push((name.into(), value));
    };
    for name in PASSED_ENV_VARS {
        if let Some(value) = std::env::var_os(name) {
            set(name, value);
        }
    }
    let data = &body.data;
    let told = [
        ("DOCKET_NOTIFICATION_ID", Some(letter.record.raised.id.to_string())),
        ("DOCKET_NOTIFICATION_TYPE", Some(body.kind.to_string())),
        ("DOCKET_NOTIFICATION_ATTEMPT", Some(letter.attempt.to_string())),
        ("DOCKET_TASK", data.task.map(|task| task.to_string())),
        ("DOCKET_RUN", data.run.map(|run| run.to_string())),
        ("DOCKET_BATCH", data.batch.map(|batch| batch.to_string())),
        ("DOCKET_QUEUE", data.queue.as_ref().map(ToString::to_string)),
        ("DOCKET_LINK", data.link.clone()),
    ];
    for (name, value) in told {
        if let Some(value) = value {
            set(name, value.into());
        }
    }
    env
}

/// Formats the end of its output as one line after a colon.
fn format_output_tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let from = words.char_indices().rev().nth(OUTPUT_TAIL_CHARS_MAX - 1).map_or(0, |(at, _)| at);
    if words.is_empty() { words } else { format!(": {}", &words[from..]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use docket_schema::{
        ids::{NotificationId, Timestamp},
        system::{NotificationContent, NotificationRaised, NotificationRecord},
    };

    fn test_message() -> NotificationMessage {
        let id = NotificationId(uuid::Uuid::from_u128(9));
        let notice = NotificationContent::Test { by: "ann".to_owned() };
        let targets = vec!["a".to_owned()];
        let raised = NotificationRaised { id, source: None, position: None, notice, targets };
        let record = NotificationRecord { raised, raised_at: Timestamp(0), deliveries: Vec::new() };
        NotificationMessage { record, attempt: 2, now: Timestamp(0) }
    }

    async fn run_shell(line: &str, ms: u64) -> DeliveryAttemptResult {
        let program = CommandNotifier {
            program: "/bin/sh".into(),
            args: vec!["-c".to_owned(), line.to_owned()],
            cwd: std::env::temp_dir(),
            timeout: Duration::from_millis(ms),
        };
        let letter = test_message();
        let body = NotificationBody::from_record(&letter.record, None);
        let json = serde_json::to_vec(&body).expect("json");
        program.deliver(&letter, &body, json).await
    }

    fn refusal_reason(sent: DeliveryAttemptResult) -> String {
        match sent {
            DeliveryAttemptResult::Failed { why, .. } => why,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn command_gets_notification_by_stdin_and_env_and_exit_status_decides() {
        let line = "grep -q '\"by\":\"ann\"' && test $DOCKET_NOTIFICATION_ATTEMPT.$DOCKET_NOTIFICATION_TYPE = 2.test";
        assert_eq!(run_shell(line, 20_000).await, DeliveryAttemptResult::Delivered);
        assert_eq!(
            refusal_reason(run_shell("echo no >&2; exit 3", 20_000).await),
            "the command exited with status 3: no"
        );
        assert_eq!(
            refusal_reason(run_shell("kill -9 $$", 20_000).await),
            "the command was killed by signal 9"
        );
        assert!(refusal_reason(run_shell("sleep 600", 100).await).contains("within 100 ms"));
        assert!(refusal_reason(run_shell("yes", 20_000).await).contains("bytes"));
        // Nothing of docket's own environment except what every program needs.
        let names =
            refusal_reason(run_shell("env | cut -d= -f1 | sort | tr '\\n' ' '; exit 1", 20_000).await);
        assert!(names.contains("DOCKET_NOTIFICATION_ID") && !names.contains("CARGO"), "{names}");
    }

    #[test]
    fn long_output_is_cut_to_its_end() {
        assert_eq!(format_output_tail(b" \n"), "");
        let long = format_output_tail("ü".repeat(1000).as_bytes());
        assert_eq!(long.chars().count(), OUTPUT_TAIL_CHARS_MAX + 2);
    }
}
