//! Limits that hold for every process, every scratch folder and every output. What bounds the sum of a tree
//! has tests of its own.

use docket_sandbox::Ended;
use docket_schema::tool::Exceeded;

use super::{
    case::{Case, py, sh},
    world::Sees::Said,
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        sh("resources-descriptors", "ulimit -Hn; ulimit -n 100000 2>&1; ulimit -n").says("4096"),
        py("resources-descriptors-taken", "with no():\n    held = [os.dup(0) for _ in range(8192)]; got('descriptors')").says("refused EMFILE"),
        py(
            "resources-limits-raised",
            "import resource\nfor kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):\n    try: resource.setrlimit(kind, (resource.RLIM_INFINITY if kind != resource.RLIMIT_NOFILE else 8192,) * 2); got('limit')\n    except (OSError, ValueError) as e: print('refused limit')",
        )
        .says("refused limit"),
        py(
            "resources-processes",
            "made = []\nwith no():\n    for _ in range(3000):\n        pid = os.fork()\n        if pid == 0: time.sleep(30); os._exit(0)\n        made.append(pid)\n    got('3000 processes')\nprint('made', len(made))\nfor pid in made: os.kill(pid, 9)",
        )
        .says("refused EAGAIN"),
        sh("resources-shell-bomb", "b() { b | b & }; b 2>/dev/null; sleep 60").within(SHORT).ends(Ended::TimedOut).or_exceeds(Exceeded::Processes),
        py(
            "resources-threads",
            "import threading\nthreading.stack_size(65536)\ntry:\n    for _ in range(3000):\n        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()\n    got('threads')\nexcept RuntimeError as e: print('refused', e)\nprint('TRIED', flush=True)\nos._exit(0)",
        )
        .says("refused"),
        py("resources-huge-file", "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nwith no():\n    os.truncate(os.open('huge', os.O_RDWR | os.O_CREAT), 8 << 30); got('8 GiB')").says("refused EFBIG"),
        sh("resources-run-filled", "head -c 40M /dev/zero > /run/x; ls -l /run").says("No space left"),
        sh("resources-shared-memory-filled", "head -c 100M /dev/zero > /dev/shm/x; ls -l /dev/shm").says("No space left"),
        sh("resources-home-filled", "head -c 300M /dev/zero > ~/x; ls -l ~").says("No space left"),
        sh("resources-tmp-filled", "head -c 600M /dev/zero > /tmp/x; ls -l /tmp").says("No space left"),
        sh("resources-flood", "head -c 100M /dev/zero; head -c 100M /dev/zero >&2").says("TRIED"),
        sh("resources-flood-for-ever", "yes '{nonce}' & yes >&2").within(SHORT).ends(Ended::TimedOut).or_exceeds(Exceeded::Output),
        sh("resources-core", "ulimit -c unlimited; sh -c 'kill -SEGV $$'; ls; ulimit -Hc").says("0"),
        sh("resources-sparse-captured", "truncate -s 3G sparse; truncate -s 3G other").captured(),
        py("resources-many-files-captured", "for d in range(12):\n    os.mkdir(f'd{d}')\n    for n in range(250): open(f'd{d}/{n}', 'w').close()").captured(),
        py("resources-argument", "with no():\n    os.execv('/bin/true', ['true', 'x' * (1 << 20)]); got('argument')").says("refused E2BIG"),
        py("resources-locked-memory", "told(-ctypes.get_errno() if _c.mlockall(3) else 0, 'mlockall') if False else print('looked')\nimport resource\nprint(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] < (1 << 30) or got('unlimited locked memory'))").says("looked"),
        py("resources-clock", "told(sc(227, 0, ctypes.c_char_p(struct.pack('qq', *divmod(time.time_ns(), 10**9)))), 'clock_settime')").says("refused clock_settime EPERM"),
        py("resources-io-priority", "told(sc(251, 1, 0, (1 << 13) | 0), 'real-time io')").sees(Said),
    ]
}

const SHORT: std::time::Duration = std::time::Duration::from_millis(900);
