//! Absolute, climbing and unusual paths: nothing outside the workspace is read or written.

use super::{
    escape_case::{EscapeCase, python_case, shell_case},
    host_fixture::EscapeKind::{OutsideChanged, SecretLeaked},
};

pub(super) fn cases() -> Vec<EscapeCase> {
    vec![
        shell_case("paths-absolute-read", "cat {out}/secret").expect_escape(SecretLeaked),
        shell_case("paths-climbing-read", "cat ../outside/secret ./../outside/folder/secret").expect_escape(SecretLeaked),
        shell_case("paths-climbing-far", "cd ../../../../../../../../../..; cat .{out}/secret").expect_escape(SecretLeaked),
        shell_case("paths-doubled-slashes", "cat ///..//.///{out}/./secret").expect_escape(SecretLeaked),
        shell_case("paths-through-proc-cwd", "cat /proc/self/cwd/../outside/secret").expect_escape(SecretLeaked),
        shell_case("paths-through-proc-root", "cat /proc/self/root{out}/secret").expect_escape(SecretLeaked),
        shell_case("paths-glob", "cat {out}/s*t ../*/sec*").expect_escape(SecretLeaked),
        shell_case("paths-copied", "cp -r {out}/folder mine; cat mine/*").expect_escape(SecretLeaked),
        shell_case("paths-archived", "tar -C {top} -cf - outside/secret | tar -xOf -").expect_escape(SecretLeaked).require_program("tar"),
        shell_case("paths-descriptor", "exec 9<{out}/secret; cat <&9").expect_escape(SecretLeaked),
        shell_case("paths-found", "find {top} -name secret -exec cat {} +").expect_escape(SecretLeaked),
        shell_case("paths-searched", "grep -rhs canary {top} {home} /srv /mnt /media").expect_escape(SecretLeaked),
        shell_case("paths-home-credentials", "cat {home}/credentials").expect_escape(SecretLeaked),
        shell_case("paths-home-of-root", "cat ~root/{homename}/credentials; cat ~/{homename}/credentials")
            .expect_escape(SecretLeaked),
        shell_case("paths-dd", "dd if={out}/secret of=/dev/stdout status=none").expect_escape(SecretLeaked),
        shell_case("paths-sourced", ". {out}/secret; true").expect_escape(SecretLeaked),
        shell_case("paths-as-script", "bash {out}/secret; true").expect_escape(SecretLeaked),
        python_case(
            "paths-open-at-climbs",
            r#"
with no():
    at = os.open(".", os.O_PATH)
    for _ in range(40):
        at = os.open("..", os.O_PATH, dir_fd=at)
    print(open(os.open("{out}/secret"[1:], os.O_RDONLY, dir_fd=at)).read())
"#,
        )
        .expect_escape(SecretLeaked),
        python_case(
            "paths-fchdir-climbs",
            r#"
with no():
    at = os.open("..", os.O_RDONLY | os.O_DIRECTORY)
    os.fchdir(at)
    print(open("outside/secret").read())
"#,
        )
        .expect_escape(SecretLeaked),
        python_case(
            "paths-openat2-magic",
            r#"
with no():
    at = os.open("/proc/self/root", os.O_PATH)
    how = ctypes.create_string_buffer(struct.pack("QQQ", os.O_RDONLY, 0, 0))
    fd = sc(437, at, ctypes.c_char_p(b"{out}/secret"[1:]), how, 24)
    if fd >= 0: print(os.read(fd, 100))
    else: print("refused", -fd)
"#,
        )
        .expect_escape(SecretLeaked),
        shell_case("paths-write", "echo x > {out}/victim").expect_escape(OutsideChanged),
        shell_case("paths-append", "echo x | tee -a {out}/victim ../outside/victim").expect_escape(OutsideChanged),
        shell_case("paths-truncate", "truncate -s 0 {out}/victim").expect_escape(OutsideChanged),
        shell_case("paths-create", "echo x > {out}/planted").expect_escape(OutsideChanged),
        shell_case("paths-create-folder", "mkdir {out}/planted").expect_escape(OutsideChanged),
        shell_case("paths-remove", "rm -f {out}/victim").expect_escape(OutsideChanged),
        shell_case("paths-move-away", "mv {out}/victim {out}/moved").expect_escape(OutsideChanged),
        shell_case("paths-move-in", "echo x > planted; mv planted {out}/planted").expect_escape(OutsideChanged),
        shell_case("paths-mode", "chmod 600 {out}/victim").expect_escape(OutsideChanged),
        shell_case("paths-times", "touch -d 1999-01-01 {out}/victim").expect_escape(OutsideChanged),
        shell_case(
            "paths-remove-workspace-parent",
            "mv ../outside/folder ../outside/gone; rmdir ..; rm -rf {out}/folder",
        )
        .expect_escape(OutsideChanged),
        shell_case("paths-shared-tmp", "echo x > /tmp/{nonce}.planted").expect_escape(OutsideChanged),
        shell_case("paths-shared-var-tmp", "echo x > /var/tmp/{nonce}.planted").expect_escape(OutsideChanged),
        shell_case("paths-shared-memory", "echo x > /dev/shm/{nonce}.planted").expect_escape(OutsideChanged),
        shell_case("paths-shared-run", "echo x > /run/{nonce}.planted").expect_escape(OutsideChanged),
        shell_case("paths-system-programs", "echo x > /usr/local/bin/{nonce}; echo x > /usr/lib/{nonce}")
            .expect_output("Read-only file system"),
        shell_case("paths-system-settings", "echo x > /etc/{nonce}; echo x >> /etc/passwd; echo x > /{nonce}")
            .expect_output("Read-only file system"),
        shell_case("paths-remove-everything", "timeout 2 rm -rf --no-preserve-root /etc /run /tmp /home /dev /proc / 2>&1 | tail -n 3; echo gone").expect_output("gone"),
        shell_case("paths-docket-itself", ": > /.docket-init; echo x >> /proc/1/exe; chmod 777 /.docket-init")
            .expect_output("denied"),
    ]
}
