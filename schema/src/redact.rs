//! Redaction of secrets before text becomes part of an event or a prompt (D9).
//!
//! Two kinds are detected: configured values, and text with the format of a secret: keys with a known
//! provider prefix, private keys, passwords in addresses, and assignments to a name such as `token` of a
//! value that looks random. A secret is replaced with `[REDACTED: kind]`, which an edit never writes into a
//! file.
//!
//! Snapshots are exact and not redacted. Pure.

use std::{
    borrow::Cow,
    ops::Range,
    sync::{Arc, LazyLock, OnceLock},
};

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use memchr::memmem;
use regex::bytes::{Captures, Regex, RegexBuilder};

mod provider_keys;
pub use provider_keys::{KEY_BYTES_MIN, PROVIDER_KEY_BYTES_MIN, REDACTED_KEY, is_secret_key};

/// Configured values shorter than this are not redacted, because they would match parts of ordinary words.
pub const SECRET_BYTES_MIN: usize = 6;

/// Start of each redaction mark.
const MARK: &str = "[REDACTED: ";

/// Minimum entropy in bits per character; a value below it is considered a word.
const ENTROPY_MIN: f64 = 3.0;

/// A format of secrets: its name and its expression. If the expression has a group, only the group is
/// redacted.
struct SecretPattern {
    kind: &'static str,
    /// Every secret of this format contains one of these. The expression is only compiled and run if one
    /// occurs.
    needles: &'static [&'static str],
    /// Matches bytes: secrets are ASCII, and Unicode classes would cost megabytes.
    pattern: &'static str,
    /// The matched text must also look random.
    must_look_random: bool,
}

const fn secret_pattern(
    kind: &'static str,
    needles: &'static [&'static str],
    pattern: &'static str,
) -> SecretPattern {
    SecretPattern { kind, needles, pattern, must_look_random: false }
}

