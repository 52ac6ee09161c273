//! Files left in the workspace that could confuse docket: unusual types, names and shapes.

use super::{
    escape_case::{EscapeCase, python_case, shell_case},
    host_fixture::EscapeKind::{OutsideChanged, RootOwned},
};

pub(super) fn cases() -> Vec<EscapeCase> {
    vec![
        shell_case("files-fifos", "mkfifo f .gitignore; rm given.txt; mkfifo given.txt; mkdir d; mkfifo d/.gitignore d/.gitattributes").with_capture(),
        shell_case("files-git-is-a-fifo", "rm -rf .git; mkfifo .git; rm .gitattributes; mkfifo .gitattributes").with_capture(),
        shell_case("files-git-parts-are-fifos", "rm -rf .git; mkdir -p .git/objects/info .git/refs; mkfifo .git/HEAD .git/index .git/config .git/objects/info/alternates .git/packed-refs").with_capture(),
        python_case("files-sockets", "s = socket.socket(socket.AF_UNIX); s.bind('s'); os.mkdir('d'); t = socket.socket(socket.AF_UNIX); t.bind('d/.gitignore'); t.listen()").with_capture(),
        python_case(
            "files-odd-names",
            r#"
for name in (b"new\nline", b"\x1b[31mred\x1b]0;title\x07", b"\xff\xfe\x80", b"-rf", b"--", b"\xe2\x80\xae\x67\x70\x6a", b"a\tb", b"x" * 255, b"\\", b"\"q\"", b" ", b"*", b"$(touch pwned)", b"`id`", b"\xcc\x81", b"CON", b"\x01\x7f"):
    open(name, "wb").write(name)
    os.makedirs(b"dir/" + name)
    open(b"dir/" + name + b"/f", "wb").close()
"#,
        )
        .with_capture(),
        python_case(
            "files-deep",
            "for _ in range(4000):\n    os.mkdir('d'); os.chdir('d')\nopen('end', 'w').write('x')",
        )
        .with_capture(),
        python_case("files-deep-with-links", "for n in range(300):\n    os.mkdir('d' * 60); os.symlink('..', 'up'); os.chdir('d' * 60)").with_capture(),
        shell_case("files-locked", "mkdir -p d/e; echo x > d/e/f; echo x > g; chmod 000 g d/e; chmod 000 d; chmod 000 given.txt; chmod 555 .").with_capture(),
        shell_case("files-case", "mkdir A a; echo 1 > A/f; echo 2 > a/F; echo 3 > README; echo 4 > readme; mkdir -p x/.GIT; echo '[core]' > x/.GIT/config").with_capture(),
        shell_case("files-folder-for-file", "rm -rf given.txt .gitattributes; mkdir -p given.txt/x .gitattributes; echo y > given.txt/x/y").with_capture(),
        python_case("files-binary", "open('nul', 'wb').write(bytes(range(256)) * 512)\nopen('long', 'wb').write(b'x' * (6 << 20))\nopen('lf', 'wb').write(b'\\n' * (1 << 20))").with_capture(),
        shell_case("files-hard-links", "mkdir d; echo x > a; for n in $(seq 300); do ln a d/$n; done; ln .git/HEAD h; ln given.txt .git/given").with_capture(),
        shell_case("files-empty-workspace", "rm -rf ..?* .[!.]* *; ls -A | wc -l").with_capture(),
        shell_case("files-ignored-everything", "printf '*\\n!x\\n' > .gitignore; mkdir -p node_modules; for n in $(seq 500); do echo > node_modules/$n; done; printf '%0100000d' 0 > d; printf '**/**/**/**/**/a*b*c*d*e*f*\\n' >> .gitignore").with_capture(),
        python_case("files-attributes-of-user", "open('t', 'w').close()\nwith no(): os.setxattr('t', 'user.x', b'y' * 1000)\nwith no(): os.setxattr('t', 'system.posix_acl_access', struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *e) for e in ((1, 7, 0xffffffff), (2, 7, 0), (4, 5, 0xffffffff), (16, 7, 0xffffffff), (32, 5, 0xffffffff))))").with_capture(),
        python_case("files-times", "open('t', 'w').close()\nos.utime('t', (2**33, 2**33)); os.utime('given.txt', (-2**31, -2**31))").with_capture(),
        shell_case("files-docket-configuration", "printf '[gates]\\ntest = \"touch {out}/pwned\"\\n' > docket.toml; mkdir -p .docket; cp docket.toml .docket/").with_capture(),
        shell_case("files-of-root", "touch t; mkdir d; ln -s x l").expect_escape(RootOwned),
        shell_case("files-held-open-while-captured", "exec 3>given.txt; (sleep 60 >&3 &); echo late >&3").expect_escape_as_process(super::host_fixture::EscapeKind::ProcessSurvived).with_capture(),
        shell_case("files-written-outside-by-archive", "mkdir t; echo x > t/planted; tar -C t -cPf a.tar --transform='s,^,../outside/,' planted; tar -xPf a.tar").expect_escape(OutsideChanged).require_program("tar"),
    ]
}
