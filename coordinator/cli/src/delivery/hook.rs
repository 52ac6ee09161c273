//! The user's own command after a delivery.
//!
//! Runs at least once: it runs before the log records that it ran, so it runs again if docket dies in between.
//! Because it runs under a claim, it runs exactly once unless docket dies; its key is the same each time, so
//! that it can detect repetition.

use std::{ffi::OsString, time::Duration};

use docket_schema::{api::DeliveryStep, task::DeliveryBlockedReason};
use docket_worker::process::{HookResult, run_hook};

use super::delivery_attempt::{DeliveryAttempt, DeliveryFailure};
use crate::output::error::CliError;

impl DeliveryAttempt<'_> {
    /// Whether to run the hook: one is configured, and it has not succeeded for this commit and remote.
    pub(super) fn wants_hook(&self, commit: &str) -> bool {
        let is_pushed =
            self.recorded.delivered.iter().any(|one| one.commit == commit && one.remote.is_some());
        let is_new = self.request.push.is_some() && !is_pushed;
        self.cx.config.delivery.hook.is_some() && (is_new || !self.recorded.has_hook_succeeded(commit))
    }

    /// Runs the user's hook if needed.
    pub(super) async fn run_delivery_hook(
        &mut self,
        commit: &str,
    ) -> Result<Option<HookResult>, DeliveryFailure> {
        let settings = &self.cx.config.delivery;
        let Some(command) = settings.hook.as_ref().filter(|_| self.wants_hook(commit)) else {
            return Ok(None);
        };
        let ran = self.recorded.hooks.len();
        self.claim(Some(commit)).await?;
        // Another process may have held the claim in the meantime.
        let ran_since =
            self.recorded.hooks.get(ran..).is_some_and(|new| new.iter().any(|hook| hook.commit == commit));
        if ran_since || !self.wants_hook(commit) {
            return Ok(None);
        }
        let failed = |failure| DeliveryFailure::Retryable(DeliveryBlockedReason::Repository, failure);
        let scratch = self.cx.home.ensure_folder("scratch").map_err(failed)?;
        let written = || -> Result<tempfile::NamedTempFile, CliError> {
            let body = tempfile::Builder::new().prefix("body-").suffix(".md").tempfile_in(&scratch)?;
            std::fs::write(body.path(), &self.body)?;
            Ok(body)
        };
        let body = written().map_err(failed)?;
        let ask = self.request;
        let text = |text: &dyn std::fmt::Display| OsString::from(text.to_string());
        let remote = ask.push.unwrap_or_default();
        let env = [
            ("DOCKET_RUN", text(&ask.run)),
            ("DOCKET_TASK", text(&ask.task.id)),
            ("DOCKET_BRANCH", text(&ask.branch)),
            ("DOCKET_COMMIT", text(&commit)),
            ("DOCKET_REMOTE", text(&remote)),
            (
                "DOCKET_DELIVERY_KEY",
                text(&delivery_key(&[&ask.run.to_string(), &ask.branch, commit, remote])),
            ),
            ("DOCKET_REPO", ask.repository.as_os_str().to_owned()),
            ("DOCKET_BASE_BRANCH", {
                let git = ask.task.spec.base.git.as_ref();
                text(&git.and_then(|git| git.branch.as_deref()).unwrap_or_default())
            }),
            ("DOCKET_TITLE", text(&self.title)),
            ("DOCKET_BODY_FILE", body.path().as_os_str().to_owned()),
        ];
        let timeout = Duration::from_millis(settings.hook_timeout_ms);
        let ended = self.run_guarded(run_hook(command, ask.repository, &env, timeout)).await?;
        let output = ended.output.replace('\0', "");
        self.record_step(DeliveryStep::HookRan {
            commit: commit.to_owned(),
            exit: ended.exit_status,
            output,
        })
        .await?;
        Ok(Some(ended))
    }
}

/// Returns a key that is the same for the same delivery each time its hook runs.
fn delivery_key(parts: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update(b"\0");
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::delivery_key;

    #[test]
    fn delivery_key_is_stable_and_unambiguous() {
        assert_eq!(delivery_key(&["a", "b"]), delivery_key(&["a", "b"]));
        assert_ne!(delivery_key(&["a", "b"]), delivery_key(&["ab", ""]));
        assert_eq!(delivery_key(&["a"]).len(), 32);
    }
}