/// Prefixes as documented by the providers. Lengths are lower bounds, because they have grown before.
const SECRET_PATTERNS: [SecretPattern; 25] = [
    secret_pattern(
        "private key",
        &["PRIVATE KEY"],
        // After the marker only complete base64 lines match, with any line numbers that a tool adds. A text
        // that merely mentions the marker is kept, and so is everything after it.
        r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----(?:(?:\\[nr]|\s)+(?:\d+\|[ \t]?)?(?:(?:Proc-Type|DEK-Info|Version|Comment): [^\n]*|[A-Za-z0-9+/=]{20,}|=[A-Za-z0-9+/]{4}))+(?:(?:(?:\\[nr]|\s)+(?:\d+\|[ \t]?)?[A-Za-z0-9+/=]{2,})?(?:\\[nr]|\s)+(?:\d+\|[ \t]?)?-----END (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----)?",
    ),
    secret_pattern("Anthropic key", &["sk-ant-"], r"\bsk-ant-[A-Za-z0-9_-]{20,}"),
    secret_pattern("OpenAI key", &["sk-"], r"\bsk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}"),
    secret_pattern("AWS key", &["AKIA", "ASIA"], r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    secret_pattern(
        "GitHub token",
        &["ghp_", "gho_", "ghu_", "ghs_", "ghr_"],
        r"\bgh[pousr]_[A-Za-z0-9]{30,}",
    ),
    secret_pattern("GitHub token", &["github_pat_"], r"\bgithub_pat_[A-Za-z0-9_]{30,}"),
    secret_pattern("GitLab token", &["glpat-"], r"\bglpat-[A-Za-z0-9_-]{20,}"),
    secret_pattern("Slack token", &["xox"], r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    secret_pattern(
        "Slack webhook",
        &["hooks.slack.com"],
        r"hooks\.slack\.com/services/(T[A-Z0-9]+/B[A-Z0-9]+/[A-Za-z0-9]{16,})",
    ),
    secret_pattern("Stripe key", &["k_live_", "k_test_"], r"\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    secret_pattern("Google key", &["AIza"], r"\bAIza[A-Za-z0-9_-]{35}"),
    secret_pattern("Google token", &["ya29."], r"\bya29\.[A-Za-z0-9_-]{20,}"),
    secret_pattern("npm token", &["npm_"], r"\bnpm_[A-Za-z0-9]{36}"),
    secret_pattern("PyPI token", &["pypi-"], r"\bpypi-[A-Za-z0-9_-]{50,}"),
    secret_pattern("crates.io token", &["cio"], r"\bcio[A-Za-z0-9]{32}\b"),
    secret_pattern("Hugging Face token", &["hf_"], r"\bhf_[A-Za-z0-9]{30,}"),
    secret_pattern("SendGrid key", &["SG."], r"\bSG\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}"),
    secret_pattern("DigitalOcean token", &["_v1_"], r"\bdo[opr]_v1_[a-f0-9]{64}"),
    secret_pattern("docket token", &["dkr_", "dkt_", "dks_"], r"\bdk[rst]_[A-Za-z0-9_-]{24,}"),
    secret_pattern(
        "JSON web token",
        &[".eyJ"],
        r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    ),
    secret_pattern("storage key", &["AccountKey="], r"\bAccountKey=([A-Za-z0-9+/]{60,}={0,2})"),
    SecretPattern {
        kind: "password",
        needles: &["://"],
        pattern: r"://[^\s:@/'\x22]{1,80}:([^\s:@/'\x22]{4,200})@",
        must_look_random: true,
    },
    secret_pattern("Google secret", &["GOCSPX-"], r"\bGOCSPX-[A-Za-z0-9_-]{20,}"),
    SecretPattern {
        kind: "authorization",
        needles: &["authorization"],
        pattern: r"(?i)authorization['\x22]?[ \t]*[:=][ \t]*['\x22]?(?:bearer|basic|token)[ \t]+([a-z0-9._~+/=-]{16,})",
        must_look_random: true,
    },
    SecretPattern {
        kind: "value",
        needles: &["secret", "token", "passw", "api_key", "apikey", "api-key", "private_key", "access_key"],
        // The name must end this way: `TOKEN_LIMIT` is not a secret.
        pattern: r"(?i)(?:secret|token|password|passwd|api[_-]?key|private_key|access_key)['\x22]?[ \t]*[=:][ \t]*['\x22]?([a-z0-9+/_.~!@$%^&*=-]{12,})",
        must_look_random: true,
    },
];

/// All needles, and the format of each.
static NEEDLES: LazyLock<(AhoCorasick, Vec<usize>)> = LazyLock::new(|| {
    let all = || {
        SECRET_PATTERNS
            .iter()
            .enumerate()
            .flat_map(|(nth, shape)| shape.needles.iter().map(move |needle| (nth, needle)))
    };
    let kind = Some(AhoCorasickKind::ContiguousNFA);
    let built =
        AhoCorasick::builder().kind(kind).ascii_case_insensitive(true).build(all().map(|(_, needle)| needle));
    (built.expect("constant words"), all().map(|(nth, _)| nth).collect())
});

static COMPILED_PATTERNS: [OnceLock<Regex>; SECRET_PATTERNS.len()] =
    [const { OnceLock::new() }; SECRET_PATTERNS.len()];

fn compiled_pattern(nth: usize) -> &'static Regex {
    // The expressions are constants, each covered by a test.
    let build = || {
        RegexBuilder::new(SECRET_PATTERNS[nth].pattern).unicode(false).build().expect("a constant pattern")
    };
    COMPILED_PATTERNS[nth].get_or_init(build)
}

/// Returns which formats may occur in `text`, in their order.
fn candidate_patterns(text: &[u8]) -> [bool; SECRET_PATTERNS.len()] {
    let (needles, shapes) = &*NEEDLES;
    let mut found = [false; SECRET_PATTERNS.len()];
    for needle in needles.find_overlapping_iter(text) {
        found[shapes[needle.pattern().as_usize()]] = true;
    }
    found
}

/// Redacts secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Redactor {
    /// Longest first, because one value may contain another.
    values: Arc<[String]>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} values)", self.values.len())
    }
}

