//! Symbolic and hard links created by the command itself: they lead to files inside, or to nothing.

use super::{
    escape_case::{EscapeCase, python_case, shell_case},
    host_fixture::EscapeKind::{OutsideChanged, SecretLeaked},
};

pub(super) fn cases() -> Vec<EscapeCase> {
    vec![
        shell_case("links-file", "ln -s {out}/secret l; cat l").expect_escape(SecretLeaked),
        shell_case("links-folder", "ln -s {out} d; cat d/secret d/folder/secret").expect_escape(SecretLeaked),
        shell_case("links-relative", "mkdir -p a/b; ln -s ../../../outside a/b/d; cat a/b/d/secret").expect_escape(SecretLeaked),
        shell_case("links-entered", "ln -s {out} d; cd d && cat secret").expect_escape(SecretLeaked),
        shell_case(
            "links-chain",
            "ln -s {out}/secret l0; for n in 1 2 3 4 5 6 7 8 9; do ln -s l$((n-1)) l$n; done; cat l9",
        )
        .expect_escape(SecretLeaked),
        shell_case("links-through-proc", "ln -s /proc/self/root{out} r; cat r/secret").expect_escape(SecretLeaked),
        shell_case("links-hard", "ln {out}/secret h; cat h").expect_escape(SecretLeaked),
        shell_case("links-hard-tree", "cp -al {out} copy; cat copy/secret").expect_escape(SecretLeaked),
        shell_case("links-write", "ln -s {out}/victim l; echo x > l").expect_escape(OutsideChanged),
        shell_case("links-create-through-folder", "ln -s {out} d; echo x > d/planted").expect_escape(OutsideChanged),
        shell_case("links-create-dangling", "ln -s {out}/planted l; echo x > l").expect_escape(OutsideChanged),
        shell_case("links-mode", "ln -s {out}/victim l; chmod 600 l").expect_escape(OutsideChanged),
        shell_case("links-times", "ln -s {out}/victim l; touch -d 1999-01-01 l").expect_escape(OutsideChanged),
        shell_case("links-truncate", "ln -s {out}/victim l; truncate -s 1 l").expect_escape(OutsideChanged),
        shell_case("links-sed-in-place", "ln -s {out}/victim l; sed -i --follow-symlinks s/^/x/ l").expect_escape(OutsideChanged),
        shell_case("links-move-into", "ln -s {out} d; echo x > planted; mv planted d/").expect_escape(OutsideChanged),
        shell_case("links-remove-below", "ln -s {out} d; rm -rf d/folder").expect_escape(OutsideChanged),
        python_case(
            "links-hard-by-descriptor",
            r#"
with no():
    fd = os.open("{out}/secret", os.O_PATH)
    told(sc(265, -100, ctypes.c_char_p(b"/proc/self/fd/%d" % fd), -100, ctypes.c_char_p(b"h"), 0x400), "linkat")
    print(open("h").read())
"#,
        )
        .expect_escape(SecretLeaked),
        python_case(
            "links-reopened-descriptor",
            r#"
with no():
    os.symlink("{out}", "d")
    fd = os.open("d", os.O_PATH)
    print(open(f"/proc/self/fd/{fd}/secret").read())
"#,
        )
        .expect_escape(SecretLeaked),
        python_case(
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
        .expect_escape(OutsideChanged),
        // Links left behind: docket must capture the link, never its target.
        shell_case("links-captured", "ln -s {out} d; ln -s {out}/secret l; mkdir s; ln -s ../../outside/secret s/l")
            .with_capture(),
        shell_case("links-captured-over-given", "rm given.txt; ln -s {out}/secret given.txt").with_capture(),
        shell_case(
            "links-captured-ignore-file",
            "ln -s {out}/secret .gitignore; mkdir s; ln -s {out}/config s/.gitignore",
        )
        .with_capture(),
        shell_case("links-captured-attributes", "rm .gitattributes; ln -s {out}/secret .gitattributes").with_capture(),
        shell_case("links-captured-loop", "ln -s . here; ln -s b a; ln -s a b; mkdir d; ln -s ../d d/d").with_capture(),
        shell_case("links-captured-kernel", "ln -s /proc/self/environ e; ln -s /dev/zero z; ln -s /proc/1/root r")
            .with_capture(),
    ]
}
