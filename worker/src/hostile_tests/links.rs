//! Symbolic and hard links, made by the command itself: they lead to what is inside or to nothing.

use super::{
    case::{Case, py, sh},
    world::Sees::{Outside, Secret},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        sh("links-file", "ln -s {out}/secret l; cat l").sees(Secret),
        sh("links-folder", "ln -s {out} d; cat d/secret d/folder/secret").sees(Secret),
        sh("links-relative", "mkdir -p a/b; ln -s ../../../outside a/b/d; cat a/b/d/secret").sees(Secret),
        sh("links-entered", "ln -s {out} d; cd d && cat secret").sees(Secret),
        sh(
            "links-chain",
            "ln -s {out}/secret l0; for n in 1 2 3 4 5 6 7 8 9; do ln -s l$((n-1)) l$n; done; cat l9",
        )
        .sees(Secret),
        sh("links-through-proc", "ln -s /proc/self/root{out} r; cat r/secret").sees(Secret),
        sh("links-hard", "ln {out}/secret h; cat h").sees(Secret),
        sh("links-hard-tree", "cp -al {out} copy; cat copy/secret").sees(Secret),
        sh("links-write", "ln -s {out}/victim l; echo x > l").sees(Outside),
        sh("links-create-through-folder", "ln -s {out} d; echo x > d/planted").sees(Outside),
        sh("links-create-dangling", "ln -s {out}/planted l; echo x > l").sees(Outside),
        sh("links-mode", "ln -s {out}/victim l; chmod 600 l").sees(Outside),
        sh("links-times", "ln -s {out}/victim l; touch -d 1999-01-01 l").sees(Outside),
        sh("links-truncate", "ln -s {out}/victim l; truncate -s 1 l").sees(Outside),
        sh("links-sed-in-place", "ln -s {out}/victim l; sed -i --follow-symlinks s/^/x/ l").sees(Outside),
        sh("links-move-into", "ln -s {out} d; echo x > planted; mv planted d/").sees(Outside),
        sh("links-remove-below", "ln -s {out} d; rm -rf d/folder").sees(Outside),
        py(
            "links-hard-by-descriptor",
            r#"
with no():
    fd = os.open("{out}/secret", os.O_PATH)
    told(sc(265, -100, ctypes.c_char_p(b"/proc/self/fd/%d" % fd), -100, ctypes.c_char_p(b"h"), 0x400), "linkat")
    print(open("h").read())
"#,
        )
        .sees(Secret),
        py(
            "links-reopened-descriptor",
            r#"
with no():
    os.symlink("{out}", "d")
    fd = os.open("d", os.O_PATH)
    print(open(f"/proc/self/fd/{fd}/secret").read())
"#,
        )
        .sees(Secret),
        py(
            "links-archive-writes-through",
            r#"
import io, tarfile
with tarfile.open("a.tar", "w") as tar:
    link = tarfile.TarInfo("d")
    link.type, link.linkname = tarfile.SYMTYPE, "{out}"
    tar.addfile(link)
    file = tarfile.TarInfo("d/planted")
    file.size = 1
    tar.addfile(file, io.BytesIO(b"x"))
with no():
    with tarfile.open("a.tar") as tar:
        for member in tar: tar.extract(member)
"#,
        )
        .sees(Outside),
        // What is left behind: docket must take the link, never what it points to.
        sh("links-captured", "ln -s {out} d; ln -s {out}/secret l; mkdir s; ln -s ../../outside/secret s/l")
            .captured(),
        sh("links-captured-over-given", "rm given.txt; ln -s {out}/secret given.txt").captured(),
        sh(
            "links-captured-ignore-file",
            "ln -s {out}/secret .gitignore; mkdir s; ln -s {out}/config s/.gitignore",
        )
        .captured(),
        sh("links-captured-attributes", "rm .gitattributes; ln -s {out}/secret .gitattributes").captured(),
        sh("links-captured-loop", "ln -s . here; ln -s b a; ln -s a b; mkdir d; ln -s ../d d/d").captured(),
        sh("links-captured-kernel", "ln -s /proc/self/environ e; ln -s /dev/zero z; ln -s /proc/1/root r")
            .captured(),
    ]
}
