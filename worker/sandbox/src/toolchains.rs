//! Finds tools installed below a person's home or at their variables' paths, and selects what a command may
//! see: programs and fetched sources, never the credentials next to them.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{
    host::workspace_owner,
    plan::{INNER_HOME, MountEntry},
};

/// Variables with which people move their tool folders. A program that starts another program that creates a
/// sandbox must pass them on, or tools outside the home are not found. Commands never receive them unchanged.
pub const TOOL_HOME_VARIABLES: [&str; 6] =
    ["CARGO_HOME", "RUSTUP_HOME", "PYENV_ROOT", "NVM_DIR", "VOLTA_HOME", "GOPATH"];

/// Default of each variable, relative to the home.
const DEFAULT_TOOL_HOMES: [&str; TOOL_HOME_VARIABLES.len()] =
    [".cargo", ".rustup", ".pyenv", ".nvm", ".volta", "go"];

/// Mounted in place: `~/.cargo/bin` without `~/.cargo/credentials.toml`, and so on.
const MOUNTED_IN_PLACE: [&str; 13] = [
    ".cargo/bin",
    ".pyenv/bin",
    ".pyenv/libexec",
    ".pyenv/plugins",
    ".pyenv/pyenv.d",
    ".pyenv/shims",
    ".pyenv/version",
    ".pyenv/versions",
    ".nvm/versions",
    ".volta/tools",
    "go/bin",
    "go/pkg/mod",
    ".local/share/uv/python",
];

/// cargo and rustup must write next to what they read, so these are mounted into folders of the
/// private home.
const MOUNTED_IN_INNER_HOME: [&str; 4] =
    [".cargo/registry", ".cargo/git", ".rustup/toolchains", ".rustup/settings.toml"];

/// Files that may hold a credential, by their path below one of the folders above or a system folder; `*` is
/// any single name. Those of `.cargo` itself are visible if all of it is in a system folder.
const CREDENTIAL_FILES: [(&str, &str); 16] = [
    (".cargo", "credentials"),
    (".cargo", "credentials.toml"),
    (".cargo", "config"),
    (".cargo", "config.toml"),
    (".nvm/versions", "node/*/etc/npmrc"),
    (".nvm/versions", "node/*/lib/node_modules/npm/npmrc"),
    (".volta/tools", "image/node/*/etc/npmrc"),
    (".pyenv/versions", "*/pip.conf"),
    (".pyenv/versions", "*/etc/pip.conf"),
    (".cargo/git", "db/*/FETCH_HEAD"),
    (".cargo/git", "db/*/config"),
    ("go/pkg/mod", "cache/vcs/*/config"),
    ("go/pkg/mod", "cache/vcs/*/FETCH_HEAD"),
    (".local/share/uv/python", "*/pip.conf"),
    ("/usr", "local/etc/*"),
    ("/usr", "etc/npmrc"),
];

/// The locations of this host's tools.
#[derive(Debug, Clone)]
pub(super) struct HostToolchains {
    home: Option<PathBuf>,
    custom_homes: Vec<(&'static str, PathBuf)>,
}

impl HostToolchains {
    /// Reads the locations from an environment.
    pub(super) fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        // GOPATH may be a list; fetched sources go into its first folder.
        let whole = |name| std::env::split_paths(&variable(name)?).next().filter(|path| path.is_absolute());
        let home = whole("HOME");
        // A folder that contains the home is not a tool's own: its `bin` is a person's.
        let is_own = |path: &PathBuf| home.as_ref().is_none_or(|home| !home.starts_with(path));
        let moved = TOOL_HOME_VARIABLES.iter().zip(DEFAULT_TOOL_HOMES);
        let moved = moved.filter_map(|(variable, name)| Some((name, whole(variable).filter(is_own)?)));
        let moved = moved.collect();
        Self { home, custom_homes: moved }
    }

    /// Returns the actual location of a folder with this name below a home.
    pub(super) fn locate_folder(&self, name: &str) -> Option<PathBuf> {
        let moved = self.custom_homes.iter().find_map(|(root, path)| {
            let rest = name.strip_prefix(root)?;
            if rest.is_empty() { Some(path.clone()) } else { Some(path.join(rest.strip_prefix('/')?)) }
        });
        moved.or_else(|| self.home.as_ref().map(|home| home.join(name)))
    }

