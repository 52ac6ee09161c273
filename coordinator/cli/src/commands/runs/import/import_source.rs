//! The source of an import. Piped input is copied to an unnamed temporary file on the first read,
//! so that it can be read again.

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

/// The source of an import; it can be read from its start repeatedly.
pub(super) struct ImportSource {
    /// Displayed name.
    pub(super) path: PathBuf,
    /// For a pipe: the input, and the temporary file that keeps what was read.
    tee: Option<(File, File)>,
}

impl ImportSource {
    pub(super) fn open(cx: &CliContext, path: &Path) -> CliResult<Self> {
        let failed = || {
            let path = path.display();
            format!("cannot read {path}; check that it exists and is readable (`-` is standard input)")
        };
        if path.as_os_str() == "-" {
            // Unbuffered: a buffer would hold back input it has read.
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

    /// Opens the source from its start for the first time.
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

    /// Opens the source from its start again, after it was read completely.
    pub(super) fn reopen(&self) -> CliResult<Box<dyn io::Read>> {
        let Some((_, kept)) = &self.tee else { return self.open_first() };
        let failed = || format!("cannot read {} again", self.path.display());
        let mut kept = kept.try_clone().fail_with(ExitKind::Failed, failed)?;
        kept.rewind().fail_with(ExitKind::Failed, failed)?;
        Ok(Box::new(kept))
    }
}

/// Creates an unnamed file on the home's disk, which needs room for the run anyway.
fn create_scratch_file(cx: &CliContext) -> CliResult<File> {
    let folder = cx.home.ensure_folder("scratch")?;
    tempfile::tempfile_in(&folder)
        .fail_with(ExitKind::Failed, || format!("cannot write in {}", folder.display()))
}

/// A reader that also copies what it reads.
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

/// The error for a file in an unknown format.
pub(super) fn unknown_format_error(path: &Path) -> CliError {
    let message = format!(
        "{} is not in a format that docket imports; supported are runs written by `docket export`, and backlogs: JSON Lines, \
         Markdown checklists, GitHub issues, SWE-bench instances (select one with --format)",
        path.display()
    );
    CliError::new(ExitKind::Usage, message)
}
