//! What a repository can make git do. git may run all of it inside the sandbox: nothing reaches outside, and
//! docket's own git, which examines the workspace afterwards, runs none of it.

use super::{
    escape_case::{EscapeCase, shell_case},
    host_fixture::EscapeKind::{OutsideChanged, SecretLeaked},
};

/// Creates a program that leaves a mark outside and passes its input on, and a first commit.
macro_rules! trap {
    ($line:literal) => {
        concat!(
            "export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t GIT_TERMINAL_PROMPT=0\n",
            // Needed for the control, which runs as another user.
            "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'\n",
            "mkdir n && cd n && git init -q . && git add -A -f && git commit -qm one --allow-empty\n",
            "printf '#!/bin/sh\\necho x > {out}/pwned\\nexec cat\\n' > trap; chmod 755 trap; T=$PWD/trap\n",
            $line
        )
    };
}

fn trap_case(id: &'static str, line: &'static str) -> EscapeCase {
    shell_case(id, line).expect_escape(OutsideChanged).require_program("git")
}

pub(super) fn cases() -> Vec<EscapeCase> {
    vec![
        trap_case("git-fsmonitor", trap!("git config core.fsmonitor \"$T\"; git status </dev/null"))
        .with_capture(),
        trap_case("git-hooks-path", trap!("mkdir h; cp trap h/pre-commit; git config core.hooksPath h; git commit -qm two --allow-empty </dev/null")),
        trap_case("git-hook", trap!("mkdir -p .git/hooks; cp trap .git/hooks/post-checkout; git checkout -q -b other </dev/null"))
        .with_capture(),
        trap_case("git-hook-of-transactions", trap!("mkdir -p .git/hooks; cp trap .git/hooks/reference-transaction; git branch other </dev/null")),
        trap_case("git-index-hook", trap!("mkdir -p .git/hooks; cp trap .git/hooks/post-index-change; touch n; git add n </dev/null")),
        trap_case("git-filter-clean", trap!("git config filter.up.clean \"$T\"; echo '*.up filter=up' > .gitattributes; echo a > a.up; git add a.up"))
        .with_capture(),
        trap_case("git-filter-smudge", trap!("echo '*.up filter=up' > .gitattributes; echo a > a.up; git add .; git commit -qm two; git config filter.up.smudge \"$T\"; rm a.up; git checkout a.up"))
        .with_capture(),
        trap_case("git-filter-process", trap!("git config filter.up.process \"$T </dev/null\"; echo '*.up filter=up' > .gitattributes; echo a > a.up; timeout 1 git add a.up")),
        trap_case("git-diff-external", trap!("echo a > a; git add a; git commit -qm two; echo b > a; git config diff.external \"$T\"; git diff </dev/null"))
        .with_capture(),
        trap_case("git-textconv", trap!("echo '*.up diff=up' > .gitattributes; echo a > a.up; git add .; git commit -qm two; echo b > a.up; git config diff.up.textconv \"$T\"; git diff </dev/null"))
        .with_capture(),
        trap_case("git-merge-driver", trap!("echo '*.up merge=up' > .gitattributes; echo a > a.up; git add .; git commit -qm two; git checkout -q -b o; echo b > a.up; git commit -qam b; git checkout -q -; echo c > a.up; git commit -qam c; git config merge.up.driver \"$T\"; git merge -q o </dev/null"))
        .with_capture(),
        trap_case("git-ssh-command", trap!("git config core.sshCommand \"$T\"; timeout 1 git fetch ssh://nobody@localhost/x </dev/null")),
        trap_case("git-upload-pack", trap!("git config remote.origin.url \"$PWD\"; git config remote.origin.uploadpack \"$T\"; timeout 1 git fetch origin </dev/null")),
        trap_case("git-receive-pack", trap!("timeout 1 git push --receive-pack=\"$T\" \"$PWD\" HEAD:x </dev/null")),
        trap_case("git-ext-transport", trap!("timeout 1 git -c protocol.ext.allow=always ls-remote \"ext::$T\" </dev/null")),
        trap_case("git-proxy", trap!("git config core.gitProxy \"$T\"; timeout 1 git ls-remote git://localhost/x </dev/null")),
        trap_case("git-editor", trap!("git config core.editor \"$T\"; git commit --amend --allow-empty </dev/null")),
        trap_case("git-sequence-editor", trap!("git commit -qm two --allow-empty; git config sequence.editor \"$T\"; git rebase -i HEAD~1 </dev/null")),
        trap_case("git-signing-program", trap!("git config gpg.program \"$T\"; git config commit.gpgSign true; git commit -qm two --allow-empty </dev/null"))
        .with_capture(),
        trap_case("git-alias", trap!("git config alias.st \"!$T\"; git st </dev/null")),
        trap_case("git-included-configuration", trap!("printf '[core]\\n\\tfsmonitor = %s\\n' \"$T\" > more; git config include.path \"$PWD/more\"; git status </dev/null")),
        trap_case("git-included-for-folder", trap!("printf '[core]\\n\\tfsmonitor = %s\\n' \"$T\" > more; git config \"includeIf.gitdir:/**.path\" \"$PWD/more\"; git status </dev/null")),
        trap_case("git-worktree-configuration", trap!("git config extensions.worktreeConfig true; git config --worktree core.fsmonitor \"$T\"; git status </dev/null"))
        .with_capture(),
        trap_case("git-credential-helper", trap!("git config credential.helper \"!$T\"; printf 'protocol=https\\nhost=x\\n\\n' | git credential fill")),
        trap_case("git-ask-pass", trap!("git config core.askPass \"$T\"; GIT_TERMINAL_PROMPT=1 git credential fill <<< $'protocol=https\\nhost=x\\n'")),
        trap_case("git-submodule-update", trap!("git config submodule.s.url \"$PWD\"; git config submodule.s.update \"!$T\"; printf '[submodule \"s\"]\\n\\tpath = s\\n\\turl = ./\\n' > .gitmodules; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),s; git -c protocol.file.allow=always submodule update s </dev/null")),
        trap_case("git-pager", trap!("git config core.pager \"$T\"; git config pager.grep \"$T\"; echo x > y; git add y; git grep -O\"$T\" x </dev/null")),
        trap_case("git-bisect", trap!("git commit -qm two --allow-empty; git commit -qm three --allow-empty; git bisect start HEAD HEAD~2; git bisect run \"$T\" </dev/null")),
        trap_case("git-nested-bare", trap!("git init -q --bare inner; git -C inner config core.fsmonitor \"$T\"; git -C inner config core.bare false; git -C inner config core.worktree ..; git -C inner status </dev/null"))
        .with_capture(),
        trap_case("git-folder-by-file", trap!("mv .git real; echo 'gitdir: real' > .git; git config core.fsmonitor \"$T\"; git status </dev/null")),
        trap_case("git-alternate-refs", trap!("git init -q o; git -C o commit -qm x --allow-empty; git config core.alternateRefsCommand \"$T\"; echo \"$PWD/o/.git/objects\" > .git/objects/info/alternates; timeout 1 git fetch o </dev/null")),
        trap_case("git-trailer", trap!("git config trailer.x.command \"$T\"; git config trailer.x.key X; echo m | git interpret-trailers --trailer X=1")),
        shell_case("git-work-tree-outside", trap!("echo x > planted; git add planted; git --work-tree={out} checkout -f -- planted")).expect_escape(OutsideChanged).require_program("git").with_capture(),
        shell_case("git-work-tree-configured", trap!("echo x > planted; git add planted; git config core.worktree {out}; git checkout -f -- planted")).expect_escape(OutsideChanged).require_program("git").with_capture(),
        shell_case("git-clone-outside", trap!("git clone -q . {out}/clone; git init -q {out}/new; git bundle create {out}/b HEAD; git archive --output={out}/a.tar HEAD")).expect_escape(OutsideChanged).require_program("git"),
        shell_case("git-reads-outside", trap!("git hash-object -w {out}/secret | xargs git cat-file -p; git diff --no-index /dev/null {out}/secret")).expect_escape(SecretLeaked).require_program("git"),
        shell_case("git-template-from-outside", trap!("git init -q --template={out} made; cat made/.git/secret")).expect_escape(SecretLeaked).require_program("git"),
        shell_case("git-alternates-outside", trap!("echo {out} > .git/objects/info/alternates; git fsck 2>&1 | head -3; ln -s {out} .git/objects/zz; cat .git/objects/zz/secret")).expect_escape(SecretLeaked).require_program("git").with_capture(),
        shell_case("git-folder-becomes-link", trap!("rm -rf .git; ln -s {out} .git; cat .git/config")).expect_escape(SecretLeaked).require_program("git").with_capture(),
        shell_case("git-names-like-options", trap!("echo x > --output=planted; echo x > -f; mkdir -- --exec; git add -A -- . ; git commit -qm two; git log --stat | tail -2")).require_program("git").with_capture(),
        shell_case("git-nested-repositories", trap!("git init -q in; echo x > in/f; mkdir -p v/.git/hooks; cp trap v/.git/hooks/post-checkout; ln -s {out} v/.git/objects; mkdir -p w/.GIT/hooks; cp trap w/.GIT/hooks/pre-commit")).require_program("git").with_capture(),
    ]
}
