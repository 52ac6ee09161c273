//! The sample projects, embedded so that the demo works from the binary alone.
//!
//! The list is written by hand, one line per file, and a test compares it with the folder. That is simpler than
//! a dependency, and a forgotten file is reported.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use docket_sandbox::{CommandExit, CommandSpec, Sandbox};
use serde::Deserialize;

use crate::output::error::{CliResult, ExitKind, FailWith as _};

macro_rules! project {
    ($name:literal: $($file:literal),* $(,)?) => {
        EmbeddedProject {
            definition: include_str!(concat!("../../../../tests/projects/", $name, "/project.toml")),
            files: &[$(($file, include_bytes!(concat!("../../../../tests/projects/", $name, "/", $file)))),*],
        }
    };
}

struct EmbeddedProject {
    definition: &'static str,
    /// Paths under the project's folder: `tree/…`, `scripts/….toml`.
    files: &'static [(&'static str, &'static [u8])],
}

const EMBEDDED: [EmbeddedProject; 3] = [
    project!("pantry":
        "tree/.gitignore",
        "tree/README.md",
        "tree/pantry/__init__.py",
        "tree/pantry/amounts.py",
        "tree/pantry/recipes.py",
        "tree/tests/__init__.py",
        "tree/tests/test_amounts.py",
        "tree/tests/test_recipes.py",
        "tree/tests/test_shopping.py",
        "scripts/mixed-numbers.toml",
        "scripts/shopping-list.toml",
    ),
    project!("logcut":
        "tree/README.md",
        "tree/logcut.sh",
        "tree/tests/run.sh",
        "scripts/count.toml",
        "scripts/file-names.toml",
    ),
    project!("textbox":
        "tree/.gitignore",
        "tree/Cargo.lock",
        "tree/Cargo.toml",
        "tree/src/lib.rs",
        "tree/tests/wrapping.rs",
        "scripts/characters.toml",
    ),
];

/// A project's definition.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SampleProject {
    /// Its name, and that of its folder.
    pub(crate) name: String,
    /// A description for people.
    pub(crate) what: String,
    /// Programs that its tests need, each with a shell command that succeeds in a sandbox if the program works:
    /// a program can be on the PATH without its toolchain, such as rustup's `cargo` with another HOME.
    needs: BTreeMap<String, String>,
    pub(crate) tasks: Vec<SampleTask>,
    #[serde(skip)]
    files: Vec<(&'static str, &'static [u8])>,
}

/// A task of a sample project.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SampleTask {
    /// Its name, and that of its script.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) text: String,
    /// The shell command that fails before and passes after the work.
    pub(crate) tests: String,
    /// Paths that must exist at the end.
    #[serde(default)]
    pub(crate) requires: Vec<String>,
}

/// Returns all sample projects.
pub(crate) fn sample_projects() -> Vec<SampleProject> {
    let read = |embedded: &EmbeddedProject| {
        let project: SampleProject = toml::from_str(embedded.definition).expect("the definitions are tested");
        SampleProject { files: embedded.files.to_vec(), ..project }
    };
    EMBEDDED.iter().map(read).collect()
}

impl SampleProject {
    /// Returns the programs that it needs and that do not work in this sandbox.
    pub(crate) async fn missing_programs(&self, sandbox: &Sandbox) -> CliResult<Vec<&str>> {
        let mut missing = Vec::new();
        for (program, probe) in &self.needs {
            let output = sandbox.run(CommandSpec::shell(probe.as_str())).await;
            let output =
                output.fail_with(ExitKind::Failed, || format!("cannot check for {program} in a sandbox"))?;
            if output.exit != CommandExit::Exit(0) {
                missing.push(program.as_str());
            }
        }
        Ok(missing)
    }

    /// Returns the script of one of its tasks.
    pub(crate) fn script_for(&self, task: &SampleTask) -> &'static [u8] {
        let name = format!("scripts/{}.toml", task.name);
        self.files
            .iter()
            .find(|(path, _)| *path == name)
            .map(|(_, bytes)| *bytes)
            .expect("each task has a script")
    }

    /// Writes its tree into a new folder under `parent`; returns the folder.
    pub(crate) fn write_tree(&self, parent: &Path) -> CliResult<PathBuf> {
        let root = parent.join(&self.name);
        for (path, bytes) in &self.files {
            let Some(path) = path.strip_prefix("tree/") else { continue };
            write_file(&root.join(path), bytes).fail_with(ExitKind::Failed, || {
                format!("cannot write the sample project to {}", root.display())
            })?;
        }
        Ok(root)
    }
}

fn write_file(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, bytes)?;
    let mode = if bytes.starts_with(b"#!") { 0o755 } else { 0o644 };
    fs::set_permissions(file, fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use docket_worker::model::ScriptedModel;

    use super::*;

    fn collect_files(folder: &Path, prefix: &str, out: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).expect("reads") {
            let entry = entry.expect("reads");
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                collect_files(&entry.path(), &format!("{name}/"), out);
            } else {
                out.insert(name);
            }
        }
    }

    #[test]
    fn every_file_of_every_project_is_embedded() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/projects");
        let (mut there, mut embedded) = (BTreeSet::new(), BTreeSet::new());
        collect_files(&root, "", &mut there);
        for project in sample_projects() {
            embedded.insert(format!("{}/project.toml", project.name));
            embedded.extend(project.files.iter().map(|(path, _)| format!("{}/{path}", project.name)));
        }
        // Leftovers of a test run are not part of a project.
        there.retain(|name| !name.contains("__pycache__") && !name.contains("/target/"));
        assert_eq!(there, embedded);
    }

    #[test]
    fn every_task_has_a_valid_script_and_a_short_title() {
        let mut tasks = 0;
        for project in sample_projects() {
            assert!(!project.needs.is_empty() && !project.what.is_empty(), "{}", project.name);
            for task in &project.tasks {
                tasks += 1;
                ScriptedModel::parse(project.script_for(task))
                    .unwrap_or_else(|error| panic!("{}: {error}", task.name));
                assert!(task.title.len() <= 60 && !task.text.trim().is_empty() && !task.tests.is_empty());
            }
        }
        assert!(tasks >= 4);
    }

    #[test]
    fn tree_is_written_with_file_modes() {
        let folder = tempfile::tempdir().expect("a folder");
        let project =
            sample_projects().into_iter().find(|project| project.name == "logcut").expect("is there");
        let root = project.write_tree(folder.path()).expect("writes");
        let mode = |name: &str| fs::metadata(root.join(name)).expect("is there").permissions().mode() & 0o777;
        assert_eq!((mode("logcut.sh"), mode("README.md")), (0o755, 0o644));
        assert!(!root.join("scripts").exists() && !root.join("project.toml").exists());
    }
}
