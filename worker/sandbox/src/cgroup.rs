//! Control groups: the bound on what all processes of a sandbox use together.
//!
//! Both versions are spoken. A group is made below the one docket runs in, so whatever bounds docket bounds its
//! commands too: `OWN/docket/SPACE-PID-START-N`. Where docket may not make one there (no root, nothing delegated), the layer
//! is missing, and the report says so. Version 2 lets no group with processes share out its controllers: a worker
//! that is alone in its delegated group first moves itself into a leaf ([`LEAF`]). One that is not alone, such as root's
//! in a terminal, takes the hierarchy's top, where it may.
//!
//! Invariants: a process is put into its group before it is told what to run, so nothing of a call is ever outside;
//! a group is removed with its sandbox; those of processes that were killed are removed by whoever makes one next, of
//! processes in other containers on the same hierarchy (whose pids mean nothing here) once no run can be so old.

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

/// Holds every group of docket's, and bounds them together.
const PARENT_GROUP: &str = "docket";

/// Where a worker goes that must leave its own group, version 2.
const WORKER_LEAF: &str = "docket-worker";

/// What is bounded. Without the first two there is no layer; the third only shares out processor time.
const REQUIRED_CONTROLLERS: [&str; 2] = ["memory", "pids"];
const OPTIONAL_CONTROLLER: &str = "cpu";

/// Of the machine's memory, what all commands of all runs may use together, in percent: docket and the system live on
/// the rest.
const TOTAL_MEMORY_PERCENT: u64 = 80;

/// Open files of one process that are looked at.
const OPEN_FILES_INSPECTED_MAX: usize = 4096;

/// Longer than any run lasts. Between its calls a run's group is empty, so that alone says nothing.
const FOREIGN_GROUP_AGE_MIN: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long a group may keep its remover waiting: two seconds, on a machine that has no time to end a process.
const REMOVE_TRIES: u32 = 2000;
const REMOVE_WAIT: Duration = Duration::from_millis(1);

