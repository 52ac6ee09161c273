//! The docket binary under test: located before anything is measured, and started by the groups that measure
//! docket's own processes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};

/// Maximum number of characters of a log quoted in a reason.
const QUOTED_CHARS_MAX: usize = 300;

/// Finds the binary: the given one, or the one built next to this program.
pub(crate) fn find_docket(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let path = match named {
        Some(path) => std::path::absolute(path)?,
        None => {
            std::env::current_exe().context("this program does not know its place")?.with_file_name("docket")
        }
    };
    let profile = if cfg!(debug_assertions) { "" } else { " --release" };
    ensure!(
        path.is_file(),
        "there is no docket at {}; build it with `cargo build{profile} -p docket-cli`, or name one with --docket",
        path.display()
    );
    Ok(path)
}

/// The folder of a group, and the binary that it starts there.
#[derive(Debug, Clone)]
pub(crate) struct GroupSite {
    pub(crate) docket: PathBuf,
    pub(crate) folder: PathBuf,
}

impl GroupSite {
    /// Returns the same binary with a subfolder.
    pub(crate) fn create_subsite(&self, name: &str) -> anyhow::Result<Self> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        Ok(Self { docket: self.docket.clone(), folder })
    }
}

/// Returns the end of a process's log, for error messages.
pub(crate) fn log_tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let flat: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let skip = flat.chars().count().saturating_sub(QUOTED_CHARS_MAX);
    flat.chars().skip(skip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_binary_error_names_the_build_command() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("docket");
        let error = find_docket(Some(&path)).expect_err("nothing is there").to_string();
        assert!(error.contains(&path.display().to_string()) && error.contains("cargo build"), "{error}");
        fs::write(&path, "").expect("written");
        assert_eq!(find_docket(Some(&path)).expect("is there"), path);
    }

    #[test]
    fn log_tail_is_one_short_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        assert_eq!(log_tail(&log), "");
        fs::write(&log, format!("{}\nthe\n  end\n", "x".repeat(2 * QUOTED_CHARS_MAX))).expect("written");
        let tail = log_tail(&log);
        assert!(tail.ends_with("x the end") && tail.chars().count() == QUOTED_CHARS_MAX, "{tail}");
    }
}
