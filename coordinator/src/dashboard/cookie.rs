//! The cookie by which a browser says who it is: the token itself, for coordinators keep no sessions. One that is
//! revoked is good for nothing at once.
//!
//! Invariants: scripts never see it (HttpOnly), other sites' pages never send it (SameSite=Strict), and beyond this
//! machine it goes over TLS alone where it came so (Secure). Browsers send a cookie to every port of a host: so its
//! name has the port, and two coordinators of one machine do not sign each other out.

use axum::http::{HeaderMap, HeaderValue, header};

/// What the dashboard's own requests bear where they change something: no form of another page can set it.
pub(crate) const UI_HEADER: &str = "x-docket-ui";

/// How the cookie's name begins.
const NAME: &str = "docket_token";

/// The cookie's name for the address that was called.
fn name(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let port = host.rsplit_once(':').map(|(_, port)| port);
    match port.filter(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())) {
        Some(port) => format!("{NAME}_{port}"),
        None => NAME.to_owned(),
    }
}

/// The token of the cookie; none where there is no cookie of ours, or two.
pub(crate) fn token_of(headers: &HeaderMap) -> Option<&str> {
    let name = name(headers);
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut found = lines
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter_map(|(of, value)| (of == name).then_some(value));
    match (found.next(), found.next()) {
        (Some(token), None) => Some(token).filter(|token| !token.is_empty()),
        _ => None,
    }
}

/// Gives a browser its token; none of a token that no cookie can hold.
pub(crate) fn given(headers: &HeaderMap, token: &str) -> Option<HeaderValue> {
    let fits = |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b',' | b';' | b'\\');
    if token.is_empty() || !token.bytes().all(fits) {
        return None;
    }
    set(headers, token, "")
}

/// Takes it away again.
pub(crate) fn cleared(headers: &HeaderMap) -> Option<HeaderValue> {
    set(headers, "", "; Max-Age=0")
}

fn set(headers: &HeaderMap, token: &str, more: &str) -> Option<HeaderValue> {
    // A page says by its origin how it was reached, also where a proxy before us takes the TLS off.
    let over_tls =
        headers.get(header::ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
    let secure = if over_tls { "; Secure" } else { "" };
    let cookie = format!("{}={token}; Path=/; HttpOnly; SameSite=Strict{secure}{more}", name(headers));
    let mut value = HeaderValue::from_str(&cookie).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in of {
            headers.append(*name, HeaderValue::from_str(value).expect("a header"));
        }
        headers
    }

    #[test]
    fn the_token_is_that_of_the_one_cookie_of_this_port() {
        for (host, cookies, found) in [
            ("127.0.0.1:7117", &["docket_token_7117=a"][..], Some("a")),
            ("127.0.0.1:7117", &["x=1; docket_token_7117=a; docket_token_80=b"], Some("a")),
            ("127.0.0.1:7117", &["docket_token_80=b"], None),
            ("127.0.0.1:7117", &["docket_token=b"], None),
            ("docket.example", &["docket_token=b=="], Some("b==")),
            ("[::1]:7117", &["docket_token_7117=a"], Some("a")),
            ("127.0.0.1:7117", &["docket_token_7117=a; docket_token_7117=b"], None),
            ("127.0.0.1:7117", &["docket_token_7117=a", "docket_token_7117=a"], None),
            ("127.0.0.1:7117", &["docket_token_7117="], None),
            ("127.0.0.1:7117", &["docket_token_7117"], None),
            ("127.0.0.1:7117", &["xdocket_token_7117=a"], None),
            ("127.0.0.1:7117", &[], None),
        ] {
            let mut all = vec![("host", host)];
            all.extend(cookies.iter().map(|cookie| ("cookie", *cookie)));
            assert_eq!(token_of(&headers(&all)), found, "{host} {cookies:?}");
        }
    }

    #[test]
    fn what_is_given_is_strict_and_secure_where_it_can_be() {
        let near = headers(&[("host", "127.0.0.1:7117"), ("origin", "http://127.0.0.1:7117")]);
        let given_near = given(&near, "dkt_ab-c").expect("fits");
        assert_eq!(given_near, "docket_token_7117=dkt_ab-c; Path=/; HttpOnly; SameSite=Strict");
        let far = headers(&[("host", "docket.example"), ("origin", "https://docket.example")]);
        let given_far = given(&far, "a").expect("fits");
        assert_eq!(given_far, "docket_token=a; Path=/; HttpOnly; SameSite=Strict; Secure");
        assert!(cleared(&near).expect("fits").to_str().expect("text").ends_with("; Max-Age=0"));
        for wrong in ["", "a;b", "a b", "a\nb", "a,b", "\"", "é"] {
            assert_eq!(given(&near, wrong), None, "{wrong:?}");
        }
    }
}
