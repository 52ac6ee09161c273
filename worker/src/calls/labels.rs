//! Labels of a call, which policies and approval requests use. Derived from the call alone.

use docket_schema::tool::{RecoveryClass, ToolSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::calls::{
    RUN_COMMAND, RecallSource, ToolEffect, VENV_RUN, is_external, parse_workspace_path, set_has_tool,
    tool_effect,
};
use crate::{
    project::config_files::is_config_file,
    shell::{SimpleCommand, parse_commands},
};

/// The effect of a call, as far as its arguments tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallLabel {
    /// Reads files.
    Reads,
    /// Writes files.
    Writes,
    /// Removes files.
    Deletes,
    /// Touches a file that configures the project.
    Config,
    /// Runs a command.
    Command,
    /// Runs tests.
    Tests,
    /// Uses git.
    Git,
    /// Discards commits or changes that git holds.
    GitDiscards,
    /// Needs the network.
    Network,
    /// Installs packages.
    Installs,
    /// Switches to another user.
    Privilege,
    /// Leaves a process running.
    Background,
    /// Reads or changes memory that outlives the run.
    Memory,
    /// Calls an MCP server of the worker.
    External,
}

impl CallLabel {
    /// All labels.
    pub const ALL: [Self; 14] = [
        Self::Reads,
        Self::Writes,
        Self::Deletes,
        Self::Config,
        Self::Command,
        Self::Tests,
        Self::Git,
        Self::GitDiscards,
        Self::Network,
        Self::Installs,
        Self::Privilege,
        Self::Background,
        Self::Memory,
        Self::External,
    ];
}

/// Returns the labels of a call, sorted and without duplicates.
#[must_use]
pub fn call_labels(name: &str, args: &Value) -> Vec<CallLabel> {
    let text = |field: &str| args.get(field).and_then(Value::as_str).unwrap_or_default();
    let config = |fields: &[&str]| {
        let is = |field: &&str| parse_workspace_path(text(field)).is_ok_and(|path| is_config_file(&path));
        fields.iter().any(is).then_some(CallLabel::Config)
    };
    let mut out = match tool_effect(name) {
        Some(ToolEffect::Reads | ToolEffect::Recalls(RecallSource::Log)) => vec![CallLabel::Reads],
        Some(ToolEffect::Recalls(RecallSource::Memory)) => vec![CallLabel::Reads, CallLabel::Memory],
        Some(ToolEffect::Writes(fields)) => {
            std::iter::once(CallLabel::Writes).chain(config(fields)).collect()
        }
        Some(ToolEffect::Deletes(fields)) => {
            std::iter::once(CallLabel::Deletes).chain(config(fields)).collect()
        }
        Some(ToolEffect::RunsTests) => vec![CallLabel::Command, CallLabel::Tests],
        Some(ToolEffect::RunsShell { to_line: of, class: _ }) => {
            let mut out = vec![CallLabel::Command];
            let line = of(args).unwrap_or_default();
            parse_commands(&line.command).iter().for_each(|command| add_command_labels(command, &mut out));
            out.extend((!line.written_paths.is_empty()).then_some(CallLabel::Writes));
            out
        }
        Some(ToolEffect::ChangesMemory) => vec![CallLabel::Memory],
        None if is_external(name) => vec![CallLabel::External],
        None => Vec::new(),
    };
    out.sort_unstable();
    out.dedup();
    out
}

/// Returns the labels in a run with this tool set: names outside the set have none, as was the case when there were
/// fewer tools. Decisions use this.
#[must_use]
pub fn call_labels_in_set(set: ToolSet, name: &str, args: &Value) -> Vec<CallLabel> {
    if set_has_tool(set, name) { call_labels(name, args) } else { Vec::new() }
}

/// Returns the labels of one command.
pub(crate) fn command_labels(command: &SimpleCommand) -> Vec<CallLabel> {
    let mut out = vec![CallLabel::Command];
    add_command_labels(command, &mut out);
    out.sort_unstable();
    out.dedup();
    out
}

/// Returns what recovery may do with a call whose result is missing. A caller that grants a command the network, or
/// no sandbox, treats every command as [`RecoveryClass::External`].
#[must_use]
pub fn recovery_class(name: &str, args: &Value) -> RecoveryClass {
    match tool_effect(name) {
        Some(ToolEffect::Writes(_) | ToolEffect::Deletes(_) | ToolEffect::RunsTests) => {
            RecoveryClass::Workspace
        }
        Some(ToolEffect::RunsShell { .. }) if SHELL_TOOLS.contains(&name) && needs_network(name, args) => {
            RecoveryClass::External
        }
        // A line that docket builds, or that runs in the sandbox, reaches further only if policy grants it.
        Some(ToolEffect::RunsShell { to_line: _, class }) => *class,
        // The same call takes effect only once, however often it is sent.
        Some(ToolEffect::ChangesMemory) => RecoveryClass::Workspace,
        // Reads, and names of no tool: repeating them changes nothing.
        Some(ToolEffect::Reads | ToolEffect::Recalls(_)) | None => RecoveryClass::Reads,
    }
}

