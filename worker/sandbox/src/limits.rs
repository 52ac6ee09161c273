//! What a sandbox's commands may use together, where nobody says otherwise.
//!
//! A process's own limits (`setrlimit`) do not bound a tree of processes. Memory and processes are bounded by a
//! control group, the disk by a look at the workspace while a command runs, output by counting what comes.

use std::fs;

pub use docket_schema::run::SandboxLimits as Limits;

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

/// Room for any usual build, and half of this machine's memory at most: one run must not starve the others.
pub fn default_limits() -> Limits {
    let memory_bytes = host_memory_bytes().map_or(4 * GIB, |whole| (whole / 2).min(8 * GIB));
    Limits {
        memory_bytes,
        processes: 1024,
        disk_bytes: 16 * GIB,
        disk_files: 2_000_000,
        output_bytes: 256 * MIB,
    }
}

/// The machine's memory.
pub(super) fn host_memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}
