//! Arguments, cells and rows in the types that both databases support: integers, text, bytes.
//!
//! They are the reason why a query is written once. Typed rows per query would be written twice, for each
//! driver's types and traits; here a driver is two small functions (bind a [`SqlArg`], build a [`SqlRow`]),
//! and typed rows are built from these in `row.rs`.

use std::fmt::Write as _;

use docket_schema::ids::BlobHash;
use uuid::Uuid;

use crate::store::{StoreError, api::corrupt_error};

#[derive(Debug, Clone)]
pub(crate) enum SqlArg {
    Int(i64),
    IntOrNull(Option<i64>),
    Text(String),
    TextOrNull(Option<String>),
    Blob(Vec<u8>),
    BlobOrNull(Option<Vec<u8>>),
    /// Constant text.
    StaticText(&'static str),
    /// A hash, without allocation: an append has three.
    Hash([u8; 32]),
    Texts(Vec<String>),
    Blobs(Vec<Vec<u8>>),
    /// Columns of many rows, for PostgreSQL's `unnest`; SQLite gets single rows.
    IntColumn(Vec<Option<i64>>),
    TextColumn(Vec<Option<String>>),
    BlobColumn(Vec<Option<Vec<u8>>>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SqlCell {
    Null,
    Int(i64),
    Text(String),
    Blob(Vec<u8>),
}

impl SqlCell {
    fn format(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Int(n) => n.to_string(),
            Self::Text(text) => text.clone(),
            Self::Blob(bytes) => encode_hex(bytes),
        }
    }
}

impl SqlArg {
    pub(crate) fn from_uuid(id: Uuid) -> Self {
        Self::Blob(id.as_bytes().to_vec())
    }

    pub(crate) fn from_uuid_or_null(id: Option<Uuid>) -> Self {
        Self::BlobOrNull(id.map(|id| id.as_bytes().to_vec()))
    }

    pub(crate) fn from_uuids(ids: impl IntoIterator<Item = Uuid>) -> Self {
        Self::Blobs(ids.into_iter().map(|id| id.as_bytes().to_vec()).collect())
    }

    pub(crate) fn from_hashes(hashes: &[BlobHash]) -> Self {
        Self::Blobs(hashes.iter().map(|hash| hash.0.to_vec()).collect())
    }

    /// Converts a non-negative number, capped at the database's maximum.
    pub(crate) fn from_u64(n: u64) -> Self {
        Self::Int(i64::try_from(n).unwrap_or(i64::MAX))
    }

    /// Converts to a cell; `None` for lists.
    fn to_cell(&self) -> Option<SqlCell> {
        match self {
            Self::Int(n) | Self::IntOrNull(Some(n)) => Some(SqlCell::Int(*n)),
            Self::Text(text) | Self::TextOrNull(Some(text)) => Some(SqlCell::Text(text.clone())),
            Self::Blob(bytes) | Self::BlobOrNull(Some(bytes)) => Some(SqlCell::Blob(bytes.clone())),
            Self::StaticText(word) => Some(SqlCell::Text((*word).to_owned())),
            Self::Hash(hash) => Some(SqlCell::Blob(hash.to_vec())),
            Self::IntOrNull(None) | Self::TextOrNull(None) | Self::BlobOrNull(None) => Some(SqlCell::Null),
            Self::Texts(_)
            | Self::Blobs(_)
            | Self::IntColumn(_)
            | Self::TextColumn(_)
            | Self::BlobColumn(_) => None,
        }
    }

    /// Whether a row's cell equals this argument.
    pub(crate) fn equals_cell(&self, row: &SqlRow, at: usize) -> bool {
        self.to_cell().as_ref() == row.0.get(at)
    }

    /// Formats the value for people.
    pub(crate) fn format(&self) -> String {
        self.to_cell().map(|cell| cell.format()).unwrap_or_default()
    }
}

/// A row. Cells are taken out by index.
#[derive(Debug, Clone)]
pub(crate) struct SqlRow(Vec<SqlCell>);

/// Creates the error for a row without the expected shape: the database was altered.
fn unexpected_cell_error(at: usize, wanted: &str) -> StoreError {
    corrupt_error(format!("column {at} of a row has the wrong type: expected {wanted}"))
}

impl SqlRow {
    pub(crate) const fn new(cells: Vec<SqlCell>) -> Self {
        Self(cells)
    }

    /// Formats a cell for people.
    pub(crate) fn format_cell(&self, at: usize) -> String {
        self.0.get(at).map(SqlCell::format).unwrap_or_default()
    }

    pub(crate) fn get_i64(&self, at: usize) -> Result<i64, StoreError> {
        self.get_i64_or_null(at)?.ok_or_else(|| unexpected_cell_error(at, "integer"))
    }

    pub(crate) fn get_i64_or_null(&self, at: usize) -> Result<Option<i64>, StoreError> {
        match self.0.get(at) {
            Some(SqlCell::Int(n)) => Ok(Some(*n)),
            Some(SqlCell::Null) => Ok(None),
            Some(SqlCell::Text(_) | SqlCell::Blob(_)) | None => Err(unexpected_cell_error(at, "integer")),
        }
    }

    /// Reads a non-negative integer.
    pub(crate) fn get_u64(&self, at: usize) -> Result<u64, StoreError> {
        u64::try_from(self.get_i64(at)?).map_err(|_| unexpected_cell_error(at, "count"))
    }

    pub(crate) fn get_u32(&self, at: usize) -> Result<u32, StoreError> {
        u32::try_from(self.get_i64(at)?).map_err(|_| unexpected_cell_error(at, "small count"))
    }

    pub(crate) fn get_text(&mut self, at: usize) -> Result<String, StoreError> {
        self.get_text_or_null(at)?.ok_or_else(|| unexpected_cell_error(at, "text"))
    }

    pub(crate) fn get_text_or_null(&mut self, at: usize) -> Result<Option<String>, StoreError> {
        match self.0.get_mut(at).map(|cell| std::mem::replace(cell, SqlCell::Null)) {
            Some(SqlCell::Text(text)) => Ok(Some(text)),
            Some(SqlCell::Blob(bytes)) => {
                String::from_utf8(bytes).map(Some).map_err(|_| unexpected_cell_error(at, "text"))
            }
            Some(SqlCell::Null) => Ok(None),
            Some(SqlCell::Int(_)) | None => Err(unexpected_cell_error(at, "text")),
        }
    }

    pub(crate) fn get_blob(&mut self, at: usize) -> Result<Vec<u8>, StoreError> {
        self.get_blob_or_null(at)?.ok_or_else(|| unexpected_cell_error(at, "bytes"))
    }

    pub(crate) fn get_blob_or_null(&mut self, at: usize) -> Result<Option<Vec<u8>>, StoreError> {
        match self.0.get_mut(at).map(|cell| std::mem::replace(cell, SqlCell::Null)) {
            Some(SqlCell::Blob(bytes)) => Ok(Some(bytes)),
            Some(SqlCell::Null) => Ok(None),
            Some(SqlCell::Text(_) | SqlCell::Int(_)) | None => Err(unexpected_cell_error(at, "bytes")),
        }
    }

    pub(crate) fn get_array<const N: usize>(&mut self, at: usize) -> Result<[u8; N], StoreError> {
        self.get_blob(at)?.try_into().map_err(|_| unexpected_cell_error(at, "id or hash"))
    }

    pub(crate) fn get_array_or_null<const N: usize>(
        &mut self,
        at: usize,
    ) -> Result<Option<[u8; N]>, StoreError> {
        self.get_blob_or_null(at)?
            .map(|b| b.try_into().map_err(|_| unexpected_cell_error(at, "id or hash")))
            .transpose()
    }

    pub(crate) fn get_uuid(&mut self, at: usize) -> Result<Uuid, StoreError> {
        self.get_array(at).map(Uuid::from_bytes)
    }
}

fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        write!(out, "{byte:02x}").expect("writing to a string cannot fail");
        out
    })
}

pub(crate) fn encode_hex_list(blobs: &[Vec<u8>]) -> String {
    serde_json::Value::from(blobs.iter().map(|blob| encode_hex(blob)).collect::<Vec<_>>()).to_string()
}
