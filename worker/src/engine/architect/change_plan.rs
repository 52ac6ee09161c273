//! The Change Plan (D2): parses its actions and checks that each can be carried out. Pure.

use std::sync::LazyLock;

use docket_schema::{
    content::WorkspacePath,
    message::{CallId, ToolUse},
    policy::{Policy, PolicyRule, RuleVerdict},
    run::{PlanStep, StepKind},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::roles::json_reply;
use crate::{
    policy::{self, RuleScope},
    tools,
};

/// Actions allowed in a plan: a longer one is several tasks.
const ACTIONS_MAX: usize = 40;

/// Values for the expected result of a command.
const EXPECT_PASS: &str = "pass";
pub(super) const EXPECT_FAIL: &str = "fail";

#[derive(Deserialize)]
struct ChangePlan {
    actions: Vec<ChangePlanAction>,
}

/// Fields that an action does not use are omitted or null.
#[derive(Deserialize)]
struct ChangePlanAction {
    kind: String,
    #[serde(alias = "path")]
    file: Option<String>,
    #[serde(alias = "text", alias = "message")]
    description: Option<String>,
    #[serde(default)]
    hints: ActionHints,
    #[serde(alias = "command")]
    cmd: Option<String>,
    expect: Option<String>,
}

/// Hints as models write them: a string, or a list of strings.
#[derive(Deserialize, Default)]
#[serde(from = "Value")]
struct ActionHints(String);

impl From<Value> for ActionHints {
    fn from(value: Value) -> Self {
        match value {
            Value::String(text) => Self(text),
            Value::Array(lines) => {
                let lines: Vec<String> = lines.into_iter().map(|line| Self::from(line).0).collect();
                Self(lines.join("\n"))
            }
            Value::Null => Self::default(),
            other @ (Value::Bool(_) | Value::Number(_) | Value::Object(_)) => Self(other.to_string()),
        }
    }
}

/// Programs that a plan's commands may start if no policy mentions them (D9): build tools, tests, formatters,
/// inspection and file creation. This is not a security boundary: programs run in the sandbox, and an interpreter can
/// do anything. It keeps plans to their purpose; a policy can allow more.
const ALLOWED_PROGRAMS: [&str; 81] = [
    "./*", "sh", "bash", "ant", "awk", "basename", "black", "bundle", "bun", "cargo", "cat", "cd", "clang",
    "cmake", "cmp", "composer", "cp", "ctest", "cut", "date", "deno", "diff", "dirname", "dotnet", "echo",
    "egrep", "elixir", "eslint", "false", "find", "flake8", "gcc", "git", "go", "gradle", "grep", "head",
    "java", "javac", "jest", "jq", "ls", "make", "mix", "mkdir", "mv", "mvn", "mypy", "ninja", "node", "nox",
    "npm", "npx", "php", "pnpm", "prettier", "printf", "pwd", "pylint", "pyright", "pytest", "python",
    "python3", "rg", "rake", "rspec", "ruby", "ruff", "rustc", "rustfmt", "sed", "sort", "tail", "test",
    "touch", "tox", "tsc", "uv", "vitest", "wc", "yarn",
];

/// The list, as a policy.
static DEFAULT_COMMAND_POLICY: LazyLock<Policy> = LazyLock::new(|| {
    let rule = |id: &str, commands: Vec<String>, paths: Vec<String>| PolicyRule {
        id: id.to_owned(),
        verdict: RuleVerdict::Allow,
        tools: Vec::new(),
        commands,
        paths,
        labels: Vec::new(),
        reason: String::new(),
        matches: Vec::new(),
        misses: Vec::new(),
    };
    let programs = ALLOWED_PROGRAMS.iter().map(|program| format!("{program} *")).collect();
    let rules =
        vec![rule("programs", programs, Vec::new()), rule("written", Vec::new(), vec!["**".to_owned()])];
    Policy { default: RuleVerdict::Deny, rules, network: None }
});

/// Parses the steps of a plan, with commands from the list only if `is_listed`.
///
/// # Errors
/// A message about the mistake, for the planner.
pub(super) fn parse_change_plan(
    said: &str,
    policies: &[Policy],
    is_listed: bool,
) -> Result<Vec<PlanStep>, String> {
    let ChangePlan { actions } = json_reply::parse_json_reply(said)?;
    match actions.len() {
        0 => return Err("`actions` is empty; if nothing is to be done, say why in a `message`".to_owned()),
        many if many > ACTIONS_MAX => {
            return Err(format!("`actions` has {many} entries, more than {ACTIONS_MAX}"));
        }
        _ => {}
    }
    let at = |nth: usize, why: String| format!("actions[{nth}]: {why}");
    let mut steps: Vec<PlanStep> = Vec::new();
    for (nth, action) in actions.into_iter().enumerate() {
        let step = parse_action(action).map_err(|why| at(nth, why))?;
        check_policy(&step, policies, is_listed).map_err(|why| at(nth, why))?;
        check_consistency(&steps, &step).map_err(|why| at(nth, why))?;
        steps.push(step);
    }
    Ok(steps)
}

fn parse_action(action: ChangePlanAction) -> Result<PlanStep, String> {
    let ChangePlanAction { kind, file, description, hints, cmd, expect } = action;
    let [file, description, cmd, expect] = [file, description, cmd, expect].map(Option::unwrap_or_default);
    let kind = match kind.as_str() {
        "edit" => {
            if file.trim().is_empty() {
                return Err("`file` is missing".to_owned());
            }
            let path = tools::work_path_of(&file)
                .filter(|_| !file.trim_end().ends_with('/'))
                .ok_or_else(|| format!("`{file}` is no file's path in the repository"))?;
            if path.components().next() == Some(b".git".as_slice()) {
                return Err(format!("`{file}` is git's own"));
            }
            if description.trim().is_empty() {
                return Err("`description` is empty: say what is to be changed".to_owned());
            }
            StepKind::Edit { path, hints: hints.0 }
        }
        "command" => {
            if cmd.trim().is_empty() {
                return Err("`cmd` is empty".to_owned());
            }
            let expect = expect.trim().to_lowercase();
            match expect.as_str() {
                "" | EXPECT_PASS | EXPECT_FAIL => StepKind::Command { command: cmd, expect },
                other => {
                    return Err(format!("`expect` is `{other}`; it must be {EXPECT_PASS} or {EXPECT_FAIL}"));
                }
            }
        }
        "message" if description.trim().is_empty() => return Err("`text` is empty".to_owned()),
        "message" => StepKind::Message,
        other => return Err(format!("`kind` is `{other}`; it must be edit, command or message")),
    };
    Ok(PlanStep { text: description, kind })
}

/// Checks whether policy allows the action, as far as the plan tells. The call itself is still checked later.
fn check_policy(step: &PlanStep, policies: &[Policy], is_listed: bool) -> Result<(), String> {
    let (name, args, what) = match &step.kind {
        StepKind::Edit { path, .. } => ("edit_file", json!({ "path": path.to_string() }), path.to_string()),
        StepKind::Command { command, .. } => ("run_command", json!({ "command": command }), command.clone()),
        StepKind::Message | StepKind::Free | StepKind::Tests { .. } => return Ok(()),
    };
    let call = ToolUse { call: CallId::for_runtime(0), name: name.to_owned(), args, malformed: None };
    let said = policy::evaluate_policies(policies, &call, RuleScope::NamedPaths);
    match said.ruling {
        // No rule matches it, and no policy has its own list.
        RuleVerdict::Allow
            if is_listed
                && said.rule_id == policy::DEFAULT_RULE
                && name == "run_command"
                && policy::evaluate_policies(
                    std::slice::from_ref(&DEFAULT_COMMAND_POLICY),
                    &call,
                    RuleScope::NamedPaths,
                )
                .ruling
                    == RuleVerdict::Deny =>
        {
            Err(format!(
                "`{what}` starts what a plan may not; it may start {}. Make an edit of it, or leave it out; a policy \
                 with a rule that allows it lets it pass",
                ALLOWED_PROGRAMS.join(", ")
            ))
        }
        // A person is asked when the call is made.
        RuleVerdict::Allow | RuleVerdict::Ask => Ok(()),
        RuleVerdict::Deny => {
            let why = if said.reason.is_empty() { String::new() } else { format!(": {}", said.reason) };
            Err(format!("policy does not allow `{what}` (rule `{}`){why}", said.rule_id))
        }
    }
}

/// Checks that an action is consistent with those before it.
fn check_consistency(before: &[PlanStep], step: &PlanStep) -> Result<(), String> {
    for (nth, other) in before.iter().enumerate() {
        match (&other.kind, &step.kind) {
            (StepKind::Edit { path: first, .. }, StepKind::Edit { path, .. }) => {
                if first == path && other.text.trim() == step.text.trim() {
                    return Err(format!("it is the same as actions[{nth}]"));
                }
                if let Some((folder, file)) =
                    folder_conflict(first, path).or_else(|| folder_conflict(path, first))
                {
                    return Err(format!(
                        "`{folder}` cannot be a file, which actions[{nth}] says, where `{file}` is"
                    ));
                }
            }
            (StepKind::Command { command: first, expect: one }, StepKind::Command { command, expect }) => {
                let written = before[nth..].iter().any(|step| matches!(step.kind, StepKind::Edit { .. }));
                if first.trim() == command.trim()
                    && (one == EXPECT_FAIL) != (expect == EXPECT_FAIL)
                    && !written
                {
                    return Err(format!(
                        "it expects `{command}` to end otherwise than actions[{nth}], and nothing is changed between them"
                    ));
                }
            }
            (
                StepKind::Edit { .. }
                | StepKind::Command { .. }
                | StepKind::Message
                | StepKind::Free
                | StepKind::Tests { .. },
                _,
            ) => {}
        }
    }
    Ok(())
}

/// Returns both paths if one would have to be the other's folder.
fn folder_conflict<'a>(
    folder: &'a WorkspacePath,
    file: &'a WorkspacePath,
) -> Option<(&'a WorkspacePath, &'a WorkspacePath)> {
    let inside =
        file.as_bytes().strip_prefix(folder.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'/'));
    inside.then_some((folder, file))
}

