//! Which runner tests a project: found by what lies in its root, and by the scripts of its package.json.
//!
//! Gives shell lines; whether what they name is installed is known inside the sandbox only.

use cap_std::fs::Dir;

use super::{
    files::{load, work_path},
    output::printable,
    shell::quote,
    walk::{Hidden, walk},
};

/// Names looked at to find out whether there are tests of a language.
const LOOKED_AT_MAX: usize = 5000;

/// How pytest is told to say little. It stands over the project's own `-q` and `-v`, where `-q` adds to them: a
/// project's `-q` and another are one too many, and the counts are gone.
const PYTEST_ARGS: &str = "--verbosity=-1 -p no:cacheprovider";

/// pytest and unittest both end with 5 where they find no tests.
const NONE_COLLECTED: &str = "; s=$?; [ $s -eq 5 ] || exit $s";

/// Runners that are found by what lies in the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Cargo,
    Nextest,
    Go,
    /// The package's own script, and what it runs.
    Npm(Script),
    /// No script, but the runner itself.
    Bare(Script),
    Python,
    Make,
    Shell(&'static str),
}

/// What a script of package.json runs, as far as that can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    Vitest,
    Jest,
    Mocha,
    Node,
    Other,
}

impl Script {
    fn of(text: &str) -> Self {
        let has = |word: &str| text.contains(word);
        match () {
            () if has("vitest") => Self::Vitest,
            () if has("jest") => Self::Jest,
            () if has("mocha") => Self::Mocha,
            () if has("node --test") || has("node:test") => Self::Node,
            () => Self::Other,
        }
    }

    /// Arguments that run one file, or one test of it.
    fn args(self, path: &str) -> String {
        let Some((file, test)) = path.split_once("::") else { return quote(path) };
        let flag = match self {
            Self::Vitest | Self::Jest => "-t",
            Self::Mocha => "-g",
            // Node takes its flags before the files; a script's stand there already.
            Self::Node | Self::Other => return quote(file),
        };
        format!("{} {flag} {}", quote(file), quote(test))
    }

    fn bare(self) -> &'static str {
        match self {
            Self::Vitest => "vitest run",
            Self::Jest => "jest",
            Self::Mocha => "mocha",
            Self::Node | Self::Other => "node --test",
        }
    }
}

impl Found {
    /// The shell line; `path` as the model gave it.
    pub(super) fn line(self, path: Option<&str>) -> String {
        let quoted = path.map(|path| format!(" {}", quote(path))).unwrap_or_default();
        match self {
            Self::Cargo => format!("cargo test --no-fail-fast{}", cargo_args(path)),
            Self::Nextest => format!("cargo nextest run --no-fail-fast{}", cargo_args(path)),
            Self::Go => format!("go test -v{}", go_args(path)),
            Self::Npm(script) => match path {
                Some(path) => format!("CI=1 npm test --silent -- {}", script.args(path)),
                None => "CI=1 npm test --silent".to_owned(),
            },
            Self::Bare(script) => {
                let args = path.map(|path| format!(" {}", script.args(path))).unwrap_or_default();
                format!("PATH=\"$PWD/node_modules/.bin:$PATH\"; CI=1 {}{args}", script.bare())
            }
            // Which of the two is there is known inside the sandbox only.
            Self::Python => format!(
                "p=python3; [ ! -x .venv/bin/python ] || p=.venv/bin/python; if $p -c 'import pytest' 2>/dev/null; \
                 then $p -m pytest {PYTEST_ARGS}{quoted}; else $p -m unittest {}; fi{}",
                unittest_args(path),
                // Where nothing was asked for by name, that there are no tests is no failure.
                if path.is_none() { NONE_COLLECTED } else { "" },
            ),
            Self::Make => "make test".to_owned(),
            Self::Shell(script) => format!("sh {script}{quoted}"),
        }
    }

    /// Whether it runs one file where it is asked to.
    pub(super) const fn takes_path(self) -> bool {
        !matches!(self, Self::Make)
    }
}

