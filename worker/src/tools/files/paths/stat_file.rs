//! `stat_file`: describes the entry at a path. It shows no times, because those change when a workspace is restored.

use cap_std::fs::{FileTypeExt as _, MetadataExt as _};
use docket_schema::content::WorkspacePath;
use schemars::JsonSchema;
use serde::Deserialize;

use super::path_operations;
use crate::calls::parse_workspace_path;
use crate::{
    project::config_files::is_config_file,
    tools::{
        context::tool_context::{ToolContext, ToolOutcome},
        file_access::{
            files::{FILE_BYTES_MAX, format_size, load_file, os_path},
            path_suggestions,
        },
        text::encoding::{FileContent, classify_content},
    },
};

pub(crate) const NAME: &str = "stat_file";
pub(crate) const DESCRIPTION: &str = "Says what stands under a path: file, folder or link, its size, mode and \
    lines, and whether this run has read it as it is now.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatFileArgs {
    /// The path, relative to the workspace.
    path: String,
}

pub(crate) fn run(context: ToolContext<'_>, args: &StatFileArgs) -> ToolOutcome {
    describe_path(context, args).map_or_else(|text| ToolOutcome::error(NAME, text), ToolOutcome::ok)
}

fn describe_path(context: ToolContext<'_>, args: &StatFileArgs) -> Result<String, String> {
    let path = parse_workspace_path(&args.path).map_err(|error| error.to_string())?;
    let meta = path_operations::metadata_allow_git(context.root, &path)
        .map_err(|error| path_suggestions::format_file_error(context.root, &error))?;
    let mode = meta.mode() & 0o7777;
    let kind = meta.file_type();
    if kind.is_symlink() {
        let target = context.root.read_link_contents(os_path(&path));
        let target = target.map_or_else(|_| "?".to_owned(), |target| target.to_string_lossy().into_owned());
        let leads = match context.root.metadata(os_path(&path)) {
            Ok(meta) if meta.is_dir() => "a folder of the workspace",
            Ok(_) => "a file of the workspace",
            Err(_) => "nothing in the workspace",
        };
        return Ok(format!("{path}: a symbolic link to `{target}`, {leads}"));
    }
    if kind.is_dir() {
        let entries = context.root.read_dir(os_path(&path)).map_err(|error| format!("`{path}`: {error}"))?;
        return Ok(format!("{path}: a folder, mode {mode:04o}, {} names in it", entries.count()));
    }
    if !kind.is_file() {
        let what = if kind.is_fifo() { "a named pipe" } else { "a special file" };
        return Ok(format!("{path}: {what}, mode {mode:04o}"));
    }
    let mut text =
        format!("{path}: a file of {} ({} bytes), mode {mode:04o}", format_size(meta.len()), meta.len());
    if meta.nlink() > 1 {
        text.push_str(&format!(", with {} names (hard links): file tools do not read it", meta.nlink()));
    } else if meta.len() > FILE_BYTES_MAX {
        text.push_str(", too large to be held whole");
    } else {
        text.push_str(&describe_content(context, &path)?);
    }
    if is_config_file(&path) {
        text.push_str("\nIt configures the project: its lines are changed, it is never replaced whole.");
    }
    Ok(text)
}

fn describe_content(context: ToolContext<'_>, path: &WorkspacePath) -> Result<String, String> {
    let loaded = load_file(context.root, path).map_err(|error| error.to_string())?;
    let what = match classify_content(&loaded.bytes) {
        FileContent::Text(text, _) => format!(", {} lines", text.lines().count()),
        FileContent::Binary(kind) => format!(", {kind}"),
    };
    let read = match context.read_set.get(path) {
        None => "not read in this run",
        Some(hash) if *hash == loaded.hash => "read in this run as it is",
        Some(_) => "changed since this run read it",
    };
    Ok(format!("{what}, {read}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::testing::TestWorkspace;

    #[test]
    fn each_kind_of_entry_is_described() {
        let mut w = TestWorkspace::new(&[("a.txt", "1\n2\n"), ("d/x", ""), ("package.json", "{}")]);
        w.set_mode("a.txt", 0o644);
        w.create_link("in", "a.txt");
        w.create_link("out", "/etc/passwd");
        w.create_link("loop", "loop");
        nix::unistd::mkfifo(&w.full_path("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("fifo");
        w.write_file("bin", b"\0\0");
        std::fs::File::create(w.full_path("huge")).expect("made").set_len(FILE_BYTES_MAX + 1).expect("grows");
        std::fs::hard_link(w.full_path("d/x"), w.full_path("d/y")).expect("links");
        let mut told = |path: &str| w.call_tool(NAME, json!({"path": path})).text().into_owned();
        assert_eq!(
            told("./a.txt"),
            "a.txt: a file of 4 B (4 bytes), mode 0644, 2 lines, not read in this run"
        );
        assert!(told("d").ends_with("2 names in it"));
        assert!(told("in").ends_with("`a.txt`, a file of the workspace"));
        assert!(told("out").ends_with("`/etc/passwd`, nothing in the workspace"));
        assert!(told("loop").ends_with("nothing in the workspace"));
        assert!(told("pipe").contains("a named pipe"));
        assert!(told("bin").contains("a binary file"));
        assert!(told("huge").contains("too large to be held whole"));
        assert!(told("d/x").contains("2 names (hard links)"));
        assert!(told("package.json").contains("configures the project"));
        for (path, want) in [
            ("absent", "does not exist"),
            ("out/x", "link"),
            ("../x", "not a path"),
            ("a.txt/x", "link, or lies"),
        ] {
            assert!(told(path).contains(want), "{path}: {}", told(path));
        }
        w.call_tool("read_file", json!({"path": "a.txt"}));
        assert!(w.call_tool(NAME, json!({"path": "a.txt"})).text().ends_with("read in this run as it is"));
        w.write_file("a.txt", "3\n");
        assert!(
            w.call_tool(NAME, json!({"path": "a.txt"})).text().ends_with("changed since this run read it")
        );
    }
}
