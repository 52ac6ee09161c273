//! The run that the past is asked about, and the plain reading of folders it is compared with.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt as _, ffi::OsStringExt as _, fs::PermissionsExt as _},
    path::Path,
};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    content::{BlobRef, WorkspacePath},
    ids::BlobHash,
    snapshot::{Entry, EntryKind, Manifest},
};
use docket_tests::system::{FinishedProcess, SampleRepository, TestProgram, run_program};
use serde_json::Value;
use tempfile::TempDir;

/// The run's last turn.
pub(super) const LAST: u64 = 8;

const FILES: [(&str, &str); 5] = [
    (".gitignore", "*.log\n"),
    ("src/a.txt", "one\ntwo\nthree\n"),
    ("keep.txt", "kept\n"),
    ("old.txt", "old\n"),
    ("tool.sh", "echo tool\n"),
];

const SCRIPT: &str = r#"
[[turns]]
text = "I look, and write notes."
[[turns.calls]]
name = "read_file"
args = { path = "src/a.txt" }
[[turns.calls]]
name = "create_file"
args = { path = "notes.md", content = "first\n" }

[[turns]]
text = "I shout."
[[turns.calls]]
name = "edit_file"
args = { path = "src/a.txt", edits = [{ search = "two", replace = "TWO" }] }

[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = '''printf 'x\351\n' > "$(printf 'caf\351').txt"; printf 'red\n' > "$(printf 'evil\033[31m')"; chmod 644 tool.sh; ln -s ../keep.txt src/link; rm old.txt; printf 'a\000b' > blob.bin; echo l > left.log''' }

[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "git add -A && git -c user.name=m -c user.email=m@example.org commit -qm 'by the model' && echo stash > keep.txt && git -c user.name=m -c user.email=m@example.org stash -q && git branch side && echo u > untracked" }

[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "rm notes.md" }

[[turns]]
[[turns.calls]]
name = "create_file"
args = { path = "notes.md", content = "first\nagain\n" }

[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "mkdir hollow && chmod 600 keep.txt" }

[[turns]]
text = "Done."
"#;

/// A run that has ended, in a home that nobody serves.
pub(super) struct HistoryFixture {
    pub(super) home: TempDir,
    pub(super) sample: SampleRepository,
    /// Where folders are checked out to.
    pub(super) place: TempDir,
    /// The run's id.
    pub(super) run: String,
    /// The recorded tree after each turn, by its number.
    pub(super) trees: Vec<String>,
}

impl HistoryFixture {
    pub(super) async fn play_run() -> Result<Self> {
        let (home, place) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let sample = SampleRepository::new(&FILES)?;
        let script = sample.write_script(SCRIPT)?;
        // What a turn cost is seen where there is a price.
        let price = "[prices.\"scripted:past\"]\ninput = \"1000\"\noutput = \"1000\"\ncache_read = \"0\"\ncache_write = \"0\"\n\
                     context_tokens = 100_000\noutput_tokens_max = 4000\n";
        std::fs::write(home.path().join("docket.toml"), price)?;
        let mut scene = Self { home, sample, place, run: String::new(), trees: Vec::new() };
        let repo = scene.sample.path().to_str().context("UTF-8")?.to_owned();
        let script = script.to_str().context("UTF-8")?;
        let args = ["run", "Do it", "--repo", &repo, "--model", "scripted:past", "--script", script];
        scene.run_docket(&args).await?.into_stdout()?;
        let task: Value =
            serde_json::from_str(scene.run_docket(&["ps", "--json"]).await?.into_stdout()?.trim())?;
        scene.run = task["run"].as_str().context("a run")?.to_owned();
        scene.trees = vec![scene.base_tree().await?; 1];
        let log = scene.run_docket(&["logs", &scene.run, "--json"]).await?.into_stdout()?;
        for line in log.lines() {
            let event: Value = serde_json::from_str(line)?;
            let turn = usize::try_from(event["turn"].as_u64().context("a turn")?)?;
            while scene.trees.len() <= turn {
                scene.trees.extend_from_within(scene.trees.len() - 1..);
            }
            if let Some(tree) = event["payload"]["tree"].as_str().filter(|_| event["kind"] == "SnapshotTaken")
            {
                tree.clone_into(&mut scene.trees[turn]);
            }
        }
        ensure!(scene.trees.len() == usize::try_from(LAST)? + 1, "{:?}\n{log}", scene.trees);
        Ok(scene)
    }

