//! Detects a missing test runner or project dependency that kept tests from running. A model cannot fix that, because
//! commands have no network, so a person is asked instead.

use cap_std::fs::Dir;
use docket_schema::{
    content::WorkspacePath,
    tool::{NotRunCause, TestCounts},
};

use crate::calls::parse_workspace_path;
use crate::{
    shell::{SimpleCommand, parse_commands},
    tools::{context::runner::CommandEnd, file_access::files::load_file},
};

/// Exit status of a shell that does not find a program.
const EXIT_NOT_FOUND: i32 = 127;

/// Files that configure a project's tests and dependencies, in addition to shell scripts: if something is missing
/// after the run changed one of them, the change may be the cause.
const TEST_CONFIG_FILES: [&str; 27] = [
    "package.json",
    "package-lock.json",
    "Makefile",
    "makefile",
    "GNUmakefile",
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "pytest.ini",
    "tox.ini",
    "conftest.py",
    "requirements.txt",
    "docket.toml",
    "Cargo.toml",
    "Cargo.lock",
    "go.mod",
    "go.sum",
    "rust-toolchain",
    "rust-toolchain.toml",
    "noxfile.py",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "settings.gradle",
    "settings.gradle.kts",
    "CMakeLists.txt",
    "nextest.toml",
];

/// The same by name prefix: `vitest.config.ts`, `jest.config.js`.
const TEST_CONFIG_PREFIXES: [&str; 3] = ["vitest.config.", "vitest.workspace.", "jest.config."];

/// Names of cargo's configuration files, in a folder `.cargo`.
const CARGO_CONFIG_NAMES: [&[u8]; 2] = [b"config.toml", b"config"];

/// Whether a file configures how a project is tested.
#[must_use]
pub fn is_test_config(path: &WorkspacePath) -> bool {
    let parts: Vec<&[u8]> = path.components().collect();
    let name = parts.last().copied().unwrap_or_default();
    let of_cargo = matches!(parts.as_slice(), [.., folder, name] if *folder == b".cargo" && CARGO_CONFIG_NAMES.contains(name));
    let by_start = TEST_CONFIG_PREFIXES.iter().any(|start| name.starts_with(start.as_bytes()));
    TEST_CONFIG_FILES.iter().any(|known| known.as_bytes() == name)
        || name.ends_with(b".sh")
        || of_cargo
        || by_start
}

/// Returns the name of the missing dependency; `None` if tests ran or failed for another reason.
pub(crate) fn find_missing(
    root: &Dir,
    ended: CommandEnd,
    line: &str,
    counts: Option<TestCounts>,
    said: &str,
) -> Option<(NotRunCause, String)> {
    // A runner that counts anything is installed. Messages in its output then come from what it loaded and ran.
    let ran = counts.is_some_and(|counts| counts.total() > 0);
    let CommandEnd::Exit(status) = ended else { return None };
    if ran || status == 0 {
        return None;
    }
    let lines = || said.lines().map(str::trim);
    let no_program = status == EXIT_NOT_FOUND
        || lines().any(|line| line.starts_with("make") && line.ends_with("Error 127"));
    let program = || lines().find_map(missing_program).unwrap_or("a program that they call").to_owned();
    let of = |cause| move |name: String| (cause, name);
    // A module of the project itself is the subject of the work, not a runner.
    let is_own = |module: &String| {
        let package = module.split('.').next().unwrap_or(module);
        [package.to_owned(), format!("{package}.py")].iter().any(|name| root.metadata(name).is_ok())
    };
    let modules: Vec<String> =
        python_modules_run(line).into_iter().filter(|module| !is_own(module)).collect();
    let module =
        lines().find_map(|line| missing_python_module(line, &modules)).map(of(NotRunCause::RunnerMissing));
    // Every program that uses Python's argparse prints this message.
    let is_pytest =
        said.contains("usage: pytest") || said.contains("pytest: error") || line.contains("pytest");
    let lacks =
        |line: &str| missing_by_message(line).filter(|_| is_pytest || !line.contains(UNKNOWN_ARGUMENTS));
    module
        .or_else(|| lines().find_map(lacks))
        .or_else(|| missing_node_package(root, said).map(of(NotRunCause::DependencyMissing)))
        .or_else(|| lines().find_map(unfetched_dependency).map(of(NotRunCause::DependencyMissing)))
        .or_else(|| lines().find_map(missing_script).map(of(NotRunCause::ProgramMissing)))
        .or_else(|| no_program.then(|| (NotRunCause::ProgramMissing, program())))
}

