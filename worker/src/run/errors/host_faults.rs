//! Faults of this machine, whatever met them: a disk that is full or cannot be written, no more files or memory.

use std::error::Error;

use docket_schema::wire::{FaultKind, FaultScope, WorkerFault};
use nix::errno::Errno;

use super::causes;

/// The fault of this machine that an error comes from, if one does: a full or unwritable disk, no more files or memory.
pub(in crate::run) fn fault_of_host(error: &(dyn Error + 'static)) -> Option<WorkerFault> {
    let raw = |cause: &(dyn Error + 'static)| {
        let of_io = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        of_io.map(Errno::from_raw).or_else(|| cause.downcast_ref::<Errno>().copied())
    };
    let kind = causes::chain(error).filter_map(raw).find_map(|errno| match errno {
        Errno::ENOSPC | Errno::EDQUOT | Errno::EROFS | Errno::EIO => Some(FaultKind::Disk),
        Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => Some(FaultKind::Host),
        _ => None,
    })?;
    Some(WorkerFault::new(kind, FaultScope::AnyTask, &causes::told(error)))
}

/// The fault behind a base that cannot be written out: as [`fault_of_host`], or a folder that is not this worker's to
/// write.
pub(in crate::run) fn fault_of_folders(error: &(dyn Error + 'static)) -> Option<WorkerFault> {
    let is_refused = |cause: &(dyn Error + 'static)| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| matches!(error.kind(), std::io::ErrorKind::PermissionDenied))
    };
    fault_of_host(error).or_else(|| {
        let refused = causes::chain(error).any(is_refused);
        refused.then(|| WorkerFault::new(FaultKind::Disk, FaultScope::AnyTask, &causes::told(error)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::MaterializeError;

    fn cannot_write(errno: Errno) -> MaterializeError {
        MaterializeError::Io { path: "/scratch".into(), source: errno.into() }
    }

    #[test]
    fn a_full_disk_is_the_workers_fault_and_a_bad_name_is_not() {
        for (errno, kind) in [
            (Errno::ENOSPC, Some(FaultKind::Disk)),
            (Errno::EDQUOT, Some(FaultKind::Disk)),
            (Errno::EROFS, Some(FaultKind::Disk)),
            (Errno::EMFILE, Some(FaultKind::Host)),
            (Errno::ENAMETOOLONG, None),
            (Errno::EACCES, None),
        ] {
            let fault = fault_of_host(&cannot_write(errno));
            assert_eq!(fault.as_ref().map(|fault| fault.kind), kind, "{errno}");
            assert!(fault.is_none_or(|fault| fault.message.contains("/scratch")), "{errno}");
        }
        let refused = fault_of_folders(&cannot_write(Errno::EACCES)).map(|fault| fault.kind);
        assert_eq!(refused, Some(FaultKind::Disk));
        assert_eq!(fault_of_folders(&cannot_write(Errno::ENAMETOOLONG)), None);
    }
}