/// The tools that run a line written by the model.
const SHELL_TOOLS: [&str; 2] = [RUN_COMMAND, VENV_RUN];

/// The same in a run with this tool set: see [`call_labels_in_set`].
#[must_use]
pub fn recovery_class_in_set(set: ToolSet, name: &str, args: &Value) -> RecoveryClass {
    if set_has_tool(set, name) { recovery_class(name, args) } else { RecoveryClass::Reads }
}

fn needs_network(name: &str, args: &Value) -> bool {
    call_labels(name, args).contains(&CallLabel::Network)
}

const NETWORK_PROGRAMS: [&str; 15] = [
    "curl", "wget", "ssh", "scp", "sftp", "rsync", "nc", "ncat", "telnet", "ftp", "ping", "dig", "nslookup",
    "gh", "aws",
];
const INSTALLERS: [&str; 14] = [
    "apt", "apt-get", "dnf", "yum", "apk", "pacman", "brew", "gem", "conda", "npm", "pnpm", "yarn", "bun",
    "bundle",
];
const INSTALL_SUBCOMMANDS: [&str; 8] = ["install", "i", "add", "ci", "update", "upgrade", "sync", "-S"];

fn add_command_labels(command: &SimpleCommand, out: &mut Vec<CallLabel>) {
    let program = command.program();
    let args = command.args();
    let first = args.iter().find(|arg| !arg.starts_with('-')).map_or("", String::as_str);
    let has = |word: &str| command.has_word(word);
    if command.is_background || matches!(program, "disown" | "daemonize") || has("nohup") || has("setsid") {
        out.push(CallLabel::Background);
    }
    if has("sudo") || has("doas") || matches!(program, "su" | "pkexec") {
        out.push(CallLabel::Privilege);
    }
    if NETWORK_PROGRAMS.contains(&program) {
        out.push(CallLabel::Network);
    }
    if command.writes_to.iter().any(|path| !path.starts_with("/dev/")) {
        out.push(CallLabel::Writes);
    }
    match program {
        "git" => add_git_labels(first, args, out),
        "rm" | "rmdir" | "unlink" | "shred" => out.push(CallLabel::Deletes),
        "find" if has("-delete") || args.iter().any(|arg| arg == "rm") => out.push(CallLabel::Deletes),
        "mv" | "cp" | "tee" | "touch" | "mkdir" | "ln" | "install" | "patch" => out.push(CallLabel::Writes),
        "sed" | "perl" if args.iter().any(|arg| arg.starts_with("-i")) => out.push(CallLabel::Writes),
        "pip" | "pip3" | "pipx" | "uv" | "poetry" => {
            add_install_labels(args, &["install", "add", "sync", "download", "run"], out)
        }
        "python" | "python3" if has("pip") => add_install_labels(args, &["install", "download"], out),
        "cargo" => add_install_labels(args, &["install", "add", "update", "fetch", "publish"], out),
        "go" => add_install_labels(args, &["install", "get", "mod"], out),
        "npx" => out.extend([CallLabel::Network, CallLabel::Installs]),
        "docker" | "podman" => add_install_labels(args, &["pull", "push", "run", "build", "login"], out),
        _ if INSTALLERS.contains(&program) => add_install_labels(args, &INSTALL_SUBCOMMANDS, out),
        _ => {}
    }
    if matches!(program, "pytest" | "tox" | "nextest") || matches!(first, "test" | "nextest") {
        out.push(CallLabel::Tests);
    }
}

fn add_install_labels(args: &[String], words: &[&str], out: &mut Vec<CallLabel>) {
    if args.iter().any(|arg| words.contains(&arg.as_str())) {
        out.extend([CallLabel::Network, CallLabel::Installs]);
    }
}

