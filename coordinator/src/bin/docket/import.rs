//! `docket import`: takes in a run that `docket export` wrote elsewhere, to be looked at, proven, forked.
//!
//! The file is read twice: once to check all of it, before anything is sent; once to send it, checked
//! again. What comes through a pipe is kept in a nameless file while it is checked, and read from there. What
//! is sent before the last call is blobs that nothing names yet; that call writes all or nothing.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _, Seek as _, Write as _},
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use docket_schema::{
    content::BlobRef,
    event::DecodeError,
    export::{
        ExportError, ExportFault, Item, LINE_BYTES_MAX, LineageError, PLAIN_START, Read, Reader, event_line,
    },
    wire::{ImportRequest, ImportResponse},
};
use docket_worker::{client::Client, workspace::BlobSink as _};

use crate::{
    access::{Access, Need},
    context::Context,
    delivery::Upload,
    display,
    fail::{Exit, FailWith as _, Failure, Outcome},
};

/// How a zstd stream begins.
const ZSTD_START: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Events are sent in pages of about this size, in bytes: well under what a request may bring.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Takes what `docket export` wrote, compressed or plain. Everything is checked before anything is written:
every hash, every blob, and that each event can follow the one before it. The run keeps its id and its
hashes. It is never worked on by itself: a task that had not ended is cancelled here. Importing the same
file again changes nothing; another history under the same id is refused.

Examples:
  docket import run.docket
  docket import run.docket && docket verify 3f9c01ab && docket replay 3f9c01ab
  ssh there docket export 3f9c01ab | docket import -"
)]
pub(crate) struct Args {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Takes it in.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let source = Source::open(&cx, &args.file)?;
    let read = check(&source)?;
    let access = Access::open(&cx, Need::Write).await?;
    let (sent, made_by) = send(&access.client, &source).await?;
    let request = ImportRequest { run: read.header.run, task: read.header.task, made_by, pages: sent };
    let response = access.client.import(&request).await?;
    access.close().await?;
    say(&cx, &read, &response);
    Ok(Exit::Ok)
}

fn say(cx: &Context, read: &Read, response: &ImportResponse) {
    let new: u64 = response.streams.iter().map(|s| s.head.seq.0 + 1 - s.from.0).sum();
    if cx.json() {
        display::say_json(&serde_json::json!({
            "run": response.run,
            "task": response.task,
            "events": read.lineage.events(),
            "blobs": read.blobs.len(),
            "new_events": new,
            "new_streams": response.streams.iter().map(|s| s.stream.to_string()).collect::<Vec<_>>(),
        }));
    } else if new == 0 {
        display::say(&format!("run {} is here already, just as in the file", response.run.short()));
    } else {
        display::say(&format!(
            "run {} of task {} is here: {new} events and {} blobs; `docket replay {}` reads it",
            response.run.short(),
            response.task.short(),
            read.blobs.len(),
            response.run.short(),
        ));
    }
}

/// Where the run comes from, read from its beginning as often as is asked.
struct Source {
    /// For people.
    path: PathBuf,
    /// What cannot be read again, and the nameless file that keeps what is read of it the first time.
    once: Option<(File, File)>,
}

