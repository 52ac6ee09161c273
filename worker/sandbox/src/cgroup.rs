//! Control groups, which limit what all processes of a sandbox use together.
//!
//! Supports versions 1 and 2. A group is created below docket's own, so that limits on docket also apply to its
//! commands: `OWN/docket/SPACE-PID-START-N`. If docket may not create one there (not root, nothing delegated), the
//! layer is missing, and the report says so. A version 2 group that contains processes cannot share out its
//! controllers: a worker that is alone in its delegated group first moves itself into a leaf ([`WORKER_LEAF`]). One
//! that is not alone, such as root in a terminal, uses the top of the hierarchy if it may.
//!
//! Invariants: a process joins its group before it learns what to run, so nothing of a call is ever outside; a
//! group is removed with its sandbox; the groups of killed processes are removed when the next group is created.
//! The pids of other containers on the same hierarchy mean nothing here, so their groups are removed only once no
//! run can be that old.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use super::limits::{self, Limits, host_memory_bytes};

/// The parent of all docket groups, with a limit on their total.
const PARENT_GROUP: &str = "docket";

/// The leaf a worker moves to when it must leave its own group (version 2).
const WORKER_LEAF: &str = "docket-worker";

/// Without these controllers the layer is missing; [`OPTIONAL_CONTROLLER`] only shares out processor time.
const REQUIRED_CONTROLLERS: [&str; 2] = ["memory", "pids"];
const OPTIONAL_CONTROLLER: &str = "cpu";

/// Share of the machine's memory, in percent, that all commands of all runs may use together. The rest is for
/// docket and the system.
const TOTAL_MEMORY_PERCENT: u64 = 80;

/// Maximum number of open files inspected per process.
const OPEN_FILES_INSPECTED_MAX: usize = 4096;

/// Longer than any run lasts. A run's group is empty between calls, so emptiness does not show that it is unused.
const FOREIGN_GROUP_AGE_MIN: Duration = Duration::from_secs(7 * 24 * 3600);

/// Limits how long removing a group may take: two seconds, for a machine too busy to end a process.
const REMOVE_TRIES: u32 = 2000;
const REMOVE_WAIT: Duration = Duration::from_millis(1);