fn add_git_labels(verb: &str, args: &[String], out: &mut Vec<CallLabel>) {
    out.push(CallLabel::Git);
    let has = |word: &str| args.iter().any(|arg| arg == word);
    if matches!(verb, "clone" | "fetch" | "pull" | "push" | "ls-remote" | "submodule") || has("--remote") {
        out.push(CallLabel::Network);
    }
    let discards = match verb {
        "reset" => has("--hard"),
        "clean" | "restore" | "filter-branch" => true,
        "checkout" => has("--") || has(".") || has("-f"),
        "branch" => has("-D"),
        "stash" => has("drop") || has("clear"),
        "push" => has("--force") || has("-f"),
        _ => false,
    };
    if discards {
        out.push(CallLabel::GitDiscards);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn commands_are_labelled_by_their_effect() {
        use CallLabel::{
            Background, Command, Deletes, Git, GitDiscards, Installs, Network, Privilege, Tests, Writes,
        };
        let cases: [(&str, &[CallLabel]); 12] = [
            ("ls -la", &[Command]),
            ("cd a && git push origin main", &[Command, Git, Network]),
            ("git reset --hard HEAD~1", &[Command, Git, GitDiscards]),
            ("git status", &[Command, Git]),
            ("rm -rf build/ 2>/dev/null", &[Deletes, Command]),
            ("sudo apt-get install -y jq", &[Command, Network, Installs, Privilege]),
            ("python3 -m pip install x", &[Command, Network, Installs]),
            ("cargo test --all", &[Command, Tests]),
            ("./serve & sleep 1; curl localhost", &[Command, Network, Background]),
            ("echo 'git push' > note", &[Writes, Command]),
            ("find . -name '*.o' -delete", &[Deletes, Command]),
            ("echo curl", &[Command]),
        ];
        for (line, want) in cases {
            assert_eq!(call_labels("run_command", &json!({"command": line})), want, "{line}");
        }
    }

    #[test]
    fn recovery_class_depends_on_reach() {
        let cases = [
            ("read_file", json!({"path": "a"}), RecoveryClass::Reads),
            ("edit_file", json!({}), RecoveryClass::Workspace),
            ("run_tests", json!({}), RecoveryClass::Workspace),
            ("run_command", json!({"command": "make"}), RecoveryClass::Workspace),
            ("run_command", json!({"command": "git push"}), RecoveryClass::External),
            ("run_command", json!({"command": 7}), RecoveryClass::Workspace),
            ("nonsense", json!(null), RecoveryClass::Reads),
        ];
        for (name, args, want) in cases {
            assert_eq!(recovery_class(name, &args), want, "{name} {args}");
        }
    }

    #[test]
    fn tools_of_the_wide_set_have_labels_and_classes() {
        use CallLabel::{Command, Config, Deletes, Git, Installs, Memory, Network, Reads, Writes};
        use RecoveryClass::{External, Workspace};
        let read = RecoveryClass::Reads;
        let cases: [(&str, Value, &[CallLabel], RecoveryClass); 17] = [
            ("write_file", json!({"path": "a"}), &[Writes], Workspace),
            ("append_file", json!({"path": "Cargo.toml"}), &[Writes, Config], Workspace),
            ("move_file", json!({"from": "package.json", "to": "b"}), &[Writes, Config], Workspace),
            ("copy_file", json!({"from": "package.json", "to": "b"}), &[Writes], Workspace),
            ("delete_file", json!({"path": "a"}), &[Deletes], Workspace),
            ("make_folder", json!({"path": "a"}), &[Writes], Workspace),
            ("stat_file", json!({"path": "a"}), &[Reads], read),
            ("git_status", json!({}), &[Command, Git], read),
            ("git_show", json!({"rev": "HEAD"}), &[Command, Git], read),
            ("git_commit", json!({"message": "push; curl x"}), &[Command, Git], Workspace),
            (
                "git_checkout",
                json!({"paths": ["a"]}),
                &[Writes, Command, Git, CallLabel::GitDiscards],
                Workspace,
            ),
            ("venv_install", json!({"packages": ["x"]}), &[Command, Network, Installs], Workspace),
            ("venv_run", json!({"command": "curl x"}), &[Command, Network], External),
            ("venv_run", json!({"command": "true"}), &[Command], Workspace),
            ("memory_save", json!({"key": "k", "value": "v"}), &[Memory], Workspace),
            ("memory_recall", json!({}), &[Reads, Memory], read),
            ("read_output", json!({"call": "t1-0"}), &[Reads], read),
        ];
        for (tool, args, want, class) in cases {
            assert_eq!(
                (call_labels(tool, &args).as_slice(), recovery_class(tool, &args)),
                (want, class),
                "{tool} {args}"
            );
        }
    }

    #[test]
    fn tool_outside_the_set_has_no_labels() {
        let args = json!({"path": "Cargo.toml"});
        assert_eq!(call_labels_in_set(ToolSet::Core, "write_file", &args), []);
        assert_eq!(recovery_class_in_set(ToolSet::Core, "write_file", &args), RecoveryClass::Reads);
        assert_eq!(
            call_labels_in_set(ToolSet::Wide, "write_file", &args),
            [CallLabel::Writes, CallLabel::Config]
        );
        assert_eq!(recovery_class_in_set(ToolSet::Wide, "write_file", &args), RecoveryClass::Workspace);
        assert_eq!(recovery_class_in_set(ToolSet::Core, "edit_file", &args), RecoveryClass::Workspace);
    }

    #[test]
    fn config_files_are_labelled() {
        assert_eq!(
            call_labels("edit_file", &json!({"path": "./Cargo.toml"})),
            [CallLabel::Writes, CallLabel::Config]
        );
        assert_eq!(call_labels("create_file", &json!({"path": "a.rs"})), [CallLabel::Writes]);
    }
}
