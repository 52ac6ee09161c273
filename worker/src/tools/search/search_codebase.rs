//! `search_codebase`: finds lines that match a regular expression, using ripgrep's libraries.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use cap_std::fs::Dir;
use docket_schema::content::WorkspacePath;
use grep::{
    matcher::{LineTerminator, Matcher as _},
    regex::{RegexMatcher, RegexMatcherBuilder},
    searcher::{BinaryDetection, Searcher, SearcherBuilder, sinks},
};
use ignore::WalkState;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::policy::{AskVisibility, VisibilityFilter};

use crate::tools::{
    context::tool_context::{ToolContext, ToolOutcome},
    file_access::{
        files::{format_size, open_regular, os_path},
        walk::{FileGlob, walk_files},
    },
    files::read_file::NAME as READ_FILE,
    text::{
        encoding::decode_line,
        output::{cut_around, escape_hidden, printable_text},
    },
};

pub(crate) const NAME: &str = "search_codebase";
pub(crate) const DESCRIPTION: &str = "Searches the files of the workspace for a regular expression (Rust syntax, as in \
    ripgrep) and answers with `path:line: text`. Hidden files, binary files and what the ignore files name are \
    left out.";

/// Beginning of an answer without a hit.
pub const NO_MATCHES: &str = "no line matches";

/// Most characters shown of a matching line.
const LINE_CHARS_MAX: usize = 300;
const RESULTS_DEFAULT: u32 = 20;
/// Largest file that is searched, in bytes: it takes a few seconds.
const SEARCHED_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Most files in one search.
const FILES_MAX: usize = 2_000_000;
/// A file of up to this many bytes, in any encoding, never grows a searcher's buffer.
const BUFFER_BYTES: u64 = 16 * 1024;
/// Longest line that is searched, in bytes: it is held in memory.
const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchCodebaseArgs {
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

pub(crate) fn run(context: ToolContext<'_>, args: &SearchCodebaseArgs) -> ToolOutcome {
    match search_workspace(context, args) {
        Ok(text) => ToolOutcome::ok(text),
        Err(text) => ToolOutcome::error(NAME, text),
    }
}

fn search_workspace(context: ToolContext<'_>, args: &SearchCodebaseArgs) -> Result<String, String> {
    if args.regex.is_empty() {
        return Err("`regex` is empty: every line would match".to_owned());
    }
    let glob = args.file_glob.as_deref().map(|text| FileGlob::new("file_glob", text)).transpose()?;
    let limit = args.max_results.unwrap_or(RESULTS_DEFAULT) as usize;
    let search = WorkspaceSearch {
        root: context.root,
        matcher: build_matcher(&args.regex)?,
        glob,
        limit,
        hits: Mutex::new(SearchHits::default()),
        file_count: AtomicUsize::new(0),
        matching_count: AtomicUsize::new(0),
        oversized_count: AtomicUsize::new(0),
        visibility: context
            .settings
            .visibility
            .filter_for(&[NAME, READ_FILE], AskVisibility::HiddenByPathRules),
        hidden_count: AtomicUsize::new(0),
    };
    walk_files(context.root, || search.build_visitor());
    if search.file_count.into_inner() > FILES_MAX {
        return Err(format!(
            "the workspace has more than {FILES_MAX} files: search a folder of it by a command (rg, grep -rn)"
        ));
    }
    let matching = search.matching_count.into_inner();
    let mut text = format_hits(
        search.hits.into_inner().unwrap_or_else(PoisonError::into_inner),
        args,
        (limit, matching),
    );
    let large = format!("of more than {} were not searched", format_size(SEARCHED_BYTES_MAX));
    let unseen = "that policy keeps from being read were not searched".to_owned();
    for (files, left_out) in
        [(search.oversized_count.into_inner(), large), (search.hidden_count.into_inner(), unseen)]
    {
        if files > 0 {
            text = format!("{}\n[… files {left_out}: {files} …]\n", text.trim_end());
        }
    }
    Ok(text)
}

/// Built like ripgrep with `--crlf`: a line also ends before its carriage return, or `;$` would find nothing in files
/// with Windows line endings.
fn build_matcher(regex: &str) -> Result<RegexMatcher, String> {
    RegexMatcherBuilder::new()
        .multi_line(true)
        .crlf(true)
        .build(regex)
        .map_err(|error| format!("`regex` is not a regular expression: {error}"))
}

fn format_hits(hits: SearchHits, args: &SearchCodebaseArgs, (limit, matching): (usize, usize)) -> String {
    let more = hits.count > limit;
    let lines = hits.files.into_values().flatten().take(limit);
    let text: String = lines.map(|line| line + "\n").collect();
    match (&args.file_glob, more) {
        (Some(glob), _) if matching == 0 => format!(
            "{NO_MATCHES}, for no file has a name that matches {glob} (hidden and ignored ones are left out); a folder \
             is named as src/ or src/**"
        ),
        (Some(glob), _) if text.is_empty() => format!("{NO_MATCHES} in files that match {glob}"),
        (None, _) if text.is_empty() => NO_MATCHES.to_owned(),
        (_, false) => text,
        (_, true) => {
            text + &format!("[… more than {limit} matches: narrow the search or raise max_results …]\n")
        }
    }
}

/// A search running on several threads.
struct WorkspaceSearch<'a> {
    root: &'a Dir,
    matcher: RegexMatcher,
    glob: Option<FileGlob>,
    limit: usize,
    hits: Mutex<SearchHits>,
    file_count: AtomicUsize,
    /// Number of files that the glob matches.
    matching_count: AtomicUsize,
    oversized_count: AtomicUsize,
    /// The policy's filter for visible files.
    visibility: VisibilityFilter,
    /// Number of files hidden by policy.
    hidden_count: AtomicUsize,
}