    /// Mounts what exists and is readable for the command's user, with an empty file over each credential.
    pub(super) fn add_mounts(&self, entries: &mut Vec<MountEntry>) {
        let mut seen: Vec<(&str, PathBuf, PathBuf)> = Vec::new();
        let in_place = MOUNTED_IN_PLACE.iter().map(|name| (*name, None));
        let relocated =
            MOUNTED_IN_INNER_HOME.iter().map(|name| (*name, Some(Path::new(INNER_HOME).join(name))));
        for (name, target) in in_place.chain(relocated) {
            let Some(source) = self.locate_folder(name).filter(|source| is_readable_by_commands(source))
            else {
                continue;
            };
            let target = target.unwrap_or_else(|| source.clone());
            if !is_mounted(&target, entries) {
                entries.push(MountEntry::ReadOnly { source: source.clone(), target: target.clone() });
            }
            seen.push((name, source, target));
        }
        // A folder inside a system folder is visible there as well.
        for name in [".cargo", ".cargo/git"] {
            if let Some(path) = self.locate_folder(name).filter(|path| is_mounted(path, entries)) {
                seen.push((name, path.clone(), path));
            }
        }
        seen.push(("/usr", "/usr".into(), "/usr".into()));
        for target in find_credentials(&seen) {
            entries.push(MountEntry::Empty { target });
        }
    }
}

/// Finds files that hold a credential, by their path inside. A folder is its name, its location on the host,
/// and its mount point.
fn find_credentials(folders: &[(&str, PathBuf, PathBuf)]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for (name, source, target) in folders {
        for (_, below) in CREDENTIAL_FILES.iter().filter(|(folder, _)| folder == name) {
            let mut paths = vec![PathBuf::new()];
            for part in below.split('/') {
                paths = paths.into_iter().flat_map(|path| expand_path_part(source, &path, part)).collect();
            }
            let files = paths.into_iter().filter(|path| {
                fs::symlink_metadata(source.join(path)).is_ok_and(|meta| meta.is_file())
                    && path.to_str().is_some()
            });
            found.extend(files.map(|path| target.join(path)));
        }
    }
    found
}

/// Expands `part` to paths in a folder.
fn expand_path_part(root: &Path, folder: &Path, part: &str) -> Vec<PathBuf> {
    if part != "*" {
        return vec![folder.join(part)];
    }
    let entries = fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
    entries.map(|entry| folder.join(entry.file_name())).collect()
}

fn is_readable_by_commands(path: &Path) -> bool {
    let Ok(meta) = fs::symlink_metadata(path) else { return false };
    let others_may = meta.mode() & 0o004 != 0;
    path.to_str().is_some() && !meta.is_symlink() && (workspace_owner().is_none() || others_may)
}

