//! Limits on every process, every scratch folder and every output. Limits on a complete process tree have
//! separate tests.

use docket_sandbox::CommandExit;
use docket_schema::tool::ExceededResource;

use super::{
    escape_case::{EscapeCase, python_case, shell_case},
    host_fixture::EscapeKind::ReportedByCommand,
};

pub(super) fn cases() -> Vec<EscapeCase> {
    vec![
        shell_case("resources-descriptors", "ulimit -Hn; ulimit -n 100000 2>&1; ulimit -n").expect_output("4096"),
        python_case("resources-descriptors-taken", "with no():\n    held = [os.dup(0) for _ in range(8192)]; got('descriptors')").expect_output("refused EMFILE"),
        python_case(
            "resources-limits-raised",
            "import resource\nfor kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):\n    try: resource.setrlimit(kind, (resource.RLIM_INFINITY if kind != resource.RLIMIT_NOFILE else 8192,) * 2); got('limit')\n    except (OSError, ValueError) as e: print('refused limit')",
        )
        .expect_output("refused limit"),
        python_case(
            "resources-processes",
            "made = []\nwith no():\n    for _ in range(3000):\n        pid = os.fork()\n        if pid == 0: time.sleep(30); os._exit(0)\n        made.append(pid)\n    got('3000 processes')\nprint('made', len(made))\nfor pid in made: os.kill(pid, 9)",
        )
        .expect_output("refused EAGAIN"),
        shell_case("resources-shell-bomb", "b() { b | b & }; b 2>/dev/null; sleep 60").with_timeout(SHORT).end_with(CommandExit::TimedOut).or_exceed(ExceededResource::Processes),
        python_case(
            "resources-threads",
            "import threading\nthreading.stack_size(65536)\ntry:\n    for _ in range(3000):\n        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()\n    got('threads')\nexcept RuntimeError as e: print('refused', e)\nprint('TRIED', flush=True)\nos._exit(0)",
        )
        .expect_output("refused"),
        python_case("resources-huge-file", "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nwith no():\n    os.truncate(os.open('huge', os.O_RDWR | os.O_CREAT), 8 << 30); got('8 GiB')").expect_output("refused EFBIG"),
        shell_case("resources-run-filled", "head -c 40M /dev/zero > /run/x; ls -l /run").expect_output("No space left"),
        shell_case("resources-shared-memory-filled", "head -c 100M /dev/zero > /dev/shm/x; ls -l /dev/shm").expect_output("No space left"),
        shell_case("resources-home-filled", "head -c 300M /dev/zero > ~/x; ls -l ~").expect_output("No space left"),
        shell_case("resources-tmp-filled", "head -c 600M /dev/zero > /tmp/x; ls -l /tmp").expect_output("No space left"),
        shell_case("resources-flood", "head -c 100M /dev/zero; head -c 100M /dev/zero >&2").expect_output("TRIED"),
        shell_case("resources-flood-for-ever", "yes '{nonce}' & yes >&2").with_timeout(SHORT).end_with(CommandExit::TimedOut).or_exceed(ExceededResource::Output),
        shell_case("resources-core", "ulimit -c unlimited; sh -c 'kill -SEGV $$'; ls; ulimit -Hc").expect_output("0"),
        shell_case("resources-sparse-captured", "truncate -s 3G sparse; truncate -s 3G other").with_capture(),
        python_case("resources-many-files-captured", "for d in range(12):\n    os.mkdir(f'd{d}')\n    for n in range(250): open(f'd{d}/{n}', 'w').close()").with_capture(),
        python_case("resources-argument", "with no():\n    os.execv('/bin/true', ['true', 'x' * (1 << 20)]); got('argument')").expect_output("refused E2BIG"),
        python_case("resources-locked-memory", "told(-ctypes.get_errno() if _c.mlockall(3) else 0, 'mlockall') if False else print('looked')\nimport resource\nprint(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] < (1 << 30) or got('unlimited locked memory'))").expect_output("looked"),
        python_case("resources-clock", "told(sc(227, 0, ctypes.c_char_p(struct.pack('qq', *divmod(time.time_ns(), 10**9)))), 'clock_settime')").expect_output("refused clock_settime EPERM"),
        python_case("resources-io-priority", "told(sc(251, 1, 0, (1 << 13) | 0), 'real-time io')").expect_escape(ReportedByCommand),
    ]
}

const SHORT: std::time::Duration = std::time::Duration::from_millis(900);
