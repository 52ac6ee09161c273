//! Changes between check and use: between two calls, and while a sandbox is being set up.

use super::{
    escape_case::{EscapeCase, shell_case},
    host_fixture::EscapeKind::{OutsideChanged, SecretLeaked},
};

pub(super) fn cases() -> Vec<EscapeCase> {
    vec![
        shell_case("races-git-folder-becomes-link", "rm -rf .git; ln -s {out} .git")
            .then_run("cat .git/config .git/hooks/*")
            .expect_escape(SecretLeaked),
        shell_case("races-git-folder-written-through", "rm -rf .git; ln -s {out} .git")
            .then_run("echo x > .git/config; echo x > .git/hooks/new")
            .expect_escape(OutsideChanged),
        shell_case("races-hooks-become-link", "rm -rf .git; mkdir .git; ln -s {out}/hooks .git/hooks; ln -s {out}/config .git/config")
            .then_run("cat .git/hooks/planted .git/config; echo x > .git/hooks/new")
            .expect_escape(SecretLeaked),
        shell_case("races-hooks-become-link-to-proc", "rm -rf .git; mkdir .git; ln -s /proc/1/root/etc .git/hooks")
            .then_run("ls .git/hooks/; echo x > .git/hooks/x; cat .git/hooks/shadow")
            // The link was removed when its call ended.
            .expect_output("No such file"),
        shell_case("races-hooks-become-file", "rm -rf .git; mkdir .git; echo x > .git/hooks; mkdir .git/config")
            .then_run("cat .git/hooks; ls -d .git/config")
            .expect_output(".git/config"),
        shell_case("races-hooks-become-fifo", "rm -rf .git; mkdir .git; mkfifo .git/hooks .git/config")
            .then_run("ls -l .git")
            .expect_output("total 0"),
        shell_case("races-left-swapper-is-gone",
            "mkdir a; ln -s {out} b; (setsid sh -c 'while :; do mv a c; mv b a; mv a b; mv c a; done' >/dev/null 2>&1 &); sleep 0.1")
            .then_run("for n in $(seq 200); do cat a/secret b/secret; done 2>/dev/null; ls")
            .expect_escape(SecretLeaked),
        shell_case("races-workspace-replaced", "rmdir /workspace; mv /workspace /workspace.old; ln -s {out} /workspace; ln -sfn {out} {top}/workspace")
            .then_run("cat secret; cat /workspace/secret")
            .expect_output("No such file"),
        shell_case("races-tmp-does-not-last", "echo {nonce}kept > /tmp/kept; ln -s {out} /tmp/link; echo {nonce}kept > ~/.bashrc; echo {nonce}kept > /dev/shm/kept")
            .then_run("cat /tmp/kept ~/.bashrc /dev/shm/kept /tmp/link/secret 2>/dev/null && echo ESCAPED kept; ls -A /tmp | wc -l")
            .expect_output("0"),
        shell_case("races-locked-workspace", "mkdir -p d/e; chmod 000 d; chmod 500 .")
            .then_run("chmod 700 . d; ls")
            .expect_output("d"),
    ]
}
