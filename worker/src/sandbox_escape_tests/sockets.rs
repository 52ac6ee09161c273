//! Sockets, queues and memory that processes of one host share: by path, by abstract name, by number.

use super::{
    escape_case::{EscapeCase, python_case, shell_case},
    host_fixture::EscapeKind::{HostSettingsChanged, ListenerReached, ReportedByCommand, SecretLeaked},
};

pub(super) fn cases() -> Vec<EscapeCase> {
    vec![
        python_case("sockets-path", "beat(socket.socket(socket.AF_UNIX), '{out}/stream')").expect_escape(ListenerReached),
        python_case("sockets-relative-path", "beat(socket.socket(socket.AF_UNIX), '../outside/stream')").expect_escape(ListenerReached),
        python_case("sockets-link", "os.symlink('{out}/stream', 's'); beat(socket.socket(socket.AF_UNIX), 's')").expect_escape(ListenerReached),
        python_case("sockets-through-proc", "beat(socket.socket(socket.AF_UNIX), '/proc/{pid}/cwd/stream')").expect_escape(ListenerReached),
        python_case("sockets-by-descriptor", "with no(): beat(socket.socket(socket.AF_UNIX), '/proc/self/fd/%d' % os.open('{out}/stream', os.O_PATH))")
            .expect_escape(ListenerReached),
        python_case("sockets-in-tmp", "beat(socket.socket(socket.AF_UNIX), '/tmp/{nonce}.stream')").expect_escape(ListenerReached),
        python_case("sockets-in-shared-memory", "beat(socket.socket(socket.AF_UNIX), '/dev/shm/{nonce}.stream')").expect_escape(ListenerReached),
        python_case("sockets-datagram", "beat(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), '{out}/dgram')").expect_escape(ListenerReached),
        python_case("sockets-abstract", "beat(socket.socket(socket.AF_UNIX), '\\0{nonce}')").expect_escape(ListenerReached),
        python_case("sockets-abstract-datagram", "with no(): socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', '\\0{nonce}.dgram')")
            .expect_escape(ListenerReached),
        shell_case("sockets-abstract-listed", "grep -F '@{nonce}' /proc/net/unix && echo ESCAPED").expect_escape(ReportedByCommand),
        shell_case("sockets-fifo", "echo x > {out}/fifo").expect_escape(ListenerReached),
        shell_case("sockets-daemons", "for s in /run/docker.sock /var/run/docker.sock /run/containerd/containerd.sock /run/dbus/system_bus_socket /run/systemd/private /run/systemd/notify /run/systemd/journal/socket /run/nscd/socket /tmp/.X11-unix/X0 /run/user/0/bus; do [ -e $s ] && echo ESCAPED $s; done; echo looked").expect_output("looked"),
        shell_case("sockets-container-engine", "docker -H unix:///var/run/docker.sock ps; podman ps; echo looked").expect_output("looked"),
        python_case(
            "sockets-descriptors-inherited",
            "for fd in range(3, 1024):\n    try: os.fstat(fd)\n    except OSError: continue\n    got(f'descriptor {fd} {os.readlink(\"/proc/self/fd/%d\" % fd)}')\nprint('looked')",
        )
        .expect_output("looked"),
        python_case(
            "sockets-frames-to-the-init",
            r#"
frame = struct.pack("<I", 10) + b'{"Exit":0}'
for fd in range(1, 64):
    for place in (f"/proc/1/fd/{fd}", f"/proc/self/fd/{fd}", f"/proc/{os.getppid()}/fd/{fd}"):
        if fd > 2 or "/1/" in place:
            with no(): open(place, "wb", 0).write(frame); got(place)
"#,
        )
        .expect_output("refused EACCES"),
        python_case(
            "sockets-smuggled-descriptor",
            r#"
with no():
    s = socket.socket(socket.AF_UNIX)
    s.connect("{out}/stream")
    socket.send_fds(s, [b"take"], [os.open(".", os.O_RDONLY)])
"#,
        )
        .expect_escape(ListenerReached),
        python_case(
            "sockets-system-v-memory-read",
            r#"
_c.shmat.restype = ctypes.c_void_p
at = _c.shmat({shm}, None, 0o10000)
if at not in (None, ctypes.c_void_p(-1).value): print(ctypes.string_at(at, 64))
else: print("refused", ctypes.get_errno())
"#,
        )
        .expect_escape(SecretLeaked),
        python_case(
            "sockets-system-v-memory-written",
            r#"
_c.shmat.restype = ctypes.c_void_p
at = _c.shmat({shm}, None, 0)
if at not in (None, ctypes.c_void_p(-1).value): ctypes.memmove(at, b"overwritten", 11)
else: print("refused", ctypes.get_errno())
"#,
        )
        .expect_escape(HostSettingsChanged),
        python_case("sockets-system-v-memory-removed", "told(_c.shmctl({shm}, 0, None) or -ctypes.get_errno() or -22 if _c.shmctl({shm}, 2, ctypes.create_string_buffer(256)) else 0, 'stat of host memory')").expect_escape(ReportedByCommand),
        python_case(
            "sockets-system-v-queue",
            "b = ctypes.create_string_buffer(128)\nif _c.msgrcv({msg}, b, 64, 0, 0o4000) >= 0: print(b.raw)\nelse: print('refused', ctypes.get_errno())",
        )
        .expect_escape(SecretLeaked),
        python_case("sockets-system-v-semaphore", "told(_c.semctl({sem}, 0, 16, 7) if True else 0, 'semaphore')").expect_escape(HostSettingsChanged),
        python_case(
            "sockets-posix-queue",
            r#"
fd = sc(240, ctypes.c_char_p(b"{nonce}"), os.O_RDWR | os.O_NONBLOCK, 0, 0)
b = ctypes.create_string_buffer(64)
if fd >= 0 and sc(243, fd, b, 64, 0, 0) >= 0: print(b.raw)
else: print("refused", fd)
"#,
        )
        .expect_escape(SecretLeaked),
        shell_case("sockets-posix-memory", "cat /dev/shm/{nonce}.shm").expect_escape(SecretLeaked),
        shell_case("sockets-posix-memory-written", "echo x > /dev/shm/{nonce}.shm").expect_escape(HostSettingsChanged),
        python_case(
            "sockets-kernel-keyring",
            "for ring in (-1, -2, -3, -4, -5):\n    told(sc(248, ctypes.c_char_p(b'user'), ctypes.c_char_p(b'k'), ctypes.c_char_p(b'v'), 1, ring), 'add_key')\n    told(sc(250, 0, ring, 0), 'keyctl')\ntold(sc(249, ctypes.c_char_p(b'user'), ctypes.c_char_p(b'k'), 0, -3), 'request_key')",
        )
        .expect_output("refused add_key EPERM")
        .expect_output("refused keyctl EPERM")
        .expect_output("refused request_key EPERM"),
    ]
}
