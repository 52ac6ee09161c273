//! System calls that a command may not make. Allowed unless denied: builds and tests use nearly everything,
//! and the real barriers are namespaces and Landlock; this filter closes the kernel's side doors.
//!
//! Denied calls fail with EPERM, those with an older fallback with ENOSYS (`clone3`, io_uring), because
//! programs are written to handle both. A foreign architecture or the x32 table kills the process, because
//! there every number means something else.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
};

type SeccompRules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls denied entirely: mounts, other processes' memory, kernel modules and keys, clocks, handles that
/// bypass paths.
const DENIED_CALLS: &[i64] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_bpf,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Calls that have a fallback. The relevant arguments of `clone3` (namespaces) and `openat2` (a set-id
/// mode) are behind a pointer, which a filter cannot follow.
const UNSUPPORTED_CALLS: &[i64] = &[
    libc::SYS_clone3,
    libc::SYS_openat2,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_memfd_secret,
    STATMOUNT,
    LISTMOUNT,
];

/// Reveals the mounts outside; has the same number on every architecture.
const STATMOUNT: i64 = 457;
const LISTMOUNT: i64 = 458;

const NEW_NAMESPACES: [i32; 8] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
    0x80, // CLONE_NEWTIME, for unshare only; in clone these bits are the exit signal
];

/// Index of the argument that holds a file mode, per call.
const MODE_ARGUMENTS: &[(i64, u8)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_fchmodat2, 2),
    (libc::SYS_openat, 3),
    (libc::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
];

/// Push characters into a terminal, or take it over.
const TERMINAL_REQUESTS: [u64; 3] = [libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSETD];

fn argument_condition(argument: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    // Compare double words: the kernel itself looks at 32 bits of all of these, so the filter must
    // as well.
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)
}

fn rule_for_bits(argument: u8, bits: i32) -> Result<SeccompRule, BackendError> {
    let bits = u64::from(bits.cast_unsigned());
    SeccompRule::new(vec![argument_condition(argument, SeccompCmpOp::MaskedEq(bits), bits)?])
}

fn denied_rules() -> Result<SeccompRules, BackendError> {
    let mut rules: SeccompRules = DENIED_CALLS.iter().map(|call| (*call, Vec::new())).collect();
    let namespaces =
        NEW_NAMESPACES.iter().map(|flag| rule_for_bits(0, *flag)).collect::<Result<Vec<_>, _>>()?;
    rules.insert(libc::SYS_clone, namespaces[..7].to_vec());
    rules.insert(libc::SYS_unshare, namespaces);
    for (call, argument) in MODE_ARGUMENTS {
        let set_id = [libc::S_ISUID, libc::S_ISGID].map(|bit| rule_for_bits(*argument, bit.cast_signed()));
        rules.insert(*call, set_id.into_iter().collect::<Result<_, _>>()?);
    }
    let mut terminal = Vec::new();
    for request in TERMINAL_REQUESTS {
        terminal.push(SeccompRule::new(vec![argument_condition(1, SeccompCmpOp::Eq, request)?])?);
    }
    rules.insert(libc::SYS_ioctl, terminal);
    let family =
        |op: fn() -> SeccompCmpOp, value: i32| argument_condition(0, op(), u64::from(value.cast_unsigned()));
    let other = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]
        .into_iter()
        .map(|known| family(|| SeccompCmpOp::Ne, known))
        .collect::<Result<_, _>>()?;
    // Route messages list interfaces; every other netlink protocol configures the kernel.
    let netlink =
        vec![family(|| SeccompCmpOp::Eq, libc::AF_NETLINK)?, argument_condition(2, SeccompCmpOp::Ne, 0)?];
    rules.insert(libc::SYS_socket, vec![SeccompRule::new(other)?, SeccompRule::new(netlink)?]);
    Ok(rules)
}

fn compile_filter(rules: SeccompRules, action: SeccompAction) -> Result<BpfProgram, BackendError> {
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, action, arch)?.try_into()
}

/// Kills on the numbers of the x32 table, which shares x86-64's architecture value.
#[cfg(target_arch = "x86_64")]
fn x32_filter() -> BpfProgram {
    const X32_BIT: u32 = 0x4000_0000;
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_GREATER_OR_EQUAL: u16 = 0x35;
    const RETURN: u16 = 0x06;
    vec![
        sock_filter { code: LOAD_WORD, jt: 0, jf: 0, k: 0 },
        sock_filter { code: JUMP_IF_GREATER_OR_EQUAL, jt: 0, jf: 1, k: X32_BIT },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_KILL_PROCESS },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ]
}

/// Returns the filters in the order in which they are applied.
pub(super) fn build_filters() -> Result<Vec<BpfProgram>, BackendError> {
    let errno = |number: i32| SeccompAction::Errno(number.cast_unsigned());
    let unknown = UNSUPPORTED_CALLS.iter().map(|call| (*call, Vec::new())).collect();
    Ok(vec![
        compile_filter(denied_rules()?, errno(libc::EPERM))?,
        compile_filter(unknown, errno(libc::ENOSYS))?,
        #[cfg(target_arch = "x86_64")]
        x32_filter(),
    ])
}
