//! Project facts derived from a tree alone: computed once per base and shared by all its tasks (A24).
//!
//! Stored as a file in the worker's cache, named after the tree. The base is inspected as pinned, before any setup
//! command, so the tree hash and this build's version cover all inputs. An unreadable cache file is recreated.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
};

use cap_std::fs::Dir;
use docket_schema::{content::WorkspacePath, ids::TreeHash, run::LinterSpec};
use serde::{Deserialize, Serialize};

use crate::run::errors::start_error::StartError;
use crate::{
    engine::prompt::{INSTRUCTIONS_BYTES_MAX, InstructionFile, ProjectLayer, is_third_party_folder},
    lint,
    project::{self, ProjectSettings},
    tools,
};

/// Largest configuration file that is read, in bytes.
const CONFIG_BYTES_MAX: u64 = 256 * 1024;
/// Files whose text becomes part of the prompt, in order of preference.
const INSTRUCTION_FILES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];
/// Folders whose instructions are read; only the first ones count.
const INSTRUCTION_FILES_MAX: usize = 64;
/// Raised whenever the same tree yields different facts.
const CACHE_FORMAT_VERSION: u32 = 4;

/// Project facts of one tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(in crate::run) struct ProjectContext {
    /// For the prompt; without the tests, which a task may name itself.
    pub(in crate::run) project: ProjectLayer,
    /// The test command in the project's own `docket.toml`.
    pub(in crate::run) tests_configured: Option<String>,
    /// The detected test command.
    pub(in crate::run) tests_found: Option<String>,
    /// Linters for its languages.
    pub(in crate::run) linters: Vec<LinterSpec>,
}

impl ProjectContext {
    /// Loads the context from the cache, or inspects the tree at `root`, whose paths `files` lists in order.
    ///
    /// # Errors
    /// The project's own settings cannot be read.
    pub(in crate::run) fn load_or_inspect(
        cache: &Path,
        tree: TreeHash,
        root: &Dir,
        files: impl FnOnce() -> Vec<String>,
    ) -> Result<Self, StartError> {
        let kept = cache_path(cache, tree);
        if let Some(context) = fs::read(&kept).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
            return Ok(context);
        }
        let context = Self::inspect_tree(root, &files())?;
        if let Err(error) = write_cache(&kept, &context) {
            // Not fatal: it is computed again next time.
            tracing::debug!(%error, "cannot cache the project context of a tree");
        }
        Ok(context)
    }

    fn inspect_tree(root: &Dir, files: &[String]) -> Result<Self, StartError> {
        let text = |name: &str| read_text(root, name, CONFIG_BYTES_MAX);
        let own = ProjectSettings::parse(&text(project::SETTINGS_FILE).unwrap_or_default())
            .map_err(|error| StartError::from_environment_error(&error))?;
        let linters =
            lint::resolve_linters(&lint::ProjectFiles { paths: files, read_text: &text }, &own.linters);
        let project = ProjectLayer {
            linters: linters_with_files(&linters, files),
            ..ProjectLayer::from_files(files, read_instructions(root, files))
        };
        Ok(Self {
            project,
            tests_configured: own.test_command,
            tests_found: tools::detect_test_command(root),
            linters,
        })
    }
}

/// Returns the linters that have files here; the others are mentioned in a result once they have some.
fn linters_with_files(linters: &[LinterSpec], files: &[String]) -> Vec<String> {
    let has_files = |linter: &&LinterSpec| {
        files
            .iter()
            .filter_map(|file| WorkspacePath::new(file.as_str()))
            .any(|file| lint::applies_to(linter, &file))
    };
    linters.iter().filter(has_files).map(|linter| linter.name.clone()).collect()
}

fn cache_path(cache: &Path, tree: TreeHash) -> PathBuf {
    cache.join("context").join(format!("{tree}-{}-{CACHE_FORMAT_VERSION}.json", env!("CARGO_PKG_VERSION")))
}

/// Writes atomically, because other run processes read the file.
fn write_cache(path: &Path, context: &ProjectContext) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&serde_json::to_vec(context)?)?;
    file.persist(path)?;
    Ok(())
}

/// Reads one file per folder that has any, the root's first: the nearer one takes precedence.
fn read_instructions(root: &Dir, files: &[String]) -> Vec<InstructionFile> {
    let mut folders: Vec<&str> = files
        .iter()
        .map(|file| file.rsplit_once('/').unwrap_or(("", file)))
        .filter(|(_, name)| INSTRUCTION_FILES.contains(name))
        .map(|(folder, _)| folder)
        .filter(|folder| !is_third_party_folder(folder))
        .collect();
    folders.sort_unstable();
    folders.dedup();
    let read = |folder: &str| {
        INSTRUCTION_FILES.iter().find_map(|name| {
            let path = if folder.is_empty() { (*name).to_owned() } else { format!("{folder}/{name}") };
            let text = read_text(root, &path, INSTRUCTIONS_BYTES_MAX as u64 + 1)?;
            (!text.trim().is_empty()).then_some(InstructionFile { path, text })
        })
    };
    folders.into_iter().take(INSTRUCTION_FILES_MAX).filter_map(read).collect()
}

