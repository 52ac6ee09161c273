//! The hostile battery: escape attempts of an attacker who has read this sandbox, by class, on every backend.
//!
//! After each case the host is checked ([`host_fixture`]). If that is safe, the same command is first run
//! without a sandbox, and the check must then detect the escape. A case that cannot be tried here says so and
//! is not counted.
//!
//! The crate's test binary acts as the init of its sandboxes, for every test of the crate: the hook below
//! runs before `main`, while there is one thread, exactly where the real binary's `main` checks for it.

mod build;
mod capture_fixture;
mod environment;
mod escape_case;
mod files;
mod git;
mod host_fixture;
mod ipc;
mod links;
mod network;
mod paths;
mod privileges;
mod processes;
mod procfs;
mod races;
mod resources;
mod sockets;
mod syscalls;
mod terminal;

use std::collections::{BTreeMap, BTreeSet};

use docket_sandbox::{
    BackendChoice, CommandExit, CommandSpec, SandboxError, probe_host, sandbox_init_args, sandbox_init_main,
};
use futures_util::{StreamExt as _, stream};

use capture_fixture::CaptureFixture;
use escape_case::{EscapeCase, PYTHON_PRELUDE, combined_output, create_sandbox, find_python};
use host_fixture::{ENV_SECRET, EscapeKind, HostFixture, give_to_workspace_owner};

