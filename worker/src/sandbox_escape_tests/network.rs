//! Every address family and form: no listener on the host's network is reached from inside.

use super::{
    escape_case::{EscapeCase, python_case, shell_case},
    host_fixture::EscapeKind::{ListenerReached, ReportedByCommand},
};

pub(super) fn cases() -> Vec<EscapeCase> {
    vec![
        shell_case("network-dev-tcp", "echo hello > /dev/tcp/127.0.0.1/{tcp4}").expect_escape(ListenerReached),
        shell_case("network-dev-udp", "echo hello > /dev/udp/127.0.0.1/{udp}").expect_escape(ListenerReached),
        shell_case("network-curl", "curl -s -m 3 http://127.0.0.1:{tcp4}/").expect_escape(ListenerReached).require_program("curl").with_timeout(QUICK),
        python_case("network-tcp4", "beat(socket.socket(), ('127.0.0.1', {tcp4}))").expect_escape(ListenerReached),
        python_case("network-any-address", "beat(socket.socket(), ('0.0.0.0', {tcp4}))").expect_escape(ListenerReached),
        python_case("network-name", "beat(socket.socket(), ('localhost', {tcp4}))").expect_escape(ListenerReached),
        python_case("network-decimal-address", "beat(socket.socket(), ('2130706433', {tcp4}))").expect_escape(ListenerReached),
        python_case("network-mapped-address", "beat(socket.socket(socket.AF_INET6), ('::ffff:127.0.0.1', {tcp4}))")
            .expect_escape(ListenerReached)
            .require_program("ipv6"),
        python_case("network-tcp6", "beat(socket.socket(socket.AF_INET6), ('::1', {tcp6}))").expect_escape(ListenerReached).require_program("ipv6"),
        python_case("network-udp4", "beat(socket.socket(type=socket.SOCK_DGRAM), ('127.0.0.1', {udp}))").expect_escape(ListenerReached),
        python_case(
            "network-fast-open",
            "with no(): socket.socket().sendto(b'hello', 0x20000000, ('127.0.0.1', {tcp4}))",
        )
        .expect_escape(ListenerReached),
        python_case("network-non-blocking", "s = socket.socket(); s.setblocking(False); print(s.connect_ex(('127.0.0.1', {tcp4}))); time.sleep(0.1)")
            .expect_escape(ListenerReached),
        python_case("network-send-without-connect", "with no(): socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp}))")
            .expect_escape(ListenerReached),
        python_case(
            "network-broadcast",
            r#"
with no():
    s = socket.socket(type=socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    s.sendto(b"x", ("127.255.255.255", {udp}))
with no():
    s.sendto(b"x", ("255.255.255.255", {udp}))
"#,
        )
        .expect_output("refused"),
        python_case(
            "network-raw",
            "with no():\n    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); got('raw')\nwith no():\n    socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58); got('raw6')",
        )
        .expect_output("refused EPERM"),
        python_case("network-packet", "with no():\n    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3); got('packet')").expect_output("refused EPERM"),
        python_case(
            "network-odd-families",
            "for family in list(range(3, 10)) + list(range(11, 16)) + list(range(17, 47)):\n    told(sc(41, family, 2, 0), f'family {family}')",
        )
        .expect_output("refused family 40 EPERM")
        .expect_output("refused family 38 EPERM"),
        python_case("network-vsock-stream", "told(sc(41, 40, 1, 0), 'vsock')").expect_output("refused vsock EPERM"),
        python_case("network-family-upper-bits", "told(sc(41, (1 << 40) | 17, 3, 0), 'packet with upper bits')").expect_output("refused"),
        python_case(
            "network-netlink-protocols",
            "for number in range(1, 23):\n    told(sc(41, 16, 3, number), f'netlink {number}')",
        )
        .expect_escape(ReportedByCommand)
        .expect_output("refused netlink 15 EPERM"),
        python_case(
            "network-netlink-pair",
            "for family in (16, 17, 40):\n    told(sc(53, family, 1, 0, ctypes.create_string_buffer(8)), f'pair {family}')",
        )
        .expect_output("refused"),
        python_case(
            "network-new-interface",
            r#"
with no():
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    info = struct.pack("HH", 9, 1) + b"dummy\0\0\0"
    attrs = struct.pack("HH", 8, 3) + b"dk0\0" + struct.pack("HH", 4 + len(info), 18) + info
    body = struct.pack("BxHiII", 0, 0, 0, 0, 0) + attrs
    s.send(struct.pack("IHHII", 16 + len(body), 16, 0x605, 1, 0) + body)
    code = struct.unpack("i", s.recv(4096)[16:20])[0]
    told(code, "new link")
"#,
        )
        .expect_output("refused new link EPERM"),
        shell_case("network-interfaces", "cut -d: -f1 /proc/net/dev | tail -n +3 | grep -v '^ *lo$' && echo ESCAPED; cat /proc/net/route /proc/net/tcp | wc -l")
            .expect_output("2"),
        shell_case("network-host-tables", "grep -qi \"$(printf '%04X' {tcp4}) 00000000:0000 0A\" /proc/net/tcp /proc/[0-9]*/net/tcp && echo ESCAPED").expect_escape(ReportedByCommand),
        shell_case("network-forwarding", "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start; ip link add d type dummy; ip link set lo down; echo x")
            .expect_output("denied"),
        python_case(
            "network-own-loopback-works",
            r#"
listener = socket.socket(); listener.bind(("127.0.0.1", 0)); listener.listen()
client = socket.create_connection(listener.getsockname())
client.send(b"test servers work")
print(listener.accept()[0].recv(100))
"#,
        )
        .expect_output("test servers work"),
        python_case("network-resolver", "for name in ('example.org', 'canary.invalid'):\n    with no(): print(socket.getaddrinfo(name, 80))").expect_output("refused"),
        shell_case("network-resolver-configuration", "cat /etc/resolv.conf; ls /run/systemd/resolve /run/nscd /var/run/nscd").expect_output("No such file"),
        python_case(
            "network-namespace-of-other",
            "with no(): told(sc(308, os.open('/proc/{pid}/ns/net', os.O_RDONLY), 0x40000000), 'setns net')\nwith no(): told(sc(308, sc(434, {pid}, 0), 0x40000000), 'setns by pidfd')",
        )
        .expect_escape(ReportedByCommand),
    ]
}

const QUICK: std::time::Duration = std::time::Duration::from_secs(10);
