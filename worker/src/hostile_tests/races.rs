//! What changes between two looks: between a call and the next, and while a wall is being laid.

use super::{
    case::{Case, sh},
    world::Sees::{Outside, Secret},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        sh("races-git-folder-becomes-link", "rm -rf .git; ln -s {out} .git")
            .then("cat .git/config .git/hooks/*")
            .sees(Secret),
        sh("races-git-folder-written-through", "rm -rf .git; ln -s {out} .git")
            .then("echo x > .git/config; echo x > .git/hooks/new")
            .sees(Outside),
        sh("races-hooks-become-link", "rm -rf .git; mkdir .git; ln -s {out}/hooks .git/hooks; ln -s {out}/config .git/config")
            .then("cat .git/hooks/planted .git/config; echo x > .git/hooks/new")
            .sees(Secret),
        sh("races-hooks-become-link-to-proc", "rm -rf .git; mkdir .git; ln -s /proc/1/root/etc .git/hooks")
            .then("ls .git/hooks/; echo x > .git/hooks/x; cat .git/hooks/shadow")
            // The link was taken away when its call had ended.
            .says("No such file"),
        sh("races-hooks-become-file", "rm -rf .git; mkdir .git; echo x > .git/hooks; mkdir .git/config")
            .then("cat .git/hooks; ls -d .git/config")
            .says(".git/config"),
        sh("races-hooks-become-fifo", "rm -rf .git; mkdir .git; mkfifo .git/hooks .git/config")
            .then("ls -l .git")
            .says("total 0"),
        sh("races-left-swapper-is-gone",
            "mkdir a; ln -s {out} b; (setsid sh -c 'while :; do mv a c; mv b a; mv a b; mv c a; done' >/dev/null 2>&1 &); sleep 0.1")
            .then("for n in $(seq 200); do cat a/secret b/secret; done 2>/dev/null; ls")
            .sees(Secret),
        sh("races-workspace-replaced", "rmdir /workspace; mv /workspace /workspace.old; ln -s {out} /workspace; ln -sfn {out} {top}/workspace")
            .then("cat secret; cat /workspace/secret")
            .says("No such file"),
        sh("races-tmp-does-not-last", "echo {nonce}kept > /tmp/kept; ln -s {out} /tmp/link; echo {nonce}kept > ~/.bashrc; echo {nonce}kept > /dev/shm/kept")
            .then("cat /tmp/kept ~/.bashrc /dev/shm/kept /tmp/link/secret 2>/dev/null && echo ESCAPED kept; ls -A /tmp | wc -l")
            .says("0"),
        sh("races-locked-workspace", "mkdir -p d/e; chmod 000 d; chmod 500 .")
            .then("chmod 700 . d; ls")
            .says("d"),
    ]
}