/// `tests/it.rs::name`, `src/a.rs::tests::name`, or a filter.
fn cargo_args(path: Option<&str>) -> String {
    let Some(path) = path else { return String::new() };
    let (file, test) = path.split_once("::").map_or((path, None), |(file, test)| (file, Some(test)));
    let Some(stem) = file.strip_suffix(".rs").map(|stem| stem.rsplit('/').next().unwrap_or(stem)) else {
        return format!(" {}", quote(path));
    };
    if file.starts_with("tests/") || file.contains("/tests/") {
        let test = test.map(|test| format!(" {}", quote(test))).unwrap_or_default();
        return format!(" --test {}{test}", quote(stem));
    }
    match (stem, test) {
        ("main" | "lib" | "mod", None) => String::new(),
        ("main" | "lib" | "mod", Some(test)) => format!(" {}", quote(test)),
        (stem, test) => format!(" {}", quote(&format!("{stem}::{}", test.unwrap_or_default()))),
    }
}

/// `pkg`, `pkg/a_test.go`, `pkg::TestName`.
fn go_args(path: Option<&str>) -> String {
    let Some(path) = path else { return " ./...".to_owned() };
    let (place, test) = path.split_once("::").map_or((path, None), |(place, test)| (place, Some(test)));
    let folder = match place.strip_suffix(".go") {
        Some(file) => file.rsplit_once('/').map_or(".", |(folder, _)| folder),
        None => place,
    };
    let package = match folder.trim_start_matches("./").trim_end_matches('/') {
        "" | "." => ".".to_owned(),
        folder => format!("./{folder}"),
    };
    let run = test.map(|test| format!(" -run {}", quote(&format!("^{test}$")))).unwrap_or_default();
    format!("{run} {}", quote(&package))
}

fn unittest_args(path: Option<&str>) -> String {
    let Some(path) = path else { return "discover -v".to_owned() };
    let (file, test) = path.split_once("::").map_or((path, None), |(file, test)| (file, Some(test)));
    let module = file.trim_end_matches('/').strip_suffix(".py").unwrap_or(file).replace('/', ".");
    let name = test.map_or(module.clone(), |test| format!("{module}.{}", test.replace("::", ".")));
    if file.ends_with(".py") || test.is_some() || !file.contains('/') {
        format!("-v {}", quote(&name))
    } else {
        format!("discover -v -s {}", quote(file))
    }
}

/// The shell line that runs the whole suite of the project at `root`; `None` where none is found.
#[must_use]
pub fn detect_tests(root: &Dir) -> Option<String> {
    detect(root, None).map(|found| found.line(None))
}

/// The shell line for tests that a run wrote where there were none, by the names of what it wrote; `None`
/// where they name no test. Pure.
#[must_use]
pub fn tests_by_names<'a>(names: impl Iterator<Item = &'a [u8]> + Clone) -> Option<String> {
    let has = |is: &dyn Fn(&[u8]) -> bool| names.clone().any(is);
    let base = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
    let found = if has(&|path| path == b"Cargo.toml") {
        Some(Found::Cargo)
    } else if has(&|path| path == b"go.mod") && has(&|path| path.ends_with(b"_test.go")) {
        Some(Found::Go)
    } else if has(&|path| path == b"package.json") && has(&|path| is_node_test(&base(path))) {
        Some(Found::Npm(Script::Other))
    } else if has(&|path| is_python_test(&base(path))) {
        Some(Found::Python)
    } else {
        None
    };
    found.map(|found| found.line(None))
}

