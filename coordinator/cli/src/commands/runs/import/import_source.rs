//! The file of an import. What comes through a pipe is kept in a nameless file while it is read for the first
//! time, so that it can be read again.

use std::{
    fs::File,
    io::{self, Seek as _, Write as _},
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use crate::{
    context::CliContext,
    output::error::{CliError, CliResult, ExitKind, FailWith as _},
};

/// Where an import comes from, read from its beginning as often as is asked.
pub(super) struct ImportSource {
    /// For people.
    pub(super) path: PathBuf,
    /// What cannot be read again, and the nameless file that keeps what is read of it the first time.
    tee: Option<(File, File)>,
}

impl ImportSource {
    pub(super) fn open(cx: &CliContext, path: &Path) -> CliResult<Self> {
        let failed = || {
            let path = path.display();
            format!("cannot read {path}; is it there, and may you read it? `-` is standard input")
        };
        if path.as_os_str() == "-" {
            // Not the buffered one: it would hold back what it read.
            let stdin =
                File::from(io::stdin().as_fd().try_clone_to_owned().fail_with(ExitKind::Usage, failed)?);
            return Ok(Self {
                path: PathBuf::from("standard input"),
                tee: Some((stdin, create_scratch_file(cx)?)),
            });
        }
        let file = File::open(path).fail_with(ExitKind::Usage, failed)?;
        let again = file.metadata().fail_with(ExitKind::Usage, failed)?.is_file();
        Ok(Self {
            path: path.to_owned(),
            tee: if again { None } else { Some((file, create_scratch_file(cx)?)) },
        })
    }

    /// From its beginning, for the first time.
    pub(super) fn open_first(&self) -> CliResult<Box<dyn io::Read>> {
        let failed = || format!("cannot read {}", self.path.display());
        Ok(match &self.tee {
            None => Box::new(File::open(&self.path).fail_with(ExitKind::Usage, failed)?),
            Some((from, to)) => Box::new(TeeReader {
                from: from.try_clone().fail_with(ExitKind::Failed, failed)?,
                to: to.try_clone().fail_with(ExitKind::Failed, failed)?,
            }),
        })
    }

    /// From its beginning, after it was read to its end.
    pub(super) fn reopen(&self) -> CliResult<Box<dyn io::Read>> {
        let Some((_, kept)) = &self.tee else { return self.open_first() };
        let failed = || format!("what came from {} cannot be read again", self.path.display());
        let mut kept = kept.try_clone().fail_with(ExitKind::Failed, failed)?;
        kept.rewind().fail_with(ExitKind::Failed, failed)?;
        Ok(Box::new(kept))
    }
}

/// A nameless file on the disk of the home, which has room for the run or cannot take it in anyway.
fn create_scratch_file(cx: &CliContext) -> CliResult<File> {
    let folder = cx.home.ensure_folder("scratch")?;
    tempfile::tempfile_in(&folder)
        .fail_with(ExitKind::Failed, || format!("cannot write in {}", folder.display()))
}

/// Whatever is read is kept as well.
struct TeeReader {
    from: File,
    to: File,
}

impl io::Read for TeeReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(into)?;
        self.to.write_all(&into[..count])?;
        Ok(count)
    }
}

/// The refusal of a file of no form that is known.
pub(super) fn unknown_format_error(path: &Path) -> CliError {
    let message = format!(
        "{} is nothing that docket imports; it takes runs that `docket export` wrote, and backlogs: JSON Lines, \
         Markdown checklists, GitHub issues, SWE-bench instances (--format says which)",
        path.display()
    );
    CliError::new(ExitKind::Usage, message)
}
