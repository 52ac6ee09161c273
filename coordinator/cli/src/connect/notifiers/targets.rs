//! Notification targets from the settings, with their secrets.

use std::{collections::BTreeMap, fmt, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use docket_coordinator::{
    notify::{
        DeliveryAttemptResult, DeliveryFuture, DeliveryRetryPolicy, NotificationMessage, NotificationTarget,
        Notifier,
    },
    server::NotificationMode,
};
use docket_schema::{
    api::{NotificationBody, TargetKind, TargetView},
    redact::Redactor,
    system::truncate_delivery_error,
};
use docket_worker::secret::Secret;
use url::{Position, Url};

use super::{
    command::CommandNotifier,
    webhook::{SigningKeys, WebhookNotifier},
};
use crate::{
    config::{ALLOWED_SECRET, NotifyDestination, NotifyTarget, SecretSource, parse_secrets},
    context::CliContext,
    output::error::{CliError, CliResult, ExitKind, FailWith as _},
};

/// Minimum length of a URL part that is treated as a secret: shorter ones are words such as `hooks`.
const SECRET_PART_BYTES_MIN: usize = 8;

/// Mode bits of a secret file that give others access.
const OPEN_TO_OTHERS: u32 = 0o077;

enum NotifyChannel {
    Webhook(WebhookNotifier),
    Command(CommandNotifier),
}

/// The notification channels of this process.
pub(crate) struct NotifyTargets {
    targets: Vec<NotificationTarget>,
    /// Empty if this process does not deliver and only lists the targets.
    channels: BTreeMap<String, NotifyChannel>,
    public_url: Option<String>,
    redactor: Redactor,
}

impl fmt::Debug for NotifyTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Targets").field("targets", &self.targets).finish_non_exhaustive()
    }
}

impl NotifyTargets {
    /// Creates the targets from the settings; the secrets are loaded if this process delivers.
    ///
    /// # Errors
    /// Fails when a secret is missing or invalid.
    pub(crate) fn new(cx: &CliContext, notices: NotificationMode) -> CliResult<Self> {
        let mut hidden = Vec::new();
        let mut ways = BTreeMap::new();
        if notices == NotificationMode::Deliver {
            for target in &cx.config.notify {
                ways.insert(target.name.clone(), open_channel(cx, target, &mut hidden)?);
            }
        }
        Ok(Self {
            targets: cx.config.notify.iter().map(to_target).collect(),
            channels: ways,
            public_url: cx.config.server.public_url.clone(),
            redactor: Redactor::new(cx.config.hidden_values().chain(hidden)),
        })
    }
}

fn to_target(target: &NotifyTarget) -> NotificationTarget {
    let (kind, at) = match &target.destination {
        NotifyDestination::Webhook { url, .. } => (TargetKind::Webhook, url.origin().ascii_serialization()),
        NotifyDestination::Command { program, .. } => (TargetKind::Command, program.display().to_string()),
    };
    let NotifyTarget { attempts_max, retry_first_ms, retry_most_ms, .. } = *target;
    NotificationTarget {
        view: TargetView {
            name: target.name.clone(),
            kind,
            at,
            on: target.kinds.clone(),
            queues: target.queues.clone(),
            batches: target.batches.clone(),
            attempts_max,
        },
        retry_policy: DeliveryRetryPolicy {
            attempts_max,
            initial_wait_ms: retry_first_ms,
            max_wait_ms: retry_most_ms,
        },
    }
}