/// The runner for the whole, or for this path.
pub(super) fn detect(root: &Dir, path: Option<&str>) -> Option<Found> {
    let is_file = |name: &str| root.metadata(name).is_ok_and(|meta| meta.is_file());
    let cargo = || {
        let nextest = is_file(".config/nextest.toml");
        is_file("Cargo.toml").then_some(if nextest { Found::Nextest } else { Found::Cargo })
    };
    let go = || is_file("go.mod").then_some(Found::Go);
    let extension = path.and_then(|path| path.split("::").next()?.rsplit_once('.')).map(|(_, end)| end);
    let by_path = match extension {
        Some("py") => Some(Found::Python),
        Some("rs") => cargo(),
        Some("go") => go(),
        Some("js" | "ts" | "mjs" | "cjs" | "mts" | "cts" | "jsx" | "tsx") => node(root),
        Some(_) | None => None,
    };
    by_path
        .or_else(cargo)
        .or_else(go)
        .or_else(|| node(root))
        .or_else(|| has_python_tests(root).then_some(Found::Python))
        .or_else(|| has_make_target(root).then_some(Found::Make))
        .or_else(|| ["tests/run.sh", "test.sh"].into_iter().find(|script| is_file(script)).map(Found::Shell))
}

fn text(root: &Dir, name: &str) -> Option<String> {
    let path = work_path(name).ok()?;
    Some(printable(&load(root, &path).ok()?.bytes))
}

/// A package's script; without one, the runner it depends on; without that, Node's own where tests lie.
fn node(root: &Dir) -> Option<Found> {
    let package: serde_json::Value = serde_json::from_str(&text(root, "package.json")?).ok()?;
    let script =
        package.get("scripts").and_then(|scripts| scripts.get("test")).and_then(|script| script.as_str());
    // The script that npm init writes tests nothing.
    if let Some(script) = script.filter(|script| !script.contains("no test specified")) {
        return Some(Found::Npm(Script::of(script)));
    }
    let depends = |name: &str| {
        ["devDependencies", "dependencies"]
            .iter()
            .any(|kind| package.get(kind).is_some_and(|all| all.get(name).is_some()))
    };
    let runners = [("vitest", Script::Vitest), ("jest", Script::Jest), ("mocha", Script::Mocha)];
    let runner = runners.into_iter().find(|(name, _)| depends(name)).map(|(_, script)| script);
    runner.or_else(|| has_file(root, is_node_test).then_some(Script::Node)).map(Found::Bare)
}

fn has_python_tests(root: &Dir) -> bool {
    // A tox.ini may be there for a linter alone.
    let tox = || text(root, "tox.ini").is_some_and(|tox| tox.lines().any(|line| line.trim() == "[pytest]"));
    root.metadata("pytest.ini").is_ok() || tox() || has_file(root, is_python_test)
}

fn is_python_test(name: &[u8]) -> bool {
    name.ends_with(b".py") && (name.starts_with(b"test_") || name.ends_with(b"_test.py"))
}

fn is_node_test(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name);
    let stem = [".js", ".mjs", ".cjs", ".ts", ".tsx", ".jsx"].iter().find_map(|end| name.strip_suffix(end));
    let marks = [".test", "-test", "_test", ".spec"];
    stem.is_some_and(|stem| {
        stem == "test" || stem.starts_with("test-") || marks.iter().any(|end| stem.ends_with(end))
    })
}

fn has_file(root: &Dir, is: impl Fn(&[u8]) -> bool) -> bool {
    let Ok(entries) = walk(root, None, Some(4), Hidden::Skip) else { return false };
    let mut entries = entries.take(LOOKED_AT_MAX);
    entries.any(|entry| !entry.is_dir && is(entry.path.parts().last().unwrap_or_default()))
}

fn has_make_target(root: &Dir) -> bool {
    let rule = |line: &str| {
        line.split_once(':').is_some_and(|(targets, _)| targets.split_whitespace().any(|t| t == "test"))
    };
    let makes = |name: &str| {
        text(root, name)
            .is_some_and(|make| make.lines().any(|line| !line.starts_with(['\t', '.', '#']) && rule(line)))
    };
    ["GNUmakefile", "makefile", "Makefile"].iter().any(|name| makes(name))
}

#[cfg(test)]
mod tests {
    use super::{super::testing::Workspace, *};

