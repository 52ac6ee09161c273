//! File tools in a hostile workspace: links that lead outside, reads that never end, concurrent changes.

use std::{
    ffi::CString,
    os::unix::{ffi::OsStrExt as _, fs::symlink, net::UnixListener},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::sync_channel,
    },
    thread,
    time::Duration,
};

use nix::libc;
use serde_json::{Value, json};

use super::{ToolOutcome, testing::TestWorkspace};

const CANARY: &str = "canary-from-outside";

/// Far more than any call here takes.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

fn make_fifo(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).expect("fifo");
}

/// Makes a call that must return in time; a hanging call's thread is left behind.
fn call_with_timeout(mut w: TestWorkspace, name: &'static str, args: Value) -> (TestWorkspace, ToolOutcome) {
    let (told, answer) = sync_channel(1);
    thread::spawn(move || {
        let outcome = w.call_tool(name, args);
        let _ = told.send((w, outcome));
    });
    answer.recv_timeout(CALL_TIMEOUT).unwrap_or_else(|_| panic!("{name} hangs"))
}

/// An error quotes the path as it was given, and errors are read on terminals.
#[test]
fn error_messages_escape_hidden_characters() {
    let evil = "a\u{1b}[2J\u{7}\r\u{202e}b\u{9b}c";
    let mut w = TestWorkspace::new(&[("there", "x\n"), ("folder/x", "")]);
    std::fs::write(w.full_path(evil), "x\n").expect("written");
    let missing = format!("{evil}/missing");
    let edits = json!([{"search": evil, "replace": "b"}]);
    for (name, args) in [
        ("read_file", json!({"path": missing})),
        ("read_file", json!({"path": "there", "start_line": 99, (evil): 1})),
        ("edit_file", json!({"path": missing, "edits": edits})),
        ("edit_file", json!({"path": "there", "edits": edits})),
        ("create_file", json!({"path": missing, "content": "x"})),
        ("create_file", json!({"path": evil, "content": "x"})),
        ("write_file", json!({"path": missing, "content": "x"})),
        ("append_file", json!({"path": missing, "content": "x"})),
        ("copy_file", json!({"from": missing, "to": "z"})),
        ("copy_file", json!({"from": "there", "to": evil})),
        ("move_file", json!({"from": missing, "to": "z"})),
        ("move_file", json!({"from": "there", "to": evil})),
        ("delete_file", json!({"path": missing})),
        ("make_folder", json!({"path": evil})),
        ("stat_file", json!({"path": missing})),
        ("list_files", json!({"path": missing})),
        ("search_codebase", json!({"pattern": format!("({evil}")})),
        ("run_tests", json!({"path": missing})),
        ("git_show", json!({"rev": evil})),
        ("git_checkout", json!({"paths": [missing]})),
        ("read_output", json!({"call": evil})),
        (evil, json!({})),
    ] {
        let out = w.call_tool(name, args);
        let text = out.text().into_owned();
        let hides = |c: char| c != '\n' && c != '\t' && (c.is_control() || c == '\u{202e}');
        assert!(!text.contains(hides), "{name:?}: {text:?}");
    }
}

#[test]
fn endless_files_are_refused_at_once() {
    let mut w = TestWorkspace::new(&[("a.txt", "needle\n"), ("d/b.txt", "needle\n")]);
    for name in ["fifo", ".gitignore", "d/.gitignore", ".ignore", ".rgignore", "package.json", "Cargo.toml"] {
        make_fifo(&w.full_path(name));
    }
    std::fs::create_dir_all(w.full_path(".git/info")).expect("makes");
    make_fifo(&w.full_path(".git/info/exclude"));
    let _socket = UnixListener::bind(w.full_path("socket")).expect("binds");
    w.create_link("zero", "/dev/zero");
    w.write_file("e/c.txt", "needle\n");
    w.create_link("e/.gitignore", "/dev/zero");
    for path in ["fifo", "socket", "zero", "package.json"] {
        for (name, args) in [
            ("read_file", json!({"path": path})),
            ("edit_file", json!({"path": path, "edits": [{"search": "a", "replace": "b"}]})),
            ("create_file", json!({"path": path, "content": "x"})),
        ] {
            let (back, out) = call_with_timeout(w, name, args);
            w = back;
            assert!(out.is_error, "{name} {path}: {}", out.text());
        }
    }
    for (name, args) in [
        ("list_files", json!({})),
        ("search_codebase", json!({"regex": "needle"})),
        ("read_file", json!({"path": "missing.txt"})),
        ("run_tests", json!({})),
    ] {
        let (back, out) = call_with_timeout(w, name, args);
        w = back;
        assert!(
            name == "run_tests" || name == "read_file" || out.text().contains("d/b.txt"),
            "{}",
            out.text()
        );
    }
}

