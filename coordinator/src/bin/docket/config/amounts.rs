//! Amounts and choices as people write them, for settings and flags alike: what is allowed, and how it is read.

use docket_worker::bootstrap::SandboxChoice;

/// What a temperature may be, for people.
pub(crate) const TEMPERATURE: &str = "a number from 0 to 2 with at most nine decimals, such as \"0.2\"";

/// What [`dollars`] takes, for people.
pub(crate) const DOLLARS: &str = "dollars above 0 with at most nine decimals, such as \"2.50\"";

/// An amount in nano-dollars.
pub(crate) fn dollars(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let nusd = whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?;
    nusd.checked_add(format!("{fraction:0<9}").parse().ok()?).filter(|nusd| *nusd > 0)
}

/// A sandbox by its name.
pub(crate) fn sandbox(text: &str) -> Option<SandboxChoice> {
    match text {
        "auto" => Some(SandboxChoice::Auto),
        "bubblewrap" => Some(SandboxChoice::Bubblewrap),
        "namespaces" => Some(SandboxChoice::Namespaces),
        "none" => Some(SandboxChoice::None),
        _ => None,
    }
}
