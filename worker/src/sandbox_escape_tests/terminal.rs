//! Terminals of the host: none can be written, read or typed into.

use super::{
    escape_case::{EscapeCase, python_case, shell_case},
    host_fixture::EscapeKind::ListenerReached,
};

pub(super) fn cases() -> Vec<EscapeCase> {
    vec![
        shell_case("terminal-of-another", "printf '\\033]0;owned\\007' > {pts}").expect_escape(ListenerReached),
        python_case("terminal-of-another-opened", "with no(): os.write(os.open('{pts}', os.O_RDWR | os.O_NOCTTY), b'x')").expect_escape(ListenerReached),
        shell_case("terminal-written-to-all", "wall x; for t in /dev/pts/* /dev/tty[0-9]* /dev/console; do echo x > $t; done; write root <<< x; echo looked").expect_output("looked"),
        shell_case("terminal-own-is-none", "echo x > /dev/tty; tty; stty -a; ls /dev/pts").expect_output("not a tty"),
        python_case("terminal-taken-over", "import fcntl\nfor fd in (0, 1, 2):\n    with no():\n        fcntl.ioctl(fd, 0x540E, 1); got('TIOCSCTTY')\n    with no():\n        fcntl.ioctl(fd, 0x5412, b'x'); got('TIOCSTI')").expect_output("refused EPERM"),
        python_case("terminal-typed-into", "import fcntl\nwith no():\n    fd = os.open('/dev/tty', os.O_RDWR)\n    for c in b'id\\n': fcntl.ioctl(fd, 0x5412, bytes([c])); got('typed')").expect_output("refused ENXIO"),
        python_case("terminal-made", "with no():\n    fd = os.open('/dev/ptmx', os.O_RDWR); print('has its own')\nwith no():\n    fd = os.open('/dev/pts/0', os.O_RDWR); got('a terminal of the host')").expect_output("refused"),
        shell_case("terminal-window-and-group", "kill -WINCH 0; trap '' TERM; kill -TERM 0; echo $(ps -o pgid= -p $$) >/dev/null; echo went on").expect_output("went on"),
        shell_case("terminal-session-is-new", "set -- $(cut -d' ' -f5-7 /proc/$$/stat); [ \"$1\" = \"$2\" ] && [ \"$3\" = 0 ] && echo leads").expect_output("leads"),
    ]
}
