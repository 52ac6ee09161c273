//! Settings of the archive: where old tasks go, and when.

use std::collections::BTreeMap;

use docket_coordinator::archive::{KeepFor, Retention, is_place};
use docket_schema::ids::QueueName;

use super::Key;

/// Where old tasks go, and when.
#[derive(Debug, Clone)]
pub(crate) struct ArchiveConfig {
    /// Where to; none = nothing is archived.
    pub(crate) to: Option<String>,
    /// What a coordinator archives by itself.
    pub(crate) retention: Retention,
}

impl Default for ArchiveConfig {
    fn default() -> Self {
        Self { to: None, retention: Retention { others: KeepFor::Ever, queues: BTreeMap::new() } }
    }
}

/// A time as `36h` or `90d`, in milliseconds.
pub(crate) fn time(text: &str) -> Option<u64> {
    const HOUR_MS: u64 = 3_600_000;
    let hours = text.strip_suffix('h').map(|n| (n, 1)).or_else(|| text.strip_suffix('d').map(|n| (n, 24)));
    let (number, hours) = hours?;
    number.parse::<u64>().ok()?.checked_mul(hours * HOUR_MS)
}

fn keep(text: &str) -> Option<KeepFor> {
    if text == "never" { Some(KeepFor::Ever) } else { time(text).map(KeepFor::Ms) }
}

fn queues(text: &str) -> Option<BTreeMap<QueueName, KeepFor>> {
    let rows = text.split(',').map(str::trim).filter(|row| !row.is_empty());
    rows.map(|row| {
        let (queue, kept) = row.split_once('=')?;
        Some((queue.trim().parse().ok()?, keep(kept.trim())?))
    })
    .collect()
}

pub(super) static KEYS: [Key; 3] = [
    Key {
        name: "archive.to",
        env: "DOCKET_ARCHIVE_TO",
        allowed: "file:///FOLDER or s3://BUCKET/PREFIX",
        set: |c, t| is_place(t).then(|| c.archive.to = Some(t.to_owned())),
    },
    Key {
        name: "archive.after",
        env: "DOCKET_ARCHIVE_AFTER",
        allowed: "hours or days, as 36h or 90d; or never",
        set: |c, t| keep(t).map(|keep| c.archive.retention.others = keep),
    },
    Key {
        name: "archive.queues",
        env: "DOCKET_ARCHIVE_QUEUES",
        allowed: "QUEUE=TIME, such as ci=7d or main=never, in the environment separated by commas",
        set: |c, t| queues(t).map(|queues| c.archive.retention.queues = queues),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_queues_are_read_or_refused() {
        assert_eq!((time("36h"), time("90d")), (Some(129_600_000), Some(7_776_000_000)));
        assert_eq!(time("0h"), Some(0), "whatever has ended");
        for bad in ["", "90", "d", "-1d", "1w", "99999999999999999999d"] {
            assert_eq!(time(bad), None, "{bad}");
        }
        let read = queues("ci=7d, main=never").expect("is right");
        let of = |name: &str| read.get(&name.parse::<QueueName>().expect("a name")).copied();
        assert_eq!((of("ci"), of("main")), (Some(KeepFor::Ms(604_800_000)), Some(KeepFor::Ever)));
        assert!(queues("ci").is_none() && queues("ci=soon").is_none() && queues("a/b=1d").is_none());
    }
}
