//! Paths, absolute, climbing and odd: nothing beside the workspace is read or written.

use super::{
    case::{Case, py, sh},
    world::Sees::{Outside, Secret},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        sh("paths-absolute-read", "cat {out}/secret").sees(Secret),
        sh("paths-climbing-read", "cat ../outside/secret ./../outside/folder/secret").sees(Secret),
        sh("paths-climbing-far", "cd ../../../../../../../../../..; cat .{out}/secret").sees(Secret),
        sh("paths-doubled-slashes", "cat ///..//.///{out}/./secret").sees(Secret),
        sh("paths-through-proc-cwd", "cat /proc/self/cwd/../outside/secret").sees(Secret),
        sh("paths-through-proc-root", "cat /proc/self/root{out}/secret").sees(Secret),
        sh("paths-glob", "cat {out}/s*t ../*/sec*").sees(Secret),
        sh("paths-copied", "cp -r {out}/folder mine; cat mine/*").sees(Secret),
        sh("paths-archived", "tar -C {top} -cf - outside/secret | tar -xOf -").sees(Secret).needs("tar"),
        sh("paths-descriptor", "exec 9<{out}/secret; cat <&9").sees(Secret),
        sh("paths-found", "find {top} -name secret -exec cat {} +").sees(Secret),
        sh("paths-searched", "grep -rhs canary {top} {home} /srv /mnt /media").sees(Secret),
        sh("paths-home-credentials", "cat {home}/credentials").sees(Secret),
        sh("paths-home-of-root", "cat ~root/{homename}/credentials; cat ~/{homename}/credentials")
            .sees(Secret),
        sh("paths-dd", "dd if={out}/secret of=/dev/stdout status=none").sees(Secret),
        sh("paths-sourced", ". {out}/secret; true").sees(Secret),
        sh("paths-as-script", "bash {out}/secret; true").sees(Secret),
        py(
            "paths-open-at-climbs",
            r#"
with no():
    at = os.open(".", os.O_PATH)
    for _ in range(40):
        at = os.open("..", os.O_PATH, dir_fd=at)
    print(open(os.open("{out}/secret"[1:], os.O_RDONLY, dir_fd=at)).read())
"#,
        )
        .sees(Secret),
        py(
            "paths-fchdir-climbs",
            r#"
with no():
    at = os.open("..", os.O_RDONLY | os.O_DIRECTORY)
    os.fchdir(at)
    print(open("outside/secret").read())
"#,
        )
        .sees(Secret),
        py(
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
        .sees(Secret),
        sh("paths-write", "echo x > {out}/victim").sees(Outside),
        sh("paths-append", "echo x | tee -a {out}/victim ../outside/victim").sees(Outside),
        sh("paths-truncate", "truncate -s 0 {out}/victim").sees(Outside),
        sh("paths-create", "echo x > {out}/planted").sees(Outside),
        sh("paths-create-folder", "mkdir {out}/planted").sees(Outside),
        sh("paths-remove", "rm -f {out}/victim").sees(Outside),
        sh("paths-move-away", "mv {out}/victim {out}/moved").sees(Outside),
        sh("paths-move-in", "echo x > planted; mv planted {out}/planted").sees(Outside),
        sh("paths-mode", "chmod 600 {out}/victim").sees(Outside),
        sh("paths-times", "touch -d 1999-01-01 {out}/victim").sees(Outside),
        sh(
            "paths-remove-workspace-parent",
            "mv ../outside/folder ../outside/gone; rmdir ..; rm -rf {out}/folder",
        )
        .sees(Outside),
        sh("paths-shared-tmp", "echo x > /tmp/{nonce}.planted").sees(Outside),
        sh("paths-shared-var-tmp", "echo x > /var/tmp/{nonce}.planted").sees(Outside),
        sh("paths-shared-memory", "echo x > /dev/shm/{nonce}.planted").sees(Outside),
        sh("paths-shared-run", "echo x > /run/{nonce}.planted").sees(Outside),
        sh("paths-system-programs", "echo x > /usr/local/bin/{nonce}; echo x > /usr/lib/{nonce}")
            .says("Read-only file system"),
        sh("paths-system-settings", "echo x > /etc/{nonce}; echo x >> /etc/passwd; echo x > /{nonce}")
            .says("Read-only file system"),
        sh("paths-remove-everything", "timeout 2 rm -rf --no-preserve-root /etc /run /tmp /home /dev /proc / 2>&1 | tail -n 3; echo gone").says("gone"),
        sh("paths-docket-itself", ": > /.docket-init; echo x >> /proc/1/exe; chmod 777 /.docket-init")
            .says("denied"),
    ]
}
