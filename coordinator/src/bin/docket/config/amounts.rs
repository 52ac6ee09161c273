//! Amounts as people write them, for settings and flags alike: what is allowed, and how it is read.

/// What a temperature may be, for people.
pub(crate) const TEMPERATURE: &str = "a number from 0 to 2 with at most three decimals, such as \"0.2\"";

/// What [`dollars`] takes, for people.
pub(crate) const DOLLARS: &str = "dollars above 0 with at most three decimals, such as \"2.50\"";

/// An amount in nano-dollars.
pub(crate) fn dollars(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 3 {
        return None;
    }
    let thousandths = whole.parse::<u64>().ok()?.checked_mul(1000)?;
    let thousandths = thousandths.checked_add(format!("{fraction:0<3}").parse().ok()?)?;
    thousandths.checked_mul(1_000_000).filter(|nusd| *nusd > 0)
}
