//! How many files and sockets this process may have open, and so how many connections.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// No more than this is asked for: some programs that are started later look at every number up to the limit.
const OPEN_FILES_WANTED: u64 = 65_536;

/// Raises the soft limit of this process towards the hard one: what a login gives is meant for programs of
/// another time. To be called before anything is served.
pub fn raise_limit() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    let wanted = hard.min(OPEN_FILES_WANTED);
    if soft < wanted
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)
    {
        tracing::warn!("the limit of open files stays at {soft}: {error}");
    }
}

/// How many connections there may be of those that were configured.
pub(super) fn bounded_connections(configured: u32) -> u32 {
    let Ok((soft, _)) = getrlimit(Resource::RLIMIT_NOFILE) else { return configured };
    let most = connections_within(configured, soft);
    if most < configured {
        tracing::warn!(
            "{most} connections at most, not {configured}: this process may have {soft} files open; raise \
             `LimitNOFILE=` of the unit, or `ulimit -n`"
        );
    }
    most
}

/// Half of what may be open is for connections; the store, run processes and logs have the rest.
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
