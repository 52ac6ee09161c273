//! Wrapper commands that run another one: which words belong to the wrapper, and which contain a nested line. Pure.

/// Programs that take a shell line as an argument.
const SHELLS: [&str; 7] = ["sh", "bash", "dash", "zsh", "ksh", "ash", "mksh"];

/// A program that runs the command after its own words.
struct CommandWrapper {
    names: &'static [&'static str],
    /// Options whose value is the next word.
    options_with_value: &'static [&'static str],
    /// Number of its own words before the command, such as a lock file or a folder.
    own_argument_count: usize,
}

const WRAPPERS: [CommandWrapper; 17] = [
    CommandWrapper {
        names: &["sudo", "doas"],
        options_with_value: &[
            "-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T", "-U", "-r", "-t", "--user", "--group", "--host",
        ],
        own_argument_count: 0,
    },
    CommandWrapper {
        names: &["env"],
        options_with_value: &["-u", "-C", "--unset", "--chdir"],
        own_argument_count: 0,
    },
    CommandWrapper {
        names: &[
            "nohup", "setsid", "command", "builtin", "coproc", "busybox", "toybox", "unbuffer", "setarch",
        ],
        options_with_value: &[],
        own_argument_count: 0,
    },
    CommandWrapper { names: &["exec"], options_with_value: &["-a"], own_argument_count: 0 },
    CommandWrapper { names: &["nice"], options_with_value: &["-n", "--adjustment"], own_argument_count: 0 },
    CommandWrapper {
        names: &["ionice"],
        options_with_value: &["-c", "-n", "--class", "--classdata"],
        own_argument_count: 0,
    },
    // The mask or priority is a number, and numbers are skipped.
    CommandWrapper { names: &["taskset", "chrt"], options_with_value: &[], own_argument_count: 0 },
    CommandWrapper {
        names: &["xargs"],
        options_with_value: &[
            "-I",
            "-n",
            "-P",
            "-L",
            "-d",
            "-E",
            "-a",
            "-s",
            "--max-args",
            "--max-procs",
            "--delimiter",
            "--arg-file",
        ],
        own_argument_count: 0,
    },
    CommandWrapper {
        names: &["timeout"],
        options_with_value: &["-s", "-k", "--signal", "--kill-after"],
        own_argument_count: 0,
    },
    CommandWrapper {
        names: &["stdbuf"],
        options_with_value: &["-i", "-o", "-e", "--input", "--output", "--error"],
        own_argument_count: 0,
    },
    CommandWrapper {
        names: &["flock"],
        options_with_value: &["-w", "-E", "--timeout", "--wait", "--conflict-exit-code"],
        own_argument_count: 1,
    },
    CommandWrapper { names: &["watch"], options_with_value: &["-n", "--interval"], own_argument_count: 0 },
    CommandWrapper {
        names: &["strace", "ltrace"],
        options_with_value: &["-e", "-o", "-p", "-s", "-u", "-E", "-P", "-a", "-b", "-I", "-O", "-S", "-X"],
        own_argument_count: 0,
    },
    CommandWrapper {
        names: &["unshare"],
        options_with_value: &["-S", "-G", "-R", "-w", "--root", "--wd", "--setuid", "--setgid"],
        own_argument_count: 0,
    },
    CommandWrapper {
        names: &["nsenter"],
        options_with_value: &["-t", "-S", "-G", "--target", "--setuid", "--setgid"],
        own_argument_count: 0,
    },
    CommandWrapper { names: &["chroot"], options_with_value: &[], own_argument_count: 1 },
    CommandWrapper {
        names: &["parallel"],
        options_with_value: &["-j", "-a", "-S", "-I", "--jobs", "--arg-file", "--tmpdir"],
        own_argument_count: 0,
    },
];

/// The last part of a path.
pub(super) fn program_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Whether this program is a shell.
pub(super) fn is_shell(program: &str) -> bool {
    SHELLS.contains(&program)
}

/// Strips words that only wrap a command: assignments, keywords, wrappers with their options.
pub(super) fn strip_wrappers(mut words: &[String]) -> &[String] {
    while let [first, rest @ ..] = words {
        let name = program_name(first);
        let assigns = first.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')
        });
        let keyword = ["{", "(", "!", "if", "then", "do", "else", "while", "time"].contains(&name);
        if assigns || keyword {
            words = rest;
        } else if let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.names.contains(&name)) {
            words = skip_wrapper_arguments(wrapper, rest);
        } else {
            break;
        }
    }
    words
}

fn skip_wrapper_arguments<'a>(wrapper: &CommandWrapper, mut words: &'a [String]) -> &'a [String] {
    let mut own = wrapper.own_argument_count;
    while let [first, rest @ ..] = words {
        if wrapper.options_with_value.contains(&first.as_str()) {
            words = rest.get(1..).unwrap_or_default();
        } else if first.starts_with('-') || first.starts_with(|c: char| c.is_ascii_digit()) {
            words = rest;
        } else if own > 0 {
            own -= 1;
            words = rest;
        } else {
            break;
        }
    }
    words
}

