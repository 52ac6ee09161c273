//! Terminals of the host: none is there to be written, read or typed into.

use super::{
    case::{Case, py, sh},
    world::Sees::Reached,
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        sh("terminal-of-another", "printf '\\033]0;owned\\007' > {pts}").sees(Reached),
        py("terminal-of-another-opened", "with no(): os.write(os.open('{pts}', os.O_RDWR | os.O_NOCTTY), b'x')").sees(Reached),
        sh("terminal-written-to-all", "wall x; for t in /dev/pts/* /dev/tty[0-9]* /dev/console; do echo x > $t; done; write root <<< x; echo looked").says("looked"),
        sh("terminal-own-is-none", "echo x > /dev/tty; tty; stty -a; ls /dev/pts").says("not a tty"),
        py("terminal-taken-over", "import fcntl\nfor fd in (0, 1, 2):\n    with no():\n        fcntl.ioctl(fd, 0x540E, 1); got('TIOCSCTTY')\n    with no():\n        fcntl.ioctl(fd, 0x5412, b'x'); got('TIOCSTI')").says("refused EPERM"),
        py("terminal-typed-into", "import fcntl\nwith no():\n    fd = os.open('/dev/tty', os.O_RDWR)\n    for c in b'id\\n': fcntl.ioctl(fd, 0x5412, bytes([c])); got('typed')").says("refused ENXIO"),
        py("terminal-made", "with no():\n    fd = os.open('/dev/ptmx', os.O_RDWR); print('has its own')\nwith no():\n    fd = os.open('/dev/pts/0', os.O_RDWR); got('a terminal of the host')").says("refused"),
        sh("terminal-window-and-group", "kill -WINCH 0; trap '' TERM; kill -TERM 0; echo $(ps -o pgid= -p $$) >/dev/null; echo went on").says("went on"),
        sh("terminal-session-is-new", "set -- $(cut -d' ' -f5-7 /proc/$$/stat); [ \"$1\" = \"$2\" ] && [ \"$3\" = 0 ] && echo leads").says("leads"),
    ]
}
