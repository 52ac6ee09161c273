//! Settings of the archive: where old tasks go, and when; and where large blobs are kept.

use std::collections::BTreeMap;

use docket_coordinator::{
    archive::{KeepFor, Retention, is_place},
    store::BlobsOutside,
};
use docket_schema::ids::QueueName;

use super::{Key, amounts};
use crate::output::fail::{Exit, Failure, Outcome};

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

impl ArchiveConfig {
    /// When without where would do nothing, and say nothing of it.
    pub(super) fn check(&self) -> Outcome<()> {
        if self.to.is_some() || self.retention.is_for_ever() {
            return Ok(());
        }
        let message = "archive.after and archive.queues say when tasks are archived, and nothing says where to: set archive.to \
                       to file:///FOLDER or s3://BUCKET/PREFIX";
        Err(Failure::new(Exit::Usage, message))
    }
}

/// Where large blobs are kept.
#[derive(Debug, Clone)]
pub(crate) struct BlobsConfig {
    /// Where; none = in the database.
    pub(crate) to: Option<String>,
    /// From which size on.
    pub(crate) over: u64,
}

/// Smaller blobs are read and written sooner in the database than anywhere else.
const BLOBS_OVER: u64 = 256 * 1024;

impl Default for BlobsConfig {
    fn default() -> Self {
        Self { to: None, over: BLOBS_OVER }
    }
}

impl BlobsConfig {
    /// As the store takes it.
    pub(crate) fn outside(&self) -> Option<BlobsOutside> {
        self.to.clone().map(|to| BlobsOutside { to, over: self.over })
    }
}

/// A time as `30m`, `36h` or `90d`, in milliseconds.
pub(crate) fn time(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 4] = [("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let unit = |(unit, ms): (&str, u64)| text.strip_suffix(unit).map(|number| (number, ms));
    let (number, ms) = UNITS.into_iter().find_map(unit)?;
    number.parse::<u64>().ok()?.checked_mul(ms)
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

pub(super) static KEYS: [Key; 5] = [
    Key {
        name: "blobs.to",
        env: "DOCKET_BLOBS_TO",
        allowed: "file:///FOLDER or s3://BUCKET/PREFIX",
        set: |c, t| is_place(t).then(|| c.blobs.to = Some(t.to_owned())),
    },
    Key {
        name: "blobs.over",
        env: "DOCKET_BLOBS_OVER",
        allowed: "a size, such as 256KiB, 4MiB or a number of bytes",
        set: |c, t| amounts::size(t).ok().map(|size| c.blobs.over = size),
    },
    Key {
        name: "archive.to",
        env: "DOCKET_ARCHIVE_TO",
        allowed: "file:///FOLDER or s3://BUCKET/PREFIX",
        set: |c, t| is_place(t).then(|| c.archive.to = Some(t.to_owned())),
    },
    Key {
        name: "archive.after",
        env: "DOCKET_ARCHIVE_AFTER",
        allowed: "a time, as 30m, 36h or 90d; or never",
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
        assert_eq!((time("0h"), time("0s")), (Some(0), Some(0)), "whatever has ended");
        assert_eq!(time("30m"), Some(1_800_000));
        for bad in ["", "90", "d", "-1d", "1w", "99999999999999999999d"] {
            assert_eq!(time(bad), None, "{bad}");
        }
        let read = queues("ci=7d, main=never").expect("is right");
        let of = |name: &str| read.get(&name.parse::<QueueName>().expect("a name")).copied();
        assert_eq!((of("ci"), of("main")), (Some(KeepFor::Ms(604_800_000)), Some(KeepFor::Ever)));
        assert!(queues("ci").is_none() && queues("ci=soon").is_none() && queues("a/b=1d").is_none());
    }
}