impl Redactor {
    /// Creates a redactor for these values in addition to the known formats. Values shorter than
    /// [`SECRET_BYTES_MIN`] are ignored.
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        let long = |value: &String| value.len() >= SECRET_BYTES_MIN;
        // Tools put numbers between lines, and JSON escapes some characters.
        let values = values.into_iter().flat_map(|value| {
            let lines: Vec<String> = value.lines().map(str::to_owned).collect();
            let json = serde_json::Value::from(value.as_str()).to_string();
            let json = json[1..json.len() - 1].to_owned();
            [value, json].into_iter().chain(lines)
        });
        let mut values: Vec<String> =
            values.into_iter().map(|value| value.trim().to_owned()).filter(long).collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Self { values: values.into() }
    }

    /// Returns `text` with its secrets redacted; text without secrets is not copied.
    pub fn redact_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.redact_all(text.as_bytes()) {
            None => Cow::Borrowed(text),
            Some(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// Returns `text` with only the configured values redacted. A model's output may have the format of a
    /// secret, because its calls are executed as written, but must never contain a configured value.
    pub fn redact_values<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut out = Cow::Borrowed(text);
        for value in self.values.iter() {
            if let Some(without) = replace_value(out.as_bytes(), value.as_bytes()) {
                out = Cow::Owned(String::from_utf8_lossy(&without).into_owned());
            }
        }
        out
    }

    /// Redacts all texts of a JSON value, including field names. Returns whether anything was redacted.
    pub fn redact_json_values(&self, json: &mut serde_json::Value) -> bool {
        use serde_json::Value;
        match json {
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
            Value::String(text) => {
                let Cow::Owned(without) = self.redact_values(text) else { return false };
                *text = without;
                true
            }
            Value::Array(items) => {
                items.iter_mut().fold(false, |any, item| self.redact_json_values(item) | any)
            }
            Value::Object(fields) => {
                let mut any = false;
                let taken = std::mem::take(fields).into_iter();
                *fields = taken
                    .map(|(name, mut value)| {
                        any |= self.redact_json_values(&mut value);
                        let without = self.redact_values(&name);
                        any |= matches!(without, Cow::Owned(_));
                        (without.into_owned(), value)
                    })
                    .collect();
                any
            }
        }
    }

    /// Redacts bytes that are mostly text.
    pub fn redact_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        self.redact_all(&bytes).unwrap_or(bytes)
    }

    fn redact_all(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut out = Cow::Borrowed(text);
        for value in self.values.iter().map(|value| value.as_bytes()) {
            if let Some(without) = replace_value(&out, value) {
                out = Cow::Owned(without);
            }
        }
        let found = candidate_patterns(&out);
        for nth in (0..SECRET_PATTERNS.len()).filter(|nth| found[*nth]) {
            let shape = &SECRET_PATTERNS[nth];
            let without =
                compiled_pattern(nth).replace_all(&out, |found: &Captures<'_>| redact_match(shape, found));
            if *without != *out {
                out = Cow::Owned(without.into_owned());
            }
        }
        match out {
            Cow::Borrowed(_) => None,
            Cow::Owned(out) => Some(out),
        }
    }
}

/// Returns `text` with each `value` redacted; `None` if it contains none.
fn replace_value(text: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    let finder = memmem::Finder::new(value);
    let mut places = finder.find_iter(text).peekable();
    places.peek()?;
    let (mut out, mut from) = (Vec::with_capacity(text.len()), 0);
    for place in places {
        out.extend_from_slice(&text[from..place]);
        out.extend_from_slice(redaction_mark("configured value").as_bytes());
        from = place + value.len();
    }
    out.extend_from_slice(&text[from..]);
    Some(out)
}

/// Whether `text` contains a redaction mark, which means that its author only saw the redacted text.
pub fn has_redaction(text: &str) -> bool {
    text.contains(MARK)
}

/// Returns the range of the first redaction mark in `text`, within one line.
pub fn first_redaction(text: &str) -> Option<Range<usize>> {
    let mut from = 0;
    while let Some(start) = text[from..].find(MARK).map(|at| from + at) {
        let kind = &text[start + MARK.len()..];
        match kind.find([']', '[', '\n']) {
            Some(end) if end > 0 && kind[end..].starts_with(']') => {
                return Some(start..start + MARK.len() + end + 1);
            }
            Some(_) | None => from = start + MARK.len(),
        }
    }
    None
}

