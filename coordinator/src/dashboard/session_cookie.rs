//! The cookie by which a browser says who it is: a session (`http/sessions.rs`), never the token that it signed in with.
//!
//! Invariants: scripts never see it (HttpOnly), other sites' pages never send it (SameSite=Strict), and where the page
//! came over TLS it goes over TLS alone (Secure), under a name that a browser takes from this very host and no other
//! (`__Host-`). Browsers send a cookie to every port of a host: so its name has the port, and two coordinators of one
//! machine do not sign each other out.

use axum::http::{HeaderMap, HeaderValue, header};

/// What the dashboard's own requests bear where they change something: no form of another page can set it.
pub(crate) const DASHBOARD_HEADER: &str = "x-docket-ui";

/// How the cookie's name begins.
const COOKIE_NAME: &str = "docket_session";
/// And what stands before it over TLS: no page of a sibling's, nor one without TLS, can set such a cookie.
const HOST_PREFIX: &str = "__Host-";

/// The cookie's name for the address that was called, without TLS.
fn cookie_name(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let port = host.rsplit_once(':').map(|(_, port)| port);
    match port.filter(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())) {
        Some(port) => format!("{COOKIE_NAME}_{port}"),
        None => COOKIE_NAME.to_owned(),
    }
}

/// The session of the cookie; none where there is no cookie of ours, or two. Beside one that came over TLS another
/// does not count: somebody else may have set it.
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

/// Gives a browser its session; none of one that no cookie can hold.
pub(crate) fn set_session_cookie(headers: &HeaderMap, session: &str) -> Option<HeaderValue> {
    let fits = |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b',' | b';' | b'\\');
    if session.is_empty() || !session.bytes().all(fits) {
        return None;
    }
    build_cookie(headers, session, "")
}

/// Takes it away again.
pub(crate) fn clear_session_cookie(headers: &HeaderMap) -> Option<HeaderValue> {
    build_cookie(headers, "", "; Max-Age=0")
}

fn build_cookie(headers: &HeaderMap, session: &str, more: &str) -> Option<HeaderValue> {
    // A page says by its origin how it was reached, also where a proxy before us takes the TLS off.
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
