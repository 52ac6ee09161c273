//! Security headers of every response under `/ui`: only docket's own scripts run, text never
//! becomes markup or code, nothing is fetched from other sites, and no other page can frame the
//! dashboard.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// Allows scripts and styles from files of this origin only, none inline. Trusted Types are
/// required and no policy may be created, so browsers that support them refuse any text used as
/// markup or code.
const DASHBOARD_CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// Whether a path belongs to the dashboard.
pub(crate) fn is_dashboard_path(path: &str) -> bool {
    path == "/" || path == "/ui" || path.starts_with("/ui/")
}

/// Adds the headers.
pub(crate) fn add_security_headers(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, DASHBOARD_CSP),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
