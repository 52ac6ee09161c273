//! Decides which provider keys are secrets. A local model server that needs no key is often given a word
//! instead (`ollama`, `none`); redacting it would remove that word from files and commands.

/// The text that replaces a provider's key.
pub const REDACTED_KEY: &str = "[secret]";

/// Shorter keys are not treated as secrets: they can be guessed and match parts of ordinary words.
pub const KEY_BYTES_MIN: usize = 8;

/// Minimum length of providers' own keys, in bytes. A shorter key that is only sent to servers on this
/// machine is a placeholder.
pub const PROVIDER_KEY_BYTES_MIN: usize = 20;

/// Values that servers and their manuals suggest for an ignored key. Compared without regard to case, `_`,
/// `-` and spaces.
const PLACEHOLDERS: [&str; 24] = [
    "ollama",
    "none",
    "null",
    "dummy",
    "dummykey",
    "empty",
    "placeholder",
    "nokey",
    "noapikey",
    "nokeyrequired",
    "nokeyneeded",
    "notneeded",
    "notrequired",
    "notused",
    "notakey",
    "unused",
    "ignored",
    "changeme",
    "localhost",
    "lmstudio",
    "llamacpp",
    "apikey",
    "yourapikey",
    "testkey",
];

/// Whether a provider's key is a secret and not a placeholder. `is_local`: the key is only sent to model
/// servers on this machine.
pub fn is_secret_key(key: &str, is_local: bool) -> bool {
    let key = key.trim();
    // All other characters are part of the key; otherwise a key of special characters would look empty.
    let plain: String =
        key.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).map(|c| c.to_ascii_lowercase()).collect();
    let word = plain.strip_prefix("sk").unwrap_or(&plain);
    let is_placeholder = PLACEHOLDERS.contains(&word) || PLACEHOLDERS.contains(&plain.as_str());
    let lower = key.to_ascii_lowercase();
    let mut characters = lower.strip_prefix("sk-").unwrap_or(&lower).chars();
    let first = characters.next();
    let is_one_character = characters.all(|c| Some(c) == first);
    let is_short = key.len() < KEY_BYTES_MIN || (is_local && key.len() < PROVIDER_KEY_BYTES_MIN);
    !is_short && !is_placeholder && !is_one_character
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_and_short_keys_are_not_secrets() {
        for key in [
            "",
            "x",
            "ollama",
            "none",
            "EMPTY",
            "dummy",
            "sk-no-key-required",
            "no-key-required",
            "not-needed",
            "lm-studio",
            "your_api_key",
            "sk-xxxxxxxxxxxxxxxxxxxx",
            "xxxxxxxxxxxx",
            " placeholder\n",
            "NOT_REQUIRED",
            "no api key",
            "------------",
        ] {
            assert!(!is_secret_key(key, false), "{key}");
        }
        for key in [
            "sk-ant-3f9c01ab77e2",
            "hunter2222",
            "sk-of-this-worker",
            "dkx-local-key-1",
            "!@#$%^&*()_+",
            "none!@#$%^&*()",
            "sk-!!!!!!!!!!!?",
            "--------_-----",
        ] {
            assert!(is_secret_key(key, false), "{key}");
        }
    }

    #[test]
    fn short_local_key_is_not_a_secret_but_a_long_one_is() {
        assert!(!is_secret_key("my-local-key", true));
        assert!(is_secret_key("my-local-key", false));
        assert!(is_secret_key("sk-ant-3f9c01ab77e2f4c1d9", true));
    }
}