#[cfg(test)]
mod tests {
    use docket_schema::policy::PolicyRule;

    use super::*;

    fn parse_plan(actions: &str) -> Result<Vec<PlanStep>, String> {
        parse_change_plan(&format!(r#"{{"actions": [{actions}]}}"#), &[], true)
    }

    #[test]
    fn field_aliases_are_accepted() {
        let steps = parse_plan(
            r#"{"kind": "edit", "file": "./src/a.py", "description": "add f", "hints": ["keep g", "no imports"]},
               {"kind": "edit", "path": "new/b.py", "text": "make it"},
               {"kind": "edit", "file": "src/a.py", "description": "then add h"},
               {"kind": "command", "cmd": "make check", "expect": "Pass"}, {"kind": "command", "command": "ls", "file": null, "expect": null},
               {"kind": "message", "text": "hello"}"#,
        )
        .expect("is taken");
        let path = WorkspacePath::new("src/a.py").expect("a path");
        assert_eq!(steps[0].kind, StepKind::Edit { path, hints: "keep g\nno imports".to_owned() });
        assert_eq!(steps[3].kind, StepKind::Command { command: "make check".into(), expect: "pass".into() });
        assert_eq!((steps.len(), steps[1].text.as_str(), &steps[5].kind), (6, "make it", &StepKind::Message));
    }

    #[test]
    fn invalid_plan_is_rejected_with_the_action_index() {
        let edit = |file: &str, text: &str| {
            format!(r#"{{"kind": "edit", "file": "{file}", "description": "{text}"}}"#)
        };
        let command = |expect: &str| format!(r#"{{"kind": "command", "cmd": "make", "expect": "{expect}"}}"#);
        let many = vec![command("pass"); ACTIONS_MAX + 1].join(",");
        for (actions, why) in [
            (String::new(), "`actions` is empty"),
            (many, "has 41 entries, more than 40"),
            (r#"{"kind": "edit", "description": "x"}"#.to_owned(), "actions[0]: `file` is missing"),
            (edit("a.py", " "), "`description` is empty"),
            (edit("../a.py", "x"), "no file's path in the repository"),
            (edit("/etc/passwd", "x"), "no file's path in the repository"),
            (edit("src/", "x"), "no file's path in the repository"),
            (edit(".git/hooks/pre-commit", "x"), "git"),
            (r#"{"kind": "command"}"#.to_owned(), "`cmd` is empty"),
            (command("2 passed"), "`expect` is `2 passed`; it must be pass or fail"),
            (r#"{"kind": "message"}"#.to_owned(), "`text` is empty"),
            (r#"{"kind": "dance"}"#.to_owned(), "`kind` is `dance`; it must be edit, command or message"),
            ([edit("a.py", "x"), edit("./a.py", "x")].join(","), "actions[1]: it is the same as actions[0]"),
            ([edit("a", "x"), edit("a/b.py", "y")].join(","), "`a` cannot be a file"),
            ([edit("a/b.py", "x"), edit("a", "y")].join(","), "`a` cannot be a file"),
            ([command("pass"), command("fail")].join(","), "otherwise than actions[0]"),
        ] {
            assert!(
                parse_plan(&actions).is_err_and(|told| told.contains(why)),
                "{actions}: {:?}",
                parse_plan(&actions)
            );
        }
        let between = [command("fail"), edit("a.py", "x"), command("pass")].join(",");
        assert_eq!(
            parse_plan(&between).map(|steps| steps.len()),
            Ok(3),
            "a test that fails first, and then passes"
        );
        assert!(
            parse_change_plan("I would change a.py.", &[], true).is_err_and(|told| told.contains("no JSON"))
        );
        assert!(parse_change_plan(r#"[{"kind": "message"}]"#, &[], true).is_err());
    }

    #[test]
    fn without_a_matching_rule_commands_must_be_in_the_default_list() {
        let rule = |id: &str, verdict, command: &str| PolicyRule {
            id: id.to_owned(),
            verdict,
            tools: vec!["run_command".to_owned()],
            commands: vec![command.to_owned()],
            ..DEFAULT_COMMAND_POLICY.rules[0].clone()
        };
        // Rules that deny to a child say nothing about the rest; a rule that allows or asks does.
        let denies = Policy { rules: vec![rule("given", RuleVerdict::Deny, "sudo *")], ..Policy::default() };
        let asks = Policy { rules: vec![rule("asks", RuleVerdict::Ask, "rm *")], ..Policy::default() };
        let taken = |command: &str, policies: &[Policy], is_listed| {
            let plan = serde_json::json!({ "actions": [{ "kind": "command", "cmd": command }] });
            parse_change_plan(&plan.to_string(), policies, is_listed).is_ok()
        };
        for command in [
            "pytest -q",
            "sh tests/run.sh count",
            "./gradlew test",
            "cargo test --workspace 2>&1 | tail -n 5",
            "cat made.txt >> log.txt",
            "cd web && npm test",
            "python3 -c 'import a; assert a.f() == 2'",
            "! grep -q nothing b.py",
        ] {
            assert!(
                taken(command, &[], true) && taken(command, std::slice::from_ref(&denies), true),
                "{command}"
            );
        }
        for command in
            ["rm -rf src", "make && curl http://127.0.0.1:9", "sudo make", "echo $(rm x)", "\"$(cat x)\""]
        {
            assert!(
                !taken(command, &[], true) && !taken(command, std::slice::from_ref(&denies), true),
                "{command}"
            );
        }
        assert!(
            taken("rm -rf src", &[asks], true) && taken("rm -rf src", &[], false),
            "where it was not so, it is not"
        );
    }

    /// Plans in older logs were accepted under this list: changing it requires a new `role_rules` number.
    #[test]
    fn allowed_programs_match_the_snapshot() {
        insta::assert_snapshot!(ALLOWED_PROGRAMS.join("\n"));
    }

    #[test]
    fn policy_with_a_command_list_replaces_the_default_list() {
        let rule = |verdict, commands: &[&str]| PolicyRule {
            id: "runners".to_owned(),
            verdict,
            reason: "only what runs tests".to_owned(),
            tools: vec!["run_command".to_owned()],
            commands: commands.iter().map(|text| (*text).to_owned()).collect(),
            paths: Vec::new(),
            labels: Vec::new(),
            matches: Vec::new(),
            misses: Vec::new(),
        };
        let edits = PolicyRule { tools: vec!["edit_file".to_owned()], ..rule(RuleVerdict::Allow, &[]) };
        let policy = Policy {
            default: RuleVerdict::Deny,
            rules: vec![edits, rule(RuleVerdict::Allow, &["make *"]), rule(RuleVerdict::Ask, &["curl *"])],
            ..Policy::default()
        };
        let of = |command: &str| {
            let plan = format!(
                r#"{{"actions": [{{"kind": "edit", "file": "a", "description": "x"}}, {{"kind": "command", "cmd": "{command}"}}]}}"#
            );
            parse_change_plan(&plan, std::slice::from_ref(&policy), true).map(|steps| steps.len())
        };
        assert_eq!((of("make test"), of("curl x")), (Ok(2), Ok(2)));
        assert!(
            of("rm -r src")
                .is_err_and(|told| told.starts_with("actions[1]: policy does not allow `rm -r src`"))
        );
    }
}
