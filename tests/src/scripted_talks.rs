//! Scripts for scripted models in the roles of engines, built from parts that suites share.
//!
//! A turn is text, or, with a leading `!`, the calls of a turn in TOML. [`function_change_talks`] is the
//! smallest piece of work for every engine: `f` of `a.py` gets another return value.

/// Builds the turns for one role's conversations whose texts contain `opening`, or for all of them if it is
/// empty.
pub fn role_talk(role: &str, opening: &str, turns: &[&str]) -> String {
    let role = if role.is_empty() { String::new() } else { format!("role = \"{role}\"\n") };
    let opening = match opening {
        "" => String::new(),
        words => format!("opening_contains = '''{words}'''\n"),
    };
    let turns = turns.iter().map(|turn| format!("[[talks.turns]]\n{}", format_turn(turn)));
    format!("[[talks]]\n{role}{opening}{}", turns.collect::<String>())
}

/// Selects the first turn whose words the last message contains; otherwise the last one.
fn conditional_talk(role: &str, opening: &str, turns: &[(&str, &str)], otherwise: &str) -> String {
    let mut text = role_talk(role, opening, &[]);
    for (nth, (words, turn)) in turns.iter().enumerate() {
        let at = if nth == 0 { "[[talks.turns]]" } else { "[[talks.turns.or]]" };
        let which = if words.starts_with("DONE") { "last_result_contains" } else { "last_text_contains" };
        text.push_str(&format!("{at}\nwhen = {{ {which} = '''{words}''' }}\n{}", format_turn(turn)));
    }
    format!("{text}[[talks.turns.or]]\n{}", format_turn(otherwise))
}

fn format_turn(turn: &str) -> String {
    match turn.strip_prefix('!') {
        Some(calls) => format!("calls = [ {calls} ]\n"),
        None => format!("text = '''\n{turn}'''\n"),
    }
}

/// All engines.
pub const ENGINES: [&str; 6] = ["react", "plan", "review", "architect", "team", "sop"];

/// A patch that makes `f` of `a.py` return 2 instead of 1.
pub const VALID_PATCH: &str =
    "*** Begin Patch\n*** Update File: a.py\n@@ def f():\n-    return 1\n+    return 2\n*** End Patch";
/// A patch that cannot be applied.
pub const STALE_PATCH: &str =
    "*** Begin Patch\n*** Update File: a.py\n-    return 7\n+    return 2\n*** End Patch";

/// Builds a patch that replaces one line.
pub fn replace_line_patch(path: &str, from: &str, to: &str) -> String {
    format!("*** Begin Patch\n*** Update File: {path}\n-{from}\n+{to}\n*** End Patch")
}