/// The hierarchy in which groups can be created.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CgroupHierarchy {
    /// One folder per controller.
    V1(Vec<(&'static str, PathBuf)>),
    /// docket's own group and the top of the hierarchy.
    V2 { own: PathBuf, top: PathBuf },
}

/// A group of this process, removed when dropped.
#[derive(Debug)]
pub(super) struct Cgroup {
    version: CgroupVersion,
    /// With version 1, one per controller: memory first, then pids.
    folders: Vec<PathBuf>,
    limits: Limits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CgroupVersion {
    V1,
    V2,
}

/// How often the kernel enforced a limit of the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KernelInterventions {
    /// Processes killed for memory.
    pub(super) oom_kills: u64,
    /// Forks that were refused.
    pub(super) refused_forks: u64,
}

/// Checks whether groups can be created here. The error is the reason, written for people.
pub(super) fn check_available() -> Result<(), String> {
    let limits = limits::default_limits();
    Cgroup::create(limits).map(drop).map_err(|error| {
        format!(
            "no control group for memory and processes can be made below docket's own ({error}): start the worker as \
             root, as a systemd unit with Delegate=yes, or by `systemd-run --user --scope -p Delegate=yes`; each process is limited by itself"
        )
    })
}

impl Cgroup {
    /// Creates a group with these limits.
    pub(super) fn create(limits: Limits) -> io::Result<Self> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let hierarchy =
            find_hierarchy(&own, &mounts).ok_or_else(|| io::Error::other("no controllers are available"))?;
        Self::create_under(&hierarchy, limits)
    }

    fn create_under(hierarchy: &CgroupHierarchy, limits: Limits) -> io::Result<Self> {
        let (version, parents) = match hierarchy {
            CgroupHierarchy::V1(folders) => {
                let mut parents = Vec::new();
                for (controller, folder) in folders {
                    let parent = folder.join(PARENT_GROUP);
                    match ensure_folder(&parent) {
                        Ok(()) => parents.push(parent),
                        // Sharing out processor time is optional; nothing depends on it.
                        Err(_) if *controller == OPTIONAL_CONTROLLER => {}
                        Err(error) => return Err(error),
                    }
                }
                (CgroupVersion::V1, parents)
            }
            CgroupHierarchy::V2 { own, top } => {
                let parent = delegate_controllers(own)
                    .or_else(|error| prepare_top_parent(top).map_err(|_closed| error))?;
                (CgroupVersion::V2, vec![parent])
            }
        };
        // Not every kernel supports this; each group below is limited regardless.
        let _ = limit_total_memory(version, &parents);
        for parent in &parents {
            remove_stale_groups(parent);
        }
        let name = unique_name();
        let mut made = Self { version, folders: Vec::new(), limits };
        for (nth, parent) in parents.iter().enumerate() {
            let folder = parent.join(&name);
            match fs::create_dir(&folder) {
                Ok(()) => made.folders.push(folder),
                Err(_) if made.is_optional_folder(nth) => {}
                Err(error) => return Err(error),
            }
        }
        made.apply_limits()?;
        Ok(made)
    }

    /// Returns whether the layer works without this folder: in version 1, those after [`REQUIRED_CONTROLLERS`].
    const fn is_optional_folder(&self, nth: usize) -> bool {
        match self.version {
            CgroupVersion::V1 => nth >= REQUIRED_CONTROLLERS.len(),
            CgroupVersion::V2 => false,
        }
    }

    fn apply_limits(&self) -> io::Result<()> {
        let Limits { memory_bytes, processes, .. } = self.limits;
        match self.version {
            CgroupVersion::V1 => {
                write_value(&self.folders[0].join("memory.limit_in_bytes"), memory_bytes)?;
                // Exists only on kernels with swap accounting.
                ignore_not_found(write_value(
                    &self.folders[0].join("memory.memsw.limit_in_bytes"),
                    memory_bytes,
                ))?;
                write_value(&self.folders[1].join("pids.max"), processes)
            }
            CgroupVersion::V2 => {
                write_value(&self.folders[0].join("memory.max"), memory_bytes)?;
                ignore_not_found(write_value(&self.folders[0].join("memory.swap.max"), 0))?;
                write_value(&self.folders[0].join("pids.max"), processes)
            }
        }
    }

    #[cfg(test)]
    pub(super) fn name(&self) -> String {
        self.folders[0].file_name().unwrap().to_str().unwrap().to_owned()
    }

    /// Moves a process without children into the group.
    pub(super) fn add_process(&self, pid: u32) -> io::Result<()> {
        self.folders.iter().enumerate().try_for_each(|(nth, folder)| {
            match write_value(&folder.join("cgroup.procs"), pid.into()) {
                Err(_) if self.is_optional_folder(nth) => Ok(()),
                done => done,
            }
        })
    }

    /// Returns the space, in bytes, of deleted files on the file system `device` that the group's processes still
    /// hold open. Files that cannot be inspected count as 0.
    pub(super) fn deleted_file_bytes(&self, device: u64) -> u64 {
        use std::os::unix::fs::MetadataExt as _;
        const STAT_BLOCK: u64 = 512;
        let pids = self.folders.first().map(|folder| fs::read_to_string(folder.join("cgroup.procs")));
        let pids = pids.and_then(Result::ok).unwrap_or_default();
        let mut seen = std::collections::BTreeMap::new();
        for pid in pids.lines() {
            let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
            for entry in open.flatten().take(OPEN_FILES_INSPECTED_MAX) {
                let Ok(meta) = fs::metadata(entry.path()) else { continue };
                if meta.nlink() == 0 && meta.is_file() && meta.dev() == device {
                    seen.insert(meta.ino(), meta.blocks() * STAT_BLOCK);
                }
            }
        }
        seen.values().sum()
    }

    /// Returns the kernel's counters so far. An unreadable file counts as 0; the limits apply regardless.
    pub(super) fn interventions(&self) -> KernelInterventions {
        let (memory, pids) = match self.version {
            CgroupVersion::V1 => ("memory.oom_control", self.folders.get(1)),
            CgroupVersion::V2 => ("memory.events", self.folders.first()),
        };
        let of = |folder: Option<&PathBuf>, file: &str, name: &str| {
            folder.and_then(|folder| read_counter(&folder.join(file), name)).unwrap_or(0)
        };
        KernelInterventions {
            oom_kills: of(self.folders.first(), memory, "oom_kill"),
            refused_forks: of(pids, "pids.events", "max"),
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A dying process keeps the group for some milliseconds. A group that cannot be removed now is swept later.
        for folder in &self.folders {
            for _ in 0..REMOVE_TRIES {
                match fs::remove_dir(folder) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::sleep(REMOVE_WAIT),
                    Ok(()) | Err(_) => break,
                }
            }
        }
    }
}

