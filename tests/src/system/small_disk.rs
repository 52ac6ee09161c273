//! A small file system of a test's own, that can be filled to the last page.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Result;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// See the module. Unmounted when it is dropped.
#[derive(Debug)]
pub struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// One of `mebibytes`, that others than root may enter.
    ///
    /// # Errors
    /// This process may not mount.
    pub fn new(mebibytes: u32) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let options = format!("size={mebibytes}m,mode=0755");
        mount(Some("tmpfs"), folder.path(), Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))?;
        Ok(Self(folder))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    fn filler_file(&self) -> PathBuf {
        self.0.path().join("filler")
    }

    /// Takes what room is left, to the last page.
    ///
    /// # Errors
    /// The file that takes it cannot be made.
    pub fn fill(&self) -> Result<()> {
        let mut filler = std::fs::File::create(self.filler_file())?;
        for chunk in [vec![0; 64 * 1024], vec![0; 512]] {
            while filler.write_all(&chunk).is_ok() {}
        }
        Ok(())
    }

    /// Gives it back.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn release(&self) -> Result<()> {
        Ok(std::fs::remove_file(self.filler_file())?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = umount2(self.0.path(), MntFlags::MNT_DETACH);
    }
}