    /// The tree of the source's commit, as a plain reading has it.
    async fn base_tree(&self) -> Result<String> {
        let clone = self.home.path().join("clone");
        let from = self.sample.path().to_str().context("UTF-8")?;
        let to = clone.to_str().context("UTF-8")?;
        run_program(TestProgram::Git, self.home.path(), &[], &["clone", "--quiet", from, to])
            .await?
            .into_stdout()?;
        let tree = tree_hash_of_folder(&clone);
        fs::remove_dir_all(&clone)?;
        tree
    }

    /// A path in the place of checkouts.
    pub(super) fn path_in_checkouts(&self, name: &str) -> String {
        self.place.path().join(name).to_string_lossy().into_owned()
    }

    pub(super) async fn run_docket<A: AsRef<OsStr>>(&self, args: &[A]) -> Result<FinishedProcess> {
        let home = self.home.path();
        run_program(TestProgram::Docket, home, &[("DOCKET_HOME", home.as_os_str())], args).await
    }

    pub(super) async fn docket_json(&self, args: &[&str]) -> Result<Value> {
        let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        let text = self.run_docket(&args).await?.into_stdout()?;
        serde_json::from_str(text.trim()).with_context(|| text)
    }

    /// The tree that `patch` makes of a fresh checkout of turn `turn`.
    pub(super) async fn apply_patch(&self, turn: u32, patch: &[u8], name: &str) -> Result<String> {
        let dir = self.home.path().join(format!("apply-{name}"));
        let to = dir.to_str().context("UTF-8")?;
        self.run_docket(&["checkout", &self.run, "--turn", &turn.to_string(), to]).await?.into_stdout()?;
        let file = self.home.path().join(format!("{name}.patch"));
        fs::write(&file, patch)?;
        run_program(TestProgram::Git, &dir, &[], &[OsStr::new("apply"), file.as_os_str()])
            .await?
            .into_stdout()?;
        tree_hash_of_folder(&dir)
    }
}

/// The hash of the tree in a folder, its `.git` aside.
pub(super) fn tree_hash_of_folder(dir: &Path) -> Result<String> {
    let mut manifest = Manifest::default();
    read_folder_into(dir, &[], &mut manifest)?;
    Ok(manifest.tree_hash().to_string())
}

fn read_folder_into(dir: &Path, prefix: &[u8], manifest: &mut Manifest) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if prefix.is_empty() && name == ".git" {
            continue;
        }
        count += 1;
        let path = [prefix, name.as_bytes()].concat();
        let meta = entry.metadata()?;
        let mode = meta.permissions().mode() & 0o7777;
        let file = |kind, mode, content: &[u8]| {
            let blob = BlobRef::for_bytes(content);
            Entry { kind, mode, size: blob.bytes, hash: blob.hash }
        };
        let found = if meta.is_symlink() {
            file(EntryKind::Symlink, 0, &fs::read_link(entry.path())?.into_os_string().into_vec())
        } else if meta.is_file() {
            file(EntryKind::File, mode, &fs::read(entry.path())?)
        } else {
            let inside = read_folder_into(&entry.path(), &[&path[..], b"/"].concat(), manifest)?;
            if inside > 0 && mode == 0o755 {
                continue;
            }
            Entry { kind: EntryKind::Dir, mode, size: 0, hash: BlobHash([0; 32]) }
        };
        manifest.entries.insert(WorkspacePath::new(path).context("a legal path")?, found);
    }
    Ok(count)
}
