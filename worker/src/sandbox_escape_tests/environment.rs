//! docket's environment variables, and what the command receives of them.

use super::{
    escape_case::{EscapeCase, python_case, shell_case},
    host_fixture::EscapeKind::SecretLeaked,
};

pub(super) fn cases() -> Vec<EscapeCase> {
    vec![
        shell_case("environment-printed", "env; set; export -p").expect_escape_as_process(SecretLeaked),
        shell_case("environment-of-itself", "cat /proc/self/environ | tr '\\0' '\\n'").expect_escape_as_process(SecretLeaked),
        shell_case("environment-of-parent", "sh -c 'tr \"\\0\" \"\\n\" </proc/$PPID/environ; :'").expect_escape_as_process(SecretLeaked),
        shell_case("environment-of-ancestors", "p=$$; while [ \"$p\" -gt 0 ]; do tr '\\0' '\\n' </proc/$p/environ | grep canary; p=$(cut -d' ' -f4 /proc/$p/stat) || break; done 2>/dev/null")
            .expect_escape_as_process(SecretLeaked),
        python_case("environment-python", "print(dict(os.environ))").expect_escape_as_process(SecretLeaked),
        python_case(
            "environment-on-the-stack",
            r#"
with no():
    maps = [line.split() for line in open("/proc/self/maps") if "[stack]" in line]
    low, high = [int(part, 16) for part in maps[0][0].split("-")]
    with open("/proc/self/mem", "rb", 0) as memory:
        memory.seek(low)
        held = memory.read(high - low).decode("latin1").split("\0")
        print([word for word in held if word.startswith("DOCKET_HOSTILE_KEY")])
"#,
        )
        .expect_escape_as_process(SecretLeaked),
        shell_case("environment-make", "printf 'all:\\n\\t@env\\n' > Makefile; make").expect_escape_as_process(SecretLeaked).require_program("make"),
        shell_case("environment-of-login", "bash -lc env; sh -lc env; su - -c env").expect_escape_as_process(SecretLeaked),
        shell_case("environment-agents", "echo \"[$SSH_AUTH_SOCK$DBUS_SESSION_BUS_ADDRESS$XDG_RUNTIME_DIR$DISPLAY$DOCKER_HOST$LD_PRELOAD$BASH_ENV]\"").expect_output("[]"),
        shell_case("environment-tools-are-docket-free", "env | grep -i 'docket_' | grep -v DOCKET_HOSTILE_CASE && echo ESCAPED; echo looked").expect_output("looked"),
        shell_case("environment-git-identity", "git config --list --show-origin | grep -v '^file:/etc/gitconfig' && echo ESCAPED; echo looked")
            .expect_output("looked")
            .require_program("git"),
    ]
}
