//! Parsers and descriptions of amounts and choices, shared by settings and flags.

use docket_worker::bootstrap::SandboxChoice;

/// Describes the allowed temperatures.
pub(crate) const ALLOWED_TEMPERATURE: &str =
    "a number from 0 to 2 with at most nine decimals, such as \"0.2\"";

/// Describes the amounts that [`parse_nano_dollars`] accepts.
pub(crate) const ALLOWED_DOLLARS: &str = "dollars above 0 with at most nine decimals, such as \"2.50\"";

/// Parses an amount in dollars to nano-dollars.
pub(crate) fn parse_nano_dollars(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let nusd = whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?;
    nusd.checked_add(format!("{fraction:0<9}").parse().ok()?).filter(|nusd| *nusd > 0)
}

/// Parses the name of a sandbox backend.
pub(crate) fn parse_sandbox_choice(text: &str) -> Option<SandboxChoice> {
    match text {
        "auto" => Some(SandboxChoice::Auto),
        "bubblewrap" => Some(SandboxChoice::Bubblewrap),
        "namespaces" => Some(SandboxChoice::Namespaces),
        "none" => Some(SandboxChoice::None),
        _ => None,
    }
}

/// Describes the sizes that [`parse_size`] accepts.
pub(crate) const ALLOWED_SIZE: &str = "a size of at least 16MiB, such as 512MiB, 2GiB or a number of bytes";

/// Parses a number of bytes: plain, or followed by KiB, MiB, GiB or TiB.
///
/// # Errors
/// Returns a message that names the allowed format.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u32); 4] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let (number, shift) = UNITS
        .iter()
        .find_map(|(unit, shift)| text.strip_suffix(unit).map(|number| (number, *shift)))
        .unwrap_or((text, 0));
    let bytes = number.trim().replace('_', "").parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| format!("`{text}` is not {ALLOWED_SIZE}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_units_are_powers_of_1024() {
        assert_eq!(parse_size("512MiB"), Ok(512 << 20));
        assert_eq!(parse_size("3 GiB"), Ok(3 << 30));
        assert_eq!(parse_size("4_096"), Ok(4096));
        for wrong in ["", "0", "MiB", "-1", "1.5GiB", "5MB", "20000000TiB"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