impl Source {
    fn open(cx: &Context, path: &Path) -> Outcome<Self> {
        let failed = || format!("cannot read {}", path.display());
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
    fn first(&self) -> Outcome<Box<dyn io::Read>> {
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
    fn again(&self) -> Outcome<Box<dyn io::Read>> {
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

/// The lines of a file, each bounded before it is held.
struct Lines {
    from: Box<dyn BufRead>,
    path: PathBuf,
}

impl Lines {
    fn of(path: &Path, from: Box<dyn io::Read>) -> Outcome<Self> {
        let failed = || format!("cannot read {}", path.display());
        let mut plain = BufReader::new(from);
        let start = plain.fill_buf().fail_with(Exit::Usage, failed)?;
        let from: Box<dyn BufRead> = if start.starts_with(&ZSTD_START) {
            let unpacked = zstd::Decoder::with_buffer(plain).fail_with(Exit::Failed, failed)?;
            Box::new(BufReader::new(unpacked))
        } else if start.starts_with(PLAIN_START) {
            Box::new(plain)
        } else {
            return Err(unknown(path));
        };
        Ok(Self { from, path: path.to_owned() })
    }

    /// The next line without its line break; `None` at the end.
    fn next(&mut self) -> Outcome<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = self.from.as_mut().take(limit).read_until(b'\n', &mut line);
        read.fail_with(Exit::Verification, || {
            format!("{} is damaged: it does not unpack to its end; nothing was imported", self.path.display())
        })?;
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.is_empty() {
            return Ok(None);
        }
        Ok(Some(line))
    }
}

fn unknown(path: &Path) -> Failure {
    let message = format!(
        "{} is nothing that docket imports; it takes runs that `docket export` wrote, compressed or plain",
        path.display()
    );
    Failure::new(Exit::Usage, message)
}

fn refused(path: &Path, error: &ExportError) -> Failure {
    match error.fault {
        ExportFault::NotAnExport => unknown(path),
        ExportFault::Version { .. }
        | ExportFault::Lineage(LineageError::Decode { source: DecodeError::Unknown { .. }, .. }) => {
            Failure::new(Exit::EngineMissing, format!("{}: {error}", path.display()))
        }
        ExportFault::Record(_)
        | ExportFault::TooLong
        | ExportFault::Order(_)
        | ExportFault::Lineage(_)
        | ExportFault::BlobDamaged(_)
        | ExportFault::BlobUnwanted(_)
        | ExportFault::Manifest { .. }
        | ExportFault::BlobLacking { .. }
        | ExportFault::Digest
        | ExportFault::Cut => {
            let message = format!("{}, {error}; nothing was imported", path.display());
            Failure::new(Exit::Verification, message)
        }
    }
}

/// Reads the whole file and sends nothing.
fn check(source: &Source) -> Outcome<Read> {
    let path = source.path.as_path();
    let mut lines = Lines::of(path, source.first()?)?;
    let mut reader = Reader::new();
    while let Some(line) = lines.next()? {
        reader.line(&line).map_err(|error| refused(path, &error))?;
    }
    reader.finish().map_err(|error| refused(path, &error))
}

/// Sends blobs, and events as pages; gives the pages and what made the file.
async fn send(client: &Client, source: &Source) -> Outcome<(Vec<BlobRef>, String)> {
    let path = source.path.as_path();
    let mut lines = Lines::of(path, source.again()?)?;
    let mut reader = Reader::new();
    let mut upload = Upload::new(client);
    let (mut pages, mut page) = (Vec::new(), String::new());
    while let Some(line) = lines.next()? {
        // It may have changed since it was checked.
        match reader.line(&line).map_err(|error| refused(path, &error))? {
            Item::Header(_) | Item::End => {}
            Item::Event(event) => {
                page.push_str(&event_line(&event));
                if page.len() >= PAGE_BYTES {
                    pages.push(sent(client, std::mem::take(&mut page)).await?);
                }
            }
            Item::Blob(blob, bytes) => upload.put(blob, bytes).await.fail_as(Exit::Failed)?,
        }
    }
    if !page.is_empty() {
        pages.push(sent(client, page).await?);
    }
    upload.flush().await.fail_as(Exit::Failed)?;
    let read = reader.finish().map_err(|error| refused(path, &error))?;
    Ok((pages, read.header.made_by))
}

async fn sent(client: &Client, page: String) -> Outcome<BlobRef> {
    let bytes = Bytes::from(page);
    let blob = BlobRef::of(&bytes);
    client.upload_all(vec![(blob, bytes)]).await?;
    Ok(blob)
}