extern "C" fn before_main() {
    if let Some(args) = sandbox_init_args(std::env::args_os()) {
        sandbox_init_main(args);
    }
    let (name, value) = ENV_SECRET;
    #[expect(unsafe_code, reason = "a docket whose environment holds a key")]
    // SAFETY: one thread, before main.
    unsafe {
        std::env::set_var(name, value);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
#[expect(unsafe_code, reason = "the only place before the test harness starts its threads")]
static BEFORE_MAIN: extern "C" fn() = before_main;

/// Minimum number of cases tried on each backend if the usual tools are installed.
const CASES_MIN: usize = 150;

/// Concurrent cases: one sleeps while another works.
const CONCURRENT_CASES: usize = 4;

fn all_cases() -> Vec<EscapeCase> {
    [
        paths::cases(),
        links::cases(),
        races::cases(),
        procfs::cases(),
        environment::cases(),
        network::cases(),
        sockets::cases(),
        processes::cases(),
        resources::cases(),
        privileges::cases(),
        syscalls::cases(),
        git::cases(),
        build::cases(),
        terminal::cases(),
        files::cases(),
    ]
    .concat()
}

/// Returns the sandboxing backends available on this host; prints the others.
#[expect(clippy::print_stderr, reason = "a part that is not tried must be told")]
fn available_backends() -> Vec<BackendChoice> {
    let mut all = vec![BackendChoice::Namespaces];
    if probe_host().bubblewrap.is_some() {
        all.push(BackendChoice::Bubblewrap);
    } else {
        eprintln!("bubblewrap is not installed here: its backend was not tried");
    }
    all
}

/// Returns all cases, or those whose names contain the value of `DOCKET_HOSTILE_ONLY`, for examining one.
fn selected_cases() -> (Vec<EscapeCase>, bool) {
    let only = std::env::var("DOCKET_HOSTILE_ONLY").unwrap_or_default();
    (all_cases().into_iter().filter(|case| case.id.contains(&only)).collect(), only.is_empty())
}

#[test]
fn every_case_has_a_unique_name_and_can_fail() {
    let mut names = BTreeSet::new();
    let mut classes: BTreeMap<&str, usize> = BTreeMap::new();
    for case in &all_cases() {
        assert!(names.insert(case.id), "duplicate id {}", case.id);
        assert!(case.can_fail(), "{} has no control, says nothing and is not captured", case.id);
        *classes.entry(case.id.split('-').next().unwrap()).or_default() += 1;
        assert!(case.case_class().starts_with(case.id.split('-').next().unwrap()));
    }
    assert!(names.len() >= CASES_MIN, "{classes:?}");
    assert_eq!(classes.len(), 15, "{classes:?}");
    assert!(classes.values().all(|count| *count >= 8), "a class with hardly a case: {classes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[expect(clippy::print_stderr, reason = "a part that is not tried must be told")]
async fn controls_without_sandbox_show_the_escapes() {
    let ground = CaptureFixture::new().await;
    let (cases, whole) = selected_cases();
    let controls: Vec<EscapeCase> =
        cases.into_iter().filter(|case| case.has_control() && case.missing_program().is_none()).collect();
    let count = controls.len();
    let run = |case: EscapeCase| {
        let ground = &ground;
        async move { case.run_control(ground).await.map(|wrong| format!("{}: {wrong}", case.id)) }
    };
    let wrong: Vec<String> = stream::iter(controls)
        .map(run)
        .buffer_unordered(CONCURRENT_CASES)
        .filter_map(|wrong| async { wrong })
        .collect()
        .await;
    eprintln!("{count} controls");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(!whole || count >= 100, "hardly a control: {count}");
}

async fn run_all_cases(backend: BackendChoice) {
    let ground = CaptureFixture::new().await;
    let world = HostFixture::new();
    give_to_workspace_owner(&world.workspace_path());
    // The sandbox's own controls, and that a signal to all processes reaches none of the host: harmless, so
    // these run first.
    let proven = create_sandbox(backend, &world, None).await;
    let host = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let line = "readlink /proc/self/ns/pid; kill -0 -1; echo $?";
    let inside = proven.run(CommandSpec::shell(line)).await.unwrap();
    assert_eq!(inside.exit, CommandExit::Exit(0));
    let said = String::from_utf8_lossy(&inside.stdout.bytes);
    assert!(!said.contains(host.to_str().unwrap()), "{backend:?} shares the host's processes");
    let checked = proven.checked_host();
    let (cases, whole) = selected_cases();
    let (there, missing): (Vec<EscapeCase>, Vec<EscapeCase>) =
        cases.into_iter().partition(|case| case.missing_program().is_none());
    report_missing_programs(&missing);
    let run = |case: EscapeCase| {
        let (ground, checked) = (&ground, &checked);
        async move {
            let wrong = case.run_in_sandbox(backend, checked, ground).await;

            (!wrong.is_empty()).then(|| format!("{}:\n  {}", case.id, wrong.join("\n  ")))
        }
    };
    let count = there.len();
    let wrong: Vec<String> = stream::iter(there)
        .map(run)
        .buffer_unordered(CONCURRENT_CASES)
        .filter_map(|wrong| async { wrong })
        .collect()
        .await;
    assert!(wrong.is_empty(), "{backend:?}: {} of {count} not contained:\n{}", wrong.len(), wrong.join("\n"));
    let usual = ["python3", "git", "cc"]
        .iter()
        .all(|tool| !missing.iter().any(|case| case.missing_program() == Some(tool)));
    assert!(!whole || !usual || count >= CASES_MIN, "only {count} were tried");
}

#[expect(clippy::print_stderr, reason = "a part that is not tried must be told")]
fn report_missing_programs(missing: &[EscapeCase]) {
    for case in missing {
        eprintln!("NOT TRIED and not counted: {} needs {:?}", case.id, case.missing_program());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn namespaces_contain_all_cases() {
    run_all_cases(BackendChoice::Namespaces).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bubblewrap_contains_all_cases() {
    if available_backends().contains(&BackendChoice::Bubblewrap) {
        run_all_cases(BackendChoice::Bubblewrap).await;
    }
}

/// Swaps a folder, and git's, with links to the outside while concurrent calls run.
const SWAP_SCRIPT: &str = r#"
for name in ("d", ".git"):
    os.mkdir(name); os.mkdir(name + "/hooks"); open(name + "/config", "w").close()
    os.symlink("{out}", name + ".link")
open("swaps", "w").close()
until = time.time() + 2.5
while time.time() < until:
    for name in (b"d", b".git"):
        sc(316, -100, ctypes.c_char_p(name), -100, ctypes.c_char_p(name + b".link"), 2)
# bubblewrap lets no two calls run at once: those that come after find a folder to enter, and a link for git's.
for name, link in ((b"d", False), (b".git", True)):
    if os.path.islink(name) != link:
        sc(316, -100, ctypes.c_char_p(name), -100, ctypes.c_char_p(name + b".link"), 2)
"#;

/// Reads and writes the current targets of the names.
const READ_WHILE_SWAPPED_SCRIPT: &str = "for n in 1 2 3 4 5 6 7 8; do cat secret ../d/secret .git/config ../.git/config ../.git/hooks/planted; \
    echo x > ../d/planted; done 2>/dev/null";

/// Returns escapes of calls that start while another call of the same workspace swaps their folders for
/// links.
async fn find_escapes_while_swapping(backend: BackendChoice) -> (usize, Vec<(EscapeKind, String)>) {
    const CALLS: usize = 40;
    let mut world = HostFixture::new();
    give_to_workspace_owner(&world.workspace_path());
    let sandbox = create_sandbox(backend, &world, None).await;
    let code = format!("{PYTHON_PRELUDE}{}", world.substitute_names(SWAP_SCRIPT));
    let swapping = CommandSpec::new([find_python().into_os_string(), "-c".into(), code.into()]);
    let beside = sandbox.clone();
    let swapper = tokio::spawn(async move { beside.run(swapping).await });
    while !world.workspace_path().join("swaps").exists() {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let (mut ran, mut said) = (0, Vec::new());
    for _ in 0..CALLS {
        match sandbox
            .run(CommandSpec { cwd: "d".into(), ..CommandSpec::shell(READ_WHILE_SWAPPED_SCRIPT) })
            .await
        {
            Ok(out) => {
                ran += 1;
                said.extend(combined_output(&out));
            }
            // A folder that is currently a link, or a path that changed while it was being protected: nothing
            // is run.
            Err(SandboxError::InvalidCwd { .. } | SandboxError::SetupFailed { .. }) => {}
            Err(error) => panic!("{backend:?}: {error:?}"),
        }
    }
    swapper.await.unwrap().unwrap();
    (ran, world.find_escapes(&said))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn folders_swapped_for_links_during_a_call_lead_nowhere() {
    if find_python().as_os_str().is_empty() {
        return report_missing_programs(
            &all_cases()
                .into_iter()
                .filter(|case| case.missing_program() == Some("python3"))
                .collect::<Vec<_>>(),
        );
    }
    let (ran, seen) = find_escapes_while_swapping(BackendChoice::None).await;
    let caught = |wanted: EscapeKind| seen.iter().any(|(sees, _)| *sees == wanted);
    assert!(
        ran > 0 && caught(EscapeKind::SecretLeaked) && caught(EscapeKind::OutsideChanged),
        "control: {ran} {seen:?}"
    );
    for backend in available_backends() {
        let (ran, seen) = find_escapes_while_swapping(backend).await;
        assert!(ran > 0, "{backend:?}: some calls met the folder itself");
        assert!(seen.is_empty(), "{backend:?}: {seen:?}");
    }
}
