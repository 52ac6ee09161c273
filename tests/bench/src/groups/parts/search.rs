//! `search_codebase` compared with ripgrep, alternating, on a tree of source text.
//!
//! Both read every file and find the same lines. Process start is excluded on both sides: the tool runs in
//! this process, and ripgrep's time in an empty folder is subtracted. ripgrep runs at full speed, on all
//! processors and unsorted; the tool sorts.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use docket_worker::{
    process::{TrustedSpec, run_trusted},
    tools::{
        self, CommandOutput, CommandRunner, CommandSpec, FullOutputs, NoMemory, ReadSet, RunnerError,
        ToolContext, ToolSettings,
    },
};
use futures_util::future::BoxFuture;
use serde_json::json;

use crate::report::{BenchReport, EffortLevel, FigureGroup, Samples};

const FILES_PER_FOLDER: usize = 20;
/// One in this many files contains the searched line.
const HIT_EVERY: usize = 50;
/// The first rounds load the page cache.
const WARM_UP_ROUNDS: usize = 2;
const SEARCH_REGEX: &str = r"fn needle_\d+\(";

pub(crate) async fn measure(
    folder: &Path,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let Some(rg) = find_ripgrep() else {
        report.set_rest_missing(FigureGroup::Search, "ripgrep (rg) is not installed");
        return Ok(());
    };
    let (tree, empty) = (folder.join("tree"), folder.join("empty"));
    let files = effort.searched_files();
    fs::create_dir_all(&empty)?;
    make_tree(&tree, files)?;
    let root = cap_std::fs::Dir::open_ambient_dir(&tree, cap_std::ambient_authority())?;
    let (mut own, mut others, mut starts) = (Samples::default(), Samples::default(), Samples::default());
    for round in 0..effort.searches() + WARM_UP_ROUNDS {
        let (mine, found) = search_with_tool(&root).await?;
        let (theirs, lines) = search_with_ripgrep(&rg, &tree).await?;
        let (start, nothing) = search_with_ripgrep(&rg, &empty).await?;
        ensure!(found == lines && nothing == 0, "the tool found {found} lines, ripgrep {lines}");
        ensure!(found == files.div_ceil(HIT_EVERY), "{found} lines in {files} files");
        if round >= WARM_UP_ROUNDS {
            own.push_ms(mine);
            others.push_ms(theirs.saturating_sub(start));
            starts.push_ms(start);
        }
    }
    report.set_percentile("search_ms_p50", &own, 50);
    report.set_percentile("search_rg_ms_p50", &others, 50);
    report.set_percentile("search_rg_start_ms_p50", &starts, 50);
    match (own.percentile(50), others.percentile(50)) {
        (Some(own), Some(other)) if other > 0.0 => report.set("search_rg_ratio", own / other),
        (_, _) => report.set_missing("search_rg_ratio", "ripgrep took no longer than in an empty folder"),
    }
    Ok(())
}

/// Finds ripgrep in the PATH.
fn find_ripgrep() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("rg")).find(|file| file.is_file())
}

/// Creates files of a few hundred lines, like a source tree.
fn make_tree(tree: &Path, files: usize) -> anyhow::Result<()> {
    for file in 0..files {
        let folder = tree.join(format!("area_{:02}/part_{:03}", file % 17, file / FILES_PER_FOLDER));
        let line = |n: usize| format!("    let value_{n} = other(needle, {file}) + {n}; // as before\n");
        let mut text: String = (0..60 + file % 80).map(line).collect();
        if file % HIT_EVERY == 0 {
            text.push_str(&format!("fn needle_{file}() {{}}\n"));
        }
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("file_{file:05}.rs")), text)?;
    }
    fs::write(tree.join(".gitignore"), "target/\n*.log\n")?;
    Ok(())
}

/// Returns the tool's time and the number of lines found.
async fn search_with_tool(root: &cap_std::fs::Dir) -> anyhow::Result<(Duration, usize)> {
    let (read_set, settings) = (ReadSet::new(), ToolSettings::default());
    let (outputs, base) = (FullOutputs::new(), tools::BaseView::default());
    let context = ToolContext {
        root,
        runner: &NoRunner,
        read_set: &read_set,
        settings: &settings,
        test_runner: None,
        outputs: &outputs,
        base: &base,
        memory: &NoMemory,
        call: None,
    };
    let args = json!({ "regex": SEARCH_REGEX, "max_results": 500 });
    let started = Instant::now();
    let outcome = tools::execute_tool(context, "search_codebase", &args).await;
    let took = started.elapsed();
    let text = String::from_utf8_lossy(&outcome.content);
    ensure!(!outcome.is_error, "the search fails: {text}");
    Ok((took, text.lines().count()))
}

async fn search_with_ripgrep(rg: &Path, folder: &Path) -> anyhow::Result<(Duration, usize)> {
    let args =
        ["--no-config", "--no-heading", "--line-number", "--color=never", "--crlf", "--no-require-git"];
    let args = args.into_iter().chain(["--no-ignore-parent", "--no-ignore-global", "-e", SEARCH_REGEX, "."]);
    let spec = TrustedSpec {
        program: rg.to_owned(),
        args: args.map(OsString::from).collect(),
        cwd: folder.to_owned(),
        env: Vec::new(),
        stdin: Vec::new(),
        timeout: Duration::from_secs(30),
        stdout_bytes_max: 1024 * 1024,
    };
    let started = Instant::now();
    let output = run_trusted(spec).await.context("rg does not start")?;
    let took = started.elapsed();
    Ok((took, output.stdout.iter().filter(|byte| **byte == b'\n').count()))
}

/// A search runs no commands.
struct NoRunner;

impl CommandRunner for NoRunner {
    fn run(&self, _: CommandSpec) -> BoxFuture<'_, Result<CommandOutput, RunnerError>> {
        Box::pin(async { Err(RunnerError::from_host_fault("no command is run here")) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_matching_line_is_found() {
        let temp = tempfile::tempdir().expect("temporary folder");
        make_tree(temp.path(), 120).expect("makes");
        let root =
            cap_std::fs::Dir::open_ambient_dir(temp.path(), cap_std::ambient_authority()).expect("opens");
        assert_eq!(search_with_tool(&root).await.expect("searches").1, 3);
    }
}
