//! Which batch a person means: by its name, its id, or a part of either.

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

/// Digits that can be the end of an id: fewer end too many of them.
const ID_DIGITS_MIN: usize = 4;

/// The id of a batch of this name: the same on every machine, so that a name is enough to find it.
pub(crate) fn batch_id_from_name(name: &str) -> BatchId {
    let hash = blake3::hash(format!("docket batch\n{name}").as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.as_bytes()[..16]);
    BatchId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
}

/// Whether a batch may be called so.
///
/// # Errors
/// Usage, with what it must be.
pub(crate) fn check_batch_name(name: &str) -> CliResult<()> {
    let legal = !name.trim().is_empty()
        && name.chars().count() <= TITLE_CHARS_MAX
        && !name.chars().any(char::is_control)
        && Uuid::parse_str(name).is_err();
    if legal {
        return Ok(());
    }
    let message = format!("a batch's name is one line of 1 to {TITLE_CHARS_MAX} characters, and no id");
    Err(CliError::new(ExitKind::Usage, message))
}

/// The batch that a person names. It need not be there.
pub(crate) fn parse_batch_id(text: &str) -> BatchId {
    text.parse().unwrap_or_else(|_| batch_id_from_name(text.trim()))
}

/// What a person's words for a batch came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BatchLookup {
    /// One that has a task, here or in the archive.
    Known(BatchId),
    /// None has a task: this is the id that one of that whole name, or id, has.
    Unknown(BatchId),
}

/// The batch that a person names, if it has a task: by its whole name, its id, some last digits of the id as lists
/// show it, or the last part of a name. What fits several means none of them.
///
/// # Errors
/// It fits several.
pub(crate) async fn look_up_batch(client: &CoordinatorClient, text: &str) -> CliResult<BatchLookup> {
    let id = parse_batch_id(text);
    let query = TaskQuery { batch: Some(id), limit: Some(1), ..TaskQuery::default() };
    if !client.list_tasks(&query).await?.tasks.is_empty() {
        return Ok(BatchLookup::Known(id));
    }
    // All of it may be archived.
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
                format!("`{text}` fits {} batches; give the whole name, or more of the id", several.len());
            Err(CliError::new(ExitKind::NotFound, display::sanitize_line(&message)))
        }
    }
}

/// Those whose id ends in these digits, or whose name ends in this part.
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

/// As [`look_up`], of one that is there.
///
/// # Errors
/// There is none, or several.
pub(crate) async fn resolve_batch(client: &CoordinatorClient, text: &str) -> CliResult<BatchId> {
    match look_up_batch(client, text).await? {
        BatchLookup::Known(id) => Ok(id),
        BatchLookup::Unknown(_) => {
            let message = format!("there is no batch `{text}`; `docket batch` lists them");
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
