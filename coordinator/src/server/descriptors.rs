//! File descriptor limit of this process, and the connection limit derived from it.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Most descriptors requested: some programs started later iterate over all numbers up to the limit.
const OPEN_FILES_WANTED: u64 = 65_536;

/// Raises this process's soft limit towards the hard limit, because the usual login default is too low for a
/// server. Call it before anything is served.
pub fn raise_limit() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    let wanted = hard.min(OPEN_FILES_WANTED);
    if soft < wanted
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)
    {
        tracing::warn!("the limit of open files stays at {soft}: {error}");
    }
}

/// Returns how many of the configured connections the descriptor limit allows.
pub(super) fn bounded_connections(configured: u32) -> u32 {
    let Ok((soft, _)) = getrlimit(Resource::RLIMIT_NOFILE) else { return configured };
    let most = connections_within(configured, soft);
    if most < configured {
        tracing::warn!(
            "at most {most} connections, not {configured}: this process can have {soft} files open; raise \
             `LimitNOFILE=` of the unit, or `ulimit -n`"
        );
    }
    most
}

/// Half of the descriptors are for connections; the rest is for the store, run processes and logs.
fn connections_within(configured: u32, open_files_max: u64) -> u32 {
    configured.min(u32::try_from(open_files_max / 2).unwrap_or(u32::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_use_at_most_half_of_the_descriptors() {
        assert_eq!(connections_within(4096, 65_536), 4096);
        assert_eq!(connections_within(4096, 1024), 512);
        assert_eq!(connections_within(4096, u64::MAX), 4096);
        assert_eq!(connections_within(4096, 0), 1);
    }

    #[test]
    fn soft_limit_is_raised() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("limits");
        setrlimit(Resource::RLIMIT_NOFILE, 1000.min(hard), hard).expect("lowers");
        raise_limit();
        let (soft, after) = getrlimit(Resource::RLIMIT_NOFILE).expect("limits");
        assert_eq!((soft, after), (hard.min(OPEN_FILES_WANTED), hard));
    }
}
