//! What every answer under `/ui` bears: nothing runs there that is not a file of docket's own, no text becomes markup or
//! code, nothing is fetched from elsewhere, and no other page may hold it in a frame.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// Scripts and styles from files of this origin alone, none within the page. Trusted Types are asked for and none can
/// be made: a browser that knows them refuses a text wherever it would be read as markup or code.
const DASHBOARD_CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// Whether a path is the dashboard's.
pub(crate) fn is_dashboard_path(path: &str) -> bool {
    path == "/" || path == "/ui" || path.starts_with("/ui/")
}

/// Puts them on.
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
