//! Refuses, as a courtesy, lines that destroy or stop a machine. Pure.

use super::{SimpleCommand, parse_commands};

/// Why a line is refused; `None` for all other lines. Few and precise patterns: a wrong refusal costs more than it
/// saves, and the sandbox confines what gets past.
pub(crate) fn refusal_reason(line: &str) -> Option<&'static str> {
    let squeezed: String = line.chars().filter(|c| !c.is_whitespace()).collect();
    if squeezed.contains(":(){:|:&};:") {
        return Some("it starts copies of itself without end");
    }
    parse_commands(line).iter().find_map(command_refusal_reason)
}

fn command_refusal_reason(command: &SimpleCommand) -> Option<&'static str> {
    let program = command.program();
    let flag = |short: char, long: &str| {
        command
            .args()
            .iter()
            .any(|arg| arg == long || (arg.starts_with('-') && !arg.starts_with("--") && arg.contains(short)))
    };
    let recursive = flag('r', "--recursive") || flag('R', "--recursive");
    let of_root = command.args().iter().any(|arg| is_root_folder(arg));
    if command.writes_to.iter().any(|path| is_disk_device(path)) {
        return Some("it writes to a disk device");
    }
    match program {
        "rm" if recursive && of_root => Some("it removes a root or home folder"),
        "chmod" | "chown" | "chgrp" if recursive && of_root => {
            Some("it changes the rights of a root or home folder")
        }
        "dd" if command.args().iter().any(|arg| arg.strip_prefix("of=").is_some_and(is_disk_device)) => {
            Some("it writes to a disk device")
        }
        "shutdown" | "reboot" | "halt" | "poweroff" => Some("it stops the machine"),
        "mkfs" | "wipefs" => Some("it destroys a file system"),
        name if name.starts_with("mkfs.") => Some("it destroys a file system"),
        _ => None,
    }
}

fn is_root_folder(path: &str) -> bool {
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

fn is_disk_device(path: &str) -> bool {
    path.strip_prefix("/dev/").is_some_and(|name| {
        ["sd", "hd", "vd", "xvd", "nvme", "mmcblk", "disk", "dm-"].iter().any(|kind| name.starts_with(kind))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmless_lines_are_not_refused() {
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
            assert_eq!(refusal_reason(line), None, "{line}");
        }
    }

    #[test]
    fn destructive_lines_are_refused() {
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
            assert!(refusal_reason(line).is_some(), "{line}");
        }
    }
}
