//! `/proc`: other processes, kernel settings, docket's own init.

use super::{
    escape_case::{EscapeCase, python_case, shell_case},
    host_fixture::EscapeKind::{HostProcessChanged, OutsideChanged, SecretLeaked},
};

pub(super) fn cases() -> Vec<EscapeCase> {
    vec![
        shell_case("proc-environ", "tr '\\0' '\\n' </proc/{pid}/environ").expect_escape(SecretLeaked),
        shell_case("proc-arguments", "tr '\\0' '\\n' </proc/{pid}/cmdline; ps axww").expect_escape(SecretLeaked),
        shell_case("proc-environ-of-all", "grep -ahso 'canary-{nonce}[a-z-]*' /proc/[0-9]*/environ").expect_escape(SecretLeaked),
        shell_case("proc-root-of-other", "cat /proc/{pid}/root{out}/secret").expect_escape(SecretLeaked),
        shell_case("proc-root-of-first", "cat /proc/1/root{out}/secret /proc/2/root{out}/secret").expect_escape(SecretLeaked),
        shell_case("proc-cwd-of-other", "cat /proc/{pid}/cwd/secret").expect_escape(SecretLeaked),
        shell_case("proc-cwd-written", "echo x > /proc/{pid}/cwd/planted").expect_escape(OutsideChanged),
        shell_case("proc-descriptor-of-other", "cat /proc/{pid}/fd/0; cat /proc/*/fd/0 2>/dev/null </dev/null").expect_escape(SecretLeaked),
        shell_case("proc-task-of-other", "cat /proc/{pid}/task/{pid}/cwd/secret").expect_escape(SecretLeaked),
        shell_case("proc-map-files", "ls -l /proc/{pid}/map_files/; cat /proc/{pid}/maps").expect_output("No such file"),
        python_case(
            "proc-memory-of-other",
            r#"
with no():
    maps = [line.split() for line in open("/proc/{pid}/maps") if "[stack]" in line]
    low, high = [int(part, 16) for part in maps[0][0].split("-")]
    with open("/proc/{pid}/mem", "rb", 0) as memory:
        memory.seek(low)
        print(memory.read(high - low).decode("latin1").replace("\0", "\n"))
"#,
        )
        .expect_escape(SecretLeaked),
        shell_case("proc-badness-of-other", "echo 500 > /proc/{pid}/oom_score_adj").expect_escape(HostProcessChanged),
        shell_case("proc-first-environ", "cat /proc/1/environ; cat /proc/1/mem; ls /proc/1/fd/").expect_output("Permission denied"),
        shell_case("proc-first-memory-written", "echo x > /proc/1/mem; echo x > /proc/1/comm; echo 0 > /proc/1/oom_score_adj")
            .expect_output("denied"),
        shell_case("proc-first-executable", "cp /proc/1/exe mine; ls -l mine; cat /proc/1/root/etc/shadow").expect_output("denied"),
        shell_case("proc-core-pattern", "echo '|/workspace/x' > /proc/sys/kernel/core_pattern").expect_output("denied"),
        shell_case("proc-module-loader", "echo /workspace/x > /proc/sys/kernel/modprobe; echo 1 > /proc/sys/kernel/sysrq")
            .expect_output("modprobe: "),
        shell_case("proc-sysrq-help", "echo h > /proc/sysrq-trigger").expect_output("sysrq-trigger: "),
        shell_case("proc-binfmt", "ls /proc/sys/fs/binfmt_misc; echo :x:M::x::/workspace/x: > /proc/sys/fs/binfmt_misc/register").expect_output("register"),
        shell_case("proc-kernel-memory", "head -c 16 /proc/kcore; head -c 16 /proc/kmsg; head -c 16 /dev/mem; head -c 16 /dev/kmsg; dmesg")
            .expect_output("denied"),
        shell_case("proc-kernel-addresses", "awk '$1 !~ /^0+$/ {print \"ESCAPED address\"; exit}' /proc/kallsyms; ls -l /proc/kallsyms").expect_output("kallsyms"),
        shell_case("proc-cgroup-escapes", "ls /sys/fs/cgroup; mkdir /sys/fs/cgroup/x; echo $$ > /sys/fs/cgroup/cgroup.procs")
            .expect_output("No such file"),
        shell_case("proc-sys-is-absent", "ls /sys/kernel /sys/class/net /sys/block; cat /sys/kernel/uevent_helper").expect_output("No such file"),
        shell_case("proc-mounted-again", "mount -t proc proc /tmp; mkdir p; mount -t proc none p; mount -o remount,rw /").expect_output("must be superuser"),
        shell_case("proc-pressure", "echo 'some 150000 1000000' > /proc/pressure/cpu; ls /proc/self").expect_output("denied"),
        shell_case("proc-first-signalled", "kill -9 1; kill -STOP 1; kill -SEGV 1; kill -TERM 1; sleep 0.1; echo alive").expect_output("alive"),
        shell_case("proc-others-listed", "ls /proc | grep -c '^[0-9]*$'; [ -e /proc/{pid}/stat ] && grep -q sleep /proc/{pid}/comm && echo ESCAPED saw; echo looked").expect_output("looked"),
    ]
}