fn redaction_mark(kind: &str) -> String {
    format!("{MARK}{kind}]")
}

fn redact_match(shape: &SecretPattern, found: &Captures<'_>) -> Vec<u8> {
    let whole = found.get(0).expect("a match has itself");
    let part = found.get(1).unwrap_or(whole);
    if shape.must_look_random && !looks_random(&String::from_utf8_lossy(part.as_bytes())) {
        return whole.as_bytes().to_vec();
    }
    let (from, to) = (part.start() - whole.start(), part.end() - whole.start());
    [&whole.as_bytes()[..from], redaction_mark(shape.kind).as_bytes(), &whole.as_bytes()[to..]].concat()
}

/// Whether a value looks random instead of like a word, an example or an expression: letters and digits mixed
/// within a word.
fn looks_random(value: &str) -> bool {
    const SAMPLES: [&str; 10] = [
        "example",
        "change",
        "your",
        "xxxx",
        "password",
        "secret",
        "dummy",
        "placeholder",
        "redacted",
        "1234567",
    ];
    let lower = value.to_ascii_lowercase();
    let expression = value.starts_with('$') || value.contains("..") || value.contains("()");
    // `DEFAULT_LIMIT_4096`, `settings.limits_v2`, `/oauth2/v1/authorize`: words, some followed by a number.
    let words = value.split(['.', '_', '/', '-', ':']).all(is_word);
    !expression && !words && !SAMPLES.iter().any(|word| lower.contains(word)) && entropy(value) >= ENTROPY_MIN
}

/// Letters of one case (except the first), then digits; or digits only. Also long camel case without a digit.
fn is_word(part: &str) -> bool {
    let letters = part.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = part.len() - letters.len();
    let of_letters = letters.chars().all(|c| c.is_ascii_alphabetic());
    let tail = letters.get(1..).unwrap_or_default();
    let one_case =
        tail.chars().all(|c| c.is_ascii_lowercase()) || letters.chars().all(|c| c.is_ascii_uppercase());
    of_letters && ((one_case && digits <= 6) || (digits == 0 && tail.chars().any(|c| c.is_ascii_lowercase())))
}