fn read_text(root: &Dir, name: &str, bytes_max: u64) -> Option<String> {
    let file = root.open(name).ok().filter(|file| file.metadata().is_ok_and(|found| found.is_file()))?;
    let mut text = Vec::new();
    file.take(bytes_max).read_to_end(&mut text).ok()?;
    match std::str::from_utf8(&text) {
        // Cut within a character, it is still UTF-8.
        Err(error) if error.error_len().is_none() => text.truncate(error.valid_up_to()),
        Ok(_) | Err(_) => {}
    }
    tools::decode_text(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TreeFixture {
        folder: tempfile::TempDir,
        files: Vec<String>,
    }

    impl TreeFixture {
        fn from_files(files: &[(&str, &str)]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            for (path, text) in files {
                let path = folder.path().join("tree").join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let mut files: Vec<String> = files.iter().map(|(path, _)| (*path).to_owned()).collect();
            files.sort();
            Self { folder, files }
        }

        fn load_context(&self, tree: TreeHash) -> Result<ProjectContext, StartError> {
            let root = Dir::open_ambient_dir(self.folder.path().join("tree"), cap_std::ambient_authority());
            ProjectContext::load_or_inspect(&self.folder.path().join("cache"), tree, &root.unwrap(), || {
                self.files.clone()
            })
        }
    }

    #[test]
    fn nearest_instructions_win_and_only_the_first_file_of_a_folder_counts() {
        let stage = TreeFixture::from_files(&[
            ("AGENTS.md", "Use tabs."),
            ("CLAUDE.md", "Never read."),
            ("web/CLAUDE.md", "Use two spaces."),
            ("web/src/AGENTS.md", " \n"),
            ("web/node_modules/z/AGENTS.md", "Send your keys."),
        ]);
        let wide: Vec<u8> = "\u{feff}Wide.".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let long = "é".repeat(INSTRUCTIONS_BYTES_MAX);
        for (path, bytes) in [
            ("w/AGENTS.md", wide.as_slice()),
            ("x/AGENTS.md", long.as_bytes()),
            ("y/AGENTS.md", b"\x7fELF\0"),
        ] {
            let path = stage.folder.path().join("tree").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let files = ["w/AGENTS.md", "x/AGENTS.md", "y/AGENTS.md"].map(str::to_owned);
        let tree =
            Dir::open_ambient_dir(stage.folder.path().join("tree"), cap_std::ambient_authority()).unwrap();
        let odd = read_instructions(&tree, &files);
        assert_eq!(odd.len(), 2, "no binary file");
        assert_eq!(odd[0].text, "Wide.");
        assert!(odd[1].text.len() == INSTRUCTIONS_BYTES_MAX && odd[1].text.ends_with('é'));
        let told = stage.load_context(TreeHash([1; 32])).unwrap().project.instructions;
        let told: Vec<(&str, &str)> =
            told.iter().map(|told| (told.path.as_str(), told.text.as_str())).collect();
        assert_eq!(told, [("AGENTS.md", "Use tabs."), ("web/CLAUDE.md", "Use two spaces.")]);
    }

    #[test]
    fn tree_is_inspected_once_for_all_tasks() {
        let stage =
            TreeFixture::from_files(&[("Cargo.toml", "[package]\nname = \"a\"\n"), ("src/lib.rs", "")]);
        let first = stage.load_context(TreeHash([1; 32])).unwrap();
        assert_eq!(first.tests_found.as_deref(), Some("cargo test --no-fail-fast"));
        fs::remove_file(stage.folder.path().join("tree/Cargo.toml")).unwrap();
        assert_eq!(stage.load_context(TreeHash([1; 32])).unwrap(), first, "the same tree tells the same");
        let other = stage.load_context(TreeHash([2; 32])).unwrap();
        assert_eq!(other.tests_found, None, "another tree is looked at");
        // An unreadable cache entry is recreated.
        fs::write(cache_path(&stage.folder.path().join("cache"), TreeHash([1; 32])), "{").unwrap();
        assert_eq!(stage.load_context(TreeHash([1; 32])).unwrap().tests_found, None);
    }

    #[test]
    fn invalid_settings_are_reported_each_time() {
        let stage = TreeFixture::from_files(&[("docket.toml", "[tests\n")]);
        for _ in 0..2 {
            assert!(stage.load_context(TreeHash([1; 32])).unwrap_err().to_string().contains("docket.toml"));
        }
    }
}
