//! A shell line taken apart, well enough to label it. Labels steer questions and recovery; they
//! protect nothing: that is the sandbox's part.

/// One command of a line: its words without quotes, and where its output is redirected.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Simple {
    pub(super) words: Vec<String>,
    pub(super) writes_to: Vec<String>,
    pub(super) background: bool,
}

impl Simple {
    /// The program's name without its folder and without what stands before it (`sudo`, `env A=1`,
    /// `timeout 5`).
    pub(super) fn program(&self) -> &str {
        self.command().first().map_or("", |word| word.rsplit('/').next().unwrap_or(word))
    }

    /// The program's arguments.
    pub(super) fn args(&self) -> &[String] {
        self.command().get(1..).unwrap_or_default()
    }

    pub(super) fn has_word(&self, wanted: &str) -> bool {
        self.words.iter().any(|word| word == wanted)
    }

    fn command(&self) -> &[String] {
        let mut words = self.words.as_slice();
        while let [first, rest @ ..] = words {
            let name = first.rsplit('/').next().unwrap_or(first);
            let assigns = first.split_once('=').is_some_and(|(name, _)| {
                !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')
            });
            let keyword = ["{", "(", "!", "if", "then", "do", "else", "while", "time"].contains(&name);
            let wraps =
                ["sudo", "doas", "env", "nohup", "nice", "exec", "command", "xargs", "timeout", "setsid"];
            if assigns || keyword {
                words = rest;
            } else if wraps.contains(&name) {
                let skip = rest
                    .iter()
                    .take_while(|word| {
                        word.starts_with('-') || word.starts_with(|c: char| c.is_ascii_digit())
                    })
                    .count();
                words = &rest[skip..];
            } else {
                break;
            }
        }
        words
    }
}

/// The commands of a line, those in `$( )` and back quotes as well.
pub(super) fn commands(line: &str) -> Vec<Simple> {
    let mut parser = Parser { out: Vec::new(), now: Simple::default(), word: None, redirects: false };
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                if let Some(next) = chars.next().filter(|c| *c != '\n') {
                    parser.put(next);
                }
            }
            '\'' => {
                parser.word.get_or_insert_default();
                chars.by_ref().take_while(|c| *c != '\'').for_each(|c| parser.put(c));
            }
            '"' => parser.quoted(&mut chars),
            '#' if parser.word.is_none() => while chars.next_if(|c| *c != '\n').is_some() {},
            ' ' | '\t' => parser.end_word(),
            '&' if chars.peek() == Some(&'>') => {
                chars.next();
                parser.redirect(&mut chars);
            }
            '>' => parser.redirect(&mut chars),
            '<' => parser.end_word(),
            '&' if chars.peek() != Some(&'&') => {
                parser.end_word();
                parser.now.background = true;
                parser.end_command();
            }
            ';' | '&' | '|' | '\n' | '(' | ')' | '`' => parser.end_command(),
            '$' if chars.peek() == Some(&'(') => parser.end_command(),
            c => parser.put(c),
        }
    }
    parser.end_command();
    parser.out
}

struct Parser {
    out: Vec<Simple>,
    now: Simple,
    word: Option<String>,
    redirects: bool,
}

impl Parser {
    fn put(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn quoted(&mut self, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
        self.word.get_or_insert_default();
        let mut inner = String::new();
        while let Some(c) = chars.next() {
            match c {
                '"' => break,
                '\\' => {
                    if let Some(next) = chars.next() {
                        self.put(next);
                        inner.push(next);
                    }
                }
                c => {
                    self.put(c);
                    inner.push(c);
                }
            }
        }
        // A substitution runs inside double quotes too.
        if let Some((_, run)) = inner.split_once("$(") {
            self.out.extend(commands(run));
        }
    }

    fn redirect(&mut self, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
        // `2>` is a number of a stream, no word.
        if self.word.as_deref().is_some_and(|word| word.chars().all(|c| c.is_ascii_digit())) {
            self.word = None;
        }
        self.end_word();
        while chars.next_if(|c| ['>', '|', '&'].contains(c)).is_some() {}
        self.redirects = true;
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        if std::mem::take(&mut self.redirects) {
            self.now.writes_to.push(word);
        } else {
            self.now.words.push(word);
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        self.redirects = false;
        let done = std::mem::take(&mut self.now);
        if !done.words.is_empty() || !done.writes_to.is_empty() {
            self.out.push(done);
        }
    }
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
        assert_eq!(programs("echo $(git push) `rm x`"), ["echo", "git", "rm"]);
        assert_eq!(programs("echo \"$(curl x)\""), ["curl", "echo"]);
        assert_eq!(programs("sudo -n timeout 5 rm x # gone"), ["rm"]);
        assert_eq!(commands("make 2>/dev/null >out")[0].writes_to, ["/dev/null", "out"]);
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
