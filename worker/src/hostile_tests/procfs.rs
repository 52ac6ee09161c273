//! `/proc`: other processes, the kernel's switches, docket's own init.

use super::{
    case::{Case, py, sh},
    world::Sees::{Outside, Process, Secret},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        sh("proc-environ", "tr '\\0' '\\n' </proc/{pid}/environ").sees(Secret),
        sh("proc-arguments", "tr '\\0' '\\n' </proc/{pid}/cmdline; ps axww").sees(Secret),
        sh("proc-environ-of-all", "grep -ahso 'canary-{nonce}[a-z-]*' /proc/[0-9]*/environ").sees(Secret),
        sh("proc-root-of-other", "cat /proc/{pid}/root{out}/secret").sees(Secret),
        sh("proc-root-of-first", "cat /proc/1/root{out}/secret /proc/2/root{out}/secret").sees(Secret),
        sh("proc-cwd-of-other", "cat /proc/{pid}/cwd/secret").sees(Secret),
        sh("proc-cwd-written", "echo x > /proc/{pid}/cwd/planted").sees(Outside),
        sh("proc-descriptor-of-other", "cat /proc/{pid}/fd/0; cat /proc/*/fd/0 2>/dev/null </dev/null").sees(Secret),
        sh("proc-task-of-other", "cat /proc/{pid}/task/{pid}/cwd/secret").sees(Secret),
        sh("proc-map-files", "ls -l /proc/{pid}/map_files/; cat /proc/{pid}/maps").says("No such file"),
        py(
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
        .sees(Secret),
        sh("proc-badness-of-other", "echo 500 > /proc/{pid}/oom_score_adj").sees(Process),
        sh("proc-first-environ", "cat /proc/1/environ; cat /proc/1/mem; ls /proc/1/fd/").says("Permission denied"),
        sh("proc-first-memory-written", "echo x > /proc/1/mem; echo x > /proc/1/comm; echo 0 > /proc/1/oom_score_adj")
            .says("denied"),
        sh("proc-first-executable", "cp /proc/1/exe mine; ls -l mine; cat /proc/1/root/etc/shadow").says("denied"),
        sh("proc-core-pattern", "echo '|/workspace/x' > /proc/sys/kernel/core_pattern").says("denied"),
        sh("proc-module-loader", "echo /workspace/x > /proc/sys/kernel/modprobe; echo 1 > /proc/sys/kernel/sysrq")
            .says("modprobe: "),
        sh("proc-sysrq-help", "echo h > /proc/sysrq-trigger").says("sysrq-trigger: "),
        sh("proc-binfmt", "ls /proc/sys/fs/binfmt_misc; echo :x:M::x::/workspace/x: > /proc/sys/fs/binfmt_misc/register").says("register"),
        sh("proc-kernel-memory", "head -c 16 /proc/kcore; head -c 16 /proc/kmsg; head -c 16 /dev/mem; head -c 16 /dev/kmsg; dmesg")
            .says("denied"),
        sh("proc-kernel-addresses", "awk '$1 !~ /^0+$/ {print \"ESCAPED address\"; exit}' /proc/kallsyms; ls -l /proc/kallsyms").says("kallsyms"),
        sh("proc-cgroup-escapes", "ls /sys/fs/cgroup; mkdir /sys/fs/cgroup/x; echo $$ > /sys/fs/cgroup/cgroup.procs")
            .says("No such file"),
        sh("proc-sys-is-absent", "ls /sys/kernel /sys/class/net /sys/block; cat /sys/kernel/uevent_helper").says("No such file"),
        sh("proc-mounted-again", "mount -t proc proc /tmp; mkdir p; mount -t proc none p; mount -o remount,rw /").says("must be superuser"),
        sh("proc-pressure", "echo 'some 150000 1000000' > /proc/pressure/cpu; ls /proc/self").says("denied"),
        sh("proc-first-signalled", "kill -9 1; kill -STOP 1; kill -SEGV 1; kill -TERM 1; sleep 0.1; echo alive").says("alive"),
        sh("proc-others-listed", "ls /proc | grep -c '^[0-9]*$'; [ -e /proc/{pid}/stat ] && grep -q sleep /proc/{pid}/comm && echo ESCAPED saw; echo looked").says("looked"),
    ]
}