/// Returns whether a host path is visible inside under the same path.
pub(super) fn is_mounted(path: &Path, entries: &[MountEntry]) -> bool {
    entries.iter().any(|entry| match entry {
        MountEntry::ReadOnly { target, .. } => path.starts_with(target),
        MountEntry::Link { target, .. } => path == target,
        MountEntry::Writable { .. }
        | MountEntry::Tmpfs { .. }
        | MountEntry::Device { .. }
        | MountEntry::File { .. }
        | MountEntry::Empty { .. } => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a host with these files below a folder.
    fn fake_host(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "token").unwrap();
        }
        folder
    }

    fn mounted_paths(entries: &[MountEntry]) -> Vec<(&Path, &Path)> {
        let laid = entries.iter().filter_map(|entry| match entry {
            MountEntry::ReadOnly { source, target } => Some((source.as_path(), target.as_path())),
            _ => None,
        });
        laid.collect()
    }

    fn emptied_paths(entries: &[MountEntry]) -> Vec<&Path> {
        let empty = entries.iter().filter_map(|entry| match entry {
            MountEntry::Empty { target } if !target.starts_with("/usr") => Some(target.as_path()),
            _ => None,
        });
        empty.collect()
    }

    #[test]
    fn tools_below_home_are_mounted_without_credentials() {
        let files = [
            ".nvm/versions/node/v20/etc/npmrc",
            ".pyenv/versions/3.11/pip.conf",
            ".cargo/git/db/x-1/FETCH_HEAD",
            ".cargo/credentials.toml",
            ".cargo/bin/cargo",
        ];
        let host = fake_host(&files);
        let tools = HostToolchains::from_environment(|name| (name == "HOME").then(|| host.path().into()));
        let mut entries = Vec::new();
        tools.add_mounts(&mut entries);
        let at = |path: &str| host.path().join(path);
        let git = Path::new(INNER_HOME).join(".cargo/git");
        let want = [".cargo/bin", ".pyenv/versions", ".nvm/versions"].map(at);
        let mut want: Vec<_> = want.iter().map(|path| (path.as_path(), path.as_path())).collect();
        let source = at(".cargo/git");
        want.push((&source, &git));
        assert_eq!(mounted_paths(&entries), want);
        let [npm, pip, head] = [at(files[0]), at(files[1]), git.join("db/x-1/FETCH_HEAD")];
        assert_eq!(emptied_paths(&entries), [&pip, &npm, &head]);
    }

    #[test]
    fn tools_elsewhere_are_found_by_environment_variables() {
        let files = [
            "rust/cargo/bin/cargo",
            "rust/cargo/registry/index/x",
            "rust/rustup/toolchains/1/bin/rustc",
            "rust/rustup/settings.toml",
            "python/versions/3.11/pip.conf",
            "gone/bin/x",
            "home/.cargo/bin/old",
        ];
        let host = fake_host(&files);
        let at = |path: &str| host.path().join(path);
        let variables = [
            ("HOME", at("home")),
            ("CARGO_HOME", at("rust/cargo")),
            ("RUSTUP_HOME", at("rust/rustup")),
            ("PYENV_ROOT", at("python")),
            ("GOPATH", format!("{}:{}", at("gone").display(), at("home").display()).into()),
            ("NVM_DIR", "relative".into()),
            ("VOLTA_HOME", at("home")),
        ];
        let tools = HostToolchains::from_environment(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, path)| path.clone().into_os_string())
        });
        assert_eq!(tools.locate_folder(".nvm/versions"), Some(at("home/.nvm/versions")));
        assert_eq!(tools.locate_folder(".volta/tools"), Some(at("home/.volta/tools")));
        assert_eq!(tools.locate_folder(".cargo"), Some(at("rust/cargo")));
        let mut entries = Vec::new();
        tools.add_mounts(&mut entries);
        let inner = |name: &str| Path::new(INNER_HOME).join(name);
        let want = [
            (at("rust/cargo/bin"), at("rust/cargo/bin")),
            (at("python/versions"), at("python/versions")),
            (at("gone/bin"), at("gone/bin")),
            (at("rust/cargo/registry"), inner(".cargo/registry")),
            (at("rust/rustup/toolchains"), inner(".rustup/toolchains")),
            (at("rust/rustup/settings.toml"), inner(".rustup/settings.toml")),
        ];
        let want: Vec<_> = want.iter().map(|(from, to)| (from.as_path(), to.as_path())).collect();
        assert_eq!(mounted_paths(&entries), want);
        assert_eq!(emptied_paths(&entries), [at("python/versions/3.11/pip.conf")]);
    }

    /// As in Rust images: cargo's folder is inside one that is mounted whole.
    #[test]
    fn credentials_in_system_folders_are_hidden() {
        let files =
            ["system/cargo/credentials.toml", "system/cargo/git/db/x-1/config", "system/cargo/bin/cargo"];
        let host = fake_host(&files);
        let system = host.path().join("system");
        let tools = HostToolchains::from_environment(|name| {
            (name == "CARGO_HOME").then(|| system.join("cargo").into())
        });
        let mut entries = vec![MountEntry::ReadOnly { source: system.clone(), target: system.clone() }];
        tools.add_mounts(&mut entries);
        let git = system.join("cargo/git");
        let inner = Path::new(INNER_HOME).join(".cargo/git");
        assert_eq!(mounted_paths(&entries), [(&*system, &*system), (&git, &inner)]);
        let hidden = [
            inner.join("db/x-1/config"),
            system.join("cargo/credentials.toml"),
            system.join("cargo/git/db/x-1/config"),
        ];
        assert_eq!(emptied_paths(&entries), hidden);
    }
}
