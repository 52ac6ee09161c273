//! `stat_file`: what stands under a path. No times: those of a restored workspace are others.

use cap_std::fs::{FileTypeExt as _, MetadataExt as _};
use docket_schema::content::WorkPath;
use schemars::JsonSchema;
use serde::Deserialize;

use super::names;
use crate::calls::work_path;
use crate::{
    project::config_files::is_config,
    tools::{
        context::tool_context::{ToolContext, ToolOutcome},
        file_access::{
            files::{FILE_BYTES_MAX, load, os, size_text},
            near,
        },
        text::encoding::{Held, held},
    },
};

pub(crate) const NAME: &str = "stat_file";
pub(crate) const DESCRIPTION: &str = "Says what stands under a path: file, folder or link, its size, mode and \
    lines, and whether this run has read it as it is now.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    /// The path, relative to the workspace.
    path: String,
}

pub(crate) fn run(context: ToolContext<'_>, args: &Args) -> ToolOutcome {
    told(context, args).map_or_else(|text| ToolOutcome::error(NAME, text), ToolOutcome::ok)
}

fn told(context: ToolContext<'_>, args: &Args) -> Result<String, String> {
    let path = work_path(&args.path).map_err(|error| error.to_string())?;
    let meta = names::look_only(context.root, &path).map_err(|error| near::told(context.root, &error))?;
    let mode = meta.mode() & 0o7777;
    let kind = meta.file_type();
    if kind.is_symlink() {
        let target = context.root.read_link_contents(os(&path));
        let target = target.map_or_else(|_| "?".to_owned(), |target| target.to_string_lossy().into_owned());
        let leads = match context.root.metadata(os(&path)) {
            Ok(meta) if meta.is_dir() => "a folder of the workspace",
            Ok(_) => "a file of the workspace",
            Err(_) => "nothing in the workspace",
        };
        return Ok(format!("{path}: a symbolic link to `{target}`, {leads}"));
    }
    if kind.is_dir() {
        let entries = context.root.read_dir(os(&path)).map_err(|error| format!("`{path}`: {error}"))?;
        return Ok(format!("{path}: a folder, mode {mode:04o}, {} names in it", entries.count()));
    }
    if !kind.is_file() {
        let what = if kind.is_fifo() { "a named pipe" } else { "a special file" };
        return Ok(format!("{path}: {what}, mode {mode:04o}"));
    }
    let mut text =
        format!("{path}: a file of {} ({} bytes), mode {mode:04o}", size_text(meta.len()), meta.len());
    if meta.nlink() > 1 {
        text.push_str(&format!(", with {} names (hard links): file tools do not read it", meta.nlink()));
    } else if meta.len() > FILE_BYTES_MAX {
        text.push_str(", too large to be held whole");
    } else {
        text.push_str(&content(context, &path)?);
    }
    if is_config(&path) {
        text.push_str("\nIt configures the project: its lines are changed, it is never replaced whole.");
    }
    Ok(text)
}

fn content(context: ToolContext<'_>, path: &WorkPath) -> Result<String, String> {
    let loaded = load(context.root, path).map_err(|error| error.to_string())?;
    let what = match held(&loaded.bytes) {
        Held::Text(text, _) => format!(", {} lines", text.lines().count()),
        Held::Data(kind) => format!(", {kind}"),
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
    use crate::tools::testing::Workspace;

    #[test]
    fn each_kind_of_thing_is_told() {
        let mut w = Workspace::new(&[("a.txt", "1\n2\n"), ("d/x", ""), ("package.json", "{}")]);
        w.chmod("a.txt", 0o644);
        w.link("in", "a.txt");
        w.link("out", "/etc/passwd");
        w.link("loop", "loop");
        nix::unistd::mkfifo(&w.path("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("fifo");
        w.write("bin", b"\0\0");
        std::fs::File::create(w.path("huge")).expect("made").set_len(FILE_BYTES_MAX + 1).expect("grows");
        std::fs::hard_link(w.path("d/x"), w.path("d/y")).expect("links");
        let mut told = |path: &str| w.call(NAME, json!({"path": path})).text().into_owned();
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
        w.call("read_file", json!({"path": "a.txt"}));
        assert!(w.call(NAME, json!({"path": "a.txt"})).text().ends_with("read in this run as it is"));
        w.write("a.txt", "3\n");
        assert!(w.call(NAME, json!({"path": "a.txt"})).text().ends_with("changed since this run read it"));
    }
}
