//! A small separate file system for a test, which can be filled to the last page.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Result;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// A small file system; see the module. Unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Creates a file system of `mebibytes` MiB that users other than root may enter.
    ///
    /// # Errors
    /// Returns an error if this process may not mount.
    pub fn new(mebibytes: u32) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let options = format!("size={mebibytes}m,mode=0755");
        mount(Some("tmpfs"), folder.path(), Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))?;
        Ok(Self(folder))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    fn filler_file(&self) -> PathBuf {
        self.0.path().join("filler")
    }

    /// Takes up all remaining space, to the last page.
    ///
    /// # Errors
    /// Returns an error if the file that takes it up cannot be created.
    pub fn fill(&self) -> Result<()> {
        let mut filler = std::fs::File::create(self.filler_file())?;
        for chunk in [vec![0; 64 * 1024], vec![0; 512]] {
            while filler.write_all(&chunk).is_ok() {}
        }
        Ok(())
    }

    /// Frees that space.
    ///
    /// # Errors
    /// Returns an error if the file cannot be removed.
    pub fn release(&self) -> Result<()> {
        Ok(std::fs::remove_file(self.filler_file())?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = umount2(self.0.path(), MntFlags::MNT_DETACH);
    }
}