/// Returns the Shannon entropy in bits per character.
fn entropy(value: &str) -> f64 {
    let mut counts = [0_u32; 256];
    value.bytes().for_each(|byte| counts[usize::from(byte)] += 1);
    let all = f64::from(u32::try_from(value.len()).unwrap_or(u32::MAX));
    let share = |count: &u32| f64::from(*count) / all;
    counts.iter().filter(|count| **count > 0).map(|count| -share(count) * share(count).log2()).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redact(text: &str) -> String {
        Redactor::default().redact_text(text).into_owned()
    }

    #[test]
    fn first_redaction_finds_a_mark() {
        let text = Redactor::new(["hunter2222".to_owned()]).redact_text("a = 'hunter2222'").into_owned();
        let at = first_redaction(&text).expect("a mark");
        assert_eq!((&text[..at.start], &text[at.end..]), ("a = '", "'"));
        assert_eq!(first_redaction("[REDACTED: \n]"), None);
        assert_eq!(first_redaction("[REDACTED: [REDACTED: value]"), Some(11..28));
        assert_eq!(first_redaction("[REDACTED: ]"), None);
    }

    /// Assembled here so that no scanner takes this file for a leak.
    fn samples() -> Vec<(&'static str, String)> {
        let long = "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8aB3dE5gH7jK9mN1pQ2sT4vW6yZ8aB3dE5gH7jK9mN";
        let hex = "0123456789abcdef".repeat(4);
        vec![
            ("Anthropic key", format!("sk-ant-{}", &long[..40])),
            ("OpenAI key", format!("sk-proj-{}", &long[..40])),
            ("AWS key", format!("AKIA{}", "ABCDEFGH12345678")),
            ("GitHub token", format!("ghp_{}", &long[..36])),
            ("GitHub token", format!("github_pat_{}", &long[..50])),
            ("GitLab token", format!("glpat-{}", &long[..20])),
            ("Slack token", format!("xoxb-{}", "123456789012-abcdef")),
            ("Stripe key", format!("sk_live_{}", &long[..24])),
            ("Google key", format!("AIza{}", &long[..35])),
            ("Google token", format!("ya29.{}", &long[..30])),
            ("npm token", format!("npm_{}", &long[..36])),
            ("PyPI token", format!("pypi-{}", &long[..60])),
            ("crates.io token", format!("cio{}", &long[..32])),
            ("Hugging Face token", format!("hf_{}", &long[..34])),
            ("SendGrid key", format!("SG.{}.{}", &long[..22], &long[..43])),
            ("DigitalOcean token", format!("dop_v1_{hex}")),
            ("docket token", format!("dkr_{}", &long[..30])),
            ("docket token", format!("dks_{}", &long[..30])),
            ("JSON web token", format!("eyJ{0}.eyJ{0}.{0}", &long[..20])),
            (
                "private key",
                format!("-----BEGIN RSA PRIVATE KEY-----\n{long}\n{long}\n-----END RSA PRIVATE KEY-----"),
            ),
        ]
    }

    #[test]
    fn secrets_are_redacted_anywhere_in_a_text() {
        for (kind, secret) in samples() {
            for (before, after) in
                [("", ""), ("key = \"", "\"\n"), ("   12| a: ", " # why"), ("Ärger(", ")é")]
            {
                let text = format!("{before}{secret}{after}");
                assert_eq!(redact(&text), format!("{before}[REDACTED: {kind}]{after}"), "{text}");
            }
        }
        // Output truncated in the middle of a key.
        let cut = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nand so on";
        assert_eq!(redact(cut), "[REDACTED: private key]\nand so on");
        // With a tool's line numbers, and JSON-escaped.
        let line = "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8aB3dE5gH7jK9mN1pQ2sT4vW6yZ8aB3dE5gH7jK";
        for (sep, end) in [("\n   12| ", "\n   13| b"), ("\\n", "\\n\""), ("\r\n", "\r\nb")] {
            let text = format!(
                "k = -----BEGIN EC PRIVATE KEY-----{sep}{line}{sep}{line}{sep}abc=={sep}-----END EC PRIVATE KEY-----{end}"
            );
            assert_eq!(redact(&text), format!("k = [REDACTED: private key]{end}"), "{text}");
        }
    }

    #[test]
    fn only_the_secret_part_of_an_assignment_or_url_is_redacted() {
        for (text, expected) in [
            ("DB_PASSWORD=hunter2Xq9vTz4", "DB_PASSWORD=[REDACTED: value]"),
            (
                "export AWS_SECRET_ACCESS_KEY='wJalrXUtnFEMI/K7MDENG+bPxRfi'",
                "export AWS_SECRET_ACCESS_KEY='[REDACTED: value]'",
            ),
            ("   3| \"API_KEY\": \"f3a9c1d7e5b20486\",", "   3| \"API_KEY\": \"[REDACTED: value]\","),
            ("postgres://app:Xq9vTz4hunter@db/x", "postgres://app:[REDACTED: password]@db/x"),
            ("  password: Xq9vTz4hunter2Lp\n", "  password: [REDACTED: value]\n"),
            ("api_key: f3a9c1d7e5b20486", "api_key: [REDACTED: value]"),
            (
                "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG+bPxRfi",
                "aws_secret_access_key = [REDACTED: value]",
            ),
            ("\"client_secret\": \"q8ZtR2mX4vB7nK1s\"", "\"client_secret\": \"[REDACTED: value]\""),
            ("Authorization: Bearer q8ZtR2mX4vB7nK1sW5", "Authorization: Bearer [REDACTED: authorization]"),
        ] {
            assert_eq!(redact(text), expected);
        }
    }

    #[test]
    fn code_and_sample_values_are_not_redacted() {
        for text in [
            "API_KEY = os.environ[\"API_KEY\"]",
            "SECRET_KEY = \"change-me-1234567\"",
            "TOKEN_LIMIT = 4096",
            "MAX_TOKENS: 8192",
            "password = \"correct horse\"",
            "MAX_TOKENS_PER_REQUEST = DEFAULT_LIMIT_4096",
            "TOKEN_LIMIT = settings.limits_v2.count",
            "TOKEN_ENDPOINT = \"/oauth2/v1/authorize\"",
            "API_KEY_PREFIX_SHA256 = compute_sha256(b)",
            "ACCESS_TOKEN_LIFETIME=timedelta_minutes_15",
            "SECRET_NAME = \"prod/app2/database\"",
            "token = parse_token_v2(source)",
            "let access_token = self.tokens.next_token2();",
            "password: UserPasswordField2",
            "HEADER = \"-----BEGIN PRIVATE KEY-----\"\nFOOTER = 1\nAlways run make fmt.",
            "A key begins with\n-----BEGIN RSA PRIVATE KEY-----\nand ends so.",
            "ACCESS_TOKEN=${{ secrets.ACCESS_TOKEN }}",
            "postgres://user:password@localhost/db",
            "http://localhost:8080/path@2x.png",
            "sk-ip this line",
            "sk-learn and sk-image",
            "the AKIA prefix",
            "ghp_ tokens",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
            "-----BEGIN PUBLIC KEY-----",
            "task-sk_live_mode",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "const TOKEN_KINDS: [&str; 3] = [\"a\"];",
            "",
        ] {
            assert!(
                matches!(Redactor::default().redact_text(text), Cow::Borrowed(_)),
                "{text}: {}",
                redact(text)
            );
        }
    }

    #[test]
    fn configured_values_are_redacted_first_and_longest_first() {
        let values = ["hunter2-long", "hunter2", "abc", " padded-value\n"].map(str::to_owned);
        let redactor = Redactor::new(values);
        let mark = "[REDACTED: configured value]";
        assert_eq!(
            redactor.redact_text("a hunter2-long b hunter2 c abc padded-value"),
            format!("a {mark} b {mark} c abc {mark}")
        );
        let lines = Redactor::new(["first-line\nsecond \"line\"".to_owned()]);
        assert_eq!(
            lines.redact_text("   1| first-line\n   2| second \"line\""),
            format!("   1| {mark}\n   2| {mark}")
        );
        assert_eq!(
            lines.redact_text(r#"{"a":"first-line\nsecond \"line\""}"#),
            format!(r#"{{"a":"{mark}"}}"#)
        );
        assert!(!format!("{redactor:?}").contains("hunter2"));
    }

    #[test]
    fn model_answers_lose_only_configured_values() {
        let redactor = Redactor::new(["hunter2-long".to_owned()]);
        let shape = &samples()[3].1;
        assert_eq!(redactor.redact_values(shape), shape.as_str());
        let mark = "[REDACTED: configured value]";
        let mut json = serde_json::json!({ "b": [1, { "x hunter2-long": "a hunter2-long" }], "a": shape });
        assert!(redactor.redact_json_values(&mut json));
        let expected =
            serde_json::json!({ "b": [1, { format!("x {mark}"): format!("a {mark}") }], "a": shape });
        assert_eq!(json.to_string(), expected.to_string());
        assert!(!redactor.redact_json_values(&mut json));
    }

    #[test]
    fn non_utf8_bytes_are_kept_around_redactions() {
        let secret = &samples()[3].1;
        let mut bytes = b"\xff\xfe".to_vec();
        bytes.extend_from_slice(secret.as_bytes());
        bytes.push(0x80);
        assert_eq!(Redactor::default().redact_bytes(bytes), b"\xff\xfe[REDACTED: GitHub token]\x80");
    }

    proptest! {
        /// A secret is redacted in any context, and redaction is idempotent.
        #[test]
        fn no_part_of_a_secret_remains(before in "[ -~\n]{0,80}", after in "[ \n\"',;)][ -~\n]{0,40}", nth in 0_usize..18) {
            let secret = &samples()[nth].1;
            let text = format!("{before} {secret}{after}");
            let once = redact(&text);
            prop_assert!(!once.contains(secret.as_str()), "{}", once);
            prop_assert_eq!(redact(&once), once);
        }
    }
}