/// Where groups can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CgroupHierarchy {
    /// A folder for each controller.
    V1(Vec<(&'static str, PathBuf)>),
    /// The group docket is in, and the hierarchy's top.
    V2 { own: PathBuf, top: PathBuf },
}

/// A group of this process's, removed when dropped.
#[derive(Debug)]
pub(super) struct Cgroup {
    version: CgroupVersion,
    /// With version 1 one for each controller, memory first, then pids.
    folders: Vec<PathBuf>,
    limits: Limits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CgroupVersion {
    V1,
    V2,
}

/// How often the kernel had to step in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KernelInterventions {
    /// Processes ended for memory.
    pub(super) oom_kills: u64,
    /// Processes refused.
    pub(super) refused_forks: u64,
}

/// Whether groups can be made here; why not, for people.
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
    /// Makes one with these limits.
    pub(super) fn create(limits: Limits) -> io::Result<Self> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let hierarchy =
            find_hierarchy(&own, &mounts).ok_or_else(|| io::Error::other("no controllers here"))?;
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
                        // Processor time is shared out where it can be; nothing depends on it.
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
        // Not every kernel lets it; each group below is bounded all the same.
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

    /// Whether the layer does without the folder of this number: version 1's of [`WANTED`], behind those of [`NEEDED`].
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
                // Only kernels that account for swap have it.
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

    /// Puts a process, which has no child yet, into the group.
    pub(super) fn add_process(&self, pid: u32) -> io::Result<()> {
        self.folders.iter().enumerate().try_for_each(|(nth, folder)| {
            match write_value(&folder.join("cgroup.procs"), pid.into()) {
                Err(_) if self.is_optional_folder(nth) => Ok(()),
                done => done,
            }
        })
    }

    /// Space of files on the file system `device` that the group's processes hold open and that have no name any more,
    /// in bytes. What may not be looked at counts nothing.
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

    /// What the kernel counted so far. A file that cannot be read counts nothing: the limits hold all the same.
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
        // A process that is still being taken apart keeps it, for milliseconds; what stays all the same is swept.
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

/// The number behind a name in a file of `name number` lines.
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

/// The parent of groups below docket's own, with its controllers shared out, version 2.
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

/// The parent of groups at the hierarchy's top, which shares out its controllers already.
fn prepare_top_parent(top: &Path) -> io::Result<PathBuf> {
    if !has_enabled_controllers(top) {
        return Err(io::Error::other("nothing is shared out at the top"));
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
    // Processor time is shared out where it can be; nothing depends on it.
    let _ = fs::write(&file, format!("+{OPTIONAL_CONTROLLER}"));
    Ok(())
}

/// A name that no living process's group has: `SPACE-PID-START-N`. A pid means something in its namespace only, and
/// the hierarchy may be that of several containers.
fn unique_name() -> String {
    static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
    let pid = process::id();
    let n = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{}-{pid}-{}-{n}", pid_namespace_id().unwrap_or(0), process_start_time(pid).unwrap_or(0))
}

/// The number of the namespace that pids are of.
fn pid_namespace_id() -> Option<u64> {
    Some(fs::metadata("/proc/self/ns/pid").ok()?.ino())
}

/// When a process started, in ticks since the machine did; `None` when there is none.
fn process_start_time(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold blanks and brackets itself. Field 22, counted from behind it.
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Removes what processes left that are no more. A group that still has processes stays: the kernel sees to that.
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
            // Whether its maker lives cannot be seen from here. Without a namespace's number: of an older docket.
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

/// Where this process's groups are: from `/proc/self/cgroup` and `/proc/self/mountinfo`.
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
    // In a leaf nothing is offered that was not shared out above.
    REQUIRED_CONTROLLERS.into_iter().all(has).then_some(CgroupHierarchy::V2 { own: folder, top })
}

/// The folder of a group in a mounted hierarchy. What is mounted may be a part of it only, as in containers.
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
        // A group of another namespace is named by `..`; what is mounted is then its own root.
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
        // Version 2 counts where it has the controllers.
        assert_eq!(find_hierarchy("0::/u\n", &mounts), None);
        fs::write(dir.path().join("unified/u/cgroup.controllers"), "cpu memory pids\n").unwrap();
        let top = dir.path().join("unified");
        assert_eq!(
            find_hierarchy("0::/u\n", &mounts),
            Some(CgroupHierarchy::V2 { own: top.join("u"), top: top.clone() })
        );
        // A container that sees its own part only.
        let part = format!("32 20 0:7 /box/one {at}/unified/u rw - cgroup2 cgroup2 rw\n");
        assert_eq!(
            find_hierarchy("0::/box/one\n", &part),
            Some(CgroupHierarchy::V2 { own: top.join("u"), top: top.join("u") })
        );
        assert_eq!(find_hierarchy("", ""), None);
    }

    /// Whatever kernel is under this: the files of version 2 by their documented names, in plain folders.
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
        // Somebody else in the group: nothing is moved, nothing made.
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join("cgroup.procs"), format!("1\n{}\n", process::id())).unwrap();
        assert!(Cgroup::create_under(&both(other.path(), other.path()), limits()).is_err());
        // At the top, where that shares out.
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("cgroup.subtree_control"), "cpu memory pids\n").unwrap();
        let group = Cgroup::create_under(&both(other.path(), top.path()), limits()).unwrap();
        assert!(group.folders[0].starts_with(top.path().join(PARENT_GROUP)));
    }

    /// Plain folders in place of a kernel's: what cannot be written there is a file where a folder should be, which not
    /// even root can write into.
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
        // No process has the largest number a pid can have; a pid that lives, with another start, is another process.
        let (here, me) = (pid_namespace_id().unwrap(), process::id());
        let stale = [format!("{here}-4194305-7-0"), format!("{here}-{me}-1-0")];
        // Pids of another container, and those of a docket that did not say whose they are.
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