/// Talks of the team's members when there is nothing to do.
pub fn idle_team_talks() -> String {
    [
        role_talk("architect", "", &[r#"{"design": "Nothing.", "files": []}"#]),
        role_talk("coder", "", &[r#"{"done": true, "summary": "nothing"}"#]),
        idle_member_talks(),
    ]
    .concat()
}

/// Talks of the team's tester and reviewer, who find nothing.
pub fn idle_member_talks() -> String {
    [
        role_talk("tester", "", &[r#"{"outcome": "none", "summary": "there is nothing to test"}"#]),
        role_talk("reviewer", "", &[r#"{"verdict": "approve", "summary": "right"}"#]),
    ]
    .concat()
}

/// Changes the return value of `f`.
#[derive(Debug, Clone, Copy)]
pub struct FunctionChange<'a> {
    /// The value before the change.
    pub from: u32,
    /// The value after the change.
    pub to: u32,
    /// Words in the conversation that requests the change; empty if none are needed.
    pub at: &'a str,
    /// The round of the team in which the change is made.
    pub round: u32,
}

impl FunctionChange<'_> {
    fn plan_step(self) -> String {
        format!("let f give {}", self.to)
    }

    fn to_patch(self) -> String {
        replace_line_patch("a.py", &format!("    return {}", self.from), &format!("    return {}", self.to))
    }

    /// Returns the call that makes the change and prints `DONE`.
    fn command_call(self) -> String {
        format!(
            "{{ name = \"run_command\", args = {{ command = \"sed -i 's/return .*/return {0}/' a.py; echo DONE {0}\" }} }}",
            self.to
        )
    }

    /// Builds a conversation that makes the change by a command and then ends with `last`.
    pub fn command_talk(self, role: &str, opening: &str, last: &str) -> String {
        let done = format!("DONE {}", self.to);
        conditional_talk(role, opening, &[(&done, last)], &format!("!{}", self.command_call()))
    }
}

/// Builds the talks of all roles of `engine` for this change. Another talk may follow, for conversations that
/// come before its words; the script repeats its last turns (`after_end`).
pub fn function_change_talks(engine: &str, it: FunctionChange<'_>) -> String {
    let (step, at) = (it.plan_step(), it.at);
    let parts = match engine {
        "react" => vec![it.command_talk("", at, "All is done.")],
        "plan" => vec![
            role_talk(
                "planner",
                at,
                &[&format!(r#"{{"steps": [{{"kind": "edit", "path": "a.py", "text": "{step}"}}]}}"#)],
            ),
            role_talk("executor", &step, &[&it.to_patch()]),
        ],
        "review" => vec![
            role_talk("planner", at, &[&format!(r#"["{step}"]"#)]),
            it.command_talk("executor", &step, r#"{"success": true, "output": "it does"}"#),
            role_talk("reviewer", &step, &[r#"{"verdict": "finish", "reason": "it does"}"#]),
        ],
        "architect" => vec![
            role_talk(
                "architect",
                at,
                &[&format!(
                    r#"{{"actions": [{{"kind": "edit", "file": "a.py", "description": "{step}"}}]}}"#
                )],
            ),
            role_talk("coder", "Mend the cause", &["UNCHANGED"]),
            role_talk("coder", &step, &[&it.to_patch()]),
            role_talk("verifier", &step, &[r#"{"verdict": "accept", "reason": "it does"}"#]),
        ],
        "team" => team_talks(it),
        "sop" => vec![sop_talks(it)],
        other => panic!("no engine `{other}`"),
    };
    parts.concat()
}

fn team_talks(it: FunctionChange<'_>) -> Vec<String> {
    let again = r#"{"action": "again", "reason": "it is not right yet", "from": "coder"}"#;
    let brief = format!(r#"{{"action": "hand_over", "brief": "{}"}}"#, it.plan_step());
    let mut parts = vec![
        role_talk("orchestrator", &format!("Brief the coder now, for round {}", it.round), &[&brief]),
        it.command_talk("coder", &it.plan_step(), r#"{"done": true, "summary": "it does"}"#),
    ];
    if !it.at.is_empty() {
        parts.push(role_talk("orchestrator", it.at, &[again]));
        return parts;
    }
    parts.extend([
        role_talk("orchestrator", "It cannot be finished", &[again]),
        role_talk(
            "orchestrator",
            "All roles have spoken",
            &[r#"{"action": "finish", "summary": "it does"}"#],
        ),
        role_talk("orchestrator", "Brief the coder now", &[&brief]),
        role_talk("orchestrator", "", &[r#"{"action": "hand_over", "brief": "Do your part."}"#]),
        idle_team_talks(),
    ]);
    parts
}

fn sop_talks(it: FunctionChange<'_>) -> String {
    let plan = "!{ name = \"plan_card\", args = { summary = \"f is wrong\", steps = [\"mend it\"], files = [\"a.py\"] } }";
    let builds = format!(
        "!{}, {{ name = \"diff_card\", args = {{ rationale = \"it was wrong\" }} }}",
        it.command_call()
    );
    let ends = [
        (
            "review it yourself",
            "!{ name = \"review_report\", args = { risks = [\"none: one constant\"], recommendations = [] } }",
        ),
        ("Call `complete_task`", "!{ name = \"complete_task\", args = { summary = \"it does\" } }"),
    ];
    [role_talk("planner", it.at, &[plan]), conditional_talk("builder", it.at, &ends, &builds)].concat()
}

/// Builds a script with which `f`, which returns 1, gets another return value by a command, for any
/// engine.
pub fn command_script(engine: &str, to: u32) -> String {
    let line = format!("sed -i 's/return .*/return {to}/' a.py");
    let talks = match engine {
        "plan" => {
            let steps = format!(r#"{{"steps": [{{"kind": "command", "command": "{line}"}}]}}"#);
            vec![role_talk("planner", "", &[&steps])]
        }
        "architect" => {
            let actions = format!(r#"{{"actions": [{{"kind": "command", "cmd": "{line}"}}]}}"#);
            let accepts = r#"{"verdict": "accept", "reason": "it does"}"#;
            vec![role_talk("architect", "", &[&actions]), role_talk("verifier", "", &[accepts])]
        }
        _ => vec![function_change_talks(engine, FunctionChange { from: 1, to, at: "", round: 1 })],
    };
    join_talks(&talks)
}

/// Joins talks into a script that repeats its last turn.
pub fn join_talks(talks: &[String]) -> String {
    format!("after_end = \"repeat_last\"\n{}", talks.concat())
}
