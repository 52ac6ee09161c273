//! Sockets, queues and memory that processes of one host share: by path, by abstract name, by number.

use super::{
    case::{Case, py, sh},
    world::Sees::{Host, Reached, Said, Secret},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        py("sockets-path", "beat(socket.socket(socket.AF_UNIX), '{out}/stream')").sees(Reached),
        py("sockets-relative-path", "beat(socket.socket(socket.AF_UNIX), '../outside/stream')").sees(Reached),
        py("sockets-link", "os.symlink('{out}/stream', 's'); beat(socket.socket(socket.AF_UNIX), 's')").sees(Reached),
        py("sockets-through-proc", "beat(socket.socket(socket.AF_UNIX), '/proc/{pid}/cwd/stream')").sees(Reached),
        py("sockets-by-descriptor", "with no(): beat(socket.socket(socket.AF_UNIX), '/proc/self/fd/%d' % os.open('{out}/stream', os.O_PATH))")
            .sees(Reached),
        py("sockets-in-tmp", "beat(socket.socket(socket.AF_UNIX), '/tmp/{nonce}.stream')").sees(Reached),
        py("sockets-in-shared-memory", "beat(socket.socket(socket.AF_UNIX), '/dev/shm/{nonce}.stream')").sees(Reached),
        py("sockets-datagram", "beat(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), '{out}/dgram')").sees(Reached),
        py("sockets-abstract", "beat(socket.socket(socket.AF_UNIX), '\\0{nonce}')").sees(Reached),
        py("sockets-abstract-datagram", "with no(): socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', '\\0{nonce}.dgram')")
            .sees(Reached),
        sh("sockets-abstract-listed", "grep -F '@{nonce}' /proc/net/unix && echo ESCAPED").sees(Said),
        sh("sockets-fifo", "echo x > {out}/fifo").sees(Reached),
        sh("sockets-daemons", "for s in /run/docker.sock /var/run/docker.sock /run/containerd/containerd.sock /run/dbus/system_bus_socket /run/systemd/private /run/systemd/notify /run/systemd/journal/socket /run/nscd/socket /tmp/.X11-unix/X0 /run/user/0/bus; do [ -e $s ] && echo ESCAPED $s; done; echo looked").says("looked"),
        sh("sockets-container-engine", "docker -H unix:///var/run/docker.sock ps; podman ps; echo looked").says("looked"),
        py(
            "sockets-descriptors-inherited",
            "for fd in range(3, 1024):\n    try: os.fstat(fd)\n    except OSError: continue\n    got(f'descriptor {fd} {os.readlink(\"/proc/self/fd/%d\" % fd)}')\nprint('looked')",
        )
        .says("looked"),
        py(
            "sockets-frames-to-the-init",
            r#"
frame = struct.pack("<I", 10) + b'{"Exit":0}'
for fd in range(1, 64):
    for place in (f"/proc/1/fd/{fd}", f"/proc/self/fd/{fd}", f"/proc/{os.getppid()}/fd/{fd}"):
        if fd > 2 or "/1/" in place:
            with no(): open(place, "wb", 0).write(frame); got(place)
"#,
        )
        .says("refused EACCES"),
        py(
            "sockets-smuggled-descriptor",
            r#"
with no():
    s = socket.socket(socket.AF_UNIX)
    s.connect("{out}/stream")
    socket.send_fds(s, [b"take"], [os.open(".", os.O_RDONLY)])
"#,
        )
        .sees(Reached),
        py(
            "sockets-system-v-memory-read",
            r#"
_c.shmat.restype = ctypes.c_void_p
at = _c.shmat({shm}, None, 0o10000)
if at not in (None, ctypes.c_void_p(-1).value): print(ctypes.string_at(at, 64))
else: print("refused", ctypes.get_errno())
"#,
        )
        .sees(Secret),
        py(
            "sockets-system-v-memory-written",
            r#"
_c.shmat.restype = ctypes.c_void_p
at = _c.shmat({shm}, None, 0)
if at not in (None, ctypes.c_void_p(-1).value): ctypes.memmove(at, b"overwritten", 11)
else: print("refused", ctypes.get_errno())
"#,
        )
        .sees(Host),
        py("sockets-system-v-memory-removed", "told(_c.shmctl({shm}, 0, None) or -ctypes.get_errno() or -22 if _c.shmctl({shm}, 2, ctypes.create_string_buffer(256)) else 0, 'stat of host memory')").sees(Said),
        py(
            "sockets-system-v-queue",
            "b = ctypes.create_string_buffer(128)\nif _c.msgrcv({msg}, b, 64, 0, 0o4000) >= 0: print(b.raw)\nelse: print('refused', ctypes.get_errno())",
        )
        .sees(Secret),
        py("sockets-system-v-semaphore", "told(_c.semctl({sem}, 0, 16, 7) if True else 0, 'semaphore')").sees(Host),
        py(
            "sockets-posix-queue",
            r#"
fd = sc(240, ctypes.c_char_p(b"{nonce}"), os.O_RDWR | os.O_NONBLOCK, 0, 0)
b = ctypes.create_string_buffer(64)
if fd >= 0 and sc(243, fd, b, 64, 0, 0) >= 0: print(b.raw)
else: print("refused", fd)
"#,
        )
        .sees(Secret),
        sh("sockets-posix-memory", "cat /dev/shm/{nonce}.shm").sees(Secret),
        sh("sockets-posix-memory-written", "echo x > /dev/shm/{nonce}.shm").sees(Host),
        py(
            "sockets-kernel-keyring",
            "for ring in (-1, -2, -3, -4, -5):\n    told(sc(248, ctypes.c_char_p(b'user'), ctypes.c_char_p(b'k'), ctypes.c_char_p(b'v'), 1, ring), 'add_key')\n    told(sc(250, 0, ring, 0), 'keyctl')\ntold(sc(249, ctypes.c_char_p(b'user'), ctypes.c_char_p(b'k'), 0, -3), 'request_key')",
        )
        .says("refused add_key EPERM")
        .says("refused keyctl EPERM")
        .says("refused request_key EPERM"),
    ]
}
