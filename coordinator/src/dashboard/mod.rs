//! The dashboard's files and its sign-in: what a browser is given, and by what it says who it is afterwards.
//!
//! Plain HTML, CSS and ES modules, as they stand in `assets/`: no build step, nothing fetched from elsewhere. The
//! pages hold no data; they ask the API for it as any other client does. `http/ui.rs` has the routes.

mod assets;
mod cookie;
mod headers;

pub(crate) use assets::{Asset, asset, shell};
pub(crate) use cookie::{UI_HEADER, cleared, given, session_of};
pub(crate) use headers::{dress, is_page};