/// An ignore file that is a link would reveal its target's contents by what it hides.
#[test]
fn ignore_file_outside_the_workspace_is_not_read() {
    let outside = tempfile::tempdir().expect("temp");
    std::fs::write(outside.path().join("secret"), "guessed.txt\n").expect("write");
    for name in [".gitignore", ".ignore", ".rgignore", ".git/info/exclude"] {
        let mut w = TestWorkspace::new(&[("guessed.txt", "needle\n"), ("other.txt", "needle\n")]);
        std::fs::create_dir_all(w.full_path(".git/info")).expect("makes");
        w.write_file(name, "guessed.txt\n");
        let listed = w.call_tool("list_files", json!({})).text().into_owned();
        assert!(!listed.contains("guessed.txt"), "control: {name} hides: {listed}");
        std::fs::remove_file(w.full_path(name)).expect("removes");
        w.create_link(name, outside.path().join("secret"));
        let listed = w.call_tool("list_files", json!({})).text().into_owned();
        assert!(listed.contains("guessed.txt"), "{name}: {listed}");
        let found = w.call_tool("search_codebase", json!({"regex": "needle"})).text().into_owned();
        assert!(found.contains("guessed.txt"), "{name}: {found}");
    }
}

#[test]
fn ignore_rules_have_the_precedence_of_ripgrep() {
    let w = TestWorkspace::new(&[
        (".gitignore", "*.log\n/build/\n!.shown\n"),
        (".ignore", "!kept.log\n"),
        ("sub/.gitignore", "!here.log\nx/\n"),
        (".shown/f.txt", "needle\n"),
        (".hidden/f.txt", "needle\n"),
        ("a.log", "needle\n"),
        ("kept.log", "needle\n"),
        ("build/f.txt", "needle\n"),
        ("sub/build/f.txt", "needle\n"),
        ("sub/here.log", "needle\n"),
        ("sub/there.log", "needle\n"),
        ("sub/x/f.txt", "needle\n"),
    ]);
    let mut w = w;
    let found = w.call_tool("search_codebase", json!({"regex": "needle"})).text().into_owned();
    let mut names: Vec<&str> =
        found.lines().filter_map(|line| line.split_once(":1:")).map(|hit| hit.0).collect();
    names.sort_unstable();
    assert_eq!(names, [".shown/f.txt", "kept.log", "sub/build/f.txt", "sub/here.log"], "{found}");
}

#[test]
fn protected_paths_are_not_created_or_changed_in_any_case_or_depth() {
    let mut w = TestWorkspace::new(&[
        (".git/config", "[core]\n"),
        ("a/docket.toml", "x = 1\n"),
        (".GIT/config", "[core]\n"),
        (".docket/policy.toml", "x = 1\n"),
    ]);
    for path in [
        ".git/hooks/pre-commit",
        ".git",
        "a/b/.git/config",
        ".GIT/hooks/pre-commit",
        "x/.Git/HEAD",
        "docket.toml",
        "a/b/Docket.TOML",
        ".docket/x",
        "a/.DOCKET/policy.toml",
        "./.git/./hooks//post-checkout",
    ] {
        let out = w.call_tool("create_file", json!({"path": path, "content": "x"}));
        assert!(out.is_error && out.text().contains("protected"), "{path}: {}", out.text());
        assert!(!w.full_path(path).is_file(), "{path}");
    }
    for path in [".git/config", ".GIT/config", "a/docket.toml", ".docket/policy.toml"] {
        let before = w.read_file(path);
        w.call_tool("read_file", json!({"path": path}));
        let edits = json!([{"search": before.trim(), "replace": "y"}]);
        let out = w.call_tool("edit_file", json!({"path": path, "edits": edits}));
        assert!(out.is_error, "{path}: {}", out.text());
        assert_eq!(w.read_file(path), before, "{path}");
    }
    for path in
        [".github/workflows/ci.yml", ".gitignore", "a/.gitattributes", ".gitmodules", "docs/docket.md"]
    {
        let out = w.call_tool("create_file", json!({"path": path, "content": "a: 1\n"}));
        assert!(!out.is_error && w.full_path(path).is_file(), "{path}: {}", out.text());
    }
}

