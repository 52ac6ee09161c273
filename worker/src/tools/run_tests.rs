//! `run_tests`: finds the project's test runner and answers with counts and the first failure only.

use cap_std::fs::Dir;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    context::{ToolContext, ToolOutcome},
    files::{folder_path, load, work_path},
    output::{cut, printable},
    run_command::{as_text, ended},
    runner::{CommandOutput, CommandSpec, Ended},
    shell::quote,
    test_output::parse_tests,
    walk::{Hidden, walk},
};

pub(super) const NAME: &str = "run_tests";
pub(super) const DESCRIPTION: &str = "Runs the project's tests with the runner the project uses and answers with how many \
    passed, failed and were skipped, and with the first failure. Give test_path to run one file or test.";

/// Characters of the first failure that are shown.
const FAILURE_CHARS_MAX: usize = 3000;
/// Names looked at to find out whether there are Python tests.
const LOOKED_AT_MAX: usize = 5000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// A test file, folder or test, as the runner names it: tests/test_api.py, tests/test_api.py::test_get.
    #[serde(default)]
    test_path: Option<String>,
    /// Show the runner's whole output instead of the first failure.
    #[serde(default)]
    verbose: Option<bool>,
}

pub(super) async fn run(context: ToolContext<'_>, args: Args) -> ToolOutcome {
    let shell = match plan(context, &args) {
        Ok(shell) => shell,
        Err(text) => return ToolOutcome::error(NAME, text),
    };
    let timeout_ms = context.settings.command_timeout_ms_max;
    let spec = CommandSpec { shell: shell.clone(), cwd: None, timeout_ms };
    match context.runner.run(spec).await {
        Ok(output) => answer(context, &args, &shell, &output, timeout_ms),
        Err(error) => ToolOutcome::error(NAME, error.to_string()),
    }
}

/// The shell line that runs the tests.
fn plan(context: ToolContext<'_>, args: &Args) -> Result<String, String> {
    let path = args.test_path.as_deref().map(str::trim).filter(|path| !path.is_empty());
    if let Some(path) = path {
        check_path(path)?;
    }
    if let Some(config) = context.tests {
        return Ok(config.command.replace("{path}", &path.map(quote).unwrap_or_default()));
    }
    let runner = detect(context.root, path)
        .ok_or("no test runner was found: there is no Cargo.toml, go.mod, package.json with a test script, Python \
                test, Makefile with a test target, tests/run.sh or test.sh. Use run_command, or configure one")?;
    Ok(runner.line(path))
}

/// A test path is an argument of the runner: it must not be read as an option or lead outside.
fn check_path(path: &str) -> Result<(), String> {
    let file = path.split("::").next().unwrap_or(path);
    if path.starts_with('-') || path.contains('\0') {
        return Err("`test_path` must not begin with `-`".to_owned());
    }
    if file.contains('/') {
        work_path(file).map_err(|error| format!("`test_path`: {error}"))?;
    }
    folder_path(Some(file)).map(|_| ()).map_err(|error| format!("`test_path`: {error}"))
}

/// Runners that are found by what lies in the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Cargo,
    Go,
    Node,
    Python,
    Make,
    Script(&'static str),
}

impl Found {
    fn line(self, path: Option<&str>) -> String {
        let quoted = path.map(|path| format!(" {}", quote(path))).unwrap_or_default();
        match self {
            Self::Cargo => format!("cargo test --no-fail-fast{}", cargo_args(path)),
            Self::Go => match path {
                Some(path) if path.ends_with(".go") => {
                    let folder = path.rsplit_once('/').map_or(".", |(folder, _)| folder);
                    format!("go test -v {}", quote(&format!("./{}", folder.trim_start_matches("./"))))
                }
                Some(path) => {
                    format!("go test -v {}", quote(&format!("./{}", path.trim_start_matches("./"))))
                }
                None => "go test -v ./...".to_owned(),
            },
            Self::Node if path.is_some() => format!("CI=1 npm test --silent --{quoted}"),
            Self::Node => "CI=1 npm test --silent".to_owned(),
            // Which of the two is there is known inside the sandbox only.
            Self::Python => format!(
                "if python3 -c 'import pytest' 2>/dev/null; then exec python3 -m pytest -q -p no:cacheprovider{quoted}; \
                 else exec python3 -m unittest {}; fi",
                unittest_args(path)
            ),
            Self::Make => "make test".to_owned(),
            Self::Script(script) => format!("sh {script}{quoted}"),
        }
    }
}

