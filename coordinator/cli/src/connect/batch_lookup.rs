//! Resolves a batch from its name, its id, or a part of either.

use docket_schema::{
    api::{BatchSummary, ProblemCode, TaskQuery},
    ids::BatchId,
    task::TITLE_CHARS_MAX,
};
use docket_worker::client::CoordinatorClient;
use uuid::Uuid;

use crate::output::{
    display,
    error::{CliError, CliResult, ExitKind},
};

/// Minimum digits of an abbreviated id: shorter suffixes match too many ids.
const ID_DIGITS_MIN: usize = 4;

/// Derives the id of a batch from its name. It is the same on every machine, so the name alone identifies the
/// batch.
pub(crate) fn batch_id_from_name(name: &str) -> BatchId {
    let hash = blake3::hash(format!("docket batch\n{name}").as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.as_bytes()[..16]);
    BatchId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
}

/// Checks that a batch may have this name.
///
/// # Errors
/// Fails with a usage error that says what the name must be.
pub(crate) fn check_batch_name(name: &str) -> CliResult<()> {
    let legal = !name.trim().is_empty()
        && name.chars().count() <= TITLE_CHARS_MAX
        && !name.chars().any(char::is_control)
        && Uuid::parse_str(name).is_err();
    if legal {
        return Ok(());
    }
    let message = format!(
        "a batch name must be one line of 1 to {TITLE_CHARS_MAX} characters and must not look like an id"
    );
    Err(CliError::new(ExitKind::Usage, message))
}

/// Returns the id of the named batch, whether it exists or not.
pub(crate) fn parse_batch_id(text: &str) -> BatchId {
    text.parse().unwrap_or_else(|_| batch_id_from_name(text.trim()))
}

/// The result of looking up a batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BatchLookup {
    /// A batch with at least one task, live or archived.
    Known(BatchId),
    /// No such batch has a task; this is the id for that full name or id.
    Unknown(BatchId),
}

/// Looks up a batch that has tasks by its full name, its id, the last digits of the id as shown in lists, or
/// the last part of its name.
///
/// # Errors
/// Fails when the text matches more than one batch.
pub(crate) async fn look_up_batch(client: &CoordinatorClient, text: &str) -> CliResult<BatchLookup> {
    let id = parse_batch_id(text);
    let query = TaskQuery { batch: Some(id), limit: Some(1), ..TaskQuery::default() };
    if !client.list_tasks(&query).await?.tasks.is_empty() {
        return Ok(BatchLookup::Known(id));
    }
    // All tasks of the batch may be archived.
    match client.get_batch(id).await {
        Ok(_) => return Ok(BatchLookup::Known(id)),
        Err(error) if error.problem_code() == Some(ProblemCode::NotFound) => {}
        Err(error) => return Err(error.into()),
    }
    let known = client.list_batches().await?.batches;
    match matching_batches(&known, text).as_slice() {
        [one] => Ok(BatchLookup::Known(*one)),
        [] => Ok(BatchLookup::Unknown(id)),
        several => {
            let message =
                format!("`{text}` matches {} batches; give the full name or more of the id", several.len());
            Err(CliError::new(ExitKind::NotFound, display::sanitize_line(&message)))
        }
    }
}

/// Returns the batches whose id ends with these digits or whose name ends with this part.
fn matching_batches(known: &[BatchSummary], text: &str) -> Vec<BatchId> {
    let part = format!("/{}", text.trim());
    let digits: String = text.trim().chars().filter(|c| *c != '-').collect::<String>().to_ascii_lowercase();
    let is_id = digits.len() >= ID_DIGITS_MIN && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let fits = |batch: &&BatchSummary| {
        batch.name.as_ref().is_some_and(|name| name.ends_with(&part))
            || is_id && batch.id.0.simple().to_string().ends_with(&digits)
    };
    known.iter().filter(fits).map(|batch| batch.id).collect()
}

/// Like [`look_up_batch`], for a batch that must exist.
///
/// # Errors
/// Fails when the text matches no batch, or several.
pub(crate) async fn resolve_batch(client: &CoordinatorClient, text: &str) -> CliResult<BatchId> {
    match look_up_batch(client, text).await? {
        BatchLookup::Known(id) => Ok(id),
        BatchLookup::Unknown(_) => {
            let message = format!("no batch `{text}`; `docket batch` lists them");
            Err(CliError::new(ExitKind::NotFound, display::sanitize_line(&message)))
        }
    }
}

#[cfg(test)]
mod tests {
    use docket_schema::ids::Timestamp;

    use super::*;

    #[test]
    fn batch_id_is_derived_from_name_or_parsed() {
        assert_eq!(batch_id_from_name("a"), batch_id_from_name("a"));
        assert_ne!(batch_id_from_name("a"), batch_id_from_name("b"));
        let id = batch_id_from_name("a");
        assert_eq!(
            (parse_batch_id("a"), parse_batch_id(&id.to_string()), parse_batch_id(" a ")),
            (id, id, id)
        );
        for bad in ["", " ", "a\nb", &id.to_string(), &"x".repeat(201)] {
            assert!(check_batch_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn batch_matches_last_id_digits_or_last_name_part() {
        let of = |name: &str| BatchSummary {
            id: batch_id_from_name(name),
            name: Some(name.to_owned()),
            tasks: 1,
            ended: 0,
            last_submitted_at: Timestamp(0),
        };
        let known = [of("shop/todo.jsonl"), of("bank/todo.jsonl"), of("shop/more.md")];
        let ids = known.each_ref().map(|batch| batch.id);
        assert_eq!(matching_batches(&known, "more.md"), [ids[2]]);
        assert_eq!(matching_batches(&known, "todo.jsonl"), ids[..2]);
        assert_eq!(matching_batches(&known, &ids[1].short()), [ids[1]]);
        assert_eq!(matching_batches(&known, &ids[1].short().to_uppercase()), [ids[1]]);
        assert_eq!(matching_batches(&known, &ids[1].to_string()[9..]), [ids[1]], "hyphens and all");
        for none in ["", "e.md", "odo.jsonl", &ids[1].short()[6..], "mor.md"] {
            assert_eq!(matching_batches(&known, none), [], "{none}");
        }
    }
}