fn write_value(file: &Path, value: u64) -> io::Result<()> {
    fs::write(file, value.to_string())
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))
}

fn ignore_not_found(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn ensure_folder(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(io::Error::new(error.kind(), format!("{}: {error}", folder.display())))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Reads the counter `name` from a file of `name number` lines.
fn read_counter(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let mut words = text.lines().filter_map(|line| line.split_once(' '));
    words.find(|(found, _)| *found == name)?.1.trim().parse().ok()
}

fn limit_total_memory(version: CgroupVersion, parents: &[PathBuf]) -> io::Result<()> {
    let Some(whole) = host_memory_bytes() else { return Ok(()) };
    let file = match version {
        CgroupVersion::V1 => "memory.limit_in_bytes",
        CgroupVersion::V2 => "memory.max",
    };
    write_value(&parents[0].join(file), whole / 100 * TOTAL_MEMORY_PERCENT)
}

/// Prepares the parent of groups below docket's own and enables its controllers (version 2).
fn delegate_controllers(own: &Path) -> io::Result<PathBuf> {
    let above = own.parent().filter(|_| own.file_name().is_some_and(|name| name == WORKER_LEAF));
    let base = above.unwrap_or(own);
    if !has_enabled_controllers(base) {
        let alone = fs::read_to_string(base.join("cgroup.procs"))?;
        let me = process::id().to_string();
        if alone.lines().any(|pid| pid != me) {
            return Err(io::Error::other("other processes are in docket's group"));
        }
        if !alone.is_empty() {
            ensure_folder(&base.join(WORKER_LEAF))?;
            write_value(&base.join(WORKER_LEAF).join("cgroup.procs"), process::id().into())?;
        }
        enable_controllers(base)?;
    }
    let parent = base.join(PARENT_GROUP);
    ensure_folder(&parent)?;
    if !has_enabled_controllers(&parent) {
        enable_controllers(&parent)?;
    }
    Ok(parent)
}

/// Prepares the parent of groups at the top of the hierarchy, which already shares out its controllers.
fn prepare_top_parent(top: &Path) -> io::Result<PathBuf> {
    if !has_enabled_controllers(top) {
        return Err(io::Error::other("the top group shares out no controllers"));
    }
    let parent = top.join(PARENT_GROUP);
    ensure_folder(&parent)?;
    if !has_enabled_controllers(&parent) {
        enable_controllers(&parent)?;
    }
    Ok(parent)
}

fn has_enabled_controllers(folder: &Path) -> bool {
    let text = fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap_or_default();
    REQUIRED_CONTROLLERS.iter().all(|needed| text.split_whitespace().any(|shared| shared == *needed))
}

fn enable_controllers(folder: &Path) -> io::Result<()> {
    let file = folder.join("cgroup.subtree_control");
    fs::write(&file, format!("+{} +{}", REQUIRED_CONTROLLERS[0], REQUIRED_CONTROLLERS[1]))
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?;
    // Sharing out processor time is optional; nothing depends on it.
    let _ = fs::write(&file, format!("+{OPTIONAL_CONTROLLER}"));
    Ok(())
}

/// Returns a name unique among living processes: `SPACE-PID-START-N`. A pid is valid only within its namespace, and
/// several containers may share the hierarchy.
fn unique_name() -> String {
    static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
    let pid = process::id();
    let n = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{}-{pid}-{}-{n}", pid_namespace_id().unwrap_or(0), process_start_time(pid).unwrap_or(0))
}

/// Returns the id of the pid namespace.
fn pid_namespace_id() -> Option<u64> {
    Some(fs::metadata("/proc/self/ns/pid").ok()?.ino())
}

/// Returns the start time of a process in ticks since boot; `None` if it does not exist.
fn process_start_time(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may itself contain spaces and parentheses, so field 22 is counted from after it.
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Removes groups of processes that have ended. The kernel refuses to remove a group that still has processes.
fn remove_stale_groups(parent: &Path) {
    let Ok(found) = fs::read_dir(parent) else { return };
    let here = pid_namespace_id();
    for entry in found.flatten() {
        let name = entry.file_name();
        let numbers = name.to_str().unwrap_or_default().split('-').map(|part| part.parse::<u64>().ok());
        let Some(numbers) = numbers.collect::<Option<Vec<u64>>>() else { continue };
        let is_left = match *numbers.as_slice() {
            [of, pid, start, _] if Some(of) == here => {
                u32::try_from(pid).ok().and_then(process_start_time) != Some(start)
            }
            // From here it is unknown whether the creator is alive. A name without a namespace id comes from an
            // older docket.
            [_, _, _, _] | [_, _, _] => is_old(&entry),
            _ => false,
        };
        if is_left {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn is_old(entry: &fs::DirEntry) -> bool {
    let made = entry.metadata().and_then(|metadata| metadata.modified());
    made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > FOREIGN_GROUP_AGE_MIN))
}

/// Finds the hierarchy of this process's groups from `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn find_hierarchy(own: &str, mounts: &str) -> Option<CgroupHierarchy> {
    let group_of = |controller: &str| {
        own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (names, path) = (parts.next()?, parts.next()?);
            names.split(',').any(|name| name == controller).then_some(path)
        })
    };
    let v1 = |controller: &'static str| {
        let group = group_of(controller)?;
        let folder = find_mounted_folder(mounts, "cgroup", Some(controller), group)?;
        Some((controller, folder))
    };
    if let [Some(memory), Some(pids)] = REQUIRED_CONTROLLERS.map(v1) {
        return Some(CgroupHierarchy::V1(
            [Some(memory), Some(pids), v1(OPTIONAL_CONTROLLER)].into_iter().flatten().collect(),
        ));
    }
    let folder = find_mounted_folder(mounts, "cgroup2", None, group_of("")?)?;
    let top = find_mounted_folder(mounts, "cgroup2", None, "/")?;
    let offered = fs::read_to_string(folder.join("cgroup.controllers")).ok()?;
    let has = |needed: &str| offered.split_whitespace().any(|name| name == needed);
    // A leaf offers only controllers that its parents share out.
    REQUIRED_CONTROLLERS.into_iter().all(has).then_some(CgroupHierarchy::V2 { own: folder, top })
}

