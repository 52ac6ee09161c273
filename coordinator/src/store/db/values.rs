//! Arguments, cells and rows, in the types that both databases have: integers, text, bytes.
//!
//! They are the reason why a query is written once. A typed row for each query would be written twice, for each driver's
//! types and traits; here a driver is two small functions (bind an [`Arg`], make a [`Row`]), and the typed rows are made
//! of these in `row.rs`.

use std::fmt::Write as _;

use docket_schema::ids::BlobHash;
use uuid::Uuid;

use crate::store::{StoreError, api::corrupt};

/// An argument.
#[derive(Debug, Clone)]
pub(crate) enum Arg {
    Int(i64),
    IntOrNull(Option<i64>),
    Text(String),
    TextOrNull(Option<String>),
    Blob(Vec<u8>),
    BlobOrNull(Option<Vec<u8>>),
    /// Text that is a constant.
    Word(&'static str),
    /// A hash, not allocated: an append has three.
    Hash([u8; 32]),
    Texts(Vec<String>),
    Blobs(Vec<Vec<u8>>),
    /// Columns of many rows, for PostgreSQL's `unnest`; SQLite gets rows.
    IntColumn(Vec<Option<i64>>),
    TextColumn(Vec<Option<String>>),
    BlobColumn(Vec<Option<Vec<u8>>>),
}

/// A cell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Text(String),
    Blob(Vec<u8>),
}

impl Cell {
    fn format(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Int(n) => n.to_string(),
            Self::Text(text) => text.clone(),
            Self::Blob(bytes) => hex(bytes),
        }
    }
}

impl Arg {
    pub(crate) fn uuid(id: Uuid) -> Self {
        Self::Blob(id.as_bytes().to_vec())
    }

    pub(crate) fn uuid_or_null(id: Option<Uuid>) -> Self {
        Self::BlobOrNull(id.map(|id| id.as_bytes().to_vec()))
    }

    pub(crate) fn uuids(ids: impl IntoIterator<Item = Uuid>) -> Self {
        Self::Blobs(ids.into_iter().map(|id| id.as_bytes().to_vec()).collect())
    }

    pub(crate) fn hashes(hashes: &[BlobHash]) -> Self {
        Self::Blobs(hashes.iter().map(|hash| hash.0.to_vec()).collect())
    }

    /// A number that cannot be negative, up to the database's largest.
    pub(crate) fn count(n: u64) -> Self {
        Self::Int(i64::try_from(n).unwrap_or(i64::MAX))
    }

    /// The cell that this becomes; `None` for lists.
    fn cell(&self) -> Option<Cell> {
        match self {
            Self::Int(n) | Self::IntOrNull(Some(n)) => Some(Cell::Int(*n)),
            Self::Text(text) | Self::TextOrNull(Some(text)) => Some(Cell::Text(text.clone())),
            Self::Blob(bytes) | Self::BlobOrNull(Some(bytes)) => Some(Cell::Blob(bytes.clone())),
            Self::Word(word) => Some(Cell::Text((*word).to_owned())),
            Self::Hash(hash) => Some(Cell::Blob(hash.to_vec())),
            Self::IntOrNull(None) | Self::TextOrNull(None) | Self::BlobOrNull(None) => Some(Cell::Null),
            Self::Texts(_)
            | Self::Blobs(_)
            | Self::IntColumn(_)
            | Self::TextColumn(_)
            | Self::BlobColumn(_) => None,
        }
    }

    /// Whether a row holds this at a place.
    pub(crate) fn equals(&self, row: &Row, at: usize) -> bool {
        self.cell().as_ref() == row.0.get(at)
    }

    /// Formats it for people.
    pub(crate) fn format(&self) -> String {
        self.cell().map(|cell| cell.format()).unwrap_or_default()
    }
}

/// A row. Cells are taken out by place.
#[derive(Debug, Clone)]
pub(crate) struct Row(Vec<Cell>);

