//! System V and POSIX IPC objects of the host, accessible to everyone: what a shared IPC namespace would
//! expose.

use std::{ffi::CString, fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use nix::libc;

/// One page is enough for every secret.
const PAGE_BYTES: usize = 4096;

/// Owned by a [`HostFixture`](super::host_fixture::HostFixture); removed with it.
pub(super) struct HostIpc {
    pub(super) shm: i32,
    pub(super) queue: i32,
    pub(super) semaphore: i32,
    posix_shm: PathBuf,
    posix_queue: CString,
}

fn secret_page(secret: &str) -> Vec<u8> {
    let mut page = secret.as_bytes().to_vec();
    page.resize(PAGE_BYTES, 0);
    page
}

#[repr(C)]
struct QueueMessage {
    kind: libc::c_long,
    text: [u8; 64],
}

impl HostIpc {
    #[expect(unsafe_code, reason = "System V objects have no safe wrapper")]
    pub(super) fn new(nonce: &str, secret: &str) -> Self {
        let posix_shm = PathBuf::from(format!("/dev/shm/{nonce}.shm"));
        fs::write(&posix_shm, secret_page(secret)).unwrap();
        fs::set_permissions(&posix_shm, fs::Permissions::from_mode(0o666)).unwrap();
        let posix_queue = CString::new(format!("/{nonce}")).unwrap();
        let mut message = QueueMessage { kind: 1, text: [0; 64] };
        message.text[..secret.len()].copy_from_slice(secret.as_bytes());
        // SAFETY: plain numbers, and pointers to values that outlive the call.
        unsafe {
            let shm = libc::shmget(libc::IPC_PRIVATE, PAGE_BYTES, libc::IPC_CREAT | 0o666);
            assert!(shm >= 0, "{}", std::io::Error::last_os_error());
            let at = libc::shmat(shm, std::ptr::null(), 0).cast::<u8>();
            at.copy_from_nonoverlapping(secret_page(secret).as_ptr(), PAGE_BYTES);
            libc::shmdt(at.cast());
            let queue = libc::msgget(libc::IPC_PRIVATE, libc::IPC_CREAT | 0o666);
            assert_eq!(libc::msgsnd(queue, (&raw const message).cast(), 64, libc::IPC_NOWAIT), 0);
            let semaphore = libc::semget(libc::IPC_PRIVATE, 1, libc::IPC_CREAT | 0o666);
            assert!(semaphore >= 0, "{}", std::io::Error::last_os_error());
            let mut room: libc::mq_attr = std::mem::zeroed();
            (room.mq_maxmsg, room.mq_msgsize) = (4, 64);
            let posix =
                libc::mq_open(posix_queue.as_ptr(), libc::O_CREAT | libc::O_RDWR, 0o666, &raw mut room);
            assert!(posix >= 0, "{}", std::io::Error::last_os_error());
            // A queue is a descriptor on Linux. The umask belongs to the complete process, so files of other
            // tests are created with it.
            assert_eq!(libc::fchmod(posix, 0o666), 0, "{}", std::io::Error::last_os_error());
            assert_eq!(libc::mq_send(posix, secret.as_ptr().cast(), secret.len(), 0), 0);
            libc::mq_close(posix);
            Self { shm, queue, semaphore, posix_shm, posix_queue }
        }
    }

    /// Returns the objects that have changed since they were created.
    #[expect(unsafe_code, reason = "System V objects have no safe wrapper")]
    pub(super) fn changed_objects(&self, secret: &str) -> Vec<String> {
        let mut touched = Vec::new();
        if fs::read(&self.posix_shm).ok() != Some(secret_page(secret)) {
            touched.push("POSIX shared memory was written".to_owned());
        }
        // SAFETY: plain numbers; the segment is attached only for one copy, and the queue's state is written
        // to a value that outlives the call.
        unsafe {
            let at = libc::shmat(self.shm, std::ptr::null(), libc::SHM_RDONLY);
            if at.addr() == usize::MAX {
                touched.push("System V shared memory is gone".to_owned());
            } else {
                let now = std::slice::from_raw_parts(at.cast::<u8>(), PAGE_BYTES).to_vec();
                libc::shmdt(at);
                if now != secret_page(secret) {
                    touched.push("System V shared memory was written".to_owned());
                }
            }
            let mut state: libc::msqid_ds = std::mem::zeroed();
            if libc::msgctl(self.queue, libc::IPC_STAT, &raw mut state) != 0 || state.msg_qnum != 1 {
                touched.push("a message of a System V queue is gone".to_owned());
            }
            if libc::semctl(self.semaphore, 0, libc::GETVAL) != 0 {
                touched.push("a System V semaphore was changed".to_owned());
            }
        }
        touched
    }
}

impl Drop for HostIpc {
    #[expect(unsafe_code, reason = "System V objects have no safe wrapper")]
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.posix_shm);
        // SAFETY: plain numbers and a string that outlives the call; an object that is already gone does no
        // harm.
        unsafe {
            libc::shmctl(self.shm, libc::IPC_RMID, std::ptr::null_mut());
            libc::msgctl(self.queue, libc::IPC_RMID, std::ptr::null_mut());
            libc::semctl(self.semaphore, 0, libc::IPC_RMID);
            libc::mq_unlink(self.posix_queue.as_ptr());
        }
    }
}
