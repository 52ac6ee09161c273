//! Detects a project's test runner from the files in its root, or in the folder nearest to a test path, and from the
//! scripts of its package.json.
//!
//! Returns shell lines; whether their programs are installed is known only inside the sandbox.

use cap_std::fs::Dir;

use super::{
    python_test_command::{self, PythonTestTarget},
    test_files::{has_file_named, is_node_test, is_python_test},
};
use crate::calls::parse_workspace_path;
use crate::{
    shell::quote,
    tools::{file_access::files::load_file, text::output::printable_text},
};

/// Runners detected from the workspace's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DetectedRunner {
    Cargo,
    Nextest,
    Go,
    /// The package's own script, and what it runs.
    Npm(PackageScript),
    /// The runner itself, without a script.
    Direct(PackageScript),
    Python,
    Make,
    Shell(&'static str),
}

/// What a script of package.json runs, as far as can be determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PackageScript {
    Vitest,
    Jest,
    Mocha,
    Node,
    /// Node, after words that its flags would have to precede.
    WrappedNode,
    Other,
}

impl PackageScript {
    fn from_text(text: &str) -> Self {
        let has = |word: &str| text.contains(word);
        match () {
            () if has("vitest") => Self::Vitest,
            () if has("jest") => Self::Jest,
            () if has("mocha") => Self::Mocha,
            () if text.trim_end().ends_with("node --test") => Self::Node,
            () if has("node --test") || has("node:test") => Self::WrappedNode,
            () => Self::Other,
        }
    }

    /// Arguments that run one file, or one test in it.
    fn path_args(self, path: &str) -> String {
        let Some((file, test)) = path.split_once("::") else { return quote(path) };
        match self {
            Self::Vitest | Self::Jest => format!("{} -t {}", quote(file), quote(test)),
            Self::Mocha => format!("{} -g {}", quote(file), quote(test)),
            // Node takes its flags before the files.
            Self::Node => format!("--test-name-pattern={} {}", quote(test), quote(file)),
            Self::WrappedNode | Self::Other => quote(file),
        }
    }

    fn direct_command(self) -> &'static str {
        match self {
            Self::Vitest => "vitest run",
            Self::Jest => "jest",
            Self::Mocha => "mocha",
            Self::Node | Self::WrappedNode | Self::Other => "node --test",
        }
    }

    const fn takes_names(self) -> bool {
        !matches!(self, Self::WrappedNode | Self::Other)
    }
}

/// The runner for a path, and where to run it.
pub(crate) struct SelectedRunner {
    runner: DetectedRunner,
    /// The folder to run it in; empty for the root.
    folder: String,
    /// The path relative to that folder.
    path: Option<String>,
    /// Whether it runs more than the path asks for.
    is_widened: bool,
    python_target: PythonTestTarget,
}

impl SelectedRunner {
    pub(crate) fn shell_line(&self) -> String {
        let path = self.path.as_deref();
        let below = !self.folder.is_empty();
        let line = match self.runner {
            DetectedRunner::Cargo => format!("cargo test --no-fail-fast{}", cargo_args(path)),
            DetectedRunner::Nextest => format!("cargo nextest run --no-fail-fast{}", cargo_args(path)),
            DetectedRunner::Go => format!("go test -v{}", go_args(path)),
            DetectedRunner::Npm(script) => match path {
                Some(path) => format!("CI=1 npm test --silent -- {}", script.path_args(path)),
                None => "CI=1 npm test --silent".to_owned(),
            },
            DetectedRunner::Direct(script) => {
                let args = path.map(|path| format!(" {}", script.path_args(path))).unwrap_or_default();
                let above = if below { "$OLDPWD/node_modules/.bin:" } else { "" };
                format!(
                    "PATH=\"$PWD/node_modules/.bin:{above}$PATH\"; CI=1 {}{args}",
                    script.direct_command()
                )
            }
            DetectedRunner::Python => return self.python_target.shell_line(&self.folder, path),
            DetectedRunner::Make => "make test".to_owned(),
            DetectedRunner::Shell(script) => {
                format!("sh {script}{}", path.map(|path| format!(" {}", quote(path))).unwrap_or_default())
            }
        };
        if below { format!("cd {} || exit 2; {line}", quote(&self.folder)) } else { line }
    }

