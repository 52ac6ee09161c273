//! `search_codebase`: lines that match a regular expression, by ripgrep's own libraries.

use grep::{
    regex::RegexMatcherBuilder,
    searcher::{BinaryDetection, Searcher, SearcherBuilder, sinks},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    context::{ToolContext, ToolOutcome},
    files::{FILE_BYTES_MAX, open},
    output::{cut_line, printable},
    walk::{Hidden, PathGlob, walk},
};

pub(super) const NAME: &str = "search_codebase";
pub(super) const DESCRIPTION: &str = "Searches the files of the workspace for a regular expression (Rust syntax, as in \
    ripgrep) and answers with `path:line: text`. Hidden files, binary files and what the ignore files name are \
    left out.";

/// What an answer without a hit begins with.
pub const NO_HITS: &str = "no line matches";

/// Characters of a matching line that are shown.
const LINE_CHARS_MAX: usize = 300;
const RESULTS_DEFAULT: u32 = 20;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The regular expression; `(?i)` at its start ignores case.
    regex: String,
    /// Only files that this glob matches: `*.py` by name, `src/**/*.py` by path from the workspace.
    #[serde(default)]
    file_glob: Option<String>,
    /// Lines to show, 20 where it is left out.
    #[serde(default)]
    #[schemars(range(min = 1, max = 500))]
    max_results: Option<u32>,
}

pub(super) fn run(context: ToolContext<'_>, args: &Args) -> ToolOutcome {
    match search(context, args) {
        Ok(text) => ToolOutcome::ok(text),
        Err(text) => ToolOutcome::error(NAME, text),
    }
}

fn search(context: ToolContext<'_>, args: &Args) -> Result<String, String> {
    if args.regex.is_empty() {
        return Err("`regex` is empty: every line would match".to_owned());
    }
    let matcher = RegexMatcherBuilder::new()
        .line_terminator(Some(b'\n'))
        .build(&args.regex)
        .map_err(|error| format!("`regex` is not a regular expression: {error}"))?;
    let glob = args.file_glob.as_deref().map(|text| PathGlob::new("file_glob", text)).transpose()?;
    let limit = args.max_results.unwrap_or(RESULTS_DEFAULT) as usize;
    let mut searcher: Searcher =
        SearcherBuilder::new().line_number(true).binary_detection(BinaryDetection::quit(0)).build();
    let mut out: Vec<String> = Vec::new();
    for entry in walk(context.root, None, None, Hidden::Skip).map_err(|error| error.to_string())? {
        if entry.is_dir || entry.is_link || glob.as_ref().is_some_and(|glob| !glob.is_match(&entry.path)) {
            continue;
        }
        let Ok((file, meta)) = open(context.root, &entry.path) else { continue };
        if meta.len() > FILE_BYTES_MAX {
            continue;
        }
        let name = printable(entry.path.as_bytes()).replace('\n', "\\n");
        let found_before = out.len();
        let mut seen_binary = false;
        let sink = sinks::Lossy(|number, line| {
            seen_binary |= line.contains('\0');
            let line = printable(line.trim_end_matches(['\r', '\n']).as_bytes());
            out.push(format!("{name}:{number}: {}", cut_line(&line, LINE_CHARS_MAX)));
            // One more than asked for tells that there are more.
            Ok(out.len() <= limit)
        });
        // A file that cannot be read to its end has shown what could be read.
        searcher.search_file(&matcher, &file.into_std(), sink).ok();
        if seen_binary {
            out.truncate(found_before);
        }
        if out.len() > limit {
            break;
        }
    }
    if out.is_empty() {
        return Ok(match &args.file_glob {
            Some(glob) => format!("{NO_HITS} in files that match {glob}"),
            None => NO_HITS.to_owned(),
        });
    }
    let more = out.len() > limit;
    out.truncate(limit);
    let mut text = out.join("\n") + "\n";
    if more {
        text.push_str(&format!("[… more than {limit} matches: narrow the search or raise max_results …]\n"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::testing::Workspace, *};

    fn sample() -> Workspace {
        let w = Workspace::new(&[
            (".gitignore", "gen/\n"),
            ("src/b.rs", "fn find() {}\r\nlet x = find();\n"),
            ("src/a.py", "# find me\n"),
            ("gen/x.rs", "find\n"),
            (".hidden", "find\n"),
            (".git/config", "find\n"),
        ]);
        w.write("data.bin", b"find\0find\n");
        w.write("latin.txt", b"find caf\xe9\n");
        w.link("away", "/etc/passwd");
        w
    }

    #[test]
    fn matches_are_sorted_by_path() {
        let out = sample().call(NAME, json!({"regex": "find"}));
        let want = "latin.txt:1: find caf\u{fffd}\nsrc/a.py:1: # find me\nsrc/b.rs:1: fn find() {}\n\
                    src/b.rs:2: let x = find();\n";
        assert_eq!(out.text(), want);
    }

    #[test]
    fn a_glob_and_a_limit_narrow_it() {
        let mut w = sample();
        let out = w.call(NAME, json!({"regex": r"find\(", "file_glob": "*.rs", "max_results": 1}));
        assert_eq!(
            out.text(),
            "src/b.rs:1: fn find() {}\n[… more than 1 matches: narrow the search or raise max_results …]\n"
        );
        let out = w.call(NAME, json!({"regex": "find", "file_glob": "src/*.py"}));
        assert_eq!(out.text(), "src/a.py:1: # find me\n");
        assert_eq!(w.call(NAME, json!({"regex": "zzz"})).text(), "no line matches");
    }

    #[test]
    fn long_lines_are_cut_and_bad_patterns_explained() {
        let mut w = Workspace::new(&[("a", &format!("find{}\n", "x".repeat(5000)))]);
        assert!(w.call(NAME, json!({"regex": "find"})).content.len() < 400);
        let out = w.call(NAME, json!({"regex": "a("}));
        assert!(out.is_error && out.text().contains("unclosed group"), "{}", out.text());
        assert!(w.call(NAME, json!({"regex": "a\\nb"})).is_error);
        assert!(w.call(NAME, json!({"regex": ""})).is_error);
    }
}