fn open_channel(
    cx: &CliContext,
    target: &NotifyTarget,
    hidden: &mut Vec<String>,
) -> CliResult<NotifyChannel> {
    let timeout = Duration::from_millis(target.timeout_ms);
    match &target.destination {
        NotifyDestination::Webhook { url, secret } => {
            let wrong = |why| CliError::new(ExitKind::Usage, format!("[[notify]] `{}`: {why}", target.name));
            let secrets = load_secrets(secret).map_err(wrong)?;
            hidden.extend(secrets.iter().map(|secret| secret.expose().to_owned()));
            // A receiver may echo its path, as web servers do for a path that does not exist.
            hidden.extend(secret_parts(url));
            let webhook = WebhookNotifier::new(url.clone(), SigningKeys::from_secrets(&secrets), timeout);
            let cannot = || format!("cannot create a client for the [[notify]] `{}`", target.name);
            Ok(NotifyChannel::Webhook(webhook.fail_with(ExitKind::Failed, cannot)?))
        }
        NotifyDestination::Command { program, args } => Ok(NotifyChannel::Command(CommandNotifier {
            program: program.clone(),
            args: args.clone(),
            cwd: cx.home.ensure_folder("scratch")?,
            timeout,
        })),
    }
}

/// Returns the parts of a URL that may be secret: path and query, and each of their parts that is long enough.
fn secret_parts(url: &Url) -> Vec<String> {
    let whole = &url[Position::BeforePath..Position::AfterQuery];
    let parts = whole.split(['/', '?', '&', '=']).filter(|part| part.len() >= SECRET_PART_BYTES_MIN);
    let whole = [whole, url.path()].into_iter().filter(|text| text.len() >= SECRET_PART_BYTES_MIN);
    whole.chain(parts).map(str::to_owned).collect()
}

/// Loads the secrets. The error names the setting and the remedy and never contains the secret.
fn load_secrets(at: &SecretSource) -> Result<Vec<Secret>, String> {
    let (from, text) = match at {
        SecretSource::Inline(secrets) => return Ok(secrets.clone()),
        SecretSource::Env(name) => {
            let text = std::env::var(name).map_err(|_| {
                format!("{name} is not set in the environment (`secret_env`); set it to {ALLOWED_SECRET}")
            })?;
            (format!("{name} in the environment (`secret_env`)"), text)
        }
        SecretSource::File(path) => (format!("{} (`secret_file`)", path.display()), read_secret_file(path)?),
    };
    parse_secrets(&text).ok_or_else(|| format!("{from} is not {ALLOWED_SECRET}"))
}

fn read_secret_file(path: &Path) -> Result<String, String> {
    let at = path.display();
    let found = std::fs::metadata(path)
        .map_err(|error| format!("cannot stat {at} (`secret_file`): {error}; does it exist?"))?;
    let mode = found.permissions().mode() & 0o7777;
    if mode & OPEN_TO_OTHERS != 0 {
        return Err(format!("others can read {at} (`secret_file`, mode {mode:04o}); run `chmod 600 {at}`"));
    }
    std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {at} (`secret_file`): {error}; check its permissions"))
}

impl Notifier for NotifyTargets {
    fn targets(&self) -> &[NotificationTarget] {
        &self.targets
    }

    fn send(&self, target: &str, letter: NotificationMessage) -> DeliveryFuture<'_> {
        let way = self.channels.get(target);
        Box::pin(async move {
            let body = NotificationBody::from_record(&letter.record, self.public_url.as_deref());
            let Ok(json) = serde_json::to_vec(&body) else {
                return DeliveryAttemptResult::Unsubscribed { why: "cannot be encoded as JSON".to_owned() };
            };
            let sent = match way {
                Some(NotifyChannel::Webhook(webhook)) => webhook.deliver(&letter, json).await,
                Some(NotifyChannel::Command(program)) => program.deliver(&letter, &body, json).await,
                None => DeliveryAttemptResult::Failed {
                    why: "this process does not deliver notifications".to_owned(),
                    retry_after_ms: None,
                },
            };
            // A receiver's reply is stored, and it may echo the request.
            let clean = |why: String| truncate_delivery_error(&self.redactor.redact_text(&why));
            match sent {
                DeliveryAttemptResult::Delivered => DeliveryAttemptResult::Delivered,
                DeliveryAttemptResult::Failed { why, retry_after_ms } => {
                    DeliveryAttemptResult::Failed { why: clean(why), retry_after_ms }
                }
                DeliveryAttemptResult::Unsubscribed { why } => {
                    DeliveryAttemptResult::Unsubscribed { why: clean(why) }
                }
            }
        })
    }
}
