//! System calls that no build needs: by number, by another table's number, and with bits set above those
//! checked.

use docket_sandbox::CommandExit;
use nix::libc;

use super::{
    escape_case::{EscapeCase, python_case},
    host_fixture::EscapeKind::ReportedByCommand,
};

pub(super) fn cases() -> Vec<EscapeCase> {
    let every = |id, code| python_case(id, code);
    let mut cases = vec![
        every(
            "syscalls-namespaces",
            r#"
for flag in (0x20000, 0x10000000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000, 0x80):
    if os.fork() == 0:
        told(sc(272, flag), f"unshare {flag:x}")
        os._exit(0)
    os.wait()
"#,
        )
        .expect_escape(ReportedByCommand)
        .expect_output("refused unshare 10000000 EPERM"),
        every("syscalls-namespaces-upper-bits", "if os.fork() == 0:\n    told(sc(272, (1 << 33) | 0x10000000), 'unshare'); os._exit(0)\nos.wait()").expect_output("refused unshare"),
        every(
            "syscalls-clone-namespaces",
            r#"
for flag in (0x20000, 0x10000000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000):
    child = sc(56, flag | 17, 0, 0, 0, 0)
    if child == 0: os._exit(0)
    told(child, f"clone {flag:x}")
"#,
        )
        .expect_escape(ReportedByCommand)
        .expect_output("refused clone 10000000 EPERM"),
        every(
            "syscalls-clone3",
            "args = ctypes.create_string_buffer(struct.pack('11Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0))\nchild = sc(435, args, 88)\nif child == 0: os._exit(0)\ntold(child, 'clone3')",
        )
        .expect_escape(ReportedByCommand)
        .expect_output("refused clone3 ENOSYS"),
        every(
            "syscalls-mounts",
            r#"
a = ctypes.c_char_p
told(sc(165, a(b"none"), a(b"/tmp"), a(b"tmpfs"), 0, 0), "mount")
told(sc(166, a(b"/proc"), 2), "umount2")
told(sc(155, a(b"."), a(b".")), "pivot_root")
told(sc(161, a(b".")), "chroot")
told(sc(428, -100, a(b"/"), 1), "open_tree")
told(sc(430, a(b"tmpfs"), 0), "fsopen")
told(sc(433, -100, a(b"/"), 0), "fspick")
told(sc(429, -1, a(b""), -100, a(b"/tmp"), 4), "move_mount")
told(sc(442, -100, a(b"/"), 0x8000, a(struct.pack("4Q", 0, 1, 0, 0)), 32), "mount_setattr")
told(sc(467, -100, a(b"/"), 1, a(struct.pack("4Q", 0, 1, 0, 0)), 32), "open_tree_attr")
"#,
        )
        .expect_output("refused mount EPERM")
        .expect_output("refused open_tree EPERM")
        .expect_output("refused fsopen EPERM")
        .expect_output("refused mount_setattr EPERM")
        .expect_output("refused open_tree_attr E"),
        every("syscalls-namespace-entered", "for name in os.listdir('/proc/self/ns'):\n    with no(): told(sc(308, os.open('/proc/self/ns/' + name, os.O_RDONLY), 0), name)").expect_output("refused user EPERM"),
        every(
            "syscalls-ring",
            "params = ctypes.create_string_buffer(120)\ntold(sc(425, 4, params), 'io_uring_setup')\ntold(sc(426, 0, 0, 0, 0, 0, 0), 'io_uring_enter')\ntold(sc(427, 0, 0, 0, 0), 'io_uring_register')",
        )
        .expect_output("refused io_uring_setup ENOSYS")
        .expect_output("refused io_uring_enter ENOSYS")
        .expect_output("refused io_uring_register ENOSYS"),
        every("syscalls-bpf", "told(sc(321, 0, ctypes.create_string_buffer(struct.pack('IIII', 2, 4, 8, 1) + bytes(100)), 116), 'bpf')").expect_output("refused bpf EPERM"),
        every("syscalls-performance-counters", "told(sc(298, ctypes.create_string_buffer(struct.pack('II', 1, 128) + bytes(120)), 0, -1, -1, 0), 'perf')").expect_output("refused perf EPERM"),
        every("syscalls-faults", "told(sc(323, 1), 'userfaultfd')").expect_escape(ReportedByCommand),
        every("syscalls-notify", "told(sc(300, 0, 0), 'fanotify_init')").expect_output("refused fanotify_init EPERM"),
        every(
            "syscalls-handles",
            r#"
h = ctypes.create_string_buffer(struct.pack("II", 128, 0) + bytes(128)); m = ctypes.create_string_buffer(8)
told(sc(303, -100, ctypes.c_char_p(b"/"), h, m, 0), "name_to_handle_at")
told(sc(304, os.open(".", os.O_RDONLY), ctypes.create_string_buffer(struct.pack("iiQ", 8, 1, 2)), 0), "open_by_handle_at")
"#,
        )
        .expect_output("refused name_to_handle_at EPERM")
        .expect_output("refused open_by_handle_at EPERM"),
        // Calls that could harm a host get arguments that are invalid even for privileged callers.
        every(
            "syscalls-kernel",
            r#"
for number, name in ((175, "init_module"), (313, "finit_module"), (176, "delete_module"), (246, "kexec_load"),
                     (320, "kexec_file_load"), (163, "acct"), (167, "swapon"), (168, "swapoff"), (179, "quotactl"),
                     (169, "reboot"), (153, "vhangup"), (172, "iopl"), (173, "ioperm"), (154, "modify_ldt")):
    print("refused", name, errno.errorcode.get(-sc(number, -1, -1, -1, -1)))
told(sc(443, -1, -1, 0, 0), "quotactl_fd")
"#,
        )
        .expect_output("refused finit_module EPERM")
        .expect_output("refused kexec_file_load EPERM")
        .expect_output("refused reboot EPERM")
        .expect_output("refused modify_ldt EPERM")
        .expect_output("refused iopl EPERM"),
        every("syscalls-names", "told(sc(170, ctypes.c_char_p(b'canary'), 6), 'sethostname')\ntold(sc(171, ctypes.c_char_p(b'canary'), 6), 'setdomainname')").expect_output("refused sethostname EPERM"),
        every("syscalls-clocks", "told(sc(164, ctypes.c_char_p(struct.pack('qq', -1, -1)), 0), 'settimeofday')\ntold(sc(159, ctypes.create_string_buffer(208)), 'adjtimex')\ntold(sc(305, 0, ctypes.create_string_buffer(208)), 'clock_adjtime')")
            .expect_escape(ReportedByCommand)
            .expect_output("refused adjtimex EPERM"),
        every("syscalls-log", "told(sc(103, 10, 0, 0), 'syslog')").expect_escape(ReportedByCommand).expect_output("refused syslog EPERM"),
        every(
            "syscalls-terminal",
            r#"
for request, name in ((0x5412, "TIOCSTI"), (0x541C, "TIOCLINUX"), (0x5423, "TIOCSETD")):
    for upper in (0, 1 << 32, 1 << 63):
        told(sc(16, 0, request | upper, ctypes.c_char_p(b"x")), name)
"#,
        )
        .expect_output("refused TIOCSTI EPERM")
        .expect_output("refused TIOCLINUX EPERM")
        .expect_output("refused TIOCSETD EPERM"),
        every(
            "syscalls-own-filter",
            // A filter of its own may only add to those in force.
            "prog = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))\nf = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(prog)))\nprint('filter', sc(317, 1, 0, f))\ntold(sc(272, 0x10000000), 'unshare after it')\ntold(sc(317, 1, 8, f), 'listener') if False else None",
        )
        .expect_output("refused unshare after it EPERM"),
        every("syscalls-personality", "sc(135, 0x0040000)\ntold(sc(272, 0x10000000), 'unshare')").expect_output("refused unshare EPERM"),
        every("syscalls-own-processes", "child = os.fork()\nif child == 0: time.sleep(20)\ntold(sc(101, 0x4206, child, 0, 0), 'seize')\ntold(sc(101, 0, 0, 0, 0), 'traceme')\nos.kill(child, 9)")
            .expect_escape(ReportedByCommand)
            .expect_output("refused seize EPERM")
            .expect_output("refused traceme EPERM"),
        every("syscalls-mounts-listed", "b = ctypes.create_string_buffer(4096)\nprint(sc(458, ctypes.c_char_p(struct.pack('IIQQQ', 32, 0, 0xffffffffffffffff, 0, 0)), b, 512, 0)); print('{top}' in open('/proc/self/mountinfo').read() and 'path')").expect_output("TRIED"),
    ];
    if cfg!(target_arch = "x86_64") {
        cases.extend([
            // mov eax, NUMBER; int 0x80; ret: the i386 table, which filters on 64-bit numbers do not check.
            every(
                "syscalls-i386",
                r#"
import mmap
code = b"\x53\xb8\x14\x00\x00\x00\xcd\x80\x5b\xc3"
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(code)
f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
if f() == os.getpid(): got("int 0x80")
"#,
            )
            .expect_escape(ReportedByCommand)
            .end_with(CommandExit::Signal(libc::SIGSYS)),
            every("syscalls-x32", "told(sc(0x40000000 | 39), 'x32 getpid')")
                .end_with(CommandExit::Signal(libc::SIGSYS)),
            every("syscalls-x32-ptrace", "told(sc(0x40000000 | 521, 0, 0, 0, 0), 'x32 ptrace')")
                .end_with(CommandExit::Signal(libc::SIGSYS)),
            every("syscalls-x32-negative", "told(sc(-1), 'number -1')\ntold(sc(1 << 20), 'unknown')")
                .end_with(CommandExit::Signal(libc::SIGSYS)),
        ]);
    }
    cases
}
