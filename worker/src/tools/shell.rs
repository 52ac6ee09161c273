//! A shell line taken apart, well enough to label it. Labels steer questions and recovery; they
//! protect nothing: that is the sandbox's part.

mod accounted;
mod arithmetic;
mod lookup;
mod parse;
mod pipes;
mod wrap;

pub(crate) use parse::script;
pub(crate) use pipes::as_check;
pub(crate) use wrap::{sets_git_alias, without_git_options};

/// One command of a line: its words without quotes, and where its output is redirected.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Simple {
    pub(crate) words: Vec<String>,
    pub(crate) writes_to: Vec<String>,
    pub(crate) background: bool,
    /// It carries out a line that is not to be seen here.
    pub(crate) is_dark: bool,
    /// The first of its words that bash expands, to any words: a brace, a glob, a variable, what a command prints.
    expands_at: Option<usize>,
    /// The line that a shell gets through a pipe, until it is read.
    input: Option<String>,
}

impl Simple {
    /// The program's name without its folder and without what stands before it (`sudo`, `env A=1`,
    /// `timeout 5`).
    pub(crate) fn program(&self) -> &str {
        self.command().first().map_or("", |word| word.rsplit('/').next().unwrap_or(word))
    }

    /// The program's arguments.
    pub(crate) fn args(&self) -> &[String] {
        self.command().get(1..).unwrap_or_default()
    }

    pub(crate) fn has_word(&self, wanted: &str) -> bool {
        self.words.iter().any(|word| word == wanted)
    }

    /// The program and its arguments in front of the first that bash expands; nothing where it expands none. Empty where
    /// the program itself, or what stands before it, is expanded.
    pub(crate) fn words_before_expansion(&self) -> Option<Vec<String>> {
        let at = self.expands_at?;
        let before = at.saturating_sub(self.words.len() - self.command().len());
        let bare = std::iter::once(self.program().to_owned()).chain(self.args().iter().cloned());
        Some(bare.take(before).collect())
    }

    fn command(&self) -> &[String] {
        wrap::unwrapped(&self.words)
    }
}

/// The commands of a line, at any depth.
pub(super) fn commands(line: &str) -> Vec<Simple> {
    script(line).commands
}

/// `text` as one word of a shell line.
#[must_use]
pub fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Why a line is refused as a courtesy; `None` for all others. Few and precise: a wrong refusal costs
/// more than it saves, and the sandbox holds what gets past.
pub(super) fn refusal(line: &str) -> Option<&'static str> {
    let squeezed: String = line.chars().filter(|c| !c.is_whitespace()).collect();
    if squeezed.contains(":(){:|:&};:") {
        return Some("it starts copies of itself without end");
    }
    commands(line).iter().find_map(refused)
}

fn refused(command: &Simple) -> Option<&'static str> {
    let program = command.program();
    let flag = |short: char, long: &str| {
        command
            .args()
            .iter()
            .any(|arg| arg == long || (arg.starts_with('-') && !arg.starts_with("--") && arg.contains(short)))
    };
    let recursive = flag('r', "--recursive") || flag('R', "--recursive");
    let of_root = command.args().iter().any(|arg| is_root(arg));
    if command.writes_to.iter().any(|path| is_disk(path)) {
        return Some("it writes to a disk device");
    }
    match program {
        "rm" if recursive && of_root => Some("it removes a root or home folder"),
        "chmod" | "chown" | "chgrp" if recursive && of_root => {
            Some("it changes the rights of a root or home folder")
        }
        "dd" if command.args().iter().any(|arg| arg.strip_prefix("of=").is_some_and(is_disk)) => {
            Some("it writes to a disk device")
        }
        "shutdown" | "reboot" | "halt" | "poweroff" => Some("it stops the machine"),
        "mkfs" | "wipefs" => Some("it destroys a file system"),
        name if name.starts_with("mkfs.") => Some("it destroys a file system"),
        _ => None,
    }
}

fn is_root(path: &str) -> bool {
    let rooted = path.starts_with(['/', '~', '$']);
    let path = path.trim_end_matches('*').trim_end_matches('/');
    let bare = rooted && matches!(path, "" | "~" | "$HOME" | "${HOME}");
    let top = path.strip_prefix('/').is_some_and(|name| {
        [
            "bin", "boot", "dev", "etc", "home", "lib", "lib64", "opt", "proc", "root", "sbin", "sys", "usr",
            "var",
        ]
        .contains(&name)
    });
    bare || top
}

