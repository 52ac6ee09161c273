//! Runs the git tools on a real repository.

use serde_json::json;

use crate::tools::testing::TestWorkspace;

/// A workspace with a repository of one commit.
fn repository(files: &[(&str, &str)]) -> TestWorkspace {
    let mut w = TestWorkspace::new(files);
    let line = "git init -q -b main && git add -A && git -c user.name=a -c user.email=a@b commit -qm first";
    let out = w.call_tool("run_command", json!({"command": line}));
    assert_eq!(out.facts.exit, Some(0), "{}", out.text());
    w
}

#[test]
fn git_tools_reject_options_as_names_and_paths_outside() {
    let mut w = repository(&[("a", "1\n")]);
    for (tool, args) in [
        ("git_log", json!({"rev": "--output=x"})),
        ("git_log", json!({"rev": "a b"})),
        ("git_log", json!({"rev": "$(id)"})),
        ("git_log", json!({"rev": ""})),
        ("git_log", json!({"path": "../x"})),
        ("git_diff", json!({"from": "--no-index"})),
        ("git_diff", json!({"from": "HEAD", "to": "-O/etc/passwd"})),
        ("git_diff", json!({"path": "/etc/passwd"})),
        ("git_show", json!({"rev": "-x"})),
        ("git_show", json!({"rev": "HEAD", "file": "../../etc/passwd"})),
        ("git_add", json!({"paths": ["../x"]})),
        ("git_add", json!({"paths": []})),
        ("git_add", json!({"paths": [""]})),
        ("git_branch", json!({"name": "-D"})),
        ("git_branch", json!({"name": "x;touch y"})),
        ("git_checkout", json!({"branch": "--orphan"})),
        ("git_checkout", json!({"paths": ["/etc"]})),
        ("git_checkout", json!({})),
        ("git_commit", json!({"message": ""})),
    ] {
        let out = w.call_tool(tool, args.clone());
        assert!(out.is_error && !out.facts.may_have_changed_tree, "{tool} {args}: {}", out.text());
    }
    assert!(!w.full_path("y").exists() && !w.full_path("x").exists());
}

#[test]
fn hooks_and_configured_programs_do_not_run_and_nothing_is_fetched() {
    let mut w = repository(&[("a.txt", "1\n"), (".gitattributes", "*.txt diff=evil\n")]);
    for hook in ["pre-commit", "post-commit", "post-checkout", "commit-msg"] {
        w.write_file(&format!(".git/hooks/{hook}"), "#!/bin/sh\ntouch ran\n");
        w.set_mode(&format!(".git/hooks/{hook}"), 0o755);
    }
    let config = "git config diff.evil.textconv 'touch ran; cat' && git config diff.evil.command 'touch ran' && \
         git config core.fsmonitor 'touch ran' && git config core.pager 'touch ran; cat' && \
         git config alias.status '!touch ran' && git config diff.external 'touch ran'";
    assert_eq!(w.call_tool("run_command", json!({"command": config})).facts.exit, Some(0));
    w.write_file("a.txt", "2\n");
    for (tool, args) in [
        ("git_status", json!({})),
        ("git_diff", json!({})),
        ("git_add", json!({"paths": ["a.txt"]})),
        ("git_diff", json!({"staged": true})),
        ("git_commit", json!({"message": "second"})),
        ("git_show", json!({"rev": "HEAD"})),
        ("git_log", json!({"path": "a.txt"})),
        ("git_checkout", json!({"branch": "other", "create": true})),
    ] {
        let out = w.call_tool(tool, args);
        assert!(!out.is_error, "{tool}: {}", out.text());
        assert!(!w.full_path("ran").exists(), "{tool} ran what the repository says");
    }
}

#[test]
fn changed_new_and_deleted_files_are_staged_by_name() {
    let mut w = repository(&[("a", "1\n"), ("gone", "1\n"), (".gitignore", "*.log\n")]);
    w.write_file("a", "2\n");
    w.write_file("a b;c", "new\n");
    w.write_file("x.log", "noise\n");
    std::fs::remove_file(w.full_path("gone")).expect("removed");
    let out = w.call_tool("git_add", json!({"paths": ["."]}));
    assert!(!out.is_error && out.facts.may_have_changed_tree, "{}", out.text());
    let status = w.call_tool("git_status", json!({}));
    assert!(status.text().ends_with("M  a\nA  \"a b;c\"\nD  gone\n"), "{}", status.text());
    // A missing path is reported, and a single path is accepted in place of a list.
    assert!(w.call_tool("git_add", json!({"paths": ["nowhere"]})).is_error);
    assert!(w.call_tool("git_add", json!({"paths": "a"})).is_error);
}

