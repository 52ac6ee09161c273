//! The dashboard's files and its sign-in with a session cookie.
//!
//! Plain HTML, CSS and ES modules from `assets/`: no build step, and nothing is fetched from other
//! sites. The pages contain no data; they call the API like any other client. The routes are in
//! `http/routes/admin/ui.rs`.

mod assets;
mod security_headers;
mod session_cookie;

pub(crate) use assets::{DashboardAsset, find_asset, index_page};
pub(crate) use security_headers::{add_security_headers, is_dashboard_path};
pub(crate) use session_cookie::{
    DASHBOARD_HEADER, clear_session_cookie, session_from_cookies, set_session_cookie,
};
