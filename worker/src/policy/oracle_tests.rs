//! Checks allow lists against bash itself: no line that a list allows runs a program that is not on the list.
//!
//! Bash runs the lines with every program replaced by a stub that logs its name, so that bash, and not our reading of
//! its grammar, says what a line runs.

use std::{
    cell::Cell, collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration,
};

use docket_schema::{
    message::{CallId, ToolUse},
    policy::{Policy, RuleVerdict},
};
use proptest::prelude::*;
use serde_json::json;

use super::{RuleScope, evaluate_policies, parse_policy_text};
use crate::process::{TrustedSpec, run_trusted};

/// Stub programs that log their names.
const PROGRAMS: [&str; 5] = ["p0", "p1", "p2", "p3", "git"];

/// Other entries of the allow list: builtins and shells. Commands that run any program given to them (`env`, `exec`)
/// are never on such a list.
const OTHER_PROGRAMS: [&str; 19] = [
    "echo *",
    "cd *",
    "export *",
    "eval *",
    "bash -c *",
    "trap *",
    ": *",
    "true",
    "printf *",
    "test *",
    "[ *",
    "[[ *",
    "read *",
    "set *",
    "unset *",
    "declare *",
    "local *",
    "let *",
    "shift *",
];

/// A folder in which bash runs lines.
pub(super) struct BashOracle {
    folder: tempfile::TempDir,
    /// Number of lines run: each has its own log, because background processes of a line may write late.
    runs: Cell<usize>,
}

impl BashOracle {
    pub(super) fn new() -> Self {
        let stage = Self { folder: tempfile::tempdir().expect("a folder"), runs: Cell::new(0) };
        for name in ["bin", "work"] {
            fs::create_dir(stage.folder.path().join(name)).expect("made");
        }
        for program in PROGRAMS {
            stage.write_stub("bin", program, program);
            // Found through a `PATH` that contains a dot.
            stage.write_stub("work", program, &format!("local-{program}"));
        }
        for (name, at) in [("bash", "/bin/bash"), ("sh", "/bin/sh"), ("env", "/usr/bin/env")] {
            std::os::unix::fs::symlink(at, stage.folder.path().join("bin").join(name)).expect("a link");
        }
        let path = stage.folder.path().join("bin/words");
        fs::write(&path, "#!/bin/sh\nprintf '%s\\0' \"$@\" >> \"$STAGE_LOG\"\n").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
        stage
    }

