//! Settings of notification targets (`[[notify]]`). Secrets are read where they are used and never shown.

use std::{collections::BTreeSet, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use docket_schema::{
    ids::QueueName,
    system::{NotificationKind, is_target_name},
};
use docket_worker::secret::Secret;
use toml::{Table, Value};
use url::Url;

use super::to_env_text;

/// The keys of a target.
const TARGET_KEYS: [&str; 13] = [
    "name",
    "url",
    "secret",
    "secret_env",
    "secret_file",
    "command",
    "on",
    "queues",
    "batches",
    "timeout_ms",
    "attempts_max",
    "retry_first_ms",
    "retry_most_ms",
];

/// Maximum number of targets: each has its own background job.
const TARGETS_MAX: usize = 50;
/// Allowed length of a secret in bytes, as the Standard Webhooks specification requires.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Describes a secret.
pub(crate) const ALLOWED_SECRET: &str = "whsec_ and the base64 of 24 to 64 bytes, such as the output of `echo whsec_$(head -c 32 /dev/urandom | base64)`; \
                      to rotate secrets, give several with the newest first";

/// A notification target.
#[derive(Debug, Clone)]
pub(crate) struct NotifyTarget {
    pub(crate) name: String,
    /// How it is notified.
    pub(crate) destination: NotifyDestination,
    /// The kinds it receives.
    pub(crate) kinds: Vec<NotificationKind>,
    /// Only notifications from these queues; empty = all.
    pub(crate) queues: Vec<QueueName>,
    /// Only notifications from these batches; empty = all.
    pub(crate) batches: Vec<String>,
    /// Time limit of one attempt.
    pub(crate) timeout_ms: u64,
    /// Maximum number of attempts.
    pub(crate) attempts_max: u32,
    /// Delay before the second attempt.
    pub(crate) retry_first_ms: u64,
    /// Longest delay between attempts.
    pub(crate) retry_most_ms: u64,
}

/// How a target is notified.
#[derive(Debug, Clone)]
pub(crate) enum NotifyDestination {
    /// With a signed HTTP request.
    Webhook {
        url: Url,
        /// The signing secret.
        secret: SecretSource,
    },
    /// By running a program.
    Command {
        /// Absolute path of the program.
        program: PathBuf,
        args: Vec<String>,
    },
}

/// Where a secret comes from.
#[derive(Debug, Clone)]
pub(crate) enum SecretSource {
    /// Written in the settings.
    Inline(Vec<Secret>),
    /// An environment variable.
    Env(String),
    /// A file.
    File(PathBuf),
}

/// Decodes a secret to its bytes.
pub(crate) fn decode_secret(text: &str) -> Option<Vec<u8>> {
    let bytes = STANDARD.decode(text.strip_prefix("whsec_")?).ok()?;
    SECRET_BYTES.contains(&bytes.len()).then_some(bytes)
}

/// Parses several secrets separated by blanks.
pub(crate) fn parse_secrets(text: &str) -> Option<Vec<Secret>> {
    let parts: Vec<&str> = text.split([',', ' ', '\t', '\r', '\n']).filter(|part| !part.is_empty()).collect();
    let good = !parts.is_empty() && parts.iter().all(|part| decode_secret(part).is_some());
    good.then(|| parts.into_iter().filter_map(Secret::new).collect())
}

impl NotifyTarget {
    /// Secret values to redact, as far as they are known here.
    pub(super) fn hidden_values(&self) -> Vec<String> {
        let NotifyDestination::Webhook { secret, .. } = &self.destination else { return Vec::new() };
        match secret {
            SecretSource::Inline(secrets) => {
                secrets.iter().map(|secret| secret.expose().to_owned()).collect()
            }
            SecretSource::Env(name) => std::env::var(name).into_iter().collect(),
            SecretSource::File(_) => Vec::new(),
        }
    }
}

/// Reads `[[notify]]`.
///
/// # Errors
/// Returns a message that names the invalid setting and what it must be; never its value, which may be a
/// secret.
pub(super) fn parse_targets(value: Value) -> Result<Vec<NotifyTarget>, String> {
    let Value::Array(rows) = value else {
        return Err("`notify` must be written as [[notify]], once per target".to_owned());
    };
    if rows.len() > TARGETS_MAX {
        return Err(format!("there are {} [[notify]]; the limit is {TARGETS_MAX}", rows.len()));
    }
    let mut names = BTreeSet::new();
    let mut targets = Vec::new();
    for (nth, row) in rows.into_iter().enumerate() {
        let Value::Table(row) = row else {
            return Err("`notify` must be written as [[notify]], once per target".to_owned());
        };
        let name = row.get("name").and_then(Value::as_str).filter(|name| is_target_name(name));
        let Some(name) = name.map(str::to_owned) else {
            return Err(format!(
                "`name` of [[notify]] number {} is not a name: letters, digits, `.`, `_`, `-`, at most 64",
                nth + 1
            ));
        };
        if !names.insert(name.clone()) {
            return Err(format!("two [[notify]] have the name `{name}`; each needs its own"));
        }
        targets.push(
            parse_target(name.clone(), row).map_err(|message| format!("[[notify]] `{name}`: {message}"))?,
        );
    }
    Ok(targets)
}

fn parse_target(name: String, row: Table) -> Result<NotifyTarget, String> {
    if let Some(unknown) = row.keys().find(|key| !TARGET_KEYS.contains(&key.as_str())) {
        return Err(format!("unknown setting `{unknown}`; a target has {}", TARGET_KEYS.join(", ")));
    }
    let number = |key: &str, default: u64, range: std::ops::RangeInclusive<u64>| {
        let Some(value) = row.get(key) else { return Ok(default) };
        let read = to_env_text(value).and_then(|text| text.replace('_', "").parse().ok());
        let wrong = || format!("`{key}` is not a whole number from {} to {}", range.start(), range.end());
        read.filter(|read| range.contains(read)).ok_or_else(wrong)
    };
    let (first, most) = (
        number("retry_first_ms", 5000, 100..=86_400_000)?,
        number("retry_most_ms", 4 * 3_600_000, 100..=86_400_000)?,
    );
    if first > most {
        return Err(
            "`retry_first_ms` is greater than `retry_most_ms`; lower it or raise `retry_most_ms`".to_owned()
        );
    }
    let on = match row.get("on") {
        None => NotificationKind::SUBSCRIBABLE.to_vec(),
        Some(_) => parse_list(&row, "on", "kinds: task.blocked, task.failed, batch.finished, budget.spent")?,
    };
    Ok(NotifyTarget {
        destination: parse_destination(&row)?,
        kinds: on,
        queues: parse_list(&row, "queues", "names of queues (letters, digits, . _ -)")?,
        batches: parse_list(&row, "batches", "names of batches, or their ids")?,
        timeout_ms: number("timeout_ms", 10_000, 100..=600_000)?,
        attempts_max: u32::try_from(number("attempts_max", 10, 1..=100)?).unwrap_or(1),
        retry_first_ms: first,
        retry_most_ms: most,
        name,
    })
}

/// Parses a list of strings; a missing key is an empty list.
fn parse_list<T: std::str::FromStr>(row: &Table, key: &str, allowed: &str) -> Result<Vec<T>, String> {
    let Some(value) = row.get(key) else { return Ok(Vec::new()) };
    let wrong = || format!("`{key}` is not a list of {allowed}");
    let items = value.as_array().filter(|items| !items.is_empty()).ok_or_else(wrong)?;
    let texts = items.iter().map(Value::as_str).map(|text| text.filter(|text| !text.is_empty()));
    texts.map(|text| text.and_then(|text| text.parse().ok()).ok_or_else(wrong)).collect()
}

fn parse_destination(row: &Table) -> Result<NotifyDestination, String> {
    let has = |key: &str| row.contains_key(key);
    let secrets = ["secret", "secret_env", "secret_file"].into_iter().filter(|key| has(key)).count();
    match (row.get("url"), row.get("command")) {
        (Some(url), None) => {
            if secrets != 1 {
                return Err(format!(
                    "a `url` needs one of `secret`, `secret_env`, `secret_file`: receivers authenticate docket by its \
                     signature. A secret is {ALLOWED_SECRET}"
                ));
            }
            Ok(NotifyDestination::Webhook { url: parse_url(url)?, secret: parse_secret_source(row)? })
        }
        (None, Some(command)) => {
            if secrets > 0 {
                return Err("a `command` takes no secret: docket runs it itself".to_owned());
            }
            parse_command(command)
        }
        (None, None) | (Some(_), Some(_)) => Err("give either `url` with a secret, or `command`".to_owned()),
    }
}

fn parse_url(value: &Value) -> Result<Url, String> {
    let wrong = || {
        "`url` is not an address such as https://hooks.example/docket: http or https, without user or password, \
         without #"
            .to_owned()
    };
    let url: Url = value.as_str().ok_or_else(wrong)?.parse().map_err(|_| wrong())?;
    let good = matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.fragment().is_none();
    if good { Ok(url) } else { Err(wrong()) }
}

fn parse_secret_source(row: &Table) -> Result<SecretSource, String> {
    if let Some(value) = row.get("secret") {
        let texts = match value {
            Value::String(text) => parse_secrets(text),
            Value::Array(items) => {
                to_env_text(&Value::Array(items.clone())).and_then(|text| parse_secrets(&text))
            }
            _ => None,
        };
        return texts.map(SecretSource::Inline).ok_or_else(|| format!("`secret` is not {ALLOWED_SECRET}"));
    }
    if let Some(value) = row.get("secret_env") {
        let legal =
            |name: &&str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let name = value.as_str().filter(legal);
        let wrong = || "`secret_env` is not the name of an environment variable".to_owned();
        return name.map(|name| SecretSource::Env(name.to_owned())).ok_or_else(wrong);
    }
    let path = row.get("secret_file").and_then(Value::as_str).map(PathBuf::from);
    let path = path.filter(|path| path.is_absolute());
    path.map(SecretSource::File).ok_or_else(|| "`secret_file` is not the absolute path of a file".to_owned())
}

fn parse_command(value: &Value) -> Result<NotifyDestination, String> {
    let wrong = || {
        "`command` is not a list of a program's absolute path and its arguments, such as [\"/usr/local/bin/page\", \
         \"--docket\"]; it is not run by a shell"
            .to_owned()
    };
    let words = value.as_array().ok_or_else(wrong)?.iter().map(Value::as_str);
    let words: Vec<&str> = words.collect::<Option<_>>().ok_or_else(wrong)?;
    let (program, args) = words.split_first().ok_or_else(wrong)?;
    let program = PathBuf::from(program);
    if !program.is_absolute() || words.iter().any(|word| word.contains('\0')) {
        return Err(wrong());
    }
    Ok(NotifyDestination::Command { program, args: args.iter().map(ToString::to_string).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn parse_targets_from_text(text: &str) -> Result<Vec<NotifyTarget>, String> {
        let mut table: Table = text.parse().expect("TOML");
        parse_targets(table.remove("notify").expect("it is there"))
    }

    #[test]
    fn omitted_target_settings_get_defaults() {
        let text = format!(
            "[[notify]]\nname = \"ops\"\nurl = \"https://h.example/x\"\nsecret = [\"{GOOD}\", \"{GOOD}\"]\n\
             on = [\"task.failed\"]\nqueues = [\"ci\"]\nbatches = [\"nightly\"]\n\
             [[notify]]\nname = \"page\"\ncommand = [\"/bin/page\", \"now\"]\nattempts_max = 2\n"
        );
        let targets = parse_targets_from_text(&text).expect("legal");
        let [ops, page] = &targets[..] else { panic!("{targets:?}") };
        let NotifyDestination::Webhook { secret: SecretSource::Inline(secrets), .. } = &ops.destination
        else {
            panic!("{ops:?}")
        };
        assert_eq!((secrets.len(), &ops.kinds[..]), (2, &[NotificationKind::TaskFailed][..]));
        assert_eq!((ops.attempts_max, ops.timeout_ms, ops.retry_first_ms), (10, 10_000, 5000));
        assert_eq!((page.kinds.len(), page.attempts_max), (4, 2));
        assert_eq!(ops.hidden_values(), [GOOD, GOOD]);
        assert!(!format!("{targets:?}").contains("MfKQ9"), "no secret is shown");
    }

    #[test]
    fn errors_name_the_wrong_setting_and_never_its_value() {
        let hook = format!("name = \"a\"\nurl = \"https://h.example\"\nsecret = \"{GOOD}\"\n");
        for (text, words) in [
            ("[notify]\nname = \"a\"\n".to_owned(), "[[notify]]"),
            ("[[notify]]\nurl = \"https://h.example\"\n".to_owned(), "`name` of [[notify]] number 1"),
            (format!("[[notify]]\n{hook}[[notify]]\n{hook}"), "two [[notify]] have the name `a`"),
            (format!("[[notify]]\n{hook}on = [\"task.praised\"]\n"), "`on` is not a list of kinds: task.blocked"),
            (format!("[[notify]]\n{hook}on = []\n"), "`on` is not a list"),
            (format!("[[notify]]\n{hook}colour = 1\n"), "unknown setting `colour`; a target has name, url"),
            (format!("[[notify]]\n{hook}timeout_ms = 1\n"), "`timeout_ms` is not a whole number from 100"),
            (format!("[[notify]]\n{hook}retry_first_ms = 5000000\nretry_most_ms = 100\n"), "greater than `retry_most_ms`"),
            (format!("[[notify]]\n{hook}command = [\"/bin/x\"]\n"), "either `url`"),
            ("[[notify]]\nname = \"a\"\n".to_owned(), "either `url`"),
            ("[[notify]]\nname = \"a\"\nurl = \"https://h.example\"\n".to_owned(), "`secret_env`"),
            (
                "[[notify]]\nname = \"a\"\nurl = \"https://u:hunter2hunter2@h.example\"\nsecret_env = \"X\"\n".to_owned(),
                "`url` is not an address",
            ),
            ("[[notify]]\nname = \"a\"\nurl = \"ftp://h\"\nsecret_env = \"X\"\n".to_owned(), "`url` is not an address"),
            (
                "[[notify]]\nname = \"a\"\nurl = \"https://h\"\nsecret = \"hunter2hunter2\"\n".to_owned(),
                "`secret` is not whsec_",
            ),
            ("[[notify]]\nname = \"a\"\nurl = \"https://h\"\nsecret = \"whsec_aGk=\"\n".to_owned(), "24 to 64 bytes"),
            ("[[notify]]\nname = \"a\"\nurl = \"https://h\"\nsecret_env = \"A B\"\n".to_owned(), "`secret_env` is not"),
            ("[[notify]]\nname = \"a\"\nurl = \"https://h\"\nsecret_file = \"x\"\n".to_owned(), "`secret_file` is not"),
            ("[[notify]]\nname = \"a\"\ncommand = \"echo hi\"\n".to_owned(), "`command` is not a list"),
            ("[[notify]]\nname = \"a\"\ncommand = [\"echo\"]\n".to_owned(), "absolute path"),
            ("[[notify]]\nname = \"a\"\ncommand = [\"/bin/x\"]\nsecret_env = \"X\"\n".to_owned(), "takes no secret"),
        ] {
            let message = parse_targets_from_text(&text).expect_err(&text);
            assert!(message.contains(words), "{text}: {message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
    }
}
