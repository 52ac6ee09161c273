//! Processes: everything a command starts ends with it, and processes of the host keep running.

use docket_sandbox::CommandExit;
use nix::libc;

use super::{
    escape_case::{EscapeCase, python_case, shell_case},
    host_fixture::EscapeKind::{HostProcessChanged, ProcessSurvived, ReportedByCommand, SecretLeaked},
};

const SHORT: std::time::Duration = std::time::Duration::from_millis(700);

pub(super) fn cases() -> Vec<EscapeCase> {
    vec![
        shell_case("processes-background", "sleep 60 & disown").expect_escape_as_process(ProcessSurvived),
        shell_case("processes-nohup", "nohup sleep 60 >/dev/null 2>&1 &").expect_escape_as_process(ProcessSurvived),
        shell_case("processes-session", "setsid sleep 60 >/dev/null 2>&1 </dev/null &").expect_escape_as_process(ProcessSurvived),
        shell_case("processes-double-fork", "(setsid sh -c '(sleep 60 &) &' &)").expect_escape_as_process(ProcessSurvived),
        shell_case("processes-pipes-held", "(sleep 60; echo late) & (sleep 61; echo later) 2>&1 | cat &").expect_escape_as_process(ProcessSurvived),
        shell_case("processes-deaf", "(trap '' TERM HUP INT QUIT; sleep 60; sleep 60) & sleep 0.05").expect_escape_as_process(ProcessSurvived),
        shell_case("processes-stopped", "sleep 60 & kill -STOP $!").expect_escape_as_process(ProcessSurvived),
        python_case(
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
        .expect_escape_as_process(ProcessSurvived),
        python_case(
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
        .expect_escape_as_process(ProcessSurvived),
        python_case(
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
        .expect_output("TRIED"),
        python_case(
            "processes-subreaper",
            "_c.prctl(36, 1, 0, 0, 0)\nif os.fork() == 0:\n    _c.prctl(36, 1, 0, 0, 0); _c.prctl(1, 0, 0, 0, 0)\n    if os.fork() == 0: time.sleep(60)\n    time.sleep(60)",
        )
        .expect_escape_as_process(ProcessSurvived),
        python_case(
            "processes-leader-gone",
            "import threading\nif os.fork() == 0:\n    threading.Thread(target=time.sleep, args=(60,)).start()\n    sc(60, 0)",
        )
        .expect_escape_as_process(ProcessSurvived),
        python_case("processes-vfork", "if sc(57) == 0:\n    time.sleep(60)\n    os._exit(0)").expect_escape_as_process(ProcessSurvived),
        python_case(
            "processes-from-memory",
            r#"
fd = os.memfd_create("x")
os.write(fd, open("/bin/sleep", "rb").read())
if os.fork() == 0:
    os.setsid()
    os.execve(fd, ["kworker", "60"], dict(os.environ))
"#,
        )
        .expect_escape_as_process(ProcessSurvived),
        shell_case("processes-at-the-deadline", "(setsid sleep 60 &) ; trap '' TERM; sleep 60; sleep 60")
            .with_timeout(SHORT)
            .end_with(CommandExit::TimedOut),
        shell_case("processes-busy-at-the-deadline", "while :; do :; done").with_timeout(SHORT).end_with(CommandExit::TimedOut),
        shell_case("processes-killed-itself", "sleep 60 & kill -9 $$").end_with(CommandExit::Signal(libc::SIGKILL)),
        shell_case("processes-timers", "echo 'touch x' | at now; crontab -l; systemd-run --user sleep 60; echo '* * * * * root id' > /etc/cron.d/{nonce}; echo looked").expect_output("looked"),
        shell_case("processes-kill-other", "kill -9 {pid}").expect_escape(HostProcessChanged),
        shell_case("processes-stop-other", "kill -STOP {pid}").expect_escape(HostProcessChanged),
        // Never outside a sandbox: it would end every process of the host's user.
        shell_case("processes-kill-all", "kill -9 -1; kill -TERM -1; echo went on").expect_output("went on"),
        shell_case("processes-slow-other", "renice -n 19 -p {pid}").expect_escape(HostProcessChanged),
        shell_case("processes-limit-other", "prlimit --pid {pid} --nofile=10:10").expect_output("No such process"),
        python_case("processes-pin-other", "with no(): os.sched_setaffinity({pid}, {min(os.sched_getaffinity(0))})").expect_escape(HostProcessChanged),
        python_case(
            "processes-descriptor-taken",
            "fd = sc(434, {pid}, 0)\nif fd >= 0: fd = sc(438, fd, 0, 0)\nif fd >= 0:\n    os.lseek(fd, 0, 0); print(os.read(fd, 100))\nelse: print('refused', -fd)",
        )
        .expect_escape(SecretLeaked),
        python_case(
            "processes-handle-signals",
            "fd = sc(434, {pid}, 0)\ntold(fd, 'pidfd_open')\nif fd >= 0: told(sc(424, fd, 0, 0, 0), 'pidfd_send_signal')",
        )
        .expect_escape(ReportedByCommand),
        python_case("processes-traced", "told(sc(101, 0x4206, {pid}, 0, 0), 'seize'); sc(101, 17, {pid}, 0, 0)").expect_escape(ReportedByCommand),
        python_case(
            "processes-trace-of-first",
            "for request in (16, 0x4206):\n    told(sc(101, request, 1, 0, 0), f'trace {request}')\nb = ctypes.create_string_buffer(64)\niov = struct.pack('QQ', ctypes.addressof(b), 64); far = struct.pack('QQ', 0x400000, 64)\ntold(sc(310, 1, ctypes.c_char_p(iov), 1, ctypes.c_char_p(far), 1, 0), 'process_vm_readv')",
        )
        .expect_output("refused trace 16 EPERM")
        .expect_output("refused process_vm_readv EPERM"),
        python_case("processes-compared", "told(sc(312, {pid}, {pid}, 0, 0, 1), 'kcmp')").expect_escape(ReportedByCommand),
        python_case("processes-priority", "with no():\n    os.setpriority(0, 0, -20); got('nice')\nwith no():\n    os.sched_setscheduler(0, 1, os.sched_param(50)); got('fifo')").expect_escape(ReportedByCommand),
    ]
}
