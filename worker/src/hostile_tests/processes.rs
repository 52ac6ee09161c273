//! Whatever a command starts ends with it; whatever runs on the host goes on.

use docket_sandbox::Ended;
use nix::libc;

use super::{
    case::{Case, py, sh},
    world::Sees::{Process, Said, Secret, Survivor},
};

const SHORT: std::time::Duration = std::time::Duration::from_millis(700);

pub(super) fn cases() -> Vec<Case> {
    vec![
        sh("processes-background", "sleep 60 & disown").plainly_sees(Survivor),
        sh("processes-nohup", "nohup sleep 60 >/dev/null 2>&1 &").plainly_sees(Survivor),
        sh("processes-session", "setsid sleep 60 >/dev/null 2>&1 </dev/null &").plainly_sees(Survivor),
        sh("processes-double-fork", "(setsid sh -c '(sleep 60 &) &' &)").plainly_sees(Survivor),
        sh("processes-pipes-held", "(sleep 60; echo late) & (sleep 61; echo later) 2>&1 | cat &").plainly_sees(Survivor),
        sh("processes-deaf", "(trap '' TERM HUP INT QUIT; sleep 60; sleep 60) & sleep 0.05").plainly_sees(Survivor),
        sh("processes-stopped", "sleep 60 & kill -STOP $!").plainly_sees(Survivor),
        py(
            "processes-daemon",
            r#"
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir("/"); os.umask(0); os.closerange(0, 64)
        time.sleep(60)
    os._exit(0)
os.wait()
"#,
        )
        .plainly_sees(Survivor),
        py(
            "processes-run-ahead",
            r#"
# Each generation forks the next and ends: a killer that lists processes is always late.
if os.fork() == 0:
    os.setsid()
    until = time.time() + 60
    while time.time() < until:
        if os.fork(): os._exit(0)
        time.sleep(0.02)
"#,
        )
        .plainly_sees(Survivor),
        py(
            "processes-run-ahead-many",
            r#"
for _ in range(8):
    if os.fork() == 0:
        until = time.time() + 60
        while time.time() < until:
            if os.fork(): os._exit(0)
        os._exit(0)
"#,
        )
        .says("TRIED"),
        py(
            "processes-subreaper",
            "_c.prctl(36, 1, 0, 0, 0)\nif os.fork() == 0:\n    _c.prctl(36, 1, 0, 0, 0); _c.prctl(1, 0, 0, 0, 0)\n    if os.fork() == 0: time.sleep(60)\n    time.sleep(60)",
        )
        .plainly_sees(Survivor),
        py(
            "processes-leader-gone",
            "import threading\nif os.fork() == 0:\n    threading.Thread(target=time.sleep, args=(60,)).start()\n    sc(60, 0)",
        )
        .plainly_sees(Survivor),
        py("processes-vfork", "if sc(57) == 0:\n    time.sleep(60)\n    os._exit(0)").plainly_sees(Survivor),
        py(
            "processes-from-memory",
            r#"
fd = os.memfd_create("x")
os.write(fd, open("/bin/sleep", "rb").read())
if os.fork() == 0:
    os.setsid()
    os.execve(fd, ["kworker", "60"], dict(os.environ))
"#,
        )
        .plainly_sees(Survivor),
        sh("processes-at-the-deadline", "(setsid sleep 60 &) ; trap '' TERM; sleep 60; sleep 60")
            .within(SHORT)
            .ends(Ended::TimedOut),
        sh("processes-busy-at-the-deadline", "while :; do :; done").within(SHORT).ends(Ended::TimedOut),
        sh("processes-killed-itself", "sleep 60 & kill -9 $$").ends(Ended::Signal(libc::SIGKILL)),
        sh("processes-timers", "echo 'touch x' | at now; crontab -l; systemd-run --user sleep 60; echo '* * * * * root id' > /etc/cron.d/{nonce}; echo looked").says("looked"),
        sh("processes-kill-other", "kill -9 {pid}").sees(Process),
        sh("processes-stop-other", "kill -STOP {pid}").sees(Process),
        // Never outside: it would end every process of the host's user.
        sh("processes-kill-all", "kill -9 -1; kill -TERM -1; echo went on").says("went on"),
        sh("processes-slow-other", "renice -n 19 -p {pid}").sees(Process),
        sh("processes-limit-other", "prlimit --pid {pid} --nofile=10:10").says("No such process"),
        py("processes-pin-other", "with no(): os.sched_setaffinity({pid}, {min(os.sched_getaffinity(0))})").sees(Process),
        py(
            "processes-descriptor-taken",
            "fd = sc(434, {pid}, 0)\nif fd >= 0: fd = sc(438, fd, 0, 0)\nif fd >= 0:\n    os.lseek(fd, 0, 0); print(os.read(fd, 100))\nelse: print('refused', -fd)",
        )
        .sees(Secret),
        py(
            "processes-handle-signals",
            "fd = sc(434, {pid}, 0)\ntold(fd, 'pidfd_open')\nif fd >= 0: told(sc(424, fd, 0, 0, 0), 'pidfd_send_signal')",
        )
        .sees(Said),
        py("processes-traced", "told(sc(101, 0x4206, {pid}, 0, 0), 'seize'); sc(101, 17, {pid}, 0, 0)").sees(Said),
        py(
            "processes-trace-of-first",
            "for request in (16, 0x4206):\n    told(sc(101, request, 1, 0, 0), f'trace {request}')\nb = ctypes.create_string_buffer(64)\niov = struct.pack('QQ', ctypes.addressof(b), 64); far = struct.pack('QQ', 0x400000, 64)\ntold(sc(310, 1, ctypes.c_char_p(iov), 1, ctypes.c_char_p(far), 1, 0), 'process_vm_readv')",
        )
        .says("refused trace 16 EPERM")
        .says("refused process_vm_readv EPERM"),
        py("processes-compared", "told(sc(312, {pid}, {pid}, 0, 0, 1), 'kcmp')").sees(Said),
        py("processes-priority", "with no():\n    os.setpriority(0, 0, -20); got('nice')\nwith no():\n    os.sched_setscheduler(0, 1, os.sched_param(50)); got('fifo')").sees(Said),
    ]
}