/// pytest's message about arguments of a plugin that is not installed.
const UNKNOWN_ARGUMENTS: &str = "error: unrecognized arguments: ";

/// Messages about missing programs or dependencies: the start of the line, the words before the name, a description
/// with `{}` for the name, and whether the runner itself or a program it calls is missing. The name is quoted or is
/// the rest of the line.
const MISSING_MESSAGES: [(&str, &str, &str, NotRunCause); 18] = [
    ("", "No rule to make target '", "the make target {}", NotRunCause::RunnerMissing),
    ("", "Missing script: \"", "the script {} of package.json", NotRunCause::RunnerMissing),
    ("", "error: no such command: `", "cargo-{}", NotRunCause::RunnerMissing),
    ("", "error: toolchain '", "the toolchain {}", NotRunCause::RunnerMissing),
    ("", "error: linker `", "{}", NotRunCause::RunnerMissing),
    ("", UNKNOWN_ARGUMENTS, "a plugin of pytest that knows {}", NotRunCause::RunnerMissing),
    ("npm", "npx canceled due to missing packages", "{}", NotRunCause::ProgramMissing),
    ("npm", "could not determine executable to run", "a program that npx runs", NotRunCause::ProgramMissing),
    ("ERR_PNPM_", "Command \"", "{}", NotRunCause::ProgramMissing),
    ("ERR_PNPM_", "Command failed with ENOENT: ", "{}", NotRunCause::ProgramMissing),
    ("error Command \"", "error Command \"", "{}", NotRunCause::ProgramMissing),
    ("Usage Error: ", "Couldn't find a script named \"", "{}", NotRunCause::ProgramMissing),
    ("command not found: ", "command not found: ", "{}", NotRunCause::ProgramMissing),
    ("bundler: ", "command not found: ", "{}", NotRunCause::ProgramMissing),
    ("Could not find gem '", "Could not find gem '", "the gem {}", NotRunCause::ProgramMissing),
    ("go: ", "no such tool \"", "{}", NotRunCause::ProgramMissing),
    ("Could not execute because", "the specified command", "a dotnet command", NotRunCause::ProgramMissing),
    ("Run \"dotnet tool restore\"", "to make the \"", "{}", NotRunCause::ProgramMissing),
];

/// Extracts what the program that starts the tests reports as missing.
fn missing_by_message(line: &str) -> Option<(NotRunCause, String)> {
    let line = line.trim_start_matches('[');
    let is_quote = |c: char| matches!(c, '\'' | '`' | '"');
    let known = MISSING_MESSAGES.iter().find_map(|(begins, mark, what, cause)| {
        let rest = line.strip_prefix(begins).and_then(|_| line.split_once(mark))?.1;
        let mut parts = rest.split(is_quote);
        let quoted = if mark.ends_with(is_quote) { parts.next() } else { parts.nth(1) };
        let name = quoted.unwrap_or(rest).trim();
        // npx includes the version: `"jest@29.7.0"`.
        let bare = name
            .rsplit_once('@')
            .map(|(bare, _)| bare)
            .filter(|bare| line.contains("npx") && !bare.is_empty());
        Some((*cause, what.replace("{}", bare.unwrap_or(name))))
    });
    // A target's dependency may be missing because of the run's own changes.
    let preset = || line.strip_prefix("Preset ")?.split_once(" not found");
    let preset = || Some((NotRunCause::RunnerMissing, format!("the preset {}", preset()?.0)));
    known.filter(|_| !line.contains("needed by")).or_else(preset)
}

/// Extracts the name of a script that an interpreter does not find.
fn missing_script(line: &str) -> Option<String> {
    let is_of = |names: &[&str]| names.iter().any(|name| line.starts_with(name));
    let python = is_of(&["python", "/usr/bin/python", ".venv/bin/python"]);
    let of_python = line.split_once(": can't open file '").filter(|_| python);
    let of_python = of_python.and_then(|(_, rest)| rest.split('\'').next());
    // Programs under test may print that they cannot open a file, too.
    let shell = is_of(&["sh: ", "/bin/sh: ", "bash: "]);
    let of_shell = line.split_once(": cannot open ").filter(|_| shell);
    let of_shell = || of_shell.and_then(|(_, rest)| rest.split(':').next());
    of_python.or_else(of_shell).map(str::to_owned)
}