    #[test]
    fn runners_are_found_by_what_is_there() {
        type Case<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>, Option<&'a str>);
        let npm = r#"{"scripts":{"test":"vitest run"}}"#;
        let cases: [Case<'_>; 28] = [
            (&[("Cargo.toml", "")], None, Some("cargo test --no-fail-fast")),
            (&[("Cargo.toml", "")], Some("tests/it.rs"), Some("cargo test --no-fail-fast --test it")),
            (
                &[("Cargo.toml", "")],
                Some("tests/it.rs::works"),
                Some("cargo test --no-fail-fast --test it works"),
            ),
            (
                &[("Cargo.toml", "")],
                Some("src/sum.rs::tests::adds"),
                Some("cargo test --no-fail-fast sum::tests::adds"),
            ),
            (
                &[("Cargo.toml", "")],
                Some("src/lib.rs::tests::adds"),
                Some("cargo test --no-fail-fast tests::adds"),
            ),
            (
                &[("Cargo.toml", ""), (".config/nextest.toml", "")],
                None,
                Some("cargo nextest run --no-fail-fast"),
            ),
            (&[("go.mod", "")], None, Some("go test -v ./...")),
            (&[("go.mod", "")], Some("pkg/a_test.go"), Some("go test -v ./pkg")),
            (&[("go.mod", "")], Some("a_test.go::TestAdds"), Some("go test -v -run '^TestAdds$' .")),
            (&[("package.json", npm)], Some("a.test.ts"), Some("CI=1 npm test --silent -- a.test.ts")),
            (
                &[("package.json", npm)],
                Some("a.test.ts::adds two"),
                Some("CI=1 npm test --silent -- a.test.ts -t 'adds two'"),
            ),
            (
                &[("package.json", r#"{"scripts":{"test":"mocha"}}"#)],
                Some("a.js::adds"),
                Some("CI=1 npm test --silent -- a.js -g adds"),
            ),
            (
                &[("package.json", r#"{"scripts":{"test":"node --test"}}"#)],
                Some("a.js::adds"),
                Some("CI=1 npm test --silent -- a.js"),
            ),
            (
                &[("package.json", r#"{"scripts":{"test":"echo \"Error: no test specified\" && exit 1"}}"#)],
                None,
                None,
            ),
            (
                &[("package.json", r#"{"devDependencies":{"jest":"29"}}"#)],
                None,
                Some("PATH=\"$PWD/node_modules/.bin:$PATH\"; CI=1 jest"),
            ),
            (
                &[("package.json", "{}"), ("lib/sum.test.js", "")],
                Some("lib/sum.test.js"),
                Some("PATH=\"$PWD/node_modules/.bin:$PATH\"; CI=1 node --test lib/sum.test.js"),
            ),
            (&[("package.json", "{}"), ("sum.js", "")], None, None),
            (&[("package.json", "{")], None, None),
            (&[("Makefile", "all:\n\ntest: all\n\t./t\n")], None, Some("make test")),
            (&[("makefile", "check test: all\n")], Some("a.c"), Some("make test")),
            (&[("Makefile", ".PHONY: test\n")], None, None),
            (&[("tests/run.sh", "")], None, Some("sh tests/run.sh")),
            (&[("test.sh", "")], Some("it's"), Some(r"sh test.sh 'it'\''s'")),
            (&[("test_nothing.txt", "")], None, None),
            (&[("tox.ini", "[flake8]\nmax-line-length=100\n"), ("a.py", "")], None, None),
            (&[("tox.ini", "[pytest]\n"), ("a.py", "")], None, Some("p=python3;")),
            (&[("pytest.ini", "[pytest]\n")], None, Some("p=python3;")),
            (&[("Cargo.toml", ""), ("py/test_a.py", "")], Some("py/test_a.py"), Some("p=python3;")),
        ];
        for (files, path, want) in cases {
            let w = Workspace::new(files);
            let line = detect(&w.dir, path).map(|found| found.line(path));
            match want {
                Some(want) if want.starts_with("p=") => {
                    assert!(line.is_some_and(|line| line.starts_with(want)), "{path:?}")
                }
                want => assert_eq!(line.as_deref(), want, "{files:?} {path:?}"),
            }
        }
    }
}
