//! What scripted models say in the roles of engines: the parts that suites share, put together.
//!
//! A turn is text, or with `!` before it the calls of a turn in TOML. [`makes`] is the smallest piece of work that every
//! engine can be told to do: `f` of `a.py` comes to give another number.

/// What is said in one role's conversations whose texts hold `opening`; in all of them where that is empty.
pub fn talk(role: &str, opening: &str, turns: &[&str]) -> String {
    let role = if role.is_empty() { String::new() } else { format!("role = \"{role}\"\n") };
    let opening = match opening {
        "" => String::new(),
        words => format!("opening_contains = '''{words}'''\n"),
    };
    let turns = turns.iter().map(|turn| format!("[[talks.turns]]\n{}", said(turn)));
    format!("[[talks]]\n{role}{opening}{}", turns.collect::<String>())
}

/// A turn that is said where the last message holds these words, else the next; the last one where none of them does.
fn chosen(role: &str, opening: &str, turns: &[(&str, &str)], otherwise: &str) -> String {
    let mut text = talk(role, opening, &[]);
    for (nth, (words, turn)) in turns.iter().enumerate() {
        let at = if nth == 0 { "[[talks.turns]]" } else { "[[talks.turns.or]]" };
        let which = if words.starts_with("DONE") { "last_result_contains" } else { "last_text_contains" };
        text.push_str(&format!("{at}\nwhen = {{ {which} = '''{words}''' }}\n{}", said(turn)));
    }
    format!("{text}[[talks.turns.or]]\n{}", said(otherwise))
}

fn said(turn: &str) -> String {
    match turn.strip_prefix('!') {
        Some(calls) => format!("calls = [ {calls} ]\n"),
        None => format!("text = '''\n{turn}'''\n"),
    }
}

/// All engines.
pub const ENGINES: [&str; 6] = ["react", "plan", "review", "architect", "team", "sop"];

/// A patch that lets `f` of `a.py` return 2, where it returns 1.
pub const GOOD: &str =
    "*** Begin Patch\n*** Update File: a.py\n@@ def f():\n-    return 1\n+    return 2\n*** End Patch";
/// One that cannot be applied.
pub const STALE: &str = "*** Begin Patch\n*** Update File: a.py\n-    return 7\n+    return 2\n*** End Patch";

/// The patch that puts one line in place of another.
pub fn patch(path: &str, from: &str, to: &str) -> String {
    format!("*** Begin Patch\n*** Update File: {path}\n-{from}\n+{to}\n*** End Patch")
}