/// `sh: 1: vitest: not found`, `bash: line 1: vitest: command not found`, `make: vitest: No such file or directory`.
fn missing_program(line: &str) -> Option<&str> {
    let ends = [": command not found", ": not found", ": No such file or directory"];
    let before = ends.iter().find_map(|end| line.strip_suffix(end))?;
    let name = before.rsplit(": ").next()?.trim_matches(['\'', '‘', '’', '`', '"']);
    let is_name = !name.is_empty() && !name.contains(char::is_whitespace);
    (is_name && before.contains(": ")).then_some(name)
}

/// Python test runners; any other missing import may be the work itself.
const PYTHON_RUNNERS: [&str; 4] = ["pytest", "nose", "nose2", "tox"];

/// Parses the interpreter's full line, which contains its path: `/usr/bin/python3: No module named pytest`. A test
/// that cannot import a module prints something else. `modules` are those that the line itself runs.
fn missing_python_module(line: &str, modules: &[String]) -> Option<String> {
    let (path, said) = line.split_once(": ")?;
    if !is_python_program(path) || path.contains(char::is_whitespace) {
        return None;
    }
    let is_in_no_package = |module: &&String| {
        let package = module.split('.').next().unwrap_or(module);
        let start = format!("Error while finding module specification for '{module}' ");
        let end = format!("(ModuleNotFoundError: No module named '{package}')");
        said.strip_prefix(&start) == Some(end.as_str())
    };
    let Some(name) = said.strip_prefix("No module named ") else {
        return modules.iter().find(is_in_no_package).cloned();
    };
    (PYTHON_RUNNERS.contains(&name) || modules.iter().any(|module| module == name)).then(|| name.to_owned())
}

fn is_python_program(path: &str) -> bool {
    let program = path.rsplit('/').next().unwrap_or(path);
    ["python", "pypy"].iter().any(|start| program.starts_with(start))
}

/// Modules that a shell line runs: `cd x && timeout 5 python3 -m nose2`.
fn python_modules_run(line: &str) -> Vec<String> {
    let of = |command: SimpleCommand| {
        let mut words = command.words.into_iter().skip_while(|word| !is_python_program(word));
        words.find(|word| word == "-m").and_then(|_| words.next())
    };
    parse_commands(line).into_iter().filter_map(of).collect()
}

/// Finds a package that package.json depends on and `node_modules` lacks.
fn missing_node_package(root: &Dir, said: &str) -> Option<String> {
    let manifest = load_file(root, &parse_workspace_path("package.json").ok()?).ok()?;
    let manifest: serde_json::Value = serde_json::from_slice(&manifest.bytes).ok()?;
    let wanted = |name: &str| {
        let kinds = ["devDependencies", "dependencies"];
        kinds.iter().any(|kind| manifest.get(kind).is_some_and(|all| all.get(name).is_some()))
    };
    let named = said.lines().filter_map(|line| {
        let rest =
            line.split_once("Cannot find module '").or_else(|| line.split_once("Cannot find package '"))?.1;
        let path = rest.split('\'').next()?;
        let parts = if path.starts_with('@') { 2 } else { 1 };
        Some(path.split('/').take(parts).collect::<Vec<_>>().join("/"))
    });
    let mut absent =
        named.filter(|name| wanted(name) && root.metadata(format!("node_modules/{name}")).is_err());
    absent.next()
}