    fn write_stub(&self, folder: &str, name: &str, mark: &str) {
        let path = self.folder.path().join(folder).join(name);
        fs::write(&path, format!("#!/bin/sh\necho {mark} >> \"$STAGE_LOG\"\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
    }

    /// Returns the programs that bash runs for a line.
    fn programs_run_by(&self, line: &str) -> BTreeSet<String> {
        self.log_after(line).lines().map(str::to_owned).collect()
    }

    /// Returns the words that bash passes to the program `words` on a line.
    pub(super) fn words(&self, line: &str) -> Vec<String> {
        self.log_after(line).split_terminator('\0').map(str::to_owned).collect()
    }

    fn log_after(&self, line: &str) -> String {
        self.runs.set(self.runs.get() + 1);
        let log = self.folder.path().join(format!("log-{}", self.runs.get()));
        fs::write(&log, "").expect("written");
        let spec = TrustedSpec {
            program: "/bin/bash".into(),
            args: vec!["-c".into(), line.into()],
            cwd: self.folder.path().join("work"),
            env: vec![
                ("PATH".into(), self.folder.path().join("bin").into_os_string()),
                ("STAGE_LOG".into(), log.clone().into_os_string()),
            ],
            stdin: Vec::new(),
            timeout: Duration::from_secs(20),
            stdout_bytes_max: 1024 * 1024,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(run_trusted(spec)).expect("bash ends");
        fs::read_to_string(log).expect("reads")
    }
}

/// An allow list with all of these programs except `other`.
fn allowlist_without(other: &str) -> [Policy; 1] {
    let programs = PROGRAMS.iter().filter(|name| **name != other).map(|name| format!("\"{name} *\""));
    let commands: Vec<String> = programs.chain(OTHER_PROGRAMS.map(|line| format!("\"{line}\""))).collect();
    let text = format!(
        "default = \"deny\"\n[[rules]]\nid = \"list\"\nverdict = \"allow\"\ncommands = [{}]\n[[rules]]\nid = \"files\"\n\
         verdict = \"allow\"\npaths = [\"**\"]\n",
        commands.join(", ")
    );
    [parse_policy_text(&text).expect("a policy")]
}

pub(super) fn is_allowed(policies: &[Policy], line: &str) -> bool {
    let args = json!({ "command": line });
    let call =
        ToolUse { call: CallId::for_runtime(0), name: "run_command".to_owned(), args, malformed: None };
    evaluate_policies(policies, &call, RuleScope::Descendants).ruling == RuleVerdict::Allow
}

/// Runs the line and checks, for each program that ran, whether a list without it would have allowed the line.
fn check_line(stage: &BashOracle, line: &str) -> Result<BTreeSet<String>, String> {
    let ran = stage.programs_run_by(line);
    match ran.iter().find(|program| is_allowed(&allowlist_without(program), line)) {
        Some(program) => Err(format!("a list without `{program}` allows {line:?}, which runs it")),
        None => Ok(ran),
    }
}

/// Lines that run a program in a way that is hard to see.
const HIDDEN_PROGRAM_LINES: [&str; 99] = [
    "p0 <<EOF\n`git push`\nEOF",
    "p0 <<EOF\nsome `code` and \\`not\\` and `git push`\nEOF",
    "p0 <<EOF\n$x `git push` $y\nEOF",
    "p0 <<-EOF\n\t`git push`\n\tEOF",
    "p0 <<EOF\n`echo \\`git push\\``\nEOF",
    "p0 <<'A'\ntext\nA\ngit push",
    "p0 <<A <<B\n1\nA\n`git push`\nB",
    "PATH=.:$PATH; p0",
    "PATH=.; p0",
    "export PATH=.:$PATH; p0",
    "declare -x PATH=.; p0",
    "for PATH in .; do p0; done",
    "read PATH <<< .; p0",
    "printf -v PATH .; p0",
    "unset PATH; PATH=. p0",
    ": ${PATH:=x} ${Q:=.}; PATH=$Q; p0",
    "f() { p0; }; PATH=.; f",
    "p0 \r; p1",
    "git\u{b} push; p0",
    "p0 a#b; git push",
    "p0 a\\\n#b; git push",
    "p0 'a'#'b' ; git push",
    "p0 \\\n git; git push",
    "gi\\\nt push",
    "echo `echo \\`git push\\``",
    "echo \"`git push`\"",
    "echo \"$(echo \"`git push`\")\"",
    "bash -c $'p0 \\x3b git push'",
    "eval $'p0\\ngit push'",
    "{git,push}",
    "bash -c {git,p0}",
    "a='x[$(git push)]'; echo $((a))",
    "test -v 'x[$(git push)]'",
    "printf -v 'x[$(git push)]' 1",
    "trap 'git push' EXIT",
    "p0 & git push",
    "p0 |& git push",
    "p0 > >(git push); p1",
    "[ -n \"$(git push)\" ] || p0",
    "case x in x) p0;; esac; ((1)) && git push",
    "echo ${x['$(git push)']}",
    "a=\"x[\\$(git push)]\"; echo $((a))",
    "a=x\\[\\$\\(git\\ push\\)\\]; echo $((a))",
    "read a <<< 'x[$(git push)]'; echo $((a))",
    "set -- 'x[$(git push)]'; echo $(($1))",
    "a='x[$'; b='(git push)]'; c=$a$b; echo $((c))",
    "for a in 'x[$(git push)]'; do echo $((a)); done",
    "a='x[$(git push)]'; ((a)); p0",
    "a='x[$(git push)]'; let a+1; p0",
    "a='x[$(git push)]'; [[ $a -eq 0 ]]",
    "a='x[$(git push)]'; [[ 1 -gt a ]]",
    "a='x[$(git push)]'; echo ${b[a]}",
    "a='x[$(git push)]'; b[a]=1; p0",
    "a='x[$(git push)]'; b=([a]=1); p0",
    "b=text; a='x[$(git push)]'; echo ${b:a}",
    "b=text; a='x[$(git push)]'; echo ${b:0:a}",
    "a='x[$(git push)]'; echo $[a]",
    "a='x[$(git push)]'; for ((i=a; i<1; i++)); do p0; done",
    "a='x[$(git push)]'; echo ${!a}",
    "a='$(git push)'; echo ${a@P}",
    "a='x[$(git push)]'; test -v \"$a\"",
    "a='x[$(git push)]'; [ -v \"$a\" ]",
    "a='x[$(git push)]'; [[ -v $a ]]",
    "a=-v; b='x[$(git push)]'; test $a \"$b\"",
    "a='-v x[$(git)]'; [ $a ]",
    "a='x[$(git push)]'; printf -v \"$a\" 1",
    "a='-vx[$(git push)]'; printf \"$a\" 1",
    "a='x[$(git push)]'; read \"$a\" <<< 1",
    "x=(1); a='x[$(git push)]'; unset \"$a\"",
    "declare -i z; z=\"a[\\$(git push)]\"",
    "declare -i z=\"a[\\$(git push)]\"",
    "typeset -i z; z='a[$(git push)]'",
    "readonly -i z='a[$(git push)]'; p0",
    "f() { local -i z; z='a[$(git push)]'; }; f",
    "declare -n r=a; a=0; r='x[$(git push)]'; echo $((a))",
    "declare -a 'a=($(git push))'",
    "a=0; read a <<< 'x[$(git push)]'; echo $((a))",
    "a=0; read -ra a <<< 'x[$(git)]'; echo $((a))",
    "a=0; printf -v a %s 'x[$(git push)]'; echo $((a))",
    "(a=0); export a='x[$(git push)]'; bash -c 'echo $((a))'",
    "x5='y[$(git push)]'; a=5; echo $((x$a))",
    "_=0; : 'x[$(git push)]'; echo $((_))",
    ": ${a:='x[$(git push)]'}; echo $((a)); false && a=0",
    "$\"git\" push",
    "gi$\"t\" push",
    "$\"\"git push",
    "p0 $\"$(git push)\"",
    "p0 $\"`git push`\" a",
    "p0 > $\"$(git push)out\"",
    "bash -c $\"git push\"",
    "bash <<< $\"git push\"",
    "bash -c '$\"git\" push'",
    "eval $\"p0; git push\"",
    "x=$\"$(git push)\"; p0",
    "p0 <<EOF\n$\"$(git push)\"\nEOF",
    "p0 <<$\"EOF\"\n$(git push)\nEOF\ngit push",
    "echo ${x[$\"$(git push)\"]} ${y:-$\"$(git push)\"}",
    "a='x[$(git push)]'; echo $((a$\"\"))\necho ${b[$\"a\"]}; p0",
    "bash <<< $'g\\x69t push'",
];

#[test]
fn hard_to_parse_lines_match_no_allowlist() {
    let stage = BashOracle::new();
    let mut ran = BTreeSet::new();
    for line in HIDDEN_PROGRAM_LINES {
        let programs = check_line(&stage, line).unwrap_or_else(|fault| panic!("{fault}"));
        assert!(!programs.is_empty(), "{line:?} runs nothing");
        ran.extend(programs);
    }
    // The lines do what they are meant to.
    assert!(ran.contains("git") && ran.contains("local-p0"), "{ran:?}");
}

#[test]
fn everyday_lines_match_an_allowlist_of_their_commands() {
    let stage = BashOracle::new();
    for line in [
        "p0 -la",
        "cd . && p0 --flag 'a b' \"c $HOME d\" | p1",
        "p0 a\\ b; p1 > out 2>&1",
        "if p0; then p1; else p2; fi",
        "for f in a b; do p0 \"$f\"; done",
        "f=$(p0 x); p1 \"$f\"",
        "p0 <<EOF\nplain text, $HOME and \\`quoted\\`\nEOF",
        "p0 <<'EOF'\n`not run` $(nor this)\nEOF",
        "p0 \\\n  --long \\\n  --lines",
        "p0 # a remark; p1\np2",
        "p0 'a\nb' \"c\n\nd\"",
        "p0 $((1 + 2)) ${x:-y} $'tab'",
        "[ -n a ] && p0",
        "\n\n  p0\n\tp1\n",
        "bash -c 'p0 && p1'",
        "p0 \"foo$\" 'bar$'",
        "p0 s/a/b/g a=b --c=d {} {a,b}",
        "p0 - <<'A'\nprint(`1`)\nA\n",
        "p0 $((2*3)); i=0; i=$((i+1)); p1 $i",
        "for i in 1 2 3; do p0 $((i * 2 + 0x1f)); done",
        "for ((i=0; i<2; i++)); do p0 $i; done",
        "n=3; while ((n > 0)); do p0 ${n}; ((n--)); done",
        "i=1; [[ $i -eq 1 ]] && p0",
        "[[ -n $x || $? -eq 0 ]] && p0",
        "a=(x y); i=1; p0 ${a[i]} ${a[0]} ${a[@]} ${#a[@]} ${!a[@]}",
        "b=text; p0 ${b:1:2} ${b: -1} ${#b}",
        "p0; [ $? -eq 0 ] && [ \"$x\" = \"\" ] && [ ! -f \"$y\" ] && test -d . && p1",
        "printf '%s\\n' \"$x\"; read -r l <<< text; p0",
    ] {
        let ran = stage.programs_run_by(line);
        assert!(!ran.is_empty(), "{line:?} runs nothing");
        assert!(is_allowed(&allowlist_without("none"), line), "{line:?} is refused");
        for program in ran {
            assert!(!is_allowed(&allowlist_without(&program), line), "{line:?} without {program}");
        }
    }
}

/// Fragments of realistic lines. None of them loops forever or leaves the folder.
const LINE_PARTS: [&str; 86] = [
    "p0 a",
    "git push",
    "p1 'q r' \"s t\"",
    "x=1",
    "echo hi",
    "p0 $(p1)",
    "p0 `p1`",
    "p0 \"$(git x)\"",
    "p0 <<A\ntext\nA\n",
    "p0 <<'A'\n`git`\nA\n",
    "p0 <<A\n`git x`\nA\n",
    "p0 <<-A\n\tt $x\n\tA\n",
    "p0 <<< \"w\"",
    "if p0; then p1; fi",
    "for f in a b; do p0 $f; done",
    "{ p0; p1; }",
    "( p0 )",
    "f() { p0; }",
    "f",
    "[[ -n a ]]",
    "[ a = a ]",
    "case a in a) p0;; *) p1;; esac",
    "p0 # c",
    "p0 > out",
    "p0 2>&1",
    "bash -c 'p0'",
    "eval 'p0 a'",
    "a=(p0 git)",
    "p0 ${x:-$(git)}",
    "p0 $((1+1))",
    "((1))",
    "! p0",
    "p0 |& p1",
    "p0 a\\ b",
    "p0 \\\n  b",
    "trap 'p0' EXIT",
    "p0 {a,b}",
    "p0 $'a b'",
    "p0 >(p1)",
    "p0 <(p1)",
    "time p0",
    "coproc p0",
    "p0 & p1",
    "p0 \"a\nb\"",
    "declare y=1",
    "PATH=.",
    "HOME=/x p0",
    "p0 *",
    "p0 \"${x}\"",
    "p0 'a'\\''b'",
    "echo $(( $(git x) ))",
    "p0 [a]",
    "echo ${x/a/$(git)}",
    "p0 \"`git a`\"",
    "let q=1",
    "until p0; do p1; break; done",
    "p0 ${#x}",
    "p0 $\"loc\"",
    "$\"p0\" p$\"1\"",
    "p0 > $\"o$(p1)\"",
    "p0 $\"$(git x)\"",
    "p0 \"\\$(git)\"",
    "p0 '$(git)'",
    "p0 $((a))",
    "((a))",
    "a=1",
    "a='x[$(git)]'",
    "read a <<< 'x[$(git)]'",
    "b=$a",
    "echo ${b[a]}",
    "[[ $a -eq 0 ]]",
    "echo ${x:a}",
    "let a+=1",
    "declare -i a",
    "a+='[$(git)]'",
    "for a in 1 2; do p0 $((a+1)); done",
    "set -- 'x[$(git)]'",
    "p0 $(($1))",
    "test -v $a",
    "declare -n b=a",
    "echo ${!a}",
    "[ $b $a ]",
    "b[a]=1",
    "echo ${a@P}",
    "a=([$b]=1)",
    "export a='x[$(git)]'; bash -c '((a))'",
];

const SEPARATORS: [&str; 7] = ["; ", " && ", " || ", " | ", "\n", " & ", ";"];

/// Text that is inserted into a line or replaces one of its characters.
const NOISE: [&str; 51] = [
    "`", "'", "\"", "\\", "$", "#", "(", ")", "{", "}", ";", "&", "|", "<", ">", "\n", "\t", " ", "\r",
    "\u{b}", "\u{c}", "\u{a0}", "!", "=", "*", "[", "]", "%", ",", ":", "-", "+", "@", "^", "?", "$(", "${",
    "<<", "$((", "))", "\\\n", "git ", "EOF", "A\n", "''", "$'", "$\"", "=~", "]]", "fi", "done",
];

fn arbitrary_line() -> impl Strategy<Value = String> {
    let part = (prop::sample::select(&SEPARATORS[..]), prop::sample::select(&LINE_PARTS[..]));
    let blot = (any::<prop::sample::Index>(), any::<bool>(), prop::sample::select(&NOISE[..]));
    let all = (prop::collection::vec(part, 1..4), prop::collection::vec(blot, 0..4));
    all.prop_map(|(parts, blots)| {
        let joined: String = parts.iter().map(|(joint, part)| format!("{joint}{part}")).collect();
        let mut line: Vec<char> = joined.trim_start_matches(['|', '&', ';', ' ']).chars().collect();
        for (at, replaces, blot) in blots {
            let at = at.index(line.len() + 1);
            let end = if replaces { line.len().min(at + 1) } else { at };
            line.splice(at..end, blot.chars());
        }
        line.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn allowed_line_runs_only_allowed_programs(line in arbitrary_line()) {
        thread_local! {
            static STAGE: BashOracle = BashOracle::new();
        }
        let held = STAGE.with(|stage| check_line(stage, &line));
        prop_assert!(held.is_ok(), "{}", held.unwrap_err());
    }
}

/// A line can reach nothing by name except the oracle's own folder.
#[test]
fn oracle_logs_the_programs_that_run() {
    let stage = BashOracle::new();
    assert_eq!(stage.programs_run_by("p0; ./p1"), BTreeSet::from(["p0".to_owned(), "local-p1".to_owned()]));
    assert!(Path::new("/bin/bash").exists());
}