fn cargo_args(path: Option<&str>) -> String {
    match path {
        None => String::new(),
        Some(path) => match path.strip_suffix(".rs").map(|stem| stem.rsplit('/').next().unwrap_or(stem)) {
            Some(stem) if path.starts_with("tests/") || path.contains("/tests/") => {
                format!(" --test {}", quote(stem))
            }
            Some("main" | "lib" | "mod") => String::new(),
            Some(stem) => format!(" {}", quote(&format!("{stem}::"))),
            None => format!(" {}", quote(path)),
        },
    }
}

fn unittest_args(path: Option<&str>) -> String {
    match path {
        None => "discover -v".to_owned(),
        Some(path) => {
            let (file, test) = path.split_once("::").map_or((path, None), |(file, test)| (file, Some(test)));
            let module = file.trim_end_matches('/').strip_suffix(".py").unwrap_or(file).replace('/', ".");
            let name = test.map_or(module.clone(), |test| format!("{module}.{}", test.replace("::", ".")));
            if file.ends_with(".py") || test.is_some() || !file.contains('/') {
                format!("-v {}", quote(&name))
            } else {
                format!("discover -v -s {}", quote(file))
            }
        }
    }
}

/// The shell line that runs the whole suite of the project at `root`; `None` where none is found.
pub fn detect_tests(root: &Dir) -> Option<String> {
    detect(root, None).map(|found| found.line(None))
}

fn detect(root: &Dir, path: Option<&str>) -> Option<Found> {
    let is_file = |name: &str| root.metadata(name).is_ok_and(|meta| meta.is_file());
    let text = |name: &str| {
        work_path(name).ok().and_then(|path| load(root, &path).ok()).map(|loaded| printable(&loaded.bytes))
    };
    let node = || {
        let package: serde_json::Value = serde_json::from_str(&text("package.json")?).ok()?;
        let script = package.get("scripts")?.get("test")?.as_str()?;
        // The script that npm init writes tests nothing.
        (!script.contains("no test specified")).then_some(())
    };
    let extension = path.and_then(|path| path.split("::").next()?.rsplit_once('.')).map(|(_, end)| end);
    match extension {
        Some("py") => return Some(Found::Python),
        Some("rs") if is_file("Cargo.toml") => return Some(Found::Cargo),
        Some("go") if is_file("go.mod") => return Some(Found::Go),
        Some("js" | "ts" | "mjs" | "cjs" | "jsx" | "tsx") if node().is_some() => return Some(Found::Node),
        Some(_) | None => {}
    }
    if is_file("Cargo.toml") {
        return Some(Found::Cargo);
    }
    if is_file("go.mod") {
        return Some(Found::Go);
    }
    if node().is_some() {
        return Some(Found::Node);
    }
    if has_python_tests(root) {
        return Some(Found::Python);
    }
    let makes = text("Makefile").is_some_and(|make| make.lines().any(|line| line.starts_with("test:")));
    if makes {
        return Some(Found::Make);
    }
    ["tests/run.sh", "test.sh"].into_iter().find(|script| is_file(script)).map(Found::Script)
}

fn has_python_tests(root: &Dir) -> bool {
    if ["pytest.ini", "tox.ini"].iter().any(|name| root.metadata(name).is_ok()) {
        return true;
    }
    let Ok(entries) = walk(root, None, Some(4), Hidden::Skip) else { return false };
    entries.take(LOOKED_AT_MAX).any(|entry| {
        let name = entry.path.parts().last().unwrap_or_default();
        !entry.is_dir && name.ends_with(b".py") && (name.starts_with(b"test_") || name.ends_with(b"_test.py"))
    })
}

fn answer(
    context: ToolContext<'_>,
    args: &Args,
    shell: &str,
    output: &CommandOutput,
    timeout_ms: u64,
) -> ToolOutcome {
    let text = as_text(output);
    let joined = printable(&output.stdout.joined()) + "\n" + &printable(&output.stderr.joined());
    let report = parse_tests(&joined);
    let mut outcome = ended(output.ended, timeout_ms, report.first_failure.as_deref().unwrap_or(&text));
    let mut out = format!("{shell}\n{}", outcome.text());
    if let Some(counts) = report.counts {
        out.push_str(&format!(
            "{} passed, {} failed, {} errors, {} skipped\n",
            counts.passed, counts.failed, counts.errors, counts.skipped
        ));
    } else {
        out.push_str("the runner's counts could not be read: its exit status decides\n");
    }
    let passed = output.ended == Ended::Exit(0);
    match report.first_failure.filter(|_| !passed) {
        Some(failure) if args.verbose != Some(true) => {
            out.push_str(&format!("first failure:\n{}\n", cut(&failure, FAILURE_CHARS_MAX).0));
        }
        None if passed && report.counts.is_some() && args.verbose != Some(true) => {}
        Some(_) | None => out.push_str(&cut(&text, context.settings.output_chars_max).0),
    }
    outcome.content = out.into_bytes();
    outcome.full = Some(text.into_bytes());
    outcome.facts.tests = report.counts;
    outcome
}