/// The team's members, where nothing is to be done.
pub fn idle_team() -> String {
    [
        talk("architect", "", &[r#"{"design": "Nothing.", "files": []}"#]),
        talk("coder", "", &[r#"{"done": true, "summary": "nothing"}"#]),
        members(),
    ]
    .concat()
}

/// The team's tester and reviewer, who find nothing.
pub fn members() -> String {
    [
        talk("tester", "", &[r#"{"outcome": "none", "summary": "there is nothing to test"}"#]),
        talk("reviewer", "", &[r#"{"verdict": "approve", "summary": "right"}"#]),
    ]
    .concat()
}

/// Lets `f` give another number.
#[derive(Debug, Clone, Copy)]
pub struct Makes<'a> {
    /// What it gives until then.
    pub from: u32,
    /// What it gives from then on.
    pub to: u32,
    /// Words that the conversation holds in which this is asked for; empty where it needs none.
    pub at: &'a str,
    /// The round of the team in which this is done.
    pub round: u32,
}

impl Makes<'_> {
    fn step(self) -> String {
        format!("let f give {}", self.to)
    }

    fn patch(self) -> String {
        patch("a.py", &format!("    return {}", self.from), &format!("    return {}", self.to))
    }

    /// The call that does it, and says `DONE`.
    fn call(self) -> String {
        format!(
            "{{ name = \"run_command\", args = {{ command = \"sed -i 's/return .*/return {0}/' a.py; echo DONE {0}\" }} }}",
            self.to
        )
    }

    /// A conversation that does it by a command and then ends with these words.
    pub fn by_command(self, role: &str, opening: &str, last: &str) -> String {
        let done = format!("DONE {}", self.to);
        chosen(role, opening, &[(&done, last)], &format!("!{}", self.call()))
    }
}

/// What the roles of `engine` say to that end. Behind it another may stand, for what comes before its words are said; the
/// script says its last turns again (`after_end`).
pub fn makes(engine: &str, it: Makes<'_>) -> String {
    let (step, at) = (it.step(), it.at);
    let parts = match engine {
        "react" => vec![it.by_command("", at, "All is done.")],
        "plan" => vec![
            talk(
                "planner",
                at,
                &[&format!(r#"{{"steps": [{{"kind": "edit", "path": "a.py", "text": "{step}"}}]}}"#)],
            ),
            talk("executor", &step, &[&it.patch()]),
        ],
        "review" => vec![
            talk("planner", at, &[&format!(r#"["{step}"]"#)]),
            it.by_command("executor", &step, r#"{"success": true, "output": "it does"}"#),
            talk("reviewer", &step, &[r#"{"verdict": "finish", "reason": "it does"}"#]),
        ],
        "architect" => vec![
            talk(
                "architect",
                at,
                &[&format!(
                    r#"{{"actions": [{{"kind": "edit", "file": "a.py", "description": "{step}"}}]}}"#
                )],
            ),
            talk("coder", "Mend the cause", &["UNCHANGED"]),
            talk("coder", &step, &[&it.patch()]),
            talk("verifier", &step, &[r#"{"verdict": "accept", "reason": "it does"}"#]),
        ],
        "team" => team(it),
        "sop" => vec![sop(it)],
        other => panic!("no engine `{other}`"),
    };
    parts.concat()
}

fn team(it: Makes<'_>) -> Vec<String> {
    let again = r#"{"action": "again", "reason": "it is not right yet", "from": "coder"}"#;
    let brief = format!(r#"{{"action": "hand_over", "brief": "{}"}}"#, it.step());
    let mut parts = vec![
        talk("orchestrator", &format!("Brief the coder now, for round {}", it.round), &[&brief]),
        it.by_command("coder", &it.step(), r#"{"done": true, "summary": "it does"}"#),
    ];
    if !it.at.is_empty() {
        parts.push(talk("orchestrator", it.at, &[again]));
        return parts;
    }
    parts.extend([
        talk("orchestrator", "It cannot be finished", &[again]),
        talk("orchestrator", "All roles have spoken", &[r#"{"action": "finish", "summary": "it does"}"#]),
        talk("orchestrator", "Brief the coder now", &[&brief]),
        talk("orchestrator", "", &[r#"{"action": "hand_over", "brief": "Do your part."}"#]),
        idle_team(),
    ]);
    parts
}

fn sop(it: Makes<'_>) -> String {
    let plan = "!{ name = \"plan_card\", args = { summary = \"f is wrong\", steps = [\"mend it\"], files = [\"a.py\"] } }";
    let builds =
        format!("!{}, {{ name = \"diff_card\", args = {{ rationale = \"it was wrong\" }} }}", it.call());
    let ends = [
        (
            "review it yourself",
            "!{ name = \"review_report\", args = { risks = [\"none: one constant\"], recommendations = [] } }",
        ),
        ("Call `complete_task`", "!{ name = \"complete_task\", args = { summary = \"it does\" } }"),
    ];
    [talk("planner", it.at, &[plan]), chosen("builder", it.at, &ends, &builds)].concat()
}

/// A script by which `f`, which gives 1, comes to give another number by a command, whatever the engine.
pub fn by_command(engine: &str, to: u32) -> String {
    let line = format!("sed -i 's/return .*/return {to}/' a.py");
    let talks = match engine {
        "plan" => {
            let steps = format!(r#"{{"steps": [{{"kind": "command", "command": "{line}"}}]}}"#);
            vec![talk("planner", "", &[&steps])]
        }
        "architect" => {
            let actions = format!(r#"{{"actions": [{{"kind": "command", "cmd": "{line}"}}]}}"#);
            let accepts = r#"{"verdict": "accept", "reason": "it does"}"#;
            vec![talk("architect", "", &[&actions]), talk("verifier", "", &[accepts])]
        }
        _ => vec![makes(engine, Makes { from: 1, to, at: "", round: 1 })],
    };
    script(&talks)
}

/// A script of these talks, of which the last turn is said again.
pub fn script(talks: &[String]) -> String {
    format!("after_end = \"repeat_last\"\n{}", talks.concat())
}
