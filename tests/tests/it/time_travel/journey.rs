//! The run that travels in time: a script of thirty turns, and what its files are after each of them,
//! worked out here from the same list of acts and without a line of docket's own code.

use std::{collections::BTreeMap, ffi::OsStr, fmt::Write as _, os::unix::ffi::OsStrExt as _, path::Path};

use anyhow::{Context as _, Result};
use docket_schema::{
    content::WorkspacePath,
    ids::{BlobHash, TreeHash},
    snapshot::{Entry, EntryKind, Manifest},
};

/// Decisions of the run; the last one only says that it is done.
pub(crate) const TURNS: u32 = 30;
/// The turn in the middle of whose command everybody dies.
pub(crate) const KILLED_AT: u32 = 15;

/// Stands while the command of turn [`KILLED_AT`] is in its middle.
pub(crate) const MIDDLE: &str = "notes-moved";
/// What that command waits for.
pub(crate) const GO: &str = "go";

/// The repository that it starts from.
pub(crate) const FILES: [(&str, &str); 4] = [
    ("log.txt", "begun\n"),
    ("notes/keep.txt", "keep\n"),
    ("tools/run.sh", "#!/bin/sh\necho run\n"),
    ("empty.txt", ""),
];

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileNode {
    /// A file with its permission bits.
    File { mode: u32, bytes: Vec<u8> },
    /// A symbolic link and its target.
    Link(Vec<u8>),
    /// A folder with nothing in it.
    Empty,
}

/// Every path of a work tree but what lies under `.git`.
pub(crate) type FileTree = BTreeMap<Vec<u8>, FileNode>;