fn is_disk(path: &str) -> bool {
    path.strip_prefix("/dev/").is_some_and(|name| {
        ["sd", "hd", "vd", "xvd", "nvme", "mmcblk", "disk", "dm-"].iter().any(|kind| name.starts_with(kind))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_is_taken_apart() {
        let programs = |line: &str| commands(line).iter().map(|c| c.program().to_owned()).collect::<Vec<_>>();
        assert_eq!(
            programs("cd a && FOO=1 /usr/bin/make -j2 | tee log; echo 'x; y'"),
            ["cd", "make", "tee", "echo"]
        );
        for wrapped in [
            "sudo -u root git push",
            "stdbuf -o L git push",
            "flock /tmp/l git push",
            "flock -w 3 l timeout -s KILL 5 git push",
            "strace -f -o out git push",
            "unshare -r git push",
            "coproc git push",
            "chroot /x git push",
            "ionice -c 3 nice -n 5 git push",
        ] {
            assert_eq!(programs(wrapped).last().map(String::as_str), Some("git"), "{wrapped}");
        }
        assert_eq!(programs("echo $(git push) `rm x`"), ["echo", "git", "rm"]);
        assert_eq!(programs("echo \"$(curl x)\""), ["echo", "curl"]);
        assert_eq!(programs("sudo -n timeout 5 rm x # gone"), ["rm"]);
        assert_eq!(commands("make 2>/dev/null >out")[0].writes_to, ["/dev/null", "out"]);
    }

    /// All words of all commands, as `a b|c`.
    fn words(line: &str) -> String {
        let all = commands(line).into_iter().map(|command| command.words.join(" "));
        all.collect::<Vec<_>>().join("|")
    }

    #[test]
    fn commands_are_found_at_any_depth() {
        for (line, all) in [
            ("if test -e a; then git push; else rm b; fi", "test -e a|git push|rm b"),
            ("for f in *.py; do (cd $f && black \"$f\"); done", "cd $f|black $f"),
            ("while read l; do echo $l; done < in", "read l|echo $l"),
            ("f() { curl x; }; f", "curl x|f"),
            ("a=$(b c) d", "a=$(b c) d|b c"),
            ("diff <(sort a) <(sort b)", "diff <(sort a) <(sort b)|sort a|sort b"),
            ("bash -lc 'git push && ls'", "bash -lc git push && ls|git push|ls"),
            ("eval \"rm -rf x\"", "eval rm -rf x|rm -rf x"),
            ("find . -name '*.o' -exec rm -f {} \\;", "find . -name *.o -exec rm -f {} ;|rm -f {}"),
            ("sh <<'EOF'\ngit push\nEOF", "sh -c git push\n|git push"),
            ("cat > x.py <<EOF\nimport os; rm(a)\n$(touch y)\nEOF", "cat|touch y"),
            ("[[ -f a && -f b ]] || touch 'it'\\''s'", "[[ -f a && -f b ]]|touch it's"),
            ("case $x in a) ls;; *) rm y;; esac", "ls|rm y"),
            ("export A=1; unset B", "export A=1|unset B"),
            ("! grep -q x y && { echo a; }", "grep -q x y|echo a"),
            ("echo a\\ b \"c\\\"d\" e\"f\"'g'", "echo a b c\"d efg"),
            ("bash <<< 'git push'", "bash -c git push|git push"),
            ("echo 'git push' | sh", "echo git push|sh|git push"),
            ("printf 'git push\\n' | sudo bash -s", "printf git push\\n|sudo bash -s|git push"),
            ("env -S 'git push' origin", "env -S git push origin|git push origin"),
            ("su -c 'git push' root", "su -c git push root|git push"),
            ("watch -n 5 git push", "watch -n 5 git push|git push"),
            ("flock -c 'git push' /l", "flock -c git push /l|git push"),
            ("parallel ::: 'git push' ls", "parallel ::: git push ls|git push|ls"),
            ("trap 'git push' EXIT", "trap git push EXIT|git push"),
            ("alias g='git push'; g", "alias g=git push|g|git push"),
            ("busybox sh -c 'rm z'", "busybox sh -c rm z|rm z"),
            ("$\"git\" $\"push\" a$\"b\"c $\"\"d -$\"e\" $'f'", "git push abc d -e f"),
            ("bash -c $\"git \\$\\\"push\\\"\"", "bash -c git $\"push\"|git push"),
            ("echo $\"$(rm x)\" \"a$\" 'b$\"'", "echo $(rm x) a$ b$\"|rm x"),
            ("timeout 5 sh -c \"sh -c 'rm z'\"", "timeout 5 sh -c sh -c 'rm z'|sh -c rm z|rm z"),
        ] {
            assert_eq!(words(line), all, "{line}");
            assert!(script(line).is_whole, "{line}");
        }
        for line in
            ["echo 'open", "if true; then", "a ))", "a > $'\\x62'", "a 2>&1 $'\\x62'", "sh <<< $'\\x62'"]
        {
            assert!(!script(line).is_whole, "{line}");
        }
        let writes =
            |line: &str| -> Vec<String> { commands(line).into_iter().flat_map(|c| c.writes_to).collect() };
        assert_eq!(
            writes("{ a; b; } > out 2>&1; c &> log; > empty; d >| over; e < in; f > $\"o\"u$\"t\""),
            ["out", "log", "empty", "over", "out"]
        );
        let background: Vec<bool> = commands("a & b; c && d &").iter().map(|c| c.background).collect();
        assert_eq!(background, [true, false, false, true]);
    }

    #[test]
    fn words_are_known_up_to_the_first_that_bash_expands() {
        for (line, before) in [
            ("git push $x", Some("git push")),
            ("git {push,origin}", Some("git")),
            ("git p?sh", Some("git")),
            ("git $\"$x\"", Some("git")),
            ("git a$\"$x\" b", Some("git")),
            ("git 2>&1 \"'\"$x", Some("git")),
            ("git a\"$x\"b", Some("git")),
            ("git `x`", Some("git")),
            ("git 2>&1 $x", Some("git")),
            ("sudo -n git add *.py", Some("git add")),
            ("A=$x git push [ab]", Some("git push")),
            ("timeout {5,git} push", Some("")),
            ("timeout $x git push", Some("")),
            ("gi? push", Some("")),
            ("git push '$x' \"*\" \\* {} a{b}c HEAD@{1}", None),
            ("[ -n $x ]", None),
        ] {
            let found = commands(line)[0].words_before_expansion();
            assert_eq!(found.map(|words| words.join(" ")).as_deref(), before, "{line}");
        }
    }

    #[test]
    fn a_line_that_no_parser_likes_is_read_in_a_bounded_time() {
        for part in ["$(", "((", "{ ", "`", "\"$(", "<<A\n", "if a; then ", "a|", "case x in ", "${a:-"] {
            let line = part.repeat(32 * 1024 / part.len());
            let read = script(&line);
            assert!(!read.is_whole, "{part}");
        }
    }

    #[test]
    fn what_stands_behind_a_brace_may_be_any_character() {
        for c in ['\u{e9}', '\u{100}', '\u{3000}', '\u{1f600}', '\u{10ffff}'] {
            let line = format!("echo {{{c}..3}} {{1..{c}}}; rm '{c}'");
            let script = script(&line);
            let programs: Vec<&str> = script.commands.iter().map(Simple::program).collect();
            assert_eq!(programs, ["echo", "rm"], "{line}");
            assert_eq!(script.commands[1].args(), [c.to_string()], "{line}");
        }
    }

    #[test]
    fn what_is_harmless_is_never_refused() {
        for line in [
            "rm -rf build/",
            "rm -rf ./target node_modules",
            "git reset --hard",
            "make 2>/dev/null",
            "rm -rf /tmp/x",
            "rm -rf \"$DIR\"/out",
            "echo 'rm -rf /'",
            "grep -r shutdown .",
            "dd if=/dev/zero of=disk.img",
            "rm /x -f",
            "chmod -R u+w .",
            "cat /dev/null",
            "git clean -fdx",
            "rm -rf */",
            "rm -rf *",
            "echo mkfs",
            "python -c 'import os'",
            "rm -rf /srv/a",
            "kill 1",
        ] {
            assert_eq!(refusal(line), None, "{line}");
        }
    }

    #[test]
    fn what_destroys_a_machine_is_refused() {
        for line in [
            "rm -rf /",
            "rm -fr /*",
            "sudo rm -r --force /etc",
            "cd x && rm -rf ~",
            "rm -rf $HOME/",
            "mkfs.ext4 /dev/sda1",
            "dd if=x of=/dev/sda",
            ":(){ :|:& };:",
            "shutdown -h now",
            "cat x > /dev/nvme0n1",
            "chmod -R 777 /",
            "true; /sbin/reboot",
        ] {
            assert!(refusal(line).is_some(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_can_be_read_and_quoted(line in "\\PC{0,60}") {
            refusal(&line);
            let quoted = quote(&line);
            let read = commands(&format!("echo {quoted}"));
            prop_assert_eq!(&read[0].words, &["echo".to_owned(), line]);
        }
    }
}
