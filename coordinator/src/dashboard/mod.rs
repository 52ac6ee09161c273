//! The dashboard's files and its sign-in: what a browser is given, and by what it says who it is afterwards.
//!
//! Plain HTML, CSS and ES modules, as they stand in `assets/`: no build step, nothing fetched from elsewhere. The
//! pages hold no data; they ask the API for it as any other client does. `http/ui.rs` has the routes.

mod assets;
mod security_headers;
mod session_cookie;

pub(crate) use assets::{DashboardAsset, find_asset, index_page};
pub(crate) use security_headers::{add_security_headers, is_dashboard_path};
pub(crate) use session_cookie::{
    DASHBOARD_HEADER, clear_session_cookie, session_from_cookies, set_session_cookie,
};
