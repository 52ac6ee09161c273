//! Settings of the archive (destination and retention of old tasks) and of external blob storage.

use std::collections::BTreeMap;

use docket_coordinator::{
    archive::{KeepFor, RetentionPolicy, is_storage_url},
    store::ExternalBlobSettings,
};
use docket_schema::ids::QueueName;

use super::{SettingKey, amounts};
use crate::output::error::{CliError, CliResult, ExitKind};

/// Destination and retention of archived tasks.
#[derive(Debug, Clone)]
pub(crate) struct ArchiveConfig {
    /// The destination; `None` = nothing is archived.
    pub(crate) destination: Option<String>,
    /// When tasks are archived automatically.
    pub(crate) retention: RetentionPolicy,
}

impl Default for ArchiveConfig {
    fn default() -> Self {
        Self {
            destination: None,
            retention: RetentionPolicy { others: KeepFor::Forever, queues: BTreeMap::new() },
        }
    }
}

impl ArchiveConfig {
    /// Rejects a retention without a destination, which would silently do nothing.
    pub(super) fn validate(&self) -> CliResult<()> {
        if self.destination.is_some() || self.retention.keeps_everything() {
            return Ok(());
        }
        let message = "archive.after and archive.queues say when to archive tasks, but there is no destination: set archive.to \
                       to file:///FOLDER or s3://BUCKET/PREFIX";
        Err(CliError::new(ExitKind::Usage, message))
    }
}

/// Where large blobs are stored.
#[derive(Debug, Clone)]
pub(crate) struct BlobsConfig {
    /// The destination; `None` = the database.
    pub(crate) destination: Option<String>,
    /// Minimum size of a blob that is stored externally.
    pub(crate) min_bytes: u64,
}

/// Smaller blobs are faster to read and write in the database than anywhere else.
const EXTERNAL_BLOB_BYTES_MIN: u64 = 256 * 1024;

impl Default for BlobsConfig {
    fn default() -> Self {
        Self { destination: None, min_bytes: EXTERNAL_BLOB_BYTES_MIN }
    }
}

impl BlobsConfig {
    /// Converts to the store's settings.
    pub(crate) fn external_blobs(&self) -> Option<ExternalBlobSettings> {
        self.destination.clone().map(|to| ExternalBlobSettings { url: to, min_bytes: self.min_bytes })
    }
}

/// Parses an age such as `30m`, `36h` or `90d` to milliseconds.
pub(crate) fn parse_age_ms(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 4] = [("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let unit = |(unit, ms): (&str, u64)| text.strip_suffix(unit).map(|number| (number, ms));
    let (number, ms) = UNITS.into_iter().find_map(unit)?;
    number.parse::<u64>().ok()?.checked_mul(ms)
}

fn parse_keep_for(text: &str) -> Option<KeepFor> {
    if text == "never" { Some(KeepFor::Forever) } else { parse_age_ms(text).map(KeepFor::Ms) }
}

fn parse_queue_retention(text: &str) -> Option<BTreeMap<QueueName, KeepFor>> {
    let rows = text.split(',').map(str::trim).filter(|row| !row.is_empty());
    rows.map(|row| {
        let (queue, kept) = row.split_once('=')?;
        Some((queue.trim().parse().ok()?, parse_keep_for(kept.trim())?))
    })
    .collect()
}

pub(super) static ARCHIVE_KEYS: [SettingKey; 5] = [
    SettingKey {
        name: "blobs.to",
        env: "DOCKET_BLOBS_TO",
        allowed: "file:///FOLDER or s3://BUCKET/PREFIX",
        set: |c, t| is_storage_url(t).then(|| c.blobs.destination = Some(t.to_owned())),
    },
    SettingKey {
        name: "blobs.over",
        env: "DOCKET_BLOBS_OVER",
        allowed: "a size, such as 256KiB, 4MiB or a number of bytes",
        set: |c, t| amounts::parse_size(t).ok().map(|size| c.blobs.min_bytes = size),
    },
    SettingKey {
        name: "archive.to",
        env: "DOCKET_ARCHIVE_TO",
        allowed: "file:///FOLDER or s3://BUCKET/PREFIX",
        set: |c, t| is_storage_url(t).then(|| c.archive.destination = Some(t.to_owned())),
    },
    SettingKey {
        name: "archive.after",
        env: "DOCKET_ARCHIVE_AFTER",
        allowed: "an age such as 30m, 36h or 90d; or never",
        set: |c, t| parse_keep_for(t).map(|keep| c.archive.retention.others = keep),
    },
    SettingKey {
        name: "archive.queues",
        env: "DOCKET_ARCHIVE_QUEUES",
        allowed: "QUEUE=AGE, such as ci=7d or main=never; comma-separated in the environment",
        set: |c, t| parse_queue_retention(t).map(|queues| c.archive.retention.queues = queues),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_queue_retention_are_parsed_or_rejected() {
        assert_eq!((parse_age_ms("36h"), parse_age_ms("90d")), (Some(129_600_000), Some(7_776_000_000)));
        assert_eq!((parse_age_ms("0h"), parse_age_ms("0s")), (Some(0), Some(0)), "whatever has ended");
        assert_eq!(parse_age_ms("30m"), Some(1_800_000));
        for bad in ["", "90", "d", "-1d", "1w", "99999999999999999999d"] {
            assert_eq!(parse_age_ms(bad), None, "{bad}");
        }
        let read = parse_queue_retention("ci=7d, main=never").expect("is right");
        let of = |name: &str| read.get(&name.parse::<QueueName>().expect("a name")).copied();
        assert_eq!((of("ci"), of("main")), (Some(KeepFor::Ms(604_800_000)), Some(KeepFor::Forever)));
        assert!(
            parse_queue_retention("ci").is_none()
                && parse_queue_retention("ci=soon").is_none()
                && parse_queue_retention("a/b=1d").is_none()
        );
    }
}