#[test]
fn branches_are_created_listed_and_deleted_if_nothing_is_lost() {
    let mut w = repository(&[("a", "1\n")]);
    assert!(!w.call_tool("git_branch", json!({"name": "fix/one"})).is_error);
    assert!(!w.call_tool("git_branch", json!({"name": "two", "from": "main"})).is_error);
    let list = w.call_tool("git_branch", json!({}));
    assert!(list.text().contains("  fix/one") && list.text().contains("* main"), "{}", list.text());
    assert!(!w.call_tool("git_branch", json!({"name": "two", "delete": true})).is_error);
    w.call_tool("git_checkout", json!({"branch": "fix/one"}));
    w.write_file("a", "2\n");
    w.call_tool("git_commit", json!({"message": "only here", "all": true}));
    w.call_tool("git_checkout", json!({"branch": "main"}));
    let out = w.call_tool("git_branch", json!({"name": "fix/one", "delete": true}));
    assert!(out.is_error && out.text().contains("not fully merged"), "{}", out.text());
    for args in [json!({"name": "main"}), json!({"name": "a..b"}), json!({"delete": true})] {
        assert!(w.call_tool("git_branch", args.clone()).is_error, "{args}");
    }
}

#[test]
fn switching_branches_loses_no_change() {
    let mut w = repository(&[("a", "1\n")]);
    let out = w.call_tool("git_checkout", json!({"branch": "other", "create": true}));
    assert!(!out.is_error && out.facts.may_have_changed_tree, "{}", out.text());
    w.write_file("a", "2\n");
    w.call_tool("git_commit", json!({"message": "two", "all": true}));
    assert!(!w.call_tool("git_checkout", json!({"branch": "main"})).is_error);
    assert_eq!(w.read_file("a"), "1\n");
    w.write_file("a", "mine\n");
    let out = w.call_tool("git_checkout", json!({"branch": "other"}));
    assert!(out.is_error && out.text().contains("would be overwritten"), "{}", out.text());
    assert_eq!(w.read_file("a"), "mine\n");
    // A file name is not a branch.
    assert!(w.call_tool("git_checkout", json!({"branch": "a"})).is_error);
    assert_eq!(w.read_file("a"), "mine\n");
}

#[test]
fn files_are_restored_from_the_index_or_a_commit() {
    let mut w = repository(&[("a", "1\n"), ("b", "1\n")]);
    w.write_file("a", "2\n");
    w.write_file("b", "2\n");
    w.call_tool("git_commit", json!({"message": "two", "all": true}));
    w.write_file("a", "3\n");
    assert!(!w.call_tool("git_checkout", json!({"paths": ["a"]})).is_error);
    assert!(!w.call_tool("git_checkout", json!({"paths": ["b"], "from": "HEAD~1"})).is_error);
    assert_eq!((w.read_file("a").as_str(), w.read_file("b").as_str()), ("2\n", "1\n"));
    for args in [
        json!({"paths": ["a"], "branch": "main"}),
        json!({"paths": []}),
        json!({"branch": "main", "from": "HEAD"}),
        json!({"paths": ["nowhere"]}),
    ] {
        assert!(w.call_tool("git_checkout", args.clone()).is_error, "{args}");
    }
}

#[test]
fn commit_has_dockets_name_and_a_literal_message() {
    let mut w = repository(&[("a", "1\n")]);
    w.write_file("a", "2\n");
    let words = "it's $(touch ran) `touch ran` \"quoted\"\n\n# no comment\n--amend";
    let out = w.call_tool("git_commit", json!({"message": words, "all": true}));
    assert!(!out.is_error, "{}", out.text());
    let told = w.call_tool("run_command", json!({"command": "git log -1 --format='%an <%ae> %cn%n%B'"}));
    let want = format!("stdout:\ndocket <docket@localhost> docket\n{words}\n");
    assert!(told.text().contains(&want), "{}", told.text());
    assert!(!w.full_path("ran").exists());
    // Nothing is left to commit: that is reported as a failure.
    let out = w.call_tool("git_commit", json!({"message": "again"}));
    assert!(out.is_error && out.text().contains("nothing to commit"), "{}", out.text());
    assert!(w.call_tool("git_commit", json!({"message": "x".repeat(16 * 1024 + 1)})).is_error);
}

