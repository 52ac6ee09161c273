//! Who is told, as the settings have it, with their secrets: what a coordinator of this process tells by.

use std::{collections::BTreeMap, fmt, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use docket_coordinator::{
    notify::{Letter, Notifier, Retries, Sending, Sent, Target},
    server::Notices,
};
use docket_schema::{
    redact::Redactor,
    system::failed_words,
    wire::{NotificationBody, TargetKind, TargetView},
};
use docket_worker::secret::Secret;
use url::{Position, Url};

use super::{
    command::Program,
    webhook::{Keys, Webhook},
};
use crate::{
    config::{NotifyTarget, SECRET, SecretAt, To, secrets_in},
    context::Context,
    output::fail::{Exit, FailWith as _, Failure, Outcome},
};

/// Bytes from which on a part of an address is taken for a secret: shorter ones are words such as `hooks`.
const SECRET_PART_BYTES_MIN: usize = 8;

/// Bits of a secret file's mode that let others read or change it.
const OPEN_TO_OTHERS: u32 = 0o077;

enum Way {
    Webhook(Webhook),
    Command(Program),
}

/// See the module.
pub(crate) struct Targets {
    targets: Vec<Target>,
    /// Empty where nobody is told here, but only shown who would be.
    ways: BTreeMap<String, Way>,
    public_url: Option<String>,
    redactor: Redactor,
}

impl fmt::Debug for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Targets").field("targets", &self.targets).finish_non_exhaustive()
    }
}

impl Targets {
    /// Those of the settings; where they are told, with their secrets.
    ///
    /// # Errors
    /// A secret that is not there, or is none.
    pub(crate) fn new(cx: &Context, notices: Notices) -> Outcome<Self> {
        let mut hidden = Vec::new();
        let mut ways = BTreeMap::new();
        if notices == Notices::Told {
            for target in &cx.config.notify {
                ways.insert(target.name.clone(), way(cx, target, &mut hidden)?);
            }
        }
        Ok(Self {
            targets: cx.config.notify.iter().map(shown).collect(),
            ways,
            public_url: cx.config.server.public_url.clone(),
            redactor: Redactor::new(cx.config.hidden().chain(hidden)),
        })
    }
}

fn shown(target: &NotifyTarget) -> Target {
    let (kind, at) = match &target.to {
        To::Webhook { url, .. } => (TargetKind::Webhook, url.origin().ascii_serialization()),
        To::Command { program, .. } => (TargetKind::Command, program.display().to_string()),
    };
    let NotifyTarget { attempts_max, retry_first_ms, retry_most_ms, .. } = *target;
    Target {
        view: TargetView {
            name: target.name.clone(),
            kind,
            at,
            on: target.on.clone(),
            queues: target.queues.clone(),
            batches: target.batches.clone(),
            attempts_max,
        },
        retries: Retries { attempts_max, first_ms: retry_first_ms, most_ms: retry_most_ms },
    }
}

fn way(cx: &Context, target: &NotifyTarget, hidden: &mut Vec<String>) -> Outcome<Way> {
    let timeout = Duration::from_millis(target.timeout_ms);
    match &target.to {
        To::Webhook { url, secret } => {
            let wrong = |why| Failure::new(Exit::Usage, format!("[[notify]] `{}`: {why}", target.name));
            let secrets = secrets(secret).map_err(wrong)?;
            hidden.extend(secrets.iter().map(|secret| secret.expose().to_owned()));
            // A receiver may say its path back to us, as web servers do of one that is not there.
            hidden.extend(secret_parts(url));
            let webhook = Webhook::new(url.clone(), Keys::of(&secrets), timeout);
            let cannot = || format!("no connection can be made for the [[notify]] `{}`", target.name);
            Ok(Way::Webhook(webhook.fail_with(Exit::Failed, cannot)?))
        }
        To::Command { program, args } => Ok(Way::Command(Program {
            program: program.clone(),
            args: args.clone(),
            cwd: cx.home.folder("scratch")?,
            timeout,
        })),
    }
}

/// What of an address may be a secret: its path and query, and each part of them that is long enough for one.
fn secret_parts(url: &Url) -> Vec<String> {
    let whole = &url[Position::BeforePath..Position::AfterQuery];
    let parts = whole.split(['/', '?', '&', '=']).filter(|part| part.len() >= SECRET_PART_BYTES_MIN);
    let whole = [whole, url.path()].into_iter().filter(|text| text.len() >= SECRET_PART_BYTES_MIN);
    whole.chain(parts).map(str::to_owned).collect()
}

/// The secrets themselves, or what is wrong: that names the setting and what helps, and holds nothing of them.
fn secrets(at: &SecretAt) -> Result<Vec<Secret>, String> {
    let (from, text) = match at {
        SecretAt::Here(secrets) => return Ok(secrets.clone()),
        SecretAt::Env(name) => {
            let text = std::env::var(name)
                .map_err(|_| format!("the environment has no {name} (`secret_env`); set it to {SECRET}"))?;
            (format!("{name} in the environment (`secret_env`)"), text)
        }
        SecretAt::File(path) => (format!("{} (`secret_file`)", path.display()), of_file(path)?),
    };
    secrets_in(&text).ok_or_else(|| format!("{from} is not {SECRET}"))
}

fn of_file(path: &Path) -> Result<String, String> {
    let at = path.display();
    let found = std::fs::metadata(path)
        .map_err(|error| format!("cannot look at {at} (`secret_file`): {error}; is it there?"))?;
    let mode = found.permissions().mode() & 0o7777;
    if mode & OPEN_TO_OTHERS != 0 {
        return Err(format!(
            "others can read {at} (`secret_file`, mode {mode:04o}); `chmod 600 {at}` closes it"
        ));
    }
    std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {at} (`secret_file`): {error}; check its permissions"))
}

impl Notifier for Targets {
    fn targets(&self) -> &[Target] {
        &self.targets
    }

    fn send(&self, target: &str, letter: Letter) -> Sending<'_> {
        let way = self.ways.get(target);
        Box::pin(async move {
            let body = NotificationBody::of(&letter.record, self.public_url.as_deref());
            let Ok(json) = serde_json::to_vec(&body) else {
                return Sent::Gone { why: "it cannot be written as JSON".to_owned() };
            };
            let sent = match way {
                Some(Way::Webhook(webhook)) => webhook.post(&letter, json).await,
                Some(Way::Command(program)) => program.run(&letter, &body, json).await,
                None => Sent::Refused { why: "it is not told here".to_owned(), retry_after_ms: None },
            };
            // What a receiver says is kept, and it may say back what it was told.
            let clean = |why: String| failed_words(&self.redactor.text(&why));
            match sent {
                Sent::Taken => Sent::Taken,
                Sent::Refused { why, retry_after_ms } => Sent::Refused { why: clean(why), retry_after_ms },
                Sent::Gone { why } => Sent::Gone { why: clean(why) },
            }
        })
    }
}
