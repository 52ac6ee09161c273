//! Privileges: other users, set-id files, capabilities, namespaces, mounts, devices.

use super::{
    escape_case::{EscapeCase, python_case, shell_case},
    host_fixture::EscapeKind::{ReportedByCommand, SetIdCreated},
};

pub(super) fn cases() -> Vec<EscapeCase> {
    vec![
        shell_case("privileges-chmod-set-id", "cp /bin/true t; chmod u+s t; chmod 6755 t; ls -l t").expect_escape(SetIdCreated),
        shell_case("privileges-install-set-id", "install -m 4755 /bin/true t").expect_escape(SetIdCreated),
        shell_case("privileges-set-group-id", "cp /bin/true t; chmod g+s t").expect_escape(SetIdCreated),
        python_case("privileges-open-set-id", "with no(): os.open('t', os.O_CREAT | os.O_WRONLY, 0o4755)").expect_escape(SetIdCreated),
        python_case("privileges-creat-set-id", "told(sc(85, ctypes.c_char_p(b't'), 0o6755), 'creat')").expect_escape(SetIdCreated),
        python_case("privileges-mknod-set-id", "with no(): os.mknod('t', 0o104755)").expect_escape(SetIdCreated),
        python_case("privileges-fchmodat2-set-id", "os.close(os.open('t', os.O_CREAT))\ntold(sc(452, -100, ctypes.c_char_p(b't'), 0o4755, 0), 'fchmodat2')").expect_escape(SetIdCreated),
        python_case("privileges-fchmod-upper-bits", "fd = os.open('t', os.O_CREAT)\ntold(sc(91, fd, (1 << 40) | 0o4755), 'fchmod')").expect_escape(SetIdCreated),
        python_case(
            "privileges-openat2-set-id",
            "how = ctypes.create_string_buffer(struct.pack('QQQ', os.O_CREAT | os.O_WRONLY, 0o4755, 0))\ntold(sc(437, -100, ctypes.c_char_p(b't'), how, 24), 'openat2')",
        )
        .expect_escape(SetIdCreated),
        python_case(
            "privileges-copied-set-id",
            "import shutil\nsource = '/usr/bin/su'\nshutil.copyfile(source, 't')\nwith no(): os.chmod('t', 0o4755)",
        )
        .expect_escape(SetIdCreated),
        shell_case("privileges-archived-set-id", "python3 - <<'P'\nimport tarfile\nt = tarfile.open('a.tar', 'w'); i = tarfile.TarInfo('t'); i.mode = 0o4755; t.addfile(i); t.close()\nP\ntar -xpf a.tar; ls -l t")
            .expect_escape(SetIdCreated)
            .require_program("tar")
            .require_program("python3"),
        python_case(
            "privileges-set-id-in-memory",
            "fd = os.memfd_create('x')\nwith no():\n    os.fchmod(fd, 0o4755); got('set-id memory file')",
        )
        .expect_escape(ReportedByCommand),
        python_case("privileges-file-capabilities", "open('t', 'w').close()\nwith no():\n    os.setxattr('t', 'security.capability', struct.pack('<5I', 0x02000001, 0xffffffff, 0, 0, 0)); got('capability')").expect_output("refused EPERM"),
        python_case("privileges-trusted-attributes", "open('t', 'w').close()\nwith no():\n    os.setxattr('t', 'trusted.overlay.opaque', b'y'); got('trusted')").expect_output("refused EPERM"),
        shell_case("privileges-owner-of-root", "touch t; chown root t; chown 0:0 t; chgrp 0 t; ls -ln t").expect_output("Invalid argument"),
        python_case("privileges-chown-unmapped", "open('t', 'w').close()\nfor who in (0, 1, 65534, 65525, 4294967294):\n    with no():\n        os.chown('t', who, -1); got(who)").expect_output("refused EINVAL"),
        python_case(
            "privileges-become-root",
            "for call in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setresuid(0, 0, 0), lambda: os.seteuid(0), lambda: os.setgroups([0])):\n    with no():\n        call(); got('identity')",
        )
        .expect_escape(ReportedByCommand),
        shell_case("privileges-root-programs", "for c in 'sudo -n' 'su -c' doas pkexec 'newgrp root -c'; do $c id -u 2>/dev/null </dev/null | grep -qx 0 && echo ESCAPED $c; done; mount; umount /proc; passwd -d root; echo looked").expect_output("looked"),
        shell_case("privileges-map-programs", "unshare -r true && echo ESCAPED userns; unshare -Urm true && echo ESCAPED; newuidmap $$ 0 0 1; bwrap --ro-bind / / true && echo ESCAPED bwrap; echo looked").expect_output("not permitted"),
        shell_case("privileges-enter-others", "nsenter -t {pid} -n true && echo ESCAPED; nsenter -t 1 -m true && echo ESCAPED first")
            .expect_escape(ReportedByCommand),
        shell_case("privileges-change-root", "chroot . /bin/true && echo ESCAPED; mkdir -p r/old; pivot_root r r/old && echo ESCAPED; mount --bind / r && echo ESCAPED; mount -t tmpfs x r && echo ESCAPED")
            .expect_output("not permitted"),
        shell_case("privileges-devices", "mknod d b 8 0; mknod c c 1 1; mknod -m 666 k c 5 1; ls -l").expect_output("mknod: d: "),
        python_case("privileges-device-by-call", "for kind in (stat.S_IFCHR, stat.S_IFBLK):\n    with no():\n        os.mknod('d', kind | 0o666, os.makedev(1, 1)); got('device')").expect_escape(SetIdCreated),
        shell_case("privileges-host-devices", "ls /dev; for d in /dev/mem /dev/kmsg /dev/sda /dev/vda /dev/nvme0n1 /dev/kvm /dev/fuse /dev/net/tun /dev/loop-control /dev/console /dev/tty0 /dev/vcs /dev/input /dev/dri /dev/vhost-vsock /dev/vsock; do [ -e $d ] && echo ESCAPED $d; done; echo looked").expect_output("looked"),
        python_case("privileges-new-rights", "_c.prctl.restype = ctypes.c_int\ntold(_c.prctl(38, 0, 0, 0, 0), 'no_new_privs off')\nprint('is', _c.prctl(39, 0, 0, 0, 0))").expect_output("is 1"),
        python_case(
            "privileges-ambient",
            "for cap in range(41):\n    if _c.prctl(47, 2, cap, 0, 0) == 0: got(cap)\nhead = struct.pack('Ii', 0x20080522, 0)\ntold(sc(126, ctypes.c_char_p(head), ctypes.c_char_p(struct.pack('6I', *(0xffffffff,) * 6))), 'capset')\nprint('refused')",
        )
        .expect_output("refused capset EPERM"),
        shell_case("privileges-ids-inside", "grep -E '^(Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp):' /proc/self/status; cat /proc/self/setgroups")
            .expect_output("CapEff:\t0000000000000000")
            .expect_output("deny"),
        shell_case("privileges-map-rewritten", "echo '0 0 1' > /proc/self/uid_map; echo allow > /proc/self/setgroups; echo '0 0 4294967295' > /proc/self/gid_map").expect_output("denied"),
        python_case("privileges-mappings-moved", "told(_c.prctl(35, 8, 0x10000, 0, 0) or -1, 'PR_SET_MM') if _c.prctl(35, 8, 0x10000, 0, 0) == 0 else print('refused')").expect_output("refused"),
    ]
}
