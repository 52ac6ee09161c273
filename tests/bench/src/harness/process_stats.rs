//! Reads /proc data of a running process.

use std::{fs, io};

/// Clock ticks per second: the same on every Linux that docket supports.
const TICKS_PER_S: f64 = 100.0;

/// Memory of a process, in MiB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessMemory {
    /// Resident, shared pages included.
    pub(crate) resident: f64,
    /// Resident and private; `None` if the kernel does not report it.
    pub(crate) private: Option<f64>,
}

/// Reads the current memory of the process.
pub(crate) fn read_memory(pid: i32) -> io::Result<ProcessMemory> {
    // Both figures from one read: between two, the process may have grown.
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok().and_then(|rollup| {
        let private = parse_kib(&rollup, "Private_Clean:")? + parse_kib(&rollup, "Private_Dirty:")?;
        Some(ProcessMemory {
            resident: parse_kib(&rollup, "Rss:")? / 1024.0,
            private: Some(private / 1024.0),
        })
    });
    if let Some(memory) = rollup {
        return Ok(memory);
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let resident = parse_kib(&status, "VmRSS:").ok_or(io::ErrorKind::NotFound)? / 1024.0;
    Ok(ProcessMemory { resident, private: None })
}

/// Returns the processor time of the process and its ended children, in milliseconds.
pub(crate) fn read_cpu_ms(pid: i32) -> io::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = stat_fields(&stat)
        .map(|fields| fields[11..15].iter().filter_map(|field| field.parse::<f64>().ok()).sum());
    let ticks: f64 = ticks.ok_or(io::ErrorKind::InvalidData)?;
    Ok(ticks * 1000.0 / TICKS_PER_S)
}

/// Returns the children of `parent` that are run processes.
pub(crate) fn run_process_pids(parent: i32) -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // A process may end between the two reads.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let is_child = stat_fields(&stat).and_then(|fields| fields[1].parse().ok()) == Some(parent);
        if is_child && fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| is_run_process(&line)) {
            found.push(pid);
        }
    }
    Ok(found)
}

fn is_run_process(cmdline: &[u8]) -> bool {
    cmdline.split(|b| *b == 0).nth(1) == Some(b"run-process")
}

/// Returns the fields of a stat line after the name, which may contain spaces; the first is the
/// state.
fn stat_fields(stat: &str) -> Option<Vec<&str>> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    (fields.len() > 15).then_some(fields)
}

fn parse_kib(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_parent_of_this_process_are_read() {
        let pid = i32::try_from(std::process::id()).expect("pids are small");
        let memory = read_memory(pid).expect("reads");
        assert!(memory.resident > 1.0 && memory.private.is_none_or(|private| private <= memory.resident));
        assert!(read_cpu_ms(pid).expect("reads") >= 0.0);
        assert!(run_process_pids(pid).expect("reads").is_empty());
    }

    #[test]
    fn process_name_with_blanks_and_brackets_does_not_shift_fields() {
        let stat = "12 (a ) (b) S 7 12 12 0 -1 4194560 1 0 0 0 3 4 5 6 20 0 1 0 100 0 0";
        let fields = stat_fields(stat).expect("reads");
        assert_eq!((fields[0], fields[1], &fields[11..15]), ("S", "7", &["3", "4", "5", "6"][..]));
        assert!(is_run_process(b"/bin/docket\0run-process\0") && !is_run_process(b"/bin/docket\0worker\0"));
    }
}