/// Hits of the first files in path order, kept until they exceed the limit by at least one. So the answer does not
/// depend on which thread finds what first.
#[derive(Default)]
struct SearchHits {
    files: BTreeMap<SortedPath, Vec<String>>,
    count: usize,
}

/// A path that sorts like a walk: component by component.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SortedPath(Vec<Vec<u8>>);

impl SortedPath {
    fn from_path(path: &WorkspacePath) -> Self {
        Self(path.components().map(<[u8]>::to_vec).collect())
    }
}

impl SearchHits {
    /// Whether a file with this path could still add to the answer.
    fn can_add(&self, place: &SortedPath, limit: usize) -> bool {
        self.count <= limit || self.files.last_key_value().is_none_or(|(last, _)| place < last)
    }

    fn add(&mut self, place: SortedPath, lines: Vec<String>, limit: usize) {
        self.count += lines.len();
        self.files.insert(place, lines);
        while let Some(last) = self.files.last_entry() {
            if self.count - last.get().len() <= limit {
                return;
            }
            self.count -= last.remove().len();
        }
    }
}

impl WorkspaceSearch<'_> {
    fn build_visitor(&self) -> impl FnMut(WorkspacePath) -> WalkState + Send + '_ {
        let fresh = SearcherBuilder::new()
            .line_number(true)
            .line_terminator(LineTerminator::crlf())
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(LINE_BYTES_MAX))
            .build();
        let mut searcher = fresh.clone();
        move |path| {
            if self.file_count.fetch_add(1, Ordering::Relaxed) >= FILES_MAX {
                return WalkState::Quit;
            }
            if self.glob.as_ref().is_none_or(|glob| glob.is_match(&path)) {
                self.matching_count.fetch_add(1, Ordering::Relaxed);
                if !self.visibility.shows_everything() && !self.visibility.is_visible(&path.to_string()) {
                    self.hidden_count.fetch_add(1, Ordering::Relaxed);
                    return WalkState::Continue;
                }
                self.search_file(&fresh, &mut searcher, &path);
            }
            WalkState::Continue
        }
    }

    fn lock_hits(&self) -> MutexGuard<'_, SearchHits> {
        // A thread that panicked left only complete entries behind.
        self.hits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Searches a file with the reused searcher `used` if that makes no difference, otherwise with a copy of `fresh`.
    /// A searcher's buffer grows with a long line and stays large, and its size determines how much of a file is
    /// checked for NUL before lines are searched. Reusing it would make the result depend on the thread's earlier
    /// files.
    fn search_file(&self, fresh: &Searcher, used: &mut Searcher, path: &WorkspacePath) {
        let place = SortedPath::from_path(path);
        if !self.lock_hits().can_add(&place, self.limit) {
            // Oversized files are counted here too, so that the number does not depend on the order of the search.
            let meta = self.root.symlink_metadata(os_path(path));
            let is_large = meta.is_ok_and(|meta| meta.is_file() && meta.len() > SEARCHED_BYTES_MAX);
            self.oversized_count.fetch_add(usize::from(is_large), Ordering::Relaxed);
            return;
        }
        let Ok((file, meta)) = open_regular(self.root, path) else { return };
        if meta.len() > SEARCHED_BYTES_MAX {
            self.oversized_count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut found: Vec<String> = Vec::new();
        let name = printable_text(path.as_bytes()).replace('\n', "\\n");
        let sink = sinks::Bytes(|number, line| {
            // Escaped text may be longer than the searched line: then the excerpt starts earlier.
            let hit = self.matcher.find(line).ok().flatten().map_or(0, |hit| hit.start());
            let line = escape_hidden(decode_line(line).trim_end_matches(['\r', '\n']));
            found.push(format!("{name}:{number}: {}", cut_around(&line, hit, LINE_CHARS_MAX)));
            // One hit more than requested shows that there are more.
            Ok(found.len() <= self.limit)
        });
        // A file with a read error has contributed what was readable.
        if meta.len() > BUFFER_BYTES {
            fresh.clone().search_file(&self.matcher, &file.into_std(), sink).ok();
        } else {
            used.search_file(&self.matcher, &file.into_std(), sink).ok();
        }
        if !found.is_empty() {
            self.lock_hits().add(place, found, self.limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::PathVisibility;
    use crate::tools::testing::TestWorkspace;

    #[test]
    fn match_far_into_a_long_line_is_shown() {
        let long = format!(
            "{}é needle {}\nneedle at the begin {}\n",
            "x".repeat(900),
            "y".repeat(900),
            "z".repeat(900)
        );
        let mut w = TestWorkspace::new(&[("min.js", &long)]);
        let out = w.call_tool(NAME, json!({"regex": "needle"}));
        let lines: Vec<String> = out.text().lines().map(str::to_owned).collect();
        assert!(
            lines[0].starts_with("min.js:1: [827 characters] …xxx") && lines[0].contains("é needle yyy"),
            "{}",
            lines[0]
        );
        assert!(lines[0].ends_with("more characters]") && lines[0].chars().count() < 400);
        assert!(lines[1].starts_with("min.js:2: needle at the begin zzz"), "{}", lines[1]);
    }

    fn sample() -> TestWorkspace {
        let w = TestWorkspace::new(&[
            (".gitignore", "gen/\n"),
            ("src/b.rs", "fn find() {}\r\nlet x = find();\n"),
            ("src/a.py", "# find me\n"),
            ("gen/x.rs", "find\n"),
            (".hidden", "find\n"),
            (".git/config", "find\n"),
        ]);
        w.write_file("data.bin", b"find\0find\n");
        w.write_file("src/dos.txt", "x;\r\ny\r\n");
        w.write_file("latin.txt", b"find caf\xe9\n");
        w.create_link("away", "/etc/passwd");
        w
    }

    #[test]
    fn matches_are_sorted_by_path() {
        let out = sample().call_tool(NAME, json!({"regex": "find"}));
        let want = "latin.txt:1: find caf\u{e9}\nsrc/a.py:1: # find me\nsrc/b.rs:1: fn find() {}\n\
                    src/b.rs:2: let x = find();\n";
        assert_eq!(out.text(), want);
    }

    #[test]
    fn glob_and_limit_narrow_the_search() {
        let mut w = sample();
        let out = w.call_tool(NAME, json!({"regex": r"find\(", "file_glob": "*.rs", "max_results": 1}));
        assert_eq!(
            out.text(),
            "src/b.rs:1: fn find() {}\n[… more than 1 matches: narrow the search or raise max_results …]\n"
        );
        let out = w.call_tool(NAME, json!({"regex": "find", "file_glob": "src/*.py"}));
        assert_eq!(out.text(), "src/a.py:1: # find me\n");
        assert_eq!(w.call_tool(NAME, json!({"regex": "zzz"})).text(), "no line matches");
    }

    #[test]
    fn folder_glob_covers_its_contents_and_unmatched_glob_is_reported() {
        let mut w = sample();
        for glob in ["src", "src/", "./src/", "/workspace/src", "/workspace/src/*.py", "src/a.py"] {
            let out = w.call_tool(NAME, json!({"regex": "find me", "file_glob": glob}));
            assert_eq!(out.text(), "src/a.py:1: # find me\n", "{glob}");
        }
        let out = w.call_tool(NAME, json!({"regex": "find", "file_glob": "lib/"}));
        assert!(
            out.text().starts_with("no line matches, for no file has a name that matches lib/"),
            "{}",
            out.text()
        );
        let out = w.call_tool(NAME, json!({"regex": "zzz", "file_glob": "src/"}));
        assert_eq!(out.text(), "no line matches in files that match src/");
    }

    #[test]
    fn anchors_match_line_starts_and_ends() {
        let mut w = sample();
        assert_eq!(
            w.call_tool(NAME, json!({"regex": ";$", "file_glob": "*.txt"})).text(),
            "src/dos.txt:1: x;\n"
        );
        assert_eq!(w.call_tool(NAME, json!({"regex": "^y$"})).text(), "src/dos.txt:2: y\n");
        assert_eq!(w.call_tool(NAME, json!({"regex": "^let"})).text(), "src/b.rs:2: let x = find();\n");
    }

    #[test]
    fn results_do_not_depend_on_thread_order() {
        let mut w = TestWorkspace::new(&[]);
        for n in 0..300 {
            w.write_file(&format!("d{}/f{n:03}", n % 7), "match one\nno\nmatch two\n".repeat(n % 3));
        }
        let all = w.call_tool(NAME, json!({"regex": "match", "max_results": 500})).text().into_owned();
        let all: Vec<&str> = all.lines().take(500).collect();
        assert!(all.iter().map(|line| line.split_once(':').expect("a path").0).is_sorted());
        for limit in [1, 7, 20, 100] {
            for _ in 0..5 {
                let out = w.call_tool(NAME, json!({"regex": "match", "max_results": limit}));
                let text = out.text();
                assert_eq!(text.lines().take(limit).collect::<Vec<_>>(), all[..limit]);
                assert!(text.contains(&format!("[… more than {limit} matches")), "{text}");
            }
        }
    }

    #[test]
    fn oversized_files_are_reported_regardless_of_earlier_matches() {
        let mut w = TestWorkspace::new(&[("a", &"find\n".repeat(50))]);
        w.write_file("z/large", "");
        let large = std::fs::File::options().write(true).open(w.full_path("z/large")).expect("opens");
        large.set_len(SEARCHED_BYTES_MAX + 1).expect("a hole");
        for _ in 0..20 {
            let out = w.call_tool(NAME, json!({"regex": "find", "max_results": 1}));
            assert!(out.text().ends_with("1024.0 MiB were not searched: 1 …]\n"), "{}", out.text());
        }
    }

    #[test]
    fn files_hidden_by_policy_are_not_searched() {
        let policy = |tools: &str| {
            let rule = "[[rules]]\nid = \"s\"\nverdict = \"deny\"\npaths = [\"secrets/**\", \"*.key\"]\n";
            PathVisibility::new(&[
                crate::policy::parse_policy_text(&format!("{rule}{tools}")).expect("a policy")
            ])
        };
        let mut w = TestWorkspace::new(&[("a", "find\n"), ("b.key", "find\n"), ("secrets/c", "find\n")]);
        for tools in ["", "tools = [\"read_file\"]\n", "tools = [\"search_codebase\"]\n"] {
            w.settings.visibility = policy(tools);
            let out = w.call_tool(NAME, json!({"regex": "find"}));
            let told = "a:1: find\n[… files that policy keeps from being read were not searched: 2 …]\n";
            assert_eq!(out.text(), told, "{tools}");
        }
        w.settings.visibility = policy("tools = [\"edit_file\"]\n");
        assert_eq!(w.call_tool(NAME, json!({"regex": "find"})).text().lines().count(), 3);
    }

    #[test]
    fn long_lines_are_cut_and_invalid_patterns_are_explained() {
        let mut w = TestWorkspace::new(&[("a", &format!("find{}\n", "x".repeat(5000)))]);
        assert!(w.call_tool(NAME, json!({"regex": "find"})).content.len() < 400);
        let out = w.call_tool(NAME, json!({"regex": "a("}));
        assert!(out.is_error && out.text().contains("unclosed group"), "{}", out.text());
        assert!(w.call_tool(NAME, json!({"regex": "a\\nb"})).is_error);
        assert!(w.call_tool(NAME, json!({"regex": ""})).is_error);
    }
}
