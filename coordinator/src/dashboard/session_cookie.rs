//! The session cookie that identifies a browser (`http/middleware/sessions.rs`). It never contains the token
//! used to sign in.
//!
//! Invariants: scripts cannot read it (HttpOnly); pages of other sites cannot send it
//! (SameSite=Strict); if the page came over TLS it is sent over TLS only (Secure), under a name
//! that browsers accept from this exact host only (`__Host-`). Browsers send cookies to every port
//! of a host, so the name includes the port; two coordinators on one machine do not sign each other
//! out.

use axum::http::{HeaderMap, HeaderValue, header};

/// Header of the dashboard's own modifying requests. A form on another page cannot set it.
pub(crate) const DASHBOARD_HEADER: &str = "x-docket-ui";

/// Prefix of the cookie's name.
const COOKIE_NAME: &str = "docket_session";
/// Additional prefix over TLS. Neither a sibling domain nor a page without TLS can set such a
/// cookie.
const HOST_PREFIX: &str = "__Host-";

/// Returns the cookie's name for the requested host, without the TLS prefix.
fn cookie_name(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let port = host.rsplit_once(':').map(|(_, port)| port);
    match port.filter(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())) {
        Some(port) => format!("{COOKIE_NAME}_{port}"),
        None => COOKIE_NAME.to_owned(),
    }
}

/// Returns the session in the cookie, or `None` if there is no cookie of ours, or more than one. If
/// a TLS cookie is present, a cookie without TLS is ignored, because another site may have set it.
pub(crate) fn session_from_cookies(headers: &HeaderMap) -> Option<&str> {
    let name = cookie_name(headers);
    let pairs = || {
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='))
    };
    let hosts = |of: &str| of.strip_prefix(HOST_PREFIX) == Some(name.as_str());
    let over_tls = pairs().any(|(of, _)| hosts(of));
    let ours = |of: &str| if over_tls { hosts(of) } else { of == name };
    let mut found = pairs().filter(|(of, _)| ours(of)).map(|(_, value)| value);
    match (found.next(), found.next()) {
        (Some(session), None) => Some(session).filter(|session| !session.is_empty()),
        _ => None,
    }
}

/// Builds the cookie for a session; `None` if a cookie cannot hold it.
pub(crate) fn set_session_cookie(headers: &HeaderMap, session: &str) -> Option<HeaderValue> {
    let fits = |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b',' | b';' | b'\\');
    if session.is_empty() || !session.bytes().all(fits) {
        return None;
    }
    build_cookie(headers, session, "")
}

/// Builds the cookie that removes the session.
pub(crate) fn clear_session_cookie(headers: &HeaderMap) -> Option<HeaderValue> {
    build_cookie(headers, "", "; Max-Age=0")
}

fn build_cookie(headers: &HeaderMap, session: &str, more: &str) -> Option<HeaderValue> {
    // The page's origin shows how it was reached, even if a proxy terminates TLS.
    let over_tls =
        headers.get(header::ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
    let (host, secure) = if over_tls { (HOST_PREFIX, "; Secure") } else { ("", "") };
    let name = cookie_name(headers);
    let cookie = format!("{host}{name}={session}; Path=/; HttpOnly; SameSite=Strict{secure}{more}");
    let mut value = HeaderValue::from_str(&cookie).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_map(of: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in of {
            headers.append(*name, HeaderValue::from_str(value).expect("a header"));
        }
        headers
    }

    #[test]
    fn session_is_read_from_the_single_cookie_of_this_port() {
        for (host, cookies, found) in [
            ("127.0.0.1:7117", &["docket_session_7117=a"][..], Some("a")),
            ("127.0.0.1:7117", &["x=1; docket_session_7117=a; docket_session_80=b"], Some("a")),
            ("127.0.0.1:7117", &["docket_session_80=b"], None),
            ("127.0.0.1:7117", &["docket_session=b"], None),
            ("docket.example", &["docket_session=b=="], Some("b==")),
            ("[::1]:7117", &["docket_session_7117=a"], Some("a")),
            ("127.0.0.1:7117", &["docket_session_7117=a; docket_session_7117=b"], None),
            ("127.0.0.1:7117", &["docket_session_7117=a", "docket_session_7117=a"], None),
            ("127.0.0.1:7117", &["docket_session_7117="], None),
            ("127.0.0.1:7117", &["docket_session_7117"], None),
            ("127.0.0.1:7117", &["xdocket_session_7117=a"], None),
            ("127.0.0.1:7117", &[], None),
            ("docket.example", &["__Host-docket_session=a"], Some("a")),
            ("docket.example:7117", &["docket_session_7117=b; __Host-docket_session_7117=a"], Some("a")),
            ("docket.example:7117", &["__Host-docket_session_80=a; docket_session_7117=b"], Some("b")),
            ("docket.example", &["__Host-docket_session=a; __Host-docket_session=b"], None),
            ("docket.example", &["__Host-docket_session=; docket_session=b"], None),
        ] {
            let mut all = vec![("host", host)];
            all.extend(cookies.iter().map(|cookie| ("cookie", *cookie)));
            assert_eq!(session_from_cookies(&header_map(&all)), found, "{host} {cookies:?}");
        }
    }

    #[test]
    fn session_cookie_is_strict_and_secure_over_tls() {
        let near = header_map(&[("host", "127.0.0.1:7117"), ("origin", "http://127.0.0.1:7117")]);
        let given_near = set_session_cookie(&near, "dks_ab-c").expect("fits");
        assert_eq!(given_near, "docket_session_7117=dks_ab-c; Path=/; HttpOnly; SameSite=Strict");
        let far = header_map(&[("host", "docket.example"), ("origin", "https://docket.example")]);
        let given_far = set_session_cookie(&far, "a").expect("fits");
        assert_eq!(given_far, "__Host-docket_session=a; Path=/; HttpOnly; SameSite=Strict; Secure");
        assert!(clear_session_cookie(&near).expect("fits").to_str().expect("text").ends_with("; Max-Age=0"));
        for wrong in ["", "a;b", "a b", "a\nb", "a,b", "\"", "é"] {
            assert_eq!(set_session_cookie(&near, wrong), None, "{wrong:?}");
        }
    }
}
