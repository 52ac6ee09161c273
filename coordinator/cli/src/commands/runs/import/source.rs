//! The file of an import. What comes through a pipe is kept in a nameless file while it is read for the first
//! time, so that it can be read again.

use std::{
    fs::File,
    io::{self, Seek as _, Write as _},
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use crate::{
    context::Context,
    output::fail::{Exit, FailWith as _, Failure, Outcome},
};

/// Where an import comes from, read from its beginning as often as is asked.
pub(super) struct Source {
    /// For people.
    pub(super) path: PathBuf,
    /// What cannot be read again, and the nameless file that keeps what is read of it the first time.
    once: Option<(File, File)>,
}

impl Source {
    pub(super) fn open(cx: &Context, path: &Path) -> Outcome<Self> {
        let failed = || {
            let path = path.display();
            format!("cannot read {path}; is it there, and may you read it? `-` is standard input")
        };
        if path.as_os_str() == "-" {
            // Not the buffered one: it would hold back what it read.
            let stdin = File::from(io::stdin().as_fd().try_clone_to_owned().fail_with(Exit::Usage, failed)?);
            return Ok(Self { path: PathBuf::from("standard input"), once: Some((stdin, kept(cx)?)) });
        }
        let file = File::open(path).fail_with(Exit::Usage, failed)?;
        let again = file.metadata().fail_with(Exit::Usage, failed)?.is_file();
        Ok(Self { path: path.to_owned(), once: if again { None } else { Some((file, kept(cx)?)) } })
    }

    /// From its beginning, for the first time.
    pub(super) fn first(&self) -> Outcome<Box<dyn io::Read>> {
        let failed = || format!("cannot read {}", self.path.display());
        Ok(match &self.once {
            None => Box::new(File::open(&self.path).fail_with(Exit::Usage, failed)?),
            Some((from, to)) => Box::new(Kept {
                from: from.try_clone().fail_with(Exit::Failed, failed)?,
                to: to.try_clone().fail_with(Exit::Failed, failed)?,
            }),
        })
    }

    /// From its beginning, after it was read to its end.
    pub(super) fn again(&self) -> Outcome<Box<dyn io::Read>> {
        let Some((_, kept)) = &self.once else { return self.first() };
        let failed = || format!("what came from {} cannot be read again", self.path.display());
        let mut kept = kept.try_clone().fail_with(Exit::Failed, failed)?;
        kept.rewind().fail_with(Exit::Failed, failed)?;
        Ok(Box::new(kept))
    }
}

/// A nameless file on the disk of the home, which has room for the run or cannot take it in anyway.
fn kept(cx: &Context) -> Outcome<File> {
    let folder = cx.home.folder("scratch")?;
    tempfile::tempfile_in(&folder).fail_with(Exit::Failed, || format!("cannot write in {}", folder.display()))
}

/// Whatever is read is kept as well.
struct Kept {
    from: File,
    to: File,
}

impl io::Read for Kept {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(into)?;
        self.to.write_all(&into[..count])?;
        Ok(count)
    }
}

/// The refusal of a file of no form that is known.
pub(super) fn unknown(path: &Path) -> Failure {
    let message = format!(
        "{} is nothing that docket imports; it takes runs that `docket export` wrote, and backlogs: JSON Lines, \
         Markdown checklists, GitHub issues, SWE-bench instances (--format says which)",
        path.display()
    );
    Failure::new(Exit::Usage, message)
}
