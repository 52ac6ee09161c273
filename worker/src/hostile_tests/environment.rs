//! What docket's environment holds, and what the command gets of it.

use super::{
    case::{Case, py, sh},
    world::Sees::Secret,
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        sh("environment-printed", "env; set; export -p").plainly_sees(Secret),
        sh("environment-of-itself", "cat /proc/self/environ | tr '\\0' '\\n'").plainly_sees(Secret),
        sh("environment-of-parent", "sh -c 'tr \"\\0\" \"\\n\" </proc/$PPID/environ; :'").plainly_sees(Secret),
        sh("environment-of-ancestors", "p=$$; while [ \"$p\" -gt 0 ]; do tr '\\0' '\\n' </proc/$p/environ | grep canary; p=$(cut -d' ' -f4 /proc/$p/stat) || break; done 2>/dev/null")
            .plainly_sees(Secret),
        py("environment-python", "print(dict(os.environ))").plainly_sees(Secret),
        py(
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
        .plainly_sees(Secret),
        sh("environment-make", "printf 'all:\\n\\t@env\\n' > Makefile; make").plainly_sees(Secret).needs("make"),
        sh("environment-of-login", "bash -lc env; sh -lc env; su - -c env").plainly_sees(Secret),
        sh("environment-agents", "echo \"[$SSH_AUTH_SOCK$DBUS_SESSION_BUS_ADDRESS$XDG_RUNTIME_DIR$DISPLAY$DOCKER_HOST$LD_PRELOAD$BASH_ENV]\"").says("[]"),
        sh("environment-tools-are-docket-free", "env | grep -i 'docket_' | grep -v DOCKET_HOSTILE_CASE && echo ESCAPED; echo looked").says("looked"),
        sh("environment-git-identity", "git config --list --show-origin | grep -v '^file:/etc/gitconfig' && echo ESCAPED; echo looked")
            .says("looked")
            .needs("git"),
    ]
}
