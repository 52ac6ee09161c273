//! Reads a policy from a file.

use std::path::Path;

use docket_schema::policy::Policy;
use docket_worker::policy;

use crate::output::error::{CliError, CliResult, ExitKind, FailWith as _};

/// Size limit of a policy file; the limits of a policy itself are lower.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Reads a policy and tests its rules on their examples.
///
/// # Errors
/// Fails with a usage error that names the invalid field.
pub(crate) fn read_policy_file(file: &Path) -> CliResult<Policy> {
    let name = file.display();
    let wrong = |message: String| CliError::new(ExitKind::Usage, format!("{name}: {message}"));
    let unreadable = || format!("cannot read the policy {name}; is it UTF-8 text?");
    let size = match std::fs::metadata(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let message = format!("no file {name}; name a TOML file with the policy's rules");
            return Err(CliError::new(ExitKind::Usage, message));
        }
        found => found.fail_with(ExitKind::Usage, unreadable)?.len(),
    };
    if size > FILE_BYTES_MAX {
        return Err(wrong(format!("it has {size} bytes; the limit of a policy is {FILE_BYTES_MAX}")));
    }
    let text = std::fs::read_to_string(file).fail_with(ExitKind::Usage, unreadable)?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(0, |span| text[..span.start.min(text.len())].lines().count().max(1));
        wrong(format!("line {line} is not valid TOML ({})", error.message()))
    })?;
    policy::parse_policy(table).map_err(wrong)
}
