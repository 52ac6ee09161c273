//! Rules of the house that a compiler does not know: who may know whom, where SQL and processes
//! live, how long a file may be. Each rule reads the tree as it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use docket_tests::{
    docs::{MarkdownPages, broken_links},
    source_structure,
};

/// Lines of a file without its tests.
const FILE_LINES_MAX: usize = 800;
/// Files above the limit, with the length they may have. This list may only shrink.
const LONG_FILES: &[(&str, usize)] = &[];

/// The folders of the product's crates, wherever in them a crate is nested.
const PRODUCT: [&str; 3] = ["schema", "coordinator", "worker"];
/// The folders of the tests' own code.
const TESTS: [&str; 4] = ["tests/src", "tests/tests", "tests/bench/src", "tests/bench/tests"];

pub(crate) fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's root").to_owned()
}

pub(crate) fn read_sources(under: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![repository_root().join(under)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the tree").flatten() {
            let path = entry.path();
            if path.is_dir() {
                let is_built = entry.file_name() == "target" || entry.file_name() == "node_modules";
                folders.extend((!is_built).then_some(path));
            } else if path.extension().is_some_and(|end| end == "rs") {
                let name =
                    path.strip_prefix(repository_root()).expect("under the root").display().to_string();
                found.push((name, fs::read_to_string(&path).expect("UTF-8 source")));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no source under {under}");
    found
}

/// The source without what only tests compile: inline test modules and files named after tests.
fn without_tests(sources: Vec<(String, String)>) -> Vec<(String, String)> {
    let cut = |text: String| match text.find("#[cfg(test)]\nmod tests {") {
        Some(at) => text[..at].to_owned(),
        None => text,
    };
    sources
        .into_iter()
        .filter(|(name, _)| !source_structure::is_test_file(name))
        .map(|(name, text)| (name, cut(text)))
        .collect()
}

/// Lines that hold `word` outside comments.
fn lines_containing<'a>(text: &'a str, word: &str) -> Vec<(usize, &'a str)> {
    let code = |line: &&str| !line.trim_start().starts_with("//");
    text.lines()
        .enumerate()
        .filter(|(_, line)| code(line) && line.contains(word))
        .map(|(n, l)| (n + 1, l))
        .collect()
}

fn assert_none(rule: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

fn find_words(sources: &[(String, String)], words: &[&str], except: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in sources {
        if except.iter().any(|allowed| name.starts_with(allowed)) {
            continue;
        }
        for word in words {
            found.extend(
                lines_containing(text, word)
                    .into_iter()
                    .map(|(n, line)| format!("{name}:{n}: {}", line.trim())),
            );
        }
    }
    found
}

#[test]
fn schema_depends_on_no_other_crate_and_does_no_io() {
    let words =
        ["docket_worker", "docket_coordinator", "tokio", "std::fs", "std::net", "std::process", "::now("];
    assert_none("the schema is pure", find_words(&without_tests(read_sources("schema")), &words, &[]));
}

#[test]
fn engines_and_queue_decisions_are_pure() {
    let words =
        ["async ", ".await", "::now(", "rand::", "std::fs", "tracing::", "sqlx", "reqwest", "clock::"];
    for place in ["worker/src/engine", "coordinator/src/decide", "worker/edit/src"] {
        let except = ["worker/edit/src/jsonl.rs"];
        assert_none(
            "no clock, randomness, IO or logging in a decision",
            find_words(&without_tests(read_sources(place)), &words, &except),
        );
    }
}

#[test]
fn sql_is_in_the_store_only() {
    let words = ["SELECT ", "INSERT INTO", "DELETE FROM", "sqlx::"];
    let except = ["coordinator/src/store/"];
    assert_none(
        "SQL outside store/",
        find_words(&without_tests(read_sources("coordinator")), &words, &except),
    );
}

/// A number with two purposes is a deadlock that PostgreSQL does not detect.
#[test]
fn advisory_locks_are_named_only_in_their_table() {
    const TABLE: &str = "coordinator/src/store/db/advisory_locks.rs";
    let plain = |text: &str| text.replace('_', "");
    let table = fs::read_to_string(repository_root().join(TABLE)).expect("the table of advisory locks");
    let table = without_tests(vec![(TABLE.to_owned(), table)]).remove(0).1;
    let numbers: Vec<String> = table
        .split("number: ")
        .filter_map(|rest| rest.split(&[',', ' '][..]).next())
        .map(plain)
        .filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
        .collect();
    assert!(numbers.len() >= 3, "numbers are read from the table: {numbers:?}");
    let distinct: BTreeSet<&String> = numbers.iter().collect();
    assert_eq!(distinct.len(), numbers.len(), "two locks have one number: {numbers:?}");
    // Put together, so that this file does not name them itself.
    let functions = ["pg_adv", "pg_try_adv"].map(|start| plain(&format!("{start}isory_")));
    let words: Vec<&str> = numbers.iter().chain(&functions).map(String::as_str).collect();
    let mut found = Vec::new();
    for place in ["schema", "coordinator", "worker", "tests"] {
        let texts: Vec<_> =
            read_sources(place).into_iter().map(|(name, text)| (name, plain(&text))).collect();
        found.extend(find_words(&texts, &words, &[TABLE]));
    }
    let migrations = docket_schema::migrations::POSTGRES.iter();
    let texts: Vec<_> = migrations.map(|step| (step.name.to_owned(), plain(step.sql))).collect();
    found.extend(find_words(&texts, &words, &[]));
    assert_none("an advisory lock is named in advisory_locks.rs alone", found);
}

#[test]
fn processes_are_started_in_two_places() {
    let except = ["worker/sandbox/", "worker/src/process/"];
    let found =
        find_words(&without_tests(read_sources("worker")), &[" Command::new", "::Command::new"], &except);
    assert_none("processes are started in worker/sandbox and worker/src/process", found);
    let found = find_words(&without_tests(read_sources("coordinator")), &["Command::new"], &[]);
    let own = |line: &String| !line.contains("clap") && !line.contains("CommandFactory");
    assert_none("the coordinator starts no process", found.into_iter().filter(own).collect());
}

#[test]
fn files_stay_within_the_line_limit() {
    // The code that supports tests is held to the same limit.
    let of_tests = ["tests/src", "tests/bench/src"].into_iter().flat_map(read_sources);
    let of_tests = of_tests.filter(|(name, _)| !name.ends_with("tests.rs"));
    let all: Vec<_> =
        PRODUCT.into_iter().flat_map(|place| without_tests(read_sources(place))).chain(of_tests).collect();
    let allowed: BTreeMap<&str, usize> = LONG_FILES.iter().copied().collect();
    let mut found = Vec::new();
    for (name, text) in &all {
        let lines = text.lines().count();
        let limit = allowed.get(name.as_str()).copied().unwrap_or(FILE_LINES_MAX);
        if lines > limit {
            found.push(format!("{name}: {lines} lines, at most {limit}"));
        }
    }
    for (name, limit) in &allowed {
        let lines = all.iter().find(|(n, _)| n == name).map_or(0, |(_, text)| text.lines().count());
        if lines < *limit {
            found.push(format!("{name} has {lines} lines now: lower its entry or take it out of the list"));
        }
    }
    assert_none("files that ask for a cut", found);
}

#[test]
fn every_file_has_a_module_comment() {
    let mut found = Vec::new();
    for place in PRODUCT.into_iter().chain(TESTS) {
        for (name, text) in read_sources(place) {
            if !text.starts_with("//!") {
                found.push(name);
            }
        }
    }
    assert_none("files without a `//!` head", found);
}

#[test]
fn no_test_is_ignored() {
    let mut found = Vec::new();
    for place in PRODUCT.into_iter().chain(TESTS) {
        found.extend(find_words(&read_sources(place), &[concat!("#[", "ignore")], &[]));
    }
    assert_none("ignored tests", found);
}

/// The words of the states are the same in Rust, in SQL and in the documents.
#[test]
fn states_have_the_same_names_in_rust_sql_and_docs() {
    const LEASES_PAGE: &str = "coordinator/docs/architecture/leases.md";
    let read = |path: &str| fs::read_to_string(repository_root().join(path)).expect(path);
    let folder = |path: &str| -> String {
        let mut text = String::new();
        for entry in fs::read_dir(repository_root().join(path)).expect(path).flatten() {
            text.push_str(&fs::read_to_string(entry.path()).expect("a migration"));
        }
        text
    };
    let places = [
        (LEASES_PAGE, read(LEASES_PAGE)),
        ("schema/migrations/sqlite", folder("schema/migrations/sqlite")),
        ("schema/migrations/postgres", folder("schema/migrations/postgres")),
    ];
    use docket_schema::task::TaskState;
    for (name, text) in &places {
        for state in TaskState::ALL {
            assert!(text.contains(state.as_str()), "{name} does not name the state `{state}`");
        }
    }
}

/// Pages for contributors stay short; details belong under `coordinator/docs/architecture/`.
#[test]
fn contributor_docs_are_short() {
    for (name, max) in [("ARCHITECTURE.md", 120), ("CONTRIBUTING.md", 200)] {
        let lines = fs::read_to_string(repository_root().join(name)).expect(name).lines().count();
        assert!(lines <= max, "{name} has {lines} lines, at most {max}");
    }
}

/// Full paths that pages for contributors name in backticks exist.
#[test]
fn paths_in_contributor_docs_exist() {
    let mut pages = vec![PathBuf::from("ARCHITECTURE.md"), PathBuf::from("CONTRIBUTING.md")];
    let folder = repository_root().join("coordinator/docs/architecture");
    pages.extend(fs::read_dir(folder).expect("the pages").flatten().map(|entry| entry.path()));
    let mut missing = Vec::new();
    for page in pages {
        let text = fs::read_to_string(repository_root().join(&page)).expect("a page");
        for code in text.split('`').skip(1).step_by(2) {
            let is_path =
                ["schema/", "coordinator/", "worker/", "tests/"].iter().any(|top| code.starts_with(top))
                    && !code.contains(['{', ' ', '\n'])
                    && !code.contains("RELEASE");
            if is_path && !repository_root().join(code).exists() {
                missing.push(format!("{}: {code}", page.display()));
            }
        }
    }
    assert_none("paths that do not exist", missing);
}

/// Every link of every Markdown file leads to a file that is there, and to a heading in it.
#[test]
fn markdown_links_resolve() {
    // What is built or installed is not the project's.
    const LEFT_OUT: [&str; 2] = ["target", "node_modules"];
    let mut pages = MarkdownPages::new();
    let mut folders = vec![repository_root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the tree").flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && !LEFT_OUT.contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|end| end == "md") {
                let from_root = path.strip_prefix(repository_root()).expect("under the root").to_owned();
                pages.insert(from_root, fs::read_to_string(&path).expect("UTF-8 text"));
            }
        }
    }
    assert!(pages.len() > 20, "{} pages", pages.len());
    assert_none(
        "links that lead nowhere",
        broken_links(&pages, |path| repository_root().join(path).exists()),
    );
}