/// Returns the folder of a group in a mounted hierarchy. In containers, only part of the hierarchy may be mounted.
fn find_mounted_folder(mounts: &str, kind: &str, controller: Option<&str>, group: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let (found, options) = (after.next()?, after.nth(1)?);
        let right = found == kind
            && controller.is_none_or(|wanted| options.split(',').any(|option| option == wanted));
        if !right {
            return None;
        }
        let below =
            Path::new(group).strip_prefix(root).or_else(|_| Path::new(group).strip_prefix("/")).ok()?;
        let folder = Path::new(point).join(below);
        // The path of a group outside the namespace starts with `..`; the mount is then its root.
        Some(if group.starts_with("/..") || !folder.is_dir() { point.into() } else { folder })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits { memory_bytes: 64 << 20, processes: 20, ..limits::default_limits() }
    }

    #[test]
    fn hierarchy_is_found_on_hosts_and_in_containers() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().to_str().unwrap();
        for folder in ["memory/a", "pids/a", "unified/u"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        let mounts = format!(
            "30 20 0:5 / {at}/memory rw - cgroup cgroup rw,memory\n31 20 0:6 / {at}/pids rw - cgroup cgroup rw,pids\n\
             32 20 0:7 / {at}/unified rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
        );
        let own = "9:memory:/a\n8:pids:/a\n7:blkio:/\n0::/u\n";
        let memory = ("memory", dir.path().join("memory/a"));
        assert_eq!(
            find_hierarchy(own, &mounts),
            Some(CgroupHierarchy::V1(vec![memory, ("pids", dir.path().join("pids/a"))]))
        );
        // Version 2 counts only if it has the controllers.
        assert_eq!(find_hierarchy("0::/u\n", &mounts), None);
        fs::write(dir.path().join("unified/u/cgroup.controllers"), "cpu memory pids\n").unwrap();
        let top = dir.path().join("unified");
        assert_eq!(
            find_hierarchy("0::/u\n", &mounts),
            Some(CgroupHierarchy::V2 { own: top.join("u"), top: top.clone() })
        );
        // A container that sees only its own part.
        let part = format!("32 20 0:7 /box/one {at}/unified/u rw - cgroup2 cgroup2 rw\n");
        assert_eq!(
            find_hierarchy("0::/box/one\n", &part),
            Some(CgroupHierarchy::V2 { own: top.join("u"), top: top.join("u") })
        );
        assert_eq!(find_hierarchy("", ""), None);
    }

    /// Runs on any kernel: the version 2 files under their documented names, in plain folders.
    #[test]
    fn v2_moves_worker_to_leaf_and_enables_controllers() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path();
        fs::write(own.join("cgroup.procs"), format!("{}\n", process::id())).unwrap();
        fs::write(own.join("cgroup.subtree_control"), "").unwrap();
        let both = |own: &Path, top: &Path| CgroupHierarchy::V2 { own: own.to_owned(), top: top.to_owned() };
        let group = Cgroup::create_under(&both(own, own), limits()).unwrap();
        assert_eq!(
            fs::read_to_string(own.join(WORKER_LEAF).join("cgroup.procs")).unwrap(),
            process::id().to_string()
        );
        let folder = group.folders[0].clone();
        assert!(folder.starts_with(own.join(PARENT_GROUP)));
        assert_eq!(fs::read_to_string(folder.join("memory.max")).unwrap(), (64 << 20).to_string());
        assert_eq!(fs::read_to_string(folder.join("pids.max")).unwrap(), "20");
        fs::write(folder.join("memory.events"), "low 0\noom 3\noom_kill 2\n").unwrap();
        fs::write(folder.join("pids.events"), "max 7\n").unwrap();
        assert_eq!(group.interventions(), KernelInterventions { oom_kills: 2, refused_forks: 7 });
        // Another process in the group: nothing is moved or created.
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join("cgroup.procs"), format!("1\n{}\n", process::id())).unwrap();
        assert!(Cgroup::create_under(&both(other.path(), other.path()), limits()).is_err());
        // At the top, if it shares out its controllers.
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("cgroup.subtree_control"), "cpu memory pids\n").unwrap();
        let group = Cgroup::create_under(&both(other.path(), top.path()), limits()).unwrap();
        assert!(group.folders[0].starts_with(top.path().join(PARENT_GROUP)));
    }

    /// Plain folders stand in for the kernel's. An unwritable group is a file instead of a folder, which not even
    /// root can write into.
    #[test]
    fn v1_needs_memory_controller_but_not_cpu() {
        for (closed, is_made) in [("cpu", true), ("memory", false), ("pids", false)] {
            for below_parent in [false, true] {
                let dir = tempfile::tempdir().unwrap();
                let folders =
                    ["memory", "pids", "cpu"].map(|controller| (controller, dir.path().join(controller)));
                for (controller, folder) in &folders {
                    match (*controller == closed, below_parent) {
                        (false, _) => fs::create_dir(folder).unwrap(),
                        (true, false) => fs::write(folder, "").unwrap(),
                        (true, true) => {
                            fs::create_dir(folder).unwrap();
                            fs::write(folder.join(PARENT_GROUP), "").unwrap();
                        }
                    }
                }
                let made = Cgroup::create_under(&CgroupHierarchy::V1(folders.into()), limits());
                assert_eq!(made.is_ok(), is_made, "{closed} {below_parent}: {made:?}");
                if let Ok(group) = made {
                    group.add_process(process::id()).unwrap();
                    for folder in &group.folders {
                        let procs = fs::read_to_string(folder.join("cgroup.procs")).unwrap();
                        assert_eq!(procs, process::id().to_string());
                    }
                    assert_eq!(group.folders.len(), 2);
                }
            }
        }
    }

    #[test]
    fn groups_of_dead_processes_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mine = unique_name();
        // No process has the largest possible pid. A living pid with another start time is another process.
        let (here, me) = (pid_namespace_id().unwrap(), process::id());
        let stale = [format!("{here}-4194305-7-0"), format!("{here}-{me}-1-0")];
        // Pids of another container, and those of a docket that did not record the namespace.
        let foreign = [format!("{}-4194305-7-0", here + 1), "4194305-7-0".to_owned()];
        let forgotten = [format!("{}-4194305-7-1", here + 1), "4194305-7-1".to_owned()];
        let other = "something-else".to_owned();
        for folder in [&stale[..], &foreign, &forgotten, &[mine.clone(), other.clone()]].concat() {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        for folder in forgotten {
            let folder = fs::File::open(dir.path().join(folder)).unwrap();
            folder.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
        }
        remove_stale_groups(dir.path());
        let mut left: Vec<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut want = [&foreign[..], &[mine, other]].concat();
        want.sort();
        assert_eq!(left, want);
    }
}
