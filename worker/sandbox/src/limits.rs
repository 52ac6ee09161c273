//! Default limits on what a sandbox's commands may use together.
//!
//! Limits per process (`setrlimit`) do not limit a tree of processes. A control group limits memory and
//! processes, checks of the workspace during a command limit the disk, and counting limits the output.

use std::fs;

pub use docket_schema::run::SandboxLimits as Limits;

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

/// Enough for any usual build, and at most half of this machine's memory: one run must not starve the
/// others.
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

/// Returns the machine's memory.
pub(super) fn host_memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}
