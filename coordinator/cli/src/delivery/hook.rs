//! The user's own command after a delivery.
//!
//! At least once: it runs before the log says that it ran, so that one whose docket died meanwhile runs again. Under a
//! claim, so that without a death it runs once; and with a key that is the same each time, by which it can tell.

use std::{ffi::OsString, time::Duration};

use docket_schema::{task::DeliveryBlockedWhy, wire::DeliveryStep};
use docket_worker::process::{HookEnd, run_hook};

use super::steps::{Under, Undone};
use crate::output::fail::Failure;

impl Under<'_> {
    /// Whether the hook is to run: one is set, and it did not run well for this commit, at this remote.
    pub(super) fn wants_hook(&self, commit: &str) -> bool {
        let is_pushed = self.before.delivered.iter().any(|one| one.commit == commit && one.remote.is_some());
        let is_new = self.ask.push.is_some() && !is_pushed;
        self.cx.config.delivery.hook.is_some() && (is_new || !self.before.is_hooked(commit))
    }

    /// Runs the user's hook, where it is wanted.
    pub(super) async fn hook(&mut self, commit: &str) -> Result<Option<HookEnd>, Undone> {
        let settings = &self.cx.config.delivery;
        let Some(command) = settings.hook.as_ref().filter(|_| self.wants_hook(commit)) else {
            return Ok(None);
        };
        let ran = self.before.hooks.len();
        self.claim(Some(commit)).await?;
        // Somebody else may have had the claim for a while.
        let ran_since =
            self.before.hooks.get(ran..).is_some_and(|new| new.iter().any(|hook| hook.commit == commit));
        if ran_since || !self.wants_hook(commit) {
            return Ok(None);
        }
        let failed = |failure| Undone::Failed(DeliveryBlockedWhy::Repository, failure);
        let scratch = self.cx.home.folder("scratch").map_err(failed)?;
        let written = || -> Result<tempfile::NamedTempFile, Failure> {
            let body = tempfile::Builder::new().prefix("body-").suffix(".md").tempfile_in(&scratch)?;
            std::fs::write(body.path(), &self.body)?;
            Ok(body)
        };
        let body = written().map_err(failed)?;
        let ask = self.ask;
        let text = |text: &dyn std::fmt::Display| OsString::from(text.to_string());
        let remote = ask.push.unwrap_or_default();
        let env = [
            ("DOCKET_RUN", text(&ask.run)),
            ("DOCKET_TASK", text(&ask.task.id)),
            ("DOCKET_BRANCH", text(&ask.branch)),
            ("DOCKET_COMMIT", text(&commit)),
            ("DOCKET_REMOTE", text(&remote)),
            ("DOCKET_DELIVERY_KEY", text(&key_of(&[&ask.run.to_string(), &ask.branch, commit, remote]))),
            ("DOCKET_REPO", ask.repository.as_os_str().to_owned()),
            ("DOCKET_BASE_BRANCH", {
                let git = ask.task.spec.base.git.as_ref();
                text(&git.and_then(|git| git.branch.as_deref()).unwrap_or_default())
            }),
            ("DOCKET_TITLE", text(&self.title)),
            ("DOCKET_BODY_FILE", body.path().as_os_str().to_owned()),
        ];
        let timeout = Duration::from_millis(settings.hook_timeout_ms);
        let ended = self.guarded(run_hook(command, ask.repository, &env, timeout)).await?;
        let output = ended.output.replace('\0', "");
        self.tell(DeliveryStep::HookRan { commit: commit.to_owned(), exit: ended.exit, output }).await?;
        Ok(Some(ended))
    }
}

/// The same for the same delivery, each time its hook runs.
fn key_of(parts: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update(b"\0");
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::key_of;

    #[test]
    fn a_key_is_the_same_for_the_same_and_for_nothing_else() {
        assert_eq!(key_of(&["a", "b"]), key_of(&["a", "b"]));
        assert_ne!(key_of(&["a", "b"]), key_of(&["ab", ""]));
        assert_eq!(key_of(&["a"]).len(), 32);
    }
}