    /// The part of a path that the runner does not support, if any.
    pub(crate) fn unsupported_path_note(&self) -> Option<&'static str> {
        if self.is_widened {
            return Some("cargo takes no folder: all tests of its package were run\n");
        }
        let path = self.path.as_deref()?;
        match self.runner {
            DetectedRunner::Make => Some(NO_PATH),
            DetectedRunner::Npm(script) | DetectedRunner::Direct(script)
                if path.contains("::") && !script.takes_names() =>
            {
                Some("this runner takes no test's name: all tests of the file were run\n")
            }
            DetectedRunner::Cargo
            | DetectedRunner::Nextest
            | DetectedRunner::Go
            | DetectedRunner::Npm(_)
            | DetectedRunner::Direct(_)
            | DetectedRunner::Python
            | DetectedRunner::Shell(_) => None,
        }
    }
}

/// Note for a path that has no effect.
pub(crate) const NO_PATH: &str = "this runner takes no path: all tests were run\n";

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
    // A module's folder has the module's name.
    let stem = match (stem, file.rsplit('/').nth(1)) {
        ("mod", Some(folder)) => folder,
        (stem, _) => stem,
    };
    match (stem, test) {
        ("lib", None) => " --lib".to_owned(),
        ("main", None) => " --bins".to_owned(),
        ("main" | "lib", Some(test)) => format!(" {}", quote(test)),
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

/// Returns the shell line that runs all tests of the project at `root`; `None` if no runner is found.
#[must_use]
pub fn detect_test_command(root: &Dir) -> Option<String> {
    select_runner(root, None).map(|chosen| chosen.shell_line())
}

/// Returns the shell line for tests that a run added to a project without tests, judged by the names of the files it
/// wrote; `None` if none of them is a test. `rules`: the run's `check_rules`. Pure.
#[must_use]
pub fn test_command_by_names<'a>(
    names: impl Iterator<Item = &'a [u8]> + Clone,
    rules: u32,
) -> Option<String> {
    let has = |is: &dyn Fn(&[u8]) -> bool| names.clone().any(is);
    let base = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
    let found = if has(&|path| path == b"Cargo.toml") {
        DetectedRunner::Cargo
    } else if has(&|path| path == b"go.mod") && has(&|path| path.ends_with(b"_test.go")) {
        DetectedRunner::Go
    } else if has(&|path| path == b"package.json") && has(&|path| is_node_test(&base(path))) {
        DetectedRunner::Npm(PackageScript::Other)
    } else if has(&|path| is_python_test(&base(path))) {
        if rules == 0 {
            return Some(python_test_command::legacy_line());
        }
        DetectedRunner::Python
    } else {
        return None;
    };
    Some(select_whole_project(found).shell_line())
}

fn select_whole_project(found: DetectedRunner) -> SelectedRunner {
    SelectedRunner {
        runner: found,
        folder: String::new(),
        path: None,
        is_widened: false,
        python_target: PythonTestTarget::All,
    }
}

/// Selects the runner for the whole project, or for this path: that of the nearest parent folder with one.
pub(crate) fn select_runner(root: &Dir, path: Option<&str>) -> Option<SelectedRunner> {
    let Some(path) = path else { return detect_in_root(root, None).map(select_whole_project) };
    let (file, test) = path.split_once("::").map_or((path, None), |(file, test)| (file, Some(test)));
    let file = file.trim_start_matches("./").trim_end_matches('/');
    let is_folder = root.metadata(file).is_ok_and(|meta| meta.is_dir());
    let tongue = test_file_extension(root, file, is_folder);
    let near = nearest_runner(root, file, is_folder, tongue.as_deref());
    let (folder, found) = match near {
        Some(near) => near,
        None => (String::new(), detect_in_root(root, tongue.as_deref())?),
    };
    let rest = file.strip_prefix(&folder).unwrap_or(file).trim_start_matches('/');
    // A folder inside a crate is not a target, and its name would be taken for a test's.
    let is_crate = matches!(found, DetectedRunner::Cargo | DetectedRunner::Nextest) && is_folder;
    let widened = is_crate && test.is_none() && !rest.is_empty();
    let rest = match test {
        Some(test) => Some(format!("{rest}::{test}")),
        None if rest.is_empty() || is_crate => None,
        None => Some(rest.to_owned()),
    };
    let python = match (found, &rest) {
        (DetectedRunner::Python, Some(_)) => {
            let near = if folder.is_empty() { None } else { root.open_dir(&folder).ok() };
            PythonTestTarget::from_path(near.as_ref().unwrap_or(root), rest.as_deref().unwrap_or_default())
        }
        _ => PythonTestTarget::All,
    };
    Some(SelectedRunner { runner: found, folder, path: rest, is_widened: widened, python_target: python })
}