#[test]
fn each_pair_of_revisions_is_compared() {
    let mut w = repository(&[("a", "1\n"), ("-b", "1\n"), ("*", "1\n")]);
    w.write_file("a", "2\n");
    w.call_tool("git_add", json!({"paths": ["a"]}));
    w.write_file("a", "3\n");
    w.write_file("-b", "3\n");
    let mut diff = |args: serde_json::Value| w.call_tool("git_diff", args).text().into_owned();
    assert!(diff(json!({"path": "a"})).contains("-2\n+3\n"));
    assert!(diff(json!({"staged": true})).contains("-1\n+2\n"));
    assert!(diff(json!({"from": "HEAD", "path": "a"})).contains("-1\n+3\n"));
    assert!(diff(json!({"path": "-b"})).contains("-1\n+3\n"));
    // A path is a name, not a pattern.
    assert_eq!(diff(json!({"path": "*"})), "exit status 0\n");
    assert!(diff(json!({"stat": true})).contains("2 files changed"));
    assert!(diff(json!({"to": "HEAD"})).contains("without `from`"));
    assert!(diff(json!({"from": "nowhere"})).contains("exit status 128"));
}

#[test]
fn long_diff_is_stored_in_full() {
    let mut w = repository(&[("a", "")]);
    w.write_file("a", "a line that is added\n".repeat(2000));
    let out = w.call_tool("git_diff", json!({}));
    assert!(out.content.len() < 5000 && out.full_output.is_some_and(|full| full.len() > 40_000));
}

#[test]
fn commits_are_listed_by_path_and_count() {
    let mut w = repository(&[("a", "1\n")]);
    w.write_file("b", "1\n");
    w.call_tool("git_add", json!({"paths": ["."]}));
    w.call_tool("git_commit", json!({"message": "second\n\nwith a body"}));
    let mut log = |args: serde_json::Value| w.call_tool("git_log", args).text().into_owned();
    let all = log(json!({}));
    assert!(all.contains(" docket: second\n") && all.contains(" a: first\n"), "{all}");
    assert!(!log(json!({"path": "b"})).contains("first") && !log(json!({"count": 1})).contains("first"));
    assert!(!log(json!({"rev": "HEAD~1"})).contains("second"));
    assert!(log(json!({"rev": "nowhere"})).contains("exit status 128"));
}

#[test]
fn commit_and_a_file_of_it_are_shown() {
    let mut w = repository(&[("d/a", "was\n")]);
    w.write_file("d/a", "is\n");
    let out = w.call_tool("git_show", json!({"rev": "HEAD"}));
    assert!(out.text().contains("    first\n") && out.text().contains("+was\n"), "{}", out.text());
    let out = w.call_tool("git_show", json!({"rev": "main", "file": "./d/a"}));
    assert_eq!(out.text(), "exit status 0\nstdout:\nwas\n");
    let out = w.call_tool("git_show", json!({"rev": "main", "file": "d/b"}));
    assert!(out.is_error && out.facts.error_signature.is_some(), "{}", out.text());
}

#[test]
fn status_lists_staged_changed_and_untracked_files() {
    let mut w = repository(&[("a", "1\n"), ("b", "1\n")]);
    assert_eq!(w.call_tool("git_status", json!({})).text(), "exit status 0\nstdout:\n## main\n");
    w.write_file("a", "2\n");
    w.write_file("b", "2\n");
    w.write_file("c", "2\n");
    w.call_tool("git_add", json!({"paths": ["a"]}));
    let out = w.call_tool("git_status", json!({}));
    assert_eq!(out.text(), "exit status 0\nstdout:\n## main\nM  a\n M b\n?? c\n");
    assert!(!out.facts.may_have_changed_tree);
}

#[test]
fn workspace_without_a_repository_is_reported() {
    let mut w = TestWorkspace::new(&[]);
    let out = w.call_tool("git_status", json!({}));
    assert!(out.is_error && out.text().contains("not a git repository"), "{}", out.text());
}
