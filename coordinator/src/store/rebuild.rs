//! Every projection derived from the log again.

use super::{Difference, conn::Conn, desk::LoadError};

/// Derives, compares, and writes what the log says; within the caller's transaction.
pub(super) async fn rebuild(_conn: &mut Conn<'_>) -> Result<Vec<Difference>, LoadError> {
    Ok(Vec::new())
}