/// Finds what cargo, go or npm would have had to download.
fn unfetched_dependency(line: &str) -> Option<String> {
    let of_cargo = line.strip_prefix("error: failed to get `").and_then(|rest| rest.split('`').next());
    let of_cargo = of_cargo.map(|name| format!("crate {name}"));
    let cargo_is_cut_off = || {
        let hosts = ["index.crates.io", "static.crates.io", "github.com/rust-lang/crates.io-index"];
        let fails = ["Could not resolve host", "failed to download", "spurious network error"];
        (fails.iter().any(|word| line.contains(word)) && hosts.iter().any(|host| line.contains(host)))
            .then(|| "crates of the lock file".to_owned())
    };
    let of_go = || line.contains("dial tcp: lookup proxy.golang.org").then(|| "modules of go.mod".to_owned());
    let of_npm = || {
        let url =
            line.strip_prefix("npm")?.split_once("request to https://")?.1.split_once(" failed, reason")?.0;
        url.split_once('/').map(|(_, name)| name.replace("%2f", "/"))
    };
    of_cargo.or_else(cargo_is_cut_off).or_else(of_go).or_else(of_npm)
}

/// The message for the model.
pub(crate) fn describe_missing(what: &str) -> String {
    format!(
        "{what} is not there, so the tests cannot run; commands have no network to fetch it. If the project is tested \
         with it, do not try to fix that: continue without running tests, and say so at the end. If you chose it, \
         choose something that is installed\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::TestWorkspace;

    #[test]
    fn test_config_files_are_recognized() {
        for (path, says) in [
            ("package.json", true),
            ("web/vitest.config.mts", true),
            ("jest.config.js", true),
            ("rust-toolchain.toml", true),
            ("a/.cargo/config.toml", true),
            ("config.toml", false),
            ("noxfile.py", true),
            ("pom.xml", true),
            ("app/build.gradle.kts", true),
            ("CMakeLists.txt", true),
            ("src/run.sh", true),
            ("src/config.js", false),
        ] {
            assert_eq!(is_test_config(&WorkspacePath::new(path).expect("legal")), says, "{path}");
        }
    }

    #[test]
    fn missing_programs_are_named_and_test_errors_are_not() {
        let manifest = r#"{"devDependencies":{"vitest":"3","@x/y":"1"}}"#;
        let w = TestWorkspace::new(&[("package.json", manifest), ("node_modules/there/package.json", "{}")]);
        for (status, said, want) in [
            (127, "sh: 1: vitest: not found", Some("vitest")),
            (127, "bash: line 1: go: command not found", Some("go")),
            (
                2,
                "make: nope: No such file or directory\nmake: *** [Makefile:2: test] Error 127",
                Some("nope"),
            ),
            (127, "", Some("a program that they call")),
            (1, "/usr/bin/python3: No module named pytest", Some("pytest")),
            (1, "ModuleNotFoundError: No module named 'pytest'", None),
            (1, "No module named pytest", None),
            (1, "E   No module named pytest", None),
            (1, "my python3: No module named pytest", None),
            (1, "/usr/bin/python3: No module named pytest, I say", None),
            (1, "ModuleNotFoundError: No module named 'calc'", None),
            (1, "Error: Cannot find module 'vitest/config'", Some("vitest")),
            (1, "Error [ERR_MODULE_NOT_FOUND]: Cannot find package '@x/y' imported from /a", Some("@x/y")),
            (1, "Error: Cannot find module './gone.js'", None),
            (1, "Error: Cannot find module 'unheard-of'", None),
            (101, "error: failed to get `serde` as a dependency of package `a v0.1.0`", Some("crate serde")),
            (1, "dial tcp: lookup proxy.golang.org: no such host", Some("modules of go.mod")),
            (1, "cat: a.txt: No such file or directory", None),
            (0, "sh: 1: vitest: not found", None),
        ] {
            let found = find_missing(&w.dir, CommandEnd::Exit(status), "make test", None, said);
            assert_eq!(found.as_ref().map(|(_, name)| name.as_str()), want, "{said}");
        }
        let errors = Some(TestCounts { errors: 1, ..TestCounts::default() });
        let said = "/usr/bin/python3: No module named pytest";
        assert_eq!(
            find_missing(&w.dir, CommandEnd::Exit(1), "make test", errors, said),
            None,
            "a module that is loaded may print it"
        );
        let ran = Some(TestCounts { passed: 1, ..TestCounts::default() });
        assert_eq!(find_missing(&w.dir, CommandEnd::Exit(127), "", ran, "sh: 1: x: not found"), None);
        assert_eq!(find_missing(&w.dir, CommandEnd::TimedOut, "", None, "sh: 1: x: not found"), None);
    }

    /// Returns what is missing after this line exited with 1 and printed this.
    fn missing_after(line: &str, said: &str) -> Option<(NotRunCause, String)> {
        find_missing(&TestWorkspace::new(&[]).dir, CommandEnd::Exit(1), line, None, said)
    }

    #[test]
    fn module_run_by_the_line_counts_as_the_runner() {
        let said = "/usr/bin/python3: No module named nosuchpytest\n";
        let runner = |name: &str| Some((NotRunCause::RunnerMissing, name.to_owned()));
        for line in [
            "python3 -m nosuchpytest",
            "cd x && env A=1 timeout 5 python3 -B -m nosuchpytest -q 2>&1 | tail -5",
            "A=1 .venv/bin/python -m 'nosuchpytest'",
            "poetry run python -m nosuchpytest",
        ] {
            assert_eq!(missing_after(line, said), runner("nosuchpytest"), "{line}");
        }
        for (line, said) in [
            ("python3 -m other", said),
            ("python3 nosuchpytest", said),
            ("python3 -m nosuchpytest", "ModuleNotFoundError: No module named 'nosuchpytest'"),
            ("python3 -m nosuchpytest", "/usr/bin/python3: No module named nosuchpytest.deep"),
            (
                "python3 -m a.b",
                "/usr/bin/python3: Error while finding module specification for 'a.b' (ImportError: x)",
            ),
        ] {
            assert_eq!(missing_after(line, said), None, "{line}: {said}");
        }
        let said = "/usr/bin/python3: Error while finding module specification for 'a.b' (ModuleNotFoundError: No module \
                    named 'a')";
        assert_eq!(missing_after("python3 -m a.b", said), runner("a.b"));
        // A module of the project's own package is the work itself.
        let w = TestWorkspace::new(&[("app/__init__.py", ""), ("tool.py", "")]);
        for (line, said) in [
            ("python3 -m app.cli", "/usr/bin/python3: No module named app.cli"),
            ("python3 -m tool", "/usr/bin/python3: No module named tool"),
        ] {
            assert_eq!(find_missing(&w.dir, CommandEnd::Exit(1), line, None, said), None, "{line}");
        }
    }

    #[test]
    fn program_not_found_by_a_launcher_is_missing() {
        for (said, name) in [
            ("npm ERR! npx canceled due to missing packages: [\"jest@29.7.0\"]", "jest"),
            ("npm error npx canceled due to missing packages and no YES option: [\"@a/b@1.0.0\"]", "@a/b"),
            ("npm error could not determine executable to run", "a program that npx runs"),
            ("\u{2009}ERR_PNPM_RECURSIVE_EXEC_FIRST_FAIL\u{2009} Command \"jest\" not found", "jest"),
            ("[ERR_PNPM_RECURSIVE_EXEC_FIRST_FAIL] Command failed with ENOENT: jest --ci", "jest --ci"),
            ("error Command \"jest\" not found.", "jest"),
            ("command not found: jest", "jest"),
            ("Usage Error: Couldn't find a script named \"jest\".", "jest"),
            ("bundler: command not found: rspec", "rspec"),
            ("Could not find gem 'rspec (~> 3)' in locally installed gems.", "the gem rspec (~> 3)"),
            ("go: no such tool \"nosuch\"", "nosuch"),
            ("Run \"dotnet tool restore\" to make the \"dotnet-x\" command available.", "dotnet-x"),
        ] {
            assert_eq!(
                missing_after("", said),
                Some((NotRunCause::ProgramMissing, name.to_owned())),
                "{said}"
            );
        }
        let said =
            "npm error request to https://registry.npmjs.org/@a%2fjest failed, reason: getaddrinfo EAI_AGAIN";
        assert_eq!(
            missing_after("npx jest", said),
            Some((NotRunCause::DependencyMissing, "@a/jest".to_owned()))
        );
        for said in [
            "\u{2009}ERR_PNPM_RECURSIVE_EXEC_FIRST_FAIL\u{2009} Command failed with exit code 1: jest",
            "error Command failed with exit code 1.",
            "make: *** No rule to make target 'a.c', needed by 'all'.  Stop.",
            "expected command not found: x",
        ] {
            assert_eq!(missing_after("", said), None, "{said}");
        }
    }
}