/// What a turn's calls do to the files.
enum FileChange {
    Write(String, Vec<u8>),
    Append(&'static str, String),
    Remove(String),
    Move(String, String),
    Mode(String, u32),
    Link(String, String),
    Folder(String),
    /// A name that is no UTF-8.
    Raw(Vec<u8>, Vec<u8>),
}

/// A turn: its tool calls as TOML, and their changes.
struct TurnAct {
    calls: Vec<(&'static str, String)>,
    changes: Vec<FileChange>,
}

fn shell_act(line: String, changes: Vec<FileChange>) -> TurnAct {
    TurnAct { calls: vec![("run_command", format!("{{ command = '''{line}''' }}"))], changes }
}

fn note_path(n: u32) -> String {
    format!("notes/n{n:02}.txt")
}

fn turn_act(n: u32) -> TurnAct {
    match n {
        KILLED_AT => interrupted_act(),
        _ if n % 5 == 1 => note_act(n),
        _ if n % 5 == 2 => {
            let line = format!("echo 'turn {n:02}' >> log.txt; chmod 755 {}", note_path(n - 1));
            shell_act(
                line,
                vec![
                    FileChange::Append("log.txt", format!("turn {n:02}\n")),
                    FileChange::Mode(note_path(n - 1), 0o755),
                ],
            )
        }
        _ if n % 5 == 3 => {
            let (from, to) = (note_path(n - 2), format!("moved/n{n:02}.txt"));
            let line = format!(
                "mkdir -p moved && mv {from} {to} && ln -s n{n:02}.txt moved/link-{n:02} && : > empty-{n:02} && mkdir hollow-{n:02}"
            );
            shell_act(
                line,
                vec![
                    FileChange::Move(from, to),
                    FileChange::Link(format!("moved/link-{n:02}"), format!("n{n:02}.txt")),
                    FileChange::Write(format!("empty-{n:02}"), Vec::new()),
                    FileChange::Folder(format!("hollow-{n:02}")),
                ],
            )
        }
        _ if n % 5 == 4 => {
            let before = n - 1;
            let line = format!(
                r#"printf 'caf\351\000' > "$(printf 'raw-\351-{n:02}')"; rm empty-{before:02}; rmdir hollow-{before:02}"#
            );
            let name = [b"raw-\xe9-".as_slice(), format!("{n:02}").as_bytes()].concat();
            shell_act(
                line,
                vec![
                    FileChange::Raw(name, b"caf\xe9\0".to_vec()),
                    FileChange::Remove(format!("empty-{before:02}")),
                    FileChange::Remove(format!("hollow-{before:02}")),
                ],
            )
        }
        _ => commit_act(n),
    }
}

/// A file tool, and at every other time an edit after it.
fn note_act(n: u32) -> TurnAct {
    let create = ("create_file", format!(r#"{{ path = "{}", content = "note {n:02}\n" }}"#, note_path(n)));
    let mut changes = vec![FileChange::Write(note_path(n), format!("note {n:02}\n").into_bytes())];
    let mut calls = vec![create];
    if n % 10 == 6 {
        let path = "tools/run.sh";
        calls.push(("read_file", format!(r#"{{ path = "{path}" }}"#)));
        let (old, new) = (turn_text(n - 10 * u32::from(n > 6)), turn_text(n + 1));
        let old = if n == 6 { "echo run".to_owned() } else { old };
        calls.push((
            "edit_file",
            format!(r#"{{ path = "{path}", edits = [{{ search = "{old}", replace = "{new}" }}] }}"#),
        ));
        changes.push(FileChange::Write(path.to_owned(), format!("#!/bin/sh\n{new}\n").into_bytes()));
    }
    TurnAct { calls, changes }
}

fn turn_text(n: u32) -> String {
    let n = if n % 10 == 7 { n } else { n + 1 };
    format!("echo run {n:02}")
}

/// The model's own commit, and a count that comes out right only where its earlier ones are there.
fn commit_act(n: u32) -> TurnAct {
    let count = 1 + (5..=n).step_by(5).filter(|n| *n != KILLED_AT).count();
    let line = "git add -A && git -c user.name=m -c user.email=m@example.org commit -qm step \
                && git rev-list --count HEAD > commits.txt"
        .to_owned();
    shell_act(line, vec![FileChange::Write("commits.txt".to_owned(), format!("{count}\n").into_bytes())])
}

/// Changes things, waits for [`GO`], and changes them again. Run twice on the same files, it would leave
/// others than run once.
fn interrupted_act() -> TurnAct {
    let line = format!(
        "echo begun >> half.txt && rm log.txt && mv notes {MIDDLE} && until [ -e {GO} ]; do sleep 0.02; done; \
         rm {GO} && mv {MIDDLE} notes && echo ended >> half.txt && echo anew > log.txt"
    );
    shell_act(
        line,
        vec![
            FileChange::Write("half.txt".to_owned(), b"begun\nended\n".to_vec()),
            FileChange::Write("log.txt".to_owned(), b"anew\n".to_vec()),
        ],
    )
}

/// What the model says.
pub(crate) fn journey_script() -> Result<String> {
    let mut out = String::new();
    for n in 1..TURNS {
        writeln!(out, "[[turns]]\ntext = \"Turn {n}.\"")?;
        for (name, args) in turn_act(n).calls {
            writeln!(out, "[[turns.calls]]\nname = \"{name}\"\nargs = {args}")?;
        }
    }
    out.push_str("[[turns]]\ntext = \"Done.\"\n");
    Ok(out)
}

/// The files after turn `n`; after turn 0 those of the repository.
pub(crate) fn files_after(n: u32) -> Result<FileTree> {
    let file = |bytes: &[u8], mode| FileNode::File { mode, bytes: bytes.to_vec() };
    let mut files: FileTree = FILES
        .iter()
        .map(|(path, text)| {
            let mode = if path.ends_with(".sh") { 0o755 } else { 0o644 };
            (path.as_bytes().to_vec(), file(text.as_bytes(), mode))
        })
        .collect();
    for change in (1..=n.min(TURNS - 1)).flat_map(|n| turn_act(n).changes) {
        apply_change(&mut files, change)?;
    }
    Ok(files)
}

fn apply_change(files: &mut FileTree, change: FileChange) -> Result<()> {
    match change {
        FileChange::Write(path, bytes) => {
            let mode = match files.get(path.as_bytes()) {
                Some(FileNode::File { mode, .. }) => *mode,
                Some(FileNode::Link(_) | FileNode::Empty) | None => 0o644,
            };
            files.insert(path.into_bytes(), FileNode::File { mode, bytes });
        }
        FileChange::Append(path, text) => match files.get_mut(path.as_bytes()) {
            Some(FileNode::File { bytes, .. }) => bytes.extend_from_slice(text.as_bytes()),
            _ => anyhow::bail!("no file {path}"),
        },
        FileChange::Remove(path) => {
            files.remove(path.as_bytes()).with_context(|| path.clone())?;
        }
        FileChange::Move(from, to) => {
            let node = files.remove(from.as_bytes()).with_context(|| from.clone())?;
            files.insert(to.into_bytes(), node);
        }
        FileChange::Mode(path, new) => match files.get_mut(path.as_bytes()) {
            Some(FileNode::File { mode, .. }) => *mode = new,
            _ => anyhow::bail!("no file {path}"),
        },
        FileChange::Link(path, target) => {
            files.insert(path.into_bytes(), FileNode::Link(target.into_bytes()));
        }
        FileChange::Folder(path) => {
            files.insert(path.into_bytes(), FileNode::Empty);
        }
        FileChange::Raw(path, bytes) => {
            files.insert(path, FileNode::File { mode: 0o644, bytes });
        }
    }
    Ok(())
}

/// The files of a folder as they lie there, without what lies under `.git`.
pub(crate) fn files_in(folder: &Path) -> Result<FileTree> {
    let mut files = FileTree::new();
    read_folder(folder, b"", &mut files)?;
    Ok(files)
}

fn read_folder(folder: &Path, prefix: &[u8], files: &mut FileTree) -> Result<usize> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut count = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        count += 1;
        if prefix.is_empty() && entry.file_name() == ".git" {
            continue;
        }
        let path = [prefix, entry.file_name().as_bytes()].concat();
        let meta = entry.metadata()?;
        if meta.is_dir() {
            if read_folder(&entry.path(), &[path.as_slice(), b"/"].concat(), files)? == 0 {
                files.insert(path, FileNode::Empty);
            }
        } else if meta.is_symlink() {
            files.insert(
                path,
                FileNode::Link(std::fs::read_link(entry.path())?.as_os_str().as_bytes().to_vec()),
            );
        } else {
            let bytes = std::fs::read(entry.path())?;
            files.insert(path, FileNode::File { mode: meta.permissions().mode() & 0o7777, bytes });
        }
    }
    Ok(count)
}

/// The hash that a tree of these files has.
pub(crate) fn tree_hash(files: &FileTree) -> Result<TreeHash> {
    let mut manifest = Manifest::default();
    for (path, node) in files {
        let (kind, mode, content) = match node {
            FileNode::File { mode, bytes } => (EntryKind::File, *mode, bytes.as_slice()),
            FileNode::Link(target) => (EntryKind::Symlink, 0, target.as_slice()),
            FileNode::Empty => (EntryKind::Dir, 0o755, [].as_slice()),
        };
        let hash = if kind == EntryKind::Dir { BlobHash::ZERO } else { BlobHash::hash_bytes(content) };
        let path = WorkspacePath::new(path.clone()).context("a path within the workspace")?;
        manifest.entries.insert(path, Entry { kind, mode, size: content.len() as u64, hash });
    }
    Ok(manifest.tree_hash())
}

/// What differs between two trees, for messages.
pub(crate) fn describe_difference(found: &FileTree, wanted: &FileTree) -> String {
    let mut out = String::new();
    let mut paths: Vec<&Vec<u8>> = found.keys().chain(wanted.keys()).collect();
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        let (is, should) = (found.get(path), wanted.get(path));
        if is != should {
            let _ = writeln!(out, "{}: is {is:?}, should be {should:?}", OsStr::from_bytes(path).display());
        }
    }
    out
}