/// Predicate for names of test files.
type TestNamePredicate = fn(&[u8]) -> bool;

/// The extension of a file, or the likely one of the tests in a folder.
fn test_file_extension(root: &Dir, file: &str, is_folder: bool) -> Option<String> {
    if !is_folder {
        return file.rsplit_once('.').map(|(_, end)| end.to_owned());
    }
    let folder = parse_workspace_path(file).ok()?;
    let has = |is: TestNamePredicate| has_file_named(root, Some(&folder), is);
    let kinds: [(&str, TestNamePredicate); 4] = [
        ("py", is_python_test),
        ("js", is_node_test),
        ("go", |name| name.ends_with(b"_test.go")),
        ("rs", |name| name.ends_with(b".rs")),
    ];
    kinds.into_iter().find(|(_, is)| has(*is)).map(|(end, _)| end.to_owned())
}

/// The nearest folder below the root with its own runner for such a file.
fn nearest_runner(
    root: &Dir,
    file: &str,
    is_folder: bool,
    tongue: Option<&str>,
) -> Option<(String, DetectedRunner)> {
    parse_workspace_path(file).ok()?;
    let above = |path: &str| path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
    let mut folder = if is_folder { file.to_owned() } else { above(file) };
    while !folder.is_empty() {
        let own = root.open_dir(&folder).ok().and_then(|near| detect_in_folder(root, &near, tongue));
        if let Some(found) = own {
            return Some((folder, found));
        }
        folder = above(&folder);
    }
    None
}

fn detect_in_folder(root: &Dir, near: &Dir, tongue: Option<&str>) -> Option<DetectedRunner> {
    let of_node = || {
        // A package.json without test settings follows the root.
        detect_node(near).filter(|found| {
            *found != DetectedRunner::Direct(PackageScript::Node) || detect_node(root).is_none()
        })
    };
    let of_cargo = || {
        detect_cargo(near)
            .map(|found| detect_cargo(root).filter(|of| *of == DetectedRunner::Nextest).unwrap_or(found))
    };
    let of_python = || python_test_command::is_own_project(root, near).then_some(DetectedRunner::Python);
    match tongue {
        Some("py") => of_python(),
        Some("rs") => of_cargo(),
        Some("go") => detect_go(near),
        Some(end) if JAVASCRIPT_EXTENSIONS.contains(&end) => of_node(),
        Some(_) | None => of_cargo().or_else(|| detect_go(near)).or_else(of_node).or_else(of_python),
    }
}

const JAVASCRIPT_EXTENSIONS: [&str; 8] = ["js", "ts", "mjs", "cjs", "mts", "cts", "jsx", "tsx"];

fn is_file(root: &Dir, name: &str) -> bool {
    root.metadata(name).is_ok_and(|meta| meta.is_file())
}

fn detect_cargo(root: &Dir) -> Option<DetectedRunner> {
    let nextest = is_file(root, ".config/nextest.toml");
    is_file(root, "Cargo.toml").then_some(if nextest {
        DetectedRunner::Nextest
    } else {
        DetectedRunner::Cargo
    })
}

fn detect_go(root: &Dir) -> Option<DetectedRunner> {
    is_file(root, "go.mod").then_some(DetectedRunner::Go)
}

/// The root's own runner, preferring the language of these files.
fn detect_in_root(root: &Dir, tongue: Option<&str>) -> Option<DetectedRunner> {
    let by_path = match tongue {
        Some("py") => Some(DetectedRunner::Python),
        Some("rs") => detect_cargo(root),
        Some("go") => detect_go(root),
        Some(end) if JAVASCRIPT_EXTENSIONS.contains(&end) => detect_node(root),
        Some(_) | None => None,
    };
    by_path
        .or_else(|| detect_cargo(root))
        .or_else(|| detect_go(root))
        .or_else(|| detect_node(root))
        .or_else(|| has_python_tests(root).then_some(DetectedRunner::Python))
        .or_else(|| has_make_target(root).then_some(DetectedRunner::Make))
        .or_else(|| {
            ["tests/run.sh", "test.sh"]
                .into_iter()
                .find(|name| is_file(root, name))
                .map(DetectedRunner::Shell)
        })
}