/// Returns the nested lines in a command's words, and whether it has one that is not visible.
pub(super) fn nested_lines(words: &[String]) -> (Vec<String>, bool) {
    let mut lines = Vec::new();
    let mut is_dark = false;
    // Each wrapper of a chain may contain one: `timeout 5 su -c '…'`.
    let mut rest = words;
    while let Some(at) = rest.iter().position(|word| takes_lines(program_name(word))) {
        // Only as a command, after assignments and wrappers, never as a plain argument.
        let is_command = strip_wrappers(&rest[..=at]).first().is_none_or(|first| *first == rest[at]);
        let (name, args) = (program_name(&rest[at]), &rest[at + 1..]);
        if is_command {
            is_dark |= !collect_nested_lines(name, args, &mut lines);
        }
        if !is_command || WRAPPERS.iter().all(|wrapper| !wrapper.names.contains(&name)) {
            break;
        }
        rest = args;
    }
    (lines, is_dark)
}

fn takes_lines(name: &str) -> bool {
    is_shell(name)
        || ["eval", "env", "su", "runuser", "flock", "watch", "parallel", "trap", "alias", "source", "."]
            .contains(&name)
}

/// Collects the lines; returns whether they were visible.
fn collect_nested_lines(name: &str, args: &[String], lines: &mut Vec<String>) -> bool {
    match name {
        "eval" => lines.push(args.join(" ")),
        "env" => {
            for (nth, arg) in args.iter().enumerate().take_while(|(_, arg)| arg.starts_with('-')) {
                let short = !arg.starts_with("--") && arg.contains('S');
                let joined = arg.split_once("--split-string=").map(|(_, text)| text.to_owned());
                let joined = joined.or_else(|| {
                    let text =
                        arg.split_once('S').map(|(_, text)| text).filter(|text| short && !text.is_empty());
                    text.map(str::to_owned)
                });
                if let Some(text) = joined {
                    lines.push([&[text], &args[nth + 1..]].concat().join(" "));
                } else if short || arg == "--split-string" {
                    lines.push(args[nth + 1..].join(" "));
                }
            }
        }
        "su" | "runuser" => return collect_c_option(args, lines) || args.iter().any(|arg| arg == "--help"),
        "flock" => {
            collect_c_option(args, lines);
        }
        "watch" | "parallel" => {
            let wrapper = WRAPPERS.iter().find(|wrapper| wrapper.names.contains(&name));
            let command = wrapper.map_or(args, |wrapper| skip_wrapper_arguments(wrapper, args));
            let end = command.iter().position(|arg| arg.starts_with(":::")).unwrap_or(command.len());
            if end > 0 {
                lines.push(command[..end].join(" "));
            } else if name == "parallel" {
                lines.extend(command.iter().skip(1).cloned());
                return command.len() > 1;
            }
        }
        "trap" => lines.extend(args.first().filter(|arg| !arg.starts_with('-')).cloned()),
        "alias" => {
            lines.extend(args.iter().filter_map(|arg| arg.split_once('=')).map(|(_, line)| line.to_owned()))
        }
        "source" | "." => {
            return !args.first().is_some_and(|arg| arg.starts_with("<(") || arg.starts_with("/dev/"));
        }
        _ => {
            collect_c_option(args, lines);
        }
    }
    true
}

/// Collects the word after `-c`, as used by shells and `su`.
fn collect_c_option(args: &[String], lines: &mut Vec<String>) -> bool {
    if let Some(text) = args.iter().find_map(|arg| arg.strip_prefix("--command=")) {
        lines.push(text.to_owned());
        return true;
    }
    let is_c = |arg: &String| {
        arg == "--command" || (arg.starts_with('-') && !arg.starts_with("--") && arg.contains('c'))
    };
    let line = args.iter().position(is_c).and_then(|at| args.get(at + 1));
    lines.extend(line.cloned());
    line.is_some()
}

/// Returns what a command prints, if that is visible: the input of a shell after a pipe.
pub(super) fn printed_text(words: &[String]) -> Option<String> {
    let words = strip_wrappers(words);
    let (program, args) = words.split_first()?;
    let is_plain = |text: &String| !text.contains(['$', '`', '\\', '%']);
    match program_name(program) {
        "echo" => {
            let options = args.iter().take_while(|arg| matches!(arg.as_str(), "-n" | "-E")).count();
            let said = &args[options..];
            let is_read = said.iter().all(|arg| !arg.contains('$') && !arg.contains('`'))
                && said.first().is_none_or(|arg| !arg.starts_with("-e"));
            is_read.then(|| said.join(" "))
        }
        "printf" => {
            let format = args.first()?;
            let line = format.strip_suffix("\\n").unwrap_or(format).to_owned();
            if is_plain(&line) {
                return Some(line);
            }
            let all = args[1..].iter().all(is_plain) && matches!(line.as_str(), "%s" | "%s\\n");
            all.then(|| args[1..].join("\n"))
        }
        _ => None,
    }
}

/// Returns a git command without the options before its subcommand; `None` if it has none or is another program.
pub(crate) fn strip_git_options(words: &[String]) -> Option<Vec<String>> {
    let (git, mut rest) = words.split_first().filter(|(git, _)| *git == "git")?;
    let valued = [
        "-C",
        "-c",
        "--git-dir",
        "--work-tree",
        "--namespace",
        "--super-prefix",
        "--config-env",
        "--attr-source",
    ];
    while let [first, after @ ..] = rest {
        if valued.contains(&first.as_str()) {
            rest = after.get(1..).unwrap_or_default();
        } else if first.starts_with('-') {
            rest = after;
        } else {
            break;
        }
    }
    (rest.len() + 1 < words.len()).then(|| [std::slice::from_ref(git), rest].concat())
}

/// Whether git's command line defines an alias for another word.
pub(crate) fn sets_git_alias(words: &[String]) -> bool {
    words.iter().any(|word| word.to_ascii_lowercase().starts_with("alias."))
}