#[cfg(test)]
mod tests {
    use docket_schema::tool::TestCounts;
    use serde_json::json;

    use super::{
        super::{TestRunnerConfig, testing::Workspace},
        *,
    };

    #[test]
    fn real_python_tests_are_counted_and_the_first_failure_shown() {
        let mut w = Workspace::new(&[(
            "test_sum.py",
            "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(1, 1)\n    \
             def test_b(self):\n        self.assertEqual(1, 2)\n    def test_c(self):\n        self.assertEqual(3, 4)\n    \
             @unittest.skip('no')\n    def test_d(self): pass\n",
        )]);
        let out = w.call(NAME, json!({}));
        assert_eq!(
            out.facts.tests,
            Some(TestCounts { passed: 1, failed: 2, errors: 0, skipped: 1 }),
            "{}",
            out.text()
        );
        let text = out.text();
        assert!(text.contains("1 != 2") && !text.contains("3 != 4"), "{text}");
        assert_eq!((out.facts.exit, out.is_error), (Some(1), false));
        let out = w.call(NAME, json!({"test_path": "test_sum.py::T::test_a"}));
        assert_eq!(
            out.facts.tests.map(|counts| (counts.passed, counts.failed)),
            Some((1, 0)),
            "{}",
            out.text()
        );
    }

    #[test]
    fn the_exit_status_decides_not_the_text() {
        let mut w = Workspace::new(&[("test.sh", "echo '5 passed in 0.1s'; exit 1\n")]);
        let out = w.call(NAME, json!({}));
        assert_eq!(out.facts.exit, Some(1));
        assert!(out.text().contains("exit status 1") && out.facts.error_signature.is_some());
    }

    #[test]
    fn what_is_configured_wins() {
        let mut w = Workspace::new(&[("test.sh", "exit 1\n")]);
        w.tests = Some(TestRunnerConfig { command: "echo \"ran {path}\"".to_owned() });
        let out = w.call(NAME, json!({"test_path": "a.py", "verbose": true}));
        assert!(out.text().contains("ran a.py") && out.facts.exit == Some(0), "{}", out.text());
    }

    #[test]
    fn runners_are_found_by_what_is_there() {
        type Case<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>, Option<&'a str>);
        let cases: [Case<'_>; 10] = [
            (&[("Cargo.toml", "")], None, Some("cargo test --no-fail-fast")),
            (&[("Cargo.toml", "")], Some("tests/it.rs"), Some("cargo test --no-fail-fast --test it")),
            (&[("go.mod", "")], Some("pkg/a_test.go"), Some("go test -v ./pkg")),
            (
                &[("package.json", r#"{"scripts":{"test":"vitest run"}}"#)],
                Some("a.test.ts"),
                Some("CI=1 npm test --silent -- a.test.ts"),
            ),
            (
                &[("package.json", r#"{"scripts":{"test":"echo \"Error: no test specified\" && exit 1"}}"#)],
                None,
                None,
            ),
            (&[("Makefile", "all:\n\ntest: all\n\t./t\n")], None, Some("make test")),
            (&[("tests/run.sh", "")], None, Some("sh tests/run.sh")),
            (&[("test.sh", "")], Some("it's"), Some(r"sh test.sh 'it'\''s'")),
            (&[("test_nothing.txt", "")], None, None),
            (&[("Cargo.toml", ""), ("py/test_a.py", "")], Some("py/test_a.py"), Some("if python3")),
        ];
        for (files, path, want) in cases {
            let w = Workspace::new(files);
            let line = detect(&w.dir, path).map(|found| found.line(path));
            match want {
                Some(want) => assert!(line.as_deref().is_some_and(|line| line.starts_with(want)), "{line:?}"),
                None => assert_eq!(line, None),
            }
        }
    }

    #[test]
    fn a_bad_path_is_refused() {
        let mut w = Workspace::new(&[("test.sh", "")]);
        for path in ["--help", "../x", "/etc"] {
            assert!(w.call(NAME, json!({"test_path": path})).is_error, "{path}");
        }
        assert!(Workspace::new(&[]).call(NAME, json!({})).text().contains("no test runner was found"));
    }
}