#[test]
fn hard_link_to_an_outside_file_is_not_read_or_written() {
    let outside = tempfile::tempdir().expect("temp");
    let secret = outside.path().join("secret");
    std::fs::write(&secret, CANARY).expect("write");
    let mut w = TestWorkspace::new(&[("given.txt", "x\n")]);
    std::fs::hard_link(&secret, w.full_path("l.txt")).expect("links");
    assert_eq!(w.read_file("l.txt"), CANARY, "control");
    for (name, args) in [
        ("read_file", json!({"path": "l.txt"})),
        ("edit_file", json!({"path": "l.txt", "edits": [{"search": "canary", "replace": "b"}]})),
        ("create_file", json!({"path": "l.txt", "content": "x"})),
        ("search_codebase", json!({"regex": "from-outside"})),
    ] {
        let out = w.call_tool(name, args);
        assert!(!out.text().contains(CANARY), "{name}: {}", out.text());
    }
    assert_eq!(std::fs::read_to_string(&secret).expect("reads"), CANARY);
}

/// Exchanges two names repeatedly until it is stopped.
struct LinkSwapper {
    end: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl LinkSwapper {
    fn new(one: &Path, other: &Path) -> Self {
        let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).expect("no NUL");
        let (one, other, end) = (text(one), text(other), Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&end);
        let thread = thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                #[expect(unsafe_code, reason = "an exchange of two names has no safe wrapper")]
                // SAFETY: both strings live across the call.
                unsafe {
                    let here = libc::AT_FDCWD;
                    libc::renameat2(here, one.as_ptr(), here, other.as_ptr(), libc::RENAME_EXCHANGE);
                }
            }
        });
        Self { end, thread: Some(thread) }
    }
}

impl Drop for LinkSwapper {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic");
        }
    }
}

#[test]
fn folder_swapped_for_a_link_does_not_lead_outside() {
    const ROUNDS: usize = 300;
    let outside = tempfile::tempdir().expect("temp");
    std::fs::write(outside.path().join("f.txt"), CANARY).expect("write");
    std::fs::write(outside.path().join("canary-named.txt"), "x").expect("write");
    let mut w = TestWorkspace::new(&[("d/f.txt", "inside\n"), ("given.txt", "x\n")]);
    symlink(outside.path(), w.full_path("link")).expect("links");
    let swapper = LinkSwapper::new(&w.full_path("d"), &w.full_path("link"));
    // Control: checking first and opening afterwards loses the race.
    let lost = (0..200_000).any(|_| {
        let path = w.full_path("d");
        let is_folder = std::fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir());
        is_folder && std::fs::read_to_string(path.join("f.txt")).is_ok_and(|text| text == CANARY)
    });
    assert!(lost, "control: the race is one");
    let (mut read, mut wrote) = (0, 0);
    for round in 0..ROUNDS {
        let got = w.call_tool("read_file", json!({"path": "d/f.txt"}));
        read += usize::from(!got.is_error);
        let text = format!("inside {round}\n");
        let edits = json!([{"search": "inside", "replace": "inside"}]);
        let edited = w.call_tool("edit_file", json!({"path": "d/f.txt", "edits": edits}));
        let made = w.call_tool("create_file", json!({"path": format!("d/new-{round}.txt"), "content": text}));
        wrote += usize::from(!made.is_error);
        let found = w.call_tool("search_codebase", json!({"regex": "canary|inside"}));
        let listed = w.call_tool("list_files", json!({"path": "d"}));
        for out in [&got, &edited, &made, &found, &listed] {
            assert!(!out.text().contains("canary"), "{}", out.text());
        }
    }
    drop(swapper);
    assert!(read > 0 && wrote > 0, "some calls met the folder itself: {read} {wrote}");
    let mut names: Vec<_> =
        std::fs::read_dir(outside.path()).expect("lists").map(|e| e.expect("entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["canary-named.txt", "f.txt"]);
    assert_eq!(std::fs::read_to_string(outside.path().join("f.txt")).expect("reads"), CANARY);
}