/// The error for a row that does not have the shape its query gives it: the database was altered.
fn unexpected_cell(at: usize, wanted: &str) -> StoreError {
    corrupt(format!("column {at} of a row is no {wanted}"))
}

impl Row {
    pub(crate) const fn new(cells: Vec<Cell>) -> Self {
        Self(cells)
    }

    /// Formats a cell for people.
    pub(crate) fn format_cell(&self, at: usize) -> String {
        self.0.get(at).map(Cell::format).unwrap_or_default()
    }

    pub(crate) fn int(&self, at: usize) -> Result<i64, StoreError> {
        self.int_or_null(at)?.ok_or_else(|| unexpected_cell(at, "integer"))
    }

    pub(crate) fn int_or_null(&self, at: usize) -> Result<Option<i64>, StoreError> {
        match self.0.get(at) {
            Some(Cell::Int(n)) => Ok(Some(*n)),
            Some(Cell::Null) => Ok(None),
            Some(Cell::Text(_) | Cell::Blob(_)) | None => Err(unexpected_cell(at, "integer")),
        }
    }

    /// An integer that cannot be negative.
    pub(crate) fn count(&self, at: usize) -> Result<u64, StoreError> {
        u64::try_from(self.int(at)?).map_err(|_| unexpected_cell(at, "count"))
    }

    pub(crate) fn small(&self, at: usize) -> Result<u32, StoreError> {
        u32::try_from(self.int(at)?).map_err(|_| unexpected_cell(at, "small count"))
    }

    pub(crate) fn text(&mut self, at: usize) -> Result<String, StoreError> {
        self.text_or_null(at)?.ok_or_else(|| unexpected_cell(at, "text"))
    }

    pub(crate) fn text_or_null(&mut self, at: usize) -> Result<Option<String>, StoreError> {
        match self.0.get_mut(at).map(|cell| std::mem::replace(cell, Cell::Null)) {
            Some(Cell::Text(text)) => Ok(Some(text)),
            Some(Cell::Blob(bytes)) => {
                String::from_utf8(bytes).map(Some).map_err(|_| unexpected_cell(at, "text"))
            }
            Some(Cell::Null) => Ok(None),
            Some(Cell::Int(_)) | None => Err(unexpected_cell(at, "text")),
        }
    }

    pub(crate) fn blob(&mut self, at: usize) -> Result<Vec<u8>, StoreError> {
        self.blob_or_null(at)?.ok_or_else(|| unexpected_cell(at, "bytes"))
    }

    pub(crate) fn blob_or_null(&mut self, at: usize) -> Result<Option<Vec<u8>>, StoreError> {
        match self.0.get_mut(at).map(|cell| std::mem::replace(cell, Cell::Null)) {
            Some(Cell::Blob(bytes)) => Ok(Some(bytes)),
            Some(Cell::Null) => Ok(None),
            Some(Cell::Text(_) | Cell::Int(_)) | None => Err(unexpected_cell(at, "bytes")),
        }
    }

    pub(crate) fn fixed<const N: usize>(&mut self, at: usize) -> Result<[u8; N], StoreError> {
        self.blob(at)?.try_into().map_err(|_| unexpected_cell(at, "id or hash"))
    }

    pub(crate) fn fixed_or_null<const N: usize>(&mut self, at: usize) -> Result<Option<[u8; N]>, StoreError> {
        self.blob_or_null(at)?
            .map(|b| b.try_into().map_err(|_| unexpected_cell(at, "id or hash")))
            .transpose()
    }

    pub(crate) fn uuid(&mut self, at: usize) -> Result<Uuid, StoreError> {
        self.fixed(at).map(Uuid::from_bytes)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        write!(out, "{byte:02x}").expect("writing to a string cannot fail");
        out
    })
}

pub(crate) fn hex_list(blobs: &[Vec<u8>]) -> String {
    serde_json::Value::from(blobs.iter().map(|blob| hex(blob)).collect::<Vec<_>>()).to_string()
}
