//! Evaluates calls against sample policies.

use docket_schema::{
    message::{CallId, ToolUse},
    policy::{Policy, RuleVerdict},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{PolicyDecision, RuleScope, evaluate_policies, parse_policy_text};

fn call(name: &str, args: Value) -> ToolUse {
    ToolUse { call: CallId("t1-0".to_owned()), name: name.to_owned(), args, malformed: None }
}

fn command_call(command: &str) -> ToolUse {
    call("run_command", json!({ "command": command }))
}

fn ruling_for(policies: &[Policy], tool: &ToolUse) -> (RuleVerdict, String) {
    let PolicyDecision { ruling, rule_id: rule, .. } =
        evaluate_policies(policies, tool, RuleScope::Descendants);
    (ruling, rule)
}

const CAREFUL_POLICY: &str = r#"
[[rules]]
id = "no-push"
verdict = "deny"
commands = ["git push *", "gh *"]
reason = "results are taken from the workspace"
matches = ["cd x && git push", "sudo gh pr create"]
misses = ["git pull", "echo git push"]

[[rules]]
id = "infra"
verdict = "ask"
paths = ["infra/**", "*.tf"]
matches = ["infra/a/b.yml", "x/main.tf"]
misses = ["src/infra.py"]

[[rules]]
id = "deletes"
verdict = "ask"
labels = ["deletes"]
"#;

/// An allow list.
const STRICT_POLICY: &str = r#"
default = "deny"
[[rules]]
id = "looks"
verdict = "allow"
tools = ["read_file", "list_files", "search_codebase"]
[[rules]]
id = "plan"
verdict = "allow"
commands = ["ls *", "git status", "git diff *", "python -m pytest *", "echo *"]
[[rules]]
id = "notes"
verdict = "allow"
paths = ["notes/**"]
"#;

/// A call of the wide tool set is evaluated like the equivalent command, and by every file it names.
#[test]
fn wide_set_tools_are_evaluated_by_their_effects() {
    let more = "[[rules]]\nid = \"commits\"\nverdict = \"deny\"\ncommands = [\"git commit *\"]\n[[rules]]\nid = \"pip\"\n\
                verdict = \"ask\"\nlabels = [\"installs\"]\n[[rules]]\nid = \"notes\"\nverdict = \"ask\"\nlabels = [\"memory\"]\n";
    let careful = [parse_policy_text(&format!("{CAREFUL_POLICY}{more}")).expect("a policy")];
    let strict = [parse_policy_text(STRICT_POLICY).expect("a policy")];
    use RuleVerdict::{Allow, Ask, Deny};
    for (tool, args, of_careful, of_strict) in [
        ("git_status", json!({}), (Allow, "default"), (Allow, "plan")),
        ("git_diff", json!({"path": "a"}), (Allow, "default"), (Allow, "plan")),
        ("git_commit", json!({"message": "x; git status"}), (Deny, "commits"), (Deny, "default")),
        ("git_checkout", json!({"paths": ["infra/a"]}), (Ask, "infra"), (Deny, "default")),
        ("venv_run", json!({"command": "git push"}), (Deny, "no-push"), (Deny, "default")),
        // It is unknown which python this is: an allow list has to allow everything.
        ("venv_run", json!({"command": "python -m pytest x"}), (Allow, "default"), (Deny, "default")),
        ("git_show", json!({"rev": "HEAD", "file": "infra/a"}), (Ask, "infra"), (Deny, "default")),
        ("git_diff", json!({"path": "infra/a"}), (Ask, "infra"), (Allow, "plan")),
        ("git_log", json!({"path": "infra/a"}), (Ask, "infra"), (Deny, "default")),
        ("venv_install", json!({"packages": ["x"]}), (Ask, "pip"), (Deny, "default")),
        ("write_file", json!({"path": "./infra/a.yml"}), (Ask, "infra"), (Deny, "default")),
        ("write_file", json!({"path": "notes/a"}), (Allow, "default"), (Allow, "notes")),
        ("move_file", json!({"from": "a", "to": "infra/b"}), (Ask, "infra"), (Deny, "default")),
        ("move_file", json!({"from": "infra/b", "to": "notes/a"}), (Ask, "infra"), (Deny, "default")),
        ("copy_file", json!({"from": "notes/a", "to": "notes/b"}), (Allow, "default"), (Allow, "notes")),
        ("delete_file", json!({"path": "notes/a"}), (Ask, "deletes"), (Allow, "notes")),
        ("memory_save", json!({"key": "k"}), (Ask, "notes"), (Deny, "default")),
        ("memory_recall", json!({}), (Ask, "notes"), (Deny, "default")),
        ("read_output", json!({"call": "t1-0"}), (Allow, "default"), (Deny, "default")),
    ] {
        let call = call(tool, args.clone());
        for (policies, (ruling, rule)) in [(&careful, of_careful), (&strict, of_strict)] {
            assert_eq!(ruling_for(policies, &call), (ruling, rule.to_owned()), "{tool} {args}");
        }
    }
    let by_tool = parse_policy_text(
        "[[rules]]\nid = \"t\"\nverdict = \"deny\"\ntools = [\"git_add\", \"memory_delete\"]",
    );
    let by_tool = [by_tool.expect("tools of the wide set are known")];
    assert_eq!(ruling_for(&by_tool, &call("git_add", json!({"paths": ["."]}))).0, Deny);
}

/// A rule for everything below a folder applies to actions on that folder as a whole, or on one of its parents.
#[test]
fn action_on_a_folder_counts_for_its_contents() {
    let rule = |verdict: &str| {
        let text = format!(
            "[[rules]]\nid = \"i\"\nverdict = \"{verdict}\"\npaths = [\"ops/infra/**\", \"keys/\"]\n"
        );
        [parse_policy_text(&text).expect("a policy")]
    };
    let deny = rule("deny");
    use RuleVerdict::{Allow, Deny};
    for (tool, args, ruling) in [
        ("move_file", json!({"from": "ops/infra", "to": "x"}), Deny),
        ("move_file", json!({"from": "ops", "to": "x"}), Deny),
        ("move_file", json!({"from": "x", "to": "keys"}), Deny),
        ("move_file", json!({"from": "op", "to": "x"}), Allow),
        ("move_file", json!({"from": "ops/infrared", "to": "x"}), Allow),
        ("delete_file", json!({"path": "./keys/", "recursive": true}), Deny),
        ("git_checkout", json!({"paths": ["ops"]}), Deny),
        ("git_checkout", json!({"paths": ["."]}), Deny),
        ("git_checkout", json!({"paths": ["src"]}), Allow),
        // A file that a tool's own command reads counts as named.
        ("venv_install", json!({"requirements": "ops/infra/r.txt"}), Deny),
        ("git_add", json!({"paths": ["keys/a"]}), Deny),
        // Reading or creating a folder concerns its name alone.
        ("list_files", json!({"path": "ops"}), Allow),
        ("make_folder", json!({"path": "ops"}), Allow),
        ("write_file", json!({"path": "ops"}), Allow),
    ] {
        let call = call(tool, args.clone());
        assert_eq!(ruling_for(&deny, &call).0, ruling, "{tool} {args}");
        // Decided as before, which older logs rely on.
        assert_eq!(evaluate_policies(&deny, &call, RuleScope::NamedPaths).ruling, Allow, "{tool} {args}");
    }
    // A rule that allows paths below a folder does not cover the folder itself.
    let strict = parse_policy_text(
        "default = \"deny\"\n[[rules]]\nid = \"a\"\nverdict = \"allow\"\npaths = [\"notes/**\"]\n",
    );
    let strict = [strict.expect("a policy")];
    assert_eq!(
        ruling_for(&strict, &call("delete_file", json!({"path": "notes", "recursive": true}))).0,
        Deny
    );
}

#[test]
fn strictest_ruling_of_any_part_wins() {
    let careful = [parse_policy_text(CAREFUL_POLICY).expect("a policy")];
    use RuleVerdict::{Allow, Ask, Deny};
    for (command, ruling, rule) in [
        ("git status", Allow, "default"),
        ("make && git push origin main", Deny, "no-push"),
        ("if true; then /usr/bin/git push; fi", Deny, "no-push"),
        ("bash -c 'git push'", Deny, "no-push"),
        ("echo $(git push)", Deny, "no-push"),
        ("env A=1 timeout 9 git push", Deny, "no-push"),
        ("rm -rf build", Ask, "deletes"),
        ("rm x; git push", Deny, "no-push"),
        ("echo x > infra/a.yml", Ask, "infra"),
        ("echo x > src/a.yml 2>/dev/null", Allow, "default"),
        ("echo 'git push'", Allow, "default"),
    ] {
        assert_eq!(ruling_for(&careful, &command_call(command)), (ruling, rule.to_owned()), "{command}");
    }
    for (tool, args, ruling) in [
        ("edit_file", json!({ "path": "./infra//x.yml" }), Ask),
        ("create_file", json!({ "path": "a/../infra/x" }), Ask),
        ("read_file", json!({ "path": "src/x" }), Allow),
        ("run_command", json!({ "command": "touch a > b.yml", "cwd": "infra" }), Ask),
        ("run_tests", json!({}), Allow),
    ] {
        assert_eq!(ruling_for(&careful, &call(tool, args)).0, ruling, "{tool}");
    }
    let about =
        evaluate_policies(&careful, &command_call("make && git push origin main"), RuleScope::Descendants);
    assert_eq!(
        (about.subject.as_str(), about.reason.as_str()),
        ("git push origin main", "results are taken from the workspace")
    );
}

#[test]
fn denied_commands_are_found_in_common_forms_without_false_positives() {
    let careful = [parse_policy_text(CAREFUL_POLICY).expect("a policy")];
    for denied in [
        "git -C . push",
        "git -c a.b=c push",
        "git --no-pager push",
        "git 2>&1 push",
        "git >/dev/null push 2>&1 origin",
        "cat <<A\n`git push`\nA",
        "git --git-dir=x push",
        "git --git-dir x --work-tree y -p push origin main",
        "/usr/bin/git -C . push",
        "echo 'git push' | sh",
        "echo git push | sudo bash -s",
        "printf 'git push\\n' | bash",
        "printf '%s' 'git push' | bash",
        "bash <<< 'git push'",
        "bash <<< 'git push' > log",
        "sh <<'A'\ngit push\nA",
        "cat <<'A' | sh\ngit push\nA",
        "env -S 'git push'",
        "env -iS 'git push'",
        "env --split-string='git push'",
        "coproc git push",
        "stdbuf -oL git push",
        "stdbuf -o L git push",
        "flock /tmp/l git push",
        "flock /tmp/l -c 'git push'",
        "su -c 'git push'",
        "su someone -c 'git push'",
        "watch git push",
        "watch -n 1 'git push'",
        "strace -f -o x git push",
        "unshare -r git push",
        "busybox sh -c 'git push'",
        "parallel git push ::: a b",
        "parallel ::: 'git push'",
        "trap 'git push' EXIT",
        "alias p='git push'; p",
        "sudo -u root git push",
        "sudo env -S 'git push'",
        "timeout -s KILL 5 git push",
    ] {
        assert_eq!(ruling_for(&careful, &command_call(denied)).0, RuleVerdict::Deny, "{denied}");
    }
    for harmless in [
        "git -C push status",
        "git -c push.default=simple status",
        "git --no-pager log --grep push",
        "git log -- push",
        "echo git push",
        "echo 'git push' | cat",
        "grep -r 'git push' docs | sort",
        "cat <<'A' > notes\ngit push\nA",
        "grep x <<< 'git push'",
        "sudo -u git make push",
        "flock git make",
        "watch -n 2 ls git push",
        "env A=git ls push",
        "man su; which trap env",
        "sh run.sh 'git push'",
        "find . -name trap",
        "type alias watch",
        "cat script | sh",
        "make | tee log",
        "strace -o git ls push",
        "xargs -n 1 echo git push",
    ] {
        assert_eq!(ruling_for(&careful, &command_call(harmless)).0, RuleVerdict::Allow, "{harmless}");
    }
}

#[test]
fn commands_hidden_by_wrappers_match_no_allowlist() {
    let list = r#"
default = "deny"
[[rules]]
id = "looks"
verdict = "allow"
commands = ["cat *", "echo *", "sh", "bash *", "su *", "git *", "parallel *", "source *", "timeout *", "ls *", "env *"]
"#;
    let strict = [parse_policy_text(list).expect("a policy")];
    for dark in [
        "cat x | sh",
        "echo $X | sh",
        "echo -e 'l\\163' | sh",
        "(cat x) | bash -s",
        "bash <<< $X",
        "su - root",
        "cat x | parallel",
        "source <(cat x)",
        "git -c alias.x=push x",
        "timeout 5 $X",
        "echo curl x | sh",
        "env -S 'curl x'",
    ] {
        assert_eq!(ruling_for(&strict, &command_call(dark)).0, RuleVerdict::Deny, "{dark}");
    }
    for seen in [
        "echo ls | sh",
        "bash run.sh",
        "cat x | cat y",
        "bash -c 'ls a'",
        "su -c ls",
        "env A=1 ls",
        "source venv",
    ] {
        assert_eq!(ruling_for(&strict, &command_call(seen)).0, RuleVerdict::Allow, "{seen}");
    }
}

/// Bash may expand an argument to something that another rule denies.
#[test]
fn expanded_arguments_cannot_bypass_a_deny_rule() {
    let rules = |verdict: &str| {
        let text = format!(
            "default = \"deny\"\n[[rules]]\nid = \"git\"\nverdict = \"allow\"\ncommands = [\"git *\", \"ls *\"]\n\
             [[rules]]\nid = \"no-push\"\nverdict = \"{verdict}\"\ncommands = [\"git push *\"]\n"
        );
        [parse_policy_text(&text).expect("a policy")]
    };
    for verdict in ["deny", "ask"] {
        let policies = rules(verdict);
        for dark in [
            "git {push,origin}",
            "git p?sh",
            "git p*",
            "git [p]ush",
            "git $x",
            "git $x push",
            "git \"$x\" origin",
            "git ${x}ush",
            "git -C $x",
            "git -C {.,push}",
            "/usr/bin/git $x",
            "git 2>&1 $x",
            "bash -c 'git $x'",
            "gi? push",
            "git $\"$x\"",
            "git pu$\"$x\"",
            "git $\"`x`\" origin",
            "git $'pu\\x73h'",
            "git 2>&1 $'pu\\x73h'",
            "bash -c 'git $\"$x\"'",
        ] {
            assert_eq!(
                ruling_for(&policies, &command_call(dark)),
                (RuleVerdict::Deny, "default".to_owned()),
                "{dark}"
            );
        }
        for seen in [
            "git status",
            "git add *.py",
            "git commit -m \"$x\"",
            "git log 'p?sh' {}",
            "ls $x *",
            "git -C . add $x",
        ] {
            assert_eq!(ruling_for(&policies, &command_call(seen)).0, RuleVerdict::Allow, "{seen}");
        }
    }
}

#[test]
fn allowlist_permits_nothing_else() {
    let strict = [parse_policy_text(STRICT_POLICY).expect("a policy")];
    use RuleVerdict::{Allow, Deny};
    for (command, ruling) in [
        ("ls -la", Allow),
        ("git status && git diff HEAD", Allow),
        ("python -m pytest -q tests", Allow),
        ("echo a > notes/b.md", Allow),
        ("echo a > b.md", Deny),
        ("git status; curl x", Deny),
        ("ls $(curl x)", Deny),
        ("sudo ls", Deny),
        ("/tmp/ls", Deny),
        ("PATH=. ls", Deny),
        ("$cmd -la", Deny),
        ("ls 'open", Deny),
        ("ls <(curl x)", Deny),
        ("bash -c ls", Deny),
        ("A=1", Deny),
        ("# ls", Deny),
    ] {
        assert_eq!(ruling_for(&strict, &command_call(command)).0, ruling, "{command}");
    }
    assert_eq!(ruling_for(&strict, &call("read_file", json!({ "path": "a" }))), (Allow, "looks".to_owned()));
    assert_eq!(ruling_for(&strict, &call("edit_file", json!({ "path": "a" }))), (Deny, "default".to_owned()));
    assert_eq!(ruling_for(&strict, &call("edit_file", json!({ "path": "notes/a" }))).0, Allow);
    assert_eq!(ruling_for(&strict, &call("edit_file", json!({ "path": "notes/../a" }))).0, Deny);
    assert_eq!(ruling_for(&strict, &call("run_tests", json!({}))).0, Deny);
}

/// A rule can also decide whether work is delegated at all, whatever its test line is.
#[test]
fn rules_apply_to_delegated_work() {
    let alone = |verdict: &str| {
        let rule = format!("[[rules]]\nid = \"alone\"\nverdict = \"{verdict}\"\ntools = [\"delegate\"]\n");
        [parse_policy_text(&rule).expect("the tool is known")]
    };
    let piece = |tests: &str| call("delegate", json!({ "title": "a", "instructions": "b", "tests": tests }));
    for (verdict, ruling) in [("deny", RuleVerdict::Deny), ("ask", RuleVerdict::Ask)] {
        for tests in ["", "true"] {
            assert_eq!(ruling_for(&alone(verdict), &piece(tests)), (ruling, "alone".to_owned()), "{tests}");
        }
        assert_eq!(
            ruling_for(&alone(verdict), &call("read_file", json!({ "path": "a" }))).0,
            RuleVerdict::Allow
        );
    }
}

/// The test line of delegated work runs as written and its side effects belong to that work, so it counts as a
/// command.
#[test]
fn test_line_of_delegated_work_is_evaluated_as_a_command() {
    use RuleVerdict::{Allow, Ask, Deny};
    let piece = |tests: Value| {
        call("delegate", json!({ "title": "a", "instructions": "b", "writes": true, "tests": tests }))
    };
    let careful = [parse_policy_text(CAREFUL_POLICY).expect("a policy")];
    for (tests, ruling, rule) in [
        (json!("make test && git push"), Deny, "no-push"),
        (json!("echo x > infra/a.yml"), Ask, "infra"),
        (json!("rm -r build; make test"), Ask, "deletes"),
        // The path is substituted before the line is run.
        (json!("gi{path}t push"), Deny, "no-push"),
        (json!("make test"), Allow, "default"),
        (json!(" "), Allow, "default"),
        (json!(null), Allow, "default"),
    ] {
        assert_eq!(ruling_for(&careful, &piece(tests.clone())), (ruling, rule.to_owned()), "{tests}");
    }
    let judged = evaluate_policies(&careful, &piece(json!("make test && git push")), RuleScope::Descendants);
    assert_eq!(judged.subject, "git push", "a person and the model read what it is about");
    let listed = |more: &str| {
        let rules =
            "[[rules]]\nid = \"all\"\nverdict = \"allow\"\n[[rules]]\nid = \"a\"\nverdict = \"deny\"\n";
        [parse_policy_text(&format!("{rules}{more}")).expect("a policy")]
    };
    for (more, ruling) in [
        // A rule that is only about the tool that runs commands applies as well.
        ("tools = [\"run_command\"]", Deny),
        ("tools = [\"edit_file\"]", Allow),
        ("labels = [\"command\"]", Deny),
        ("commands = [\"sed *\"]", Deny),
        ("paths = [\"x.py\"]", Deny),
    ] {
        let tests = json!("sed 's/a/b/' x > x.py");
        assert_eq!(ruling_for(&listed(more), &piece(tests)).0, ruling, "{more}");
        assert_eq!(ruling_for(&listed(more), &piece(json!(null))).0, Allow, "{more}: it runs nothing");
    }
    // With an unknown path no allow list matches.
    let only = "default = \"deny\"\n[[rules]]\nid = \"a\"\nverdict = \"allow\"\ncommands = [\"sh *\"]\n";
    let only = [parse_policy_text(only).expect("a policy")];
    assert_eq!(ruling_for(&only, &piece(json!("{path} -c x"))).0, Deny);
}

#[test]
fn strictest_of_several_policies_wins() {
    let both = [
        parse_policy_text(CAREFUL_POLICY).expect("a policy"),
        parse_policy_text(STRICT_POLICY).expect("a policy"),
    ];
    assert_eq!(ruling_for(&both, &command_call("git status")), (RuleVerdict::Allow, "plan".to_owned()));
    assert_eq!(ruling_for(&both, &command_call("rm x")), (RuleVerdict::Deny, "default".to_owned()));
    assert_eq!(ruling_for(&both, &command_call("git push")).0, RuleVerdict::Deny);
    assert_eq!(ruling_for(&[], &command_call("rm -rf /")).0, RuleVerdict::Allow);
}

#[test]
fn policy_errors_name_the_line_or_field() {
    for (text, words) in [
        ("default = \"maybe\"", "unknown variant `maybe`, expected one of `allow`, `ask`, `deny`"),
        ("[[rules]]\nid = \"a\"", "rules[0].verdict: missing field `verdict`"),
        (
            "[[rules]]\nid = \"a\"\nverdict = \"deny\"\n[[rules]]\nid = \"b\"\nverdict = \"never\"",
            "rules[1].verdict: unknown variant `never`",
        ),
        ("[[rules]]\nid = \"a\"\nverdict = \"deny\"\npaths = 3", "rules[0].paths: invalid type"),
        // Nothing would match as anything.
        (
            "[[rules]]\nid = \"a\"\nverdict = \"allow\"\ncommands = []",
            "rules[0].commands: the list must not be empty",
        ),
        (
            "[[rules]]\nid = \"a\"\nverdict = \"allow\"\npaths = []",
            "rules[0].paths: the list must not be empty",
        ),
        (
            "[[rules]]\nid = \"a\"\nverdict = \"allow\"\ntools = []",
            "rules[0].tools: the list must not be empty",
        ),
        (
            "[[rules]]\nid = \"a\"\nverdict = \"allow\"\nlabels = []",
            "rules[0].labels: the list must not be empty",
        ),
        ("[network]\nhosts = [\"h\"]\ncommands = []", "the list must not be empty"),
        ("[[rules]]\nid = \"a\"\nverdict = \"deny\"\ncommand = [\"x\"]", "unknown field `command`"),
        (
            "[[rules]]\nid = \"a\"\nverdict = \"deny\"\ntools = [\"write\"]",
            "rules[0].tools[0] must be one of read_file",
        ),
        (
            "[[rules]]\nid = \"a\"\nverdict = \"deny\"\nlabels = [\"net\"]",
            "rules[0].labels[0] must be one of reads",
        ),
        ("[[rules]]\nid = \"a\"\nverdict = \"deny\"\npaths = [\"a[\"]", "rules[0].paths[0] must be a glob"),
        (
            "[[rules]]\nid = \"a\"\nverdict = \"deny\"\npaths = [\"a\"]\ncommands = [\"b\"]",
            "rules[0].paths must not be combined",
        ),
        (
            "[[rules]]\nid = \"a\"\nverdict = \"deny\"\ncommands = [\"git push\"]\nmatches = [\"git push x\"]",
            "rules[0].matches[0] must be matched by `a`: `git push x`",
        ),
        (
            "[[rules]]\nid = \"a\"\nverdict = \"deny\"\ncommands = [\"git *\"]\nmisses = [\"ls; git status\"]",
            "rules[0].misses[0] must not be matched by `a`",
        ),
    ] {
        let said = parse_policy_text(text).expect_err(text);
        assert!(said.contains(words), "{words} in {said}");
    }
}

proptest! {
    #[test]
    fn any_line_is_evaluated_and_denied_commands_are_never_allowed(before in "[a-z ;&|(){}$'\"<>\\n-]{0,30}") {
        let careful = [parse_policy_text(CAREFUL_POLICY).expect("a policy")];
        let _ = evaluate_policies(&careful, &command_call(&before), RuleScope::Descendants);
        let strict = [parse_policy_text(STRICT_POLICY).expect("a policy")];
        let after = format!("curl x; {before}");
        prop_assert_eq!(evaluate_policies(&strict, &command_call(&after), RuleScope::Descendants).ruling, RuleVerdict::Deny);
    }
}