fn read_text(root: &Dir, name: &str) -> Option<String> {
    let path = parse_workspace_path(name).ok()?;
    Some(printable_text(&load_file(root, &path).ok()?.bytes))
}

/// A package's script; otherwise the runner it depends on; otherwise Node's own if there are tests.
fn detect_node(root: &Dir) -> Option<DetectedRunner> {
    let package: serde_json::Value = serde_json::from_str(&read_text(root, "package.json")?).ok()?;
    let script =
        package.get("scripts").and_then(|scripts| scripts.get("test")).and_then(|script| script.as_str());
    // The script written by npm init runs no tests.
    if let Some(script) = script.filter(|script| !script.contains("no test specified")) {
        return Some(DetectedRunner::Npm(PackageScript::from_text(script)));
    }
    let depends = |name: &str| {
        ["devDependencies", "dependencies"]
            .iter()
            .any(|kind| package.get(kind).is_some_and(|all| all.get(name).is_some()))
    };
    let runners =
        [("vitest", PackageScript::Vitest), ("jest", PackageScript::Jest), ("mocha", PackageScript::Mocha)];
    let runner = runners.into_iter().find(|(name, _)| depends(name)).map(|(_, script)| script);
    runner
        .or_else(|| has_file_named(root, None, is_node_test).then_some(PackageScript::Node))
        .map(DetectedRunner::Direct)
}

fn has_python_tests(root: &Dir) -> bool {
    // A tox.ini may configure only a linter.
    let tox =
        || read_text(root, "tox.ini").is_some_and(|tox| tox.lines().any(|line| line.trim() == "[pytest]"));
    root.metadata("pytest.ini").is_ok() || tox() || has_file_named(root, None, is_python_test)
}

fn has_make_target(root: &Dir) -> bool {
    let rule = |line: &str| {
        line.split_once(':').is_some_and(|(targets, _)| targets.split_whitespace().any(|t| t == "test"))
    };
    let makes = |name: &str| {
        read_text(root, name)
            .is_some_and(|make| make.lines().any(|line| !line.starts_with(['\t', '.', '#']) && rule(line)))
    };
    ["GNUmakefile", "makefile", "Makefile"].iter().any(|name| makes(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::TestWorkspace;

    #[test]
    fn runners_are_detected_from_project_files() {
        type Case<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>, Option<&'a str>);
        let npm = r#"{"scripts":{"test":"vitest run"}}"#;
        let cases: [Case<'_>; 35] = [
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
                Some("CI=1 npm test --silent -- --test-name-pattern=adds a.js"),
            ),
            (
                &[("package.json", r#"{"scripts":{"test":"node --test t/"}}"#)],
                Some("a.js::adds"),
                Some("CI=1 npm test --silent -- a.js"),
            ),
            (
                &[("Cargo.toml", "[workspace]"), ("a/Cargo.toml", ""), ("a/src/lib.rs", "")],
                Some("a/src/lib.rs"),
                Some("cd a || exit 2; cargo test --no-fail-fast --lib"),
            ),
            (
                &[("Cargo.toml", "[workspace]"), ("a/Cargo.toml", ""), ("a/tests/it.rs", "")],
                Some("a/tests/it.rs::works"),
                Some("cd a || exit 2; cargo test --no-fail-fast --test it works"),
            ),
            (&[("Cargo.toml", ""), ("src/a.rs", "")], Some("src/"), Some("cargo test --no-fail-fast")),
            (
                &[("web/package.json", npm), ("web/src/a.test.ts", ""), ("api/test_a.py", "")],
                Some("web/src/a.test.ts"),
                Some("cd web || exit 2; CI=1 npm test --silent -- src/a.test.ts"),
            ),
            (
                &[("package.json", npm), ("web/package.json", "{}"), ("web/a.test.ts", "")],
                Some("web/a.test.ts"),
                Some("CI=1 npm test --silent -- web/a.test.ts"),
            ),
            (
                &[("web/go.mod", ""), ("web/p/a_test.go", "")],
                Some("web/p"),
                Some("cd web || exit 2; go test -v ./p"),
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
            let w = TestWorkspace::new(files);
            let line = select_runner(&w.dir, path).map(|chosen| chosen.shell_line());
            match want {
                Some(want) if want.starts_with("p=") => {
                    assert!(line.is_some_and(|line| line.starts_with(want)), "{path:?}")
                }
                want => assert_eq!(line.as_deref(), want, "{files:?} {path:?}"),
            }
        }
    }
}
