//! Parses the first message of TLS as far as needed to find the host it names. Pure.
//!
//! Strict: data that is not a complete, well-formed ClientHello does not count as one. A hello that hides its
//! name (encrypted client hello) is refused, because it could mean another host.

/// A hello with the keys of large key exchanges is below 4 KiB; anything longer is not a hello.
pub(super) const HELLO_BYTES_MAX: usize = 16 * 1024;

/// First byte of a record that holds a handshake.
pub(super) const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME_EXTENSION: u16 = 0;
const ENCRYPTED_HELLO_EXTENSION: u16 = 0xfe0d;

/// Classification of the bytes read so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ClientHello {
    /// An incomplete hello.
    Incomplete,
    /// A hello, with its server name.
    Complete(Option<String>),
    /// Not a hello, or one that hides its server name.
    Invalid(&'static str),
}

/// Parses the first bytes of a connection.
pub(super) fn parse_client_hello(bytes: &[u8]) -> ClientHello {
    let message = match reassemble_message(bytes) {
        Ok(Some(message)) => message,
        Ok(None) if bytes.len() > HELLO_BYTES_MAX => {
            return ClientHello::Invalid("its first message is too long");
        }
        Ok(None) => return ClientHello::Incomplete,
        Err(why) => return ClientHello::Invalid(why),
    };
    match parse_server_name(&message) {
        Some(Ok(name)) => ClientHello::Complete(name),
        Some(Err(why)) => ClientHello::Invalid(why),
        None => ClientHello::Invalid("its first message is no ClientHello"),
    }
}

/// Joins the message from its records; `None` if part of it is missing.
fn reassemble_message(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    const NOT_TLS: &str = "it is not TLS";
    let mut message = Vec::new();
    loop {
        match bytes {
            [] => return Ok(None),
            [kind, ..] if *kind != HANDSHAKE_RECORD => return Err(NOT_TLS),
            [_, major, ..] if *major != 3 => return Err(NOT_TLS),
            _ => {}
        }
        let Some((head, rest)) = bytes.split_at_checked(5) else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
        if length == 0 || length > HELLO_BYTES_MAX {
            return Err(NOT_TLS);
        }
        let whole = rest.len() >= length;
        message.extend_from_slice(&rest[..length.min(rest.len())]);
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err("its first message is no ClientHello");
        }
        if let [_, a, b, c, body @ ..] = message.as_slice() {
            let wanted = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if wanted > HELLO_BYTES_MAX {
                return Err("its first message is too long");
            }
            if let Some(body) = body.get(..wanted) {
                return Ok(Some(body.to_vec()));
            }
        }
        if !whole {
            return Ok(None);
        }
        bytes = &rest[length..];
    }
}

/// Takes a vector with a length prefix of `length_bytes` bytes off the front.
fn take_vector<'a>(bytes: &mut &'a [u8], length_bytes: usize) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_at_checked(length_bytes)?;
    let length = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let (vector, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some(vector)
}

fn take_u16(bytes: &mut &[u8]) -> Option<u16> {
    let (number, rest) = bytes.split_at_checked(2)?;
    *bytes = rest;
    Some(u16::from_be_bytes([number[0], number[1]]))
}

/// Returns `None` if the body is malformed.
fn parse_server_name(mut body: &[u8]) -> Option<Result<Option<String>, &'static str>> {
    // Skip version and random.
    body = body.get(34..)?;
    take_vector(&mut body, 1)?;
    take_vector(&mut body, 2)?;
    take_vector(&mut body, 1)?;
    if body.is_empty() {
        return Some(Ok(None));
    }
    let mut extensions = take_vector(&mut body, 2)?;
    if !body.is_empty() {
        return None;
    }
    let mut found = None;
    while !extensions.is_empty() {
        let kind = take_u16(&mut extensions)?;
        let mut content = take_vector(&mut extensions, 2)?;
        if kind == ENCRYPTED_HELLO_EXTENSION {
            return Some(Err("its ClientHello is encrypted"));
        }
        if kind != SERVER_NAME_EXTENSION {
            continue;
        }
        let mut names = take_vector(&mut content, 2)?;
        let (kind, rest) = names.split_first()?;
        names = rest;
        let name = take_vector(&mut names, 2)?;
        if found.is_some() || *kind != 0 || !names.is_empty() || !content.is_empty() {
            return Some(Err("its ClientHello names several hosts"));
        }
        found = Some(std::str::from_utf8(name).ok()?.to_owned());
    }
    Some(Ok(found))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;

    /// The first message of a real client.
    fn client_hello(name: &str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = name.to_owned().try_into().unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    /// Splits the same message into records of `bytes` bytes.
    fn split_into_records(hello: &[u8], bytes: usize) -> Vec<u8> {
        let record = |part: &[u8]| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
        hello[5..].chunks(bytes).flat_map(record).collect()
    }

    fn with_extension(hello: &[u8], kind: u16, content: &[u8]) -> Vec<u8> {
        let mut body = hello[9..].to_vec();
        let extension = [&kind.to_be_bytes()[..], &(content.len() as u16).to_be_bytes(), content].concat();
        let at = {
            let mut rest = &body[34..];
            take_vector(&mut rest, 1).unwrap();
            take_vector(&mut rest, 2).unwrap();
            take_vector(&mut rest, 1).unwrap();
            body.len() - rest.len()
        };
        let length = u16::from_be_bytes([body[at], body[at + 1]]) + extension.len() as u16;
        body.splice(at..at + 2, length.to_be_bytes());
        body.extend(extension);
        let message = [&[1, 0][..], &(body.len() as u16).to_be_bytes(), &body].concat();
        [&[22, 3, 1][..], &(message.len() as u16).to_be_bytes(), &message].concat()
    }

    #[test]
    fn server_name_is_parsed_however_the_hello_is_split() {
        let real = client_hello("crates.io");
        let want = ClientHello::Complete(Some("crates.io".to_owned()));
        assert_eq!(parse_client_hello(&real), want);
        assert_eq!(parse_client_hello(&[&real[..], b"more"].concat()), want);
        assert_eq!(parse_client_hello(&client_hello("127.0.0.1")), ClientHello::Complete(None));
        for bytes in [1, 7, 100] {
            assert_eq!(parse_client_hello(&split_into_records(&real, bytes)), want);
        }
        for cut in 0..real.len() {
            assert_eq!(parse_client_hello(&real[..cut]), ClientHello::Incomplete, "{cut}");
        }
    }

    #[test]
    fn hidden_or_duplicate_server_name_is_refused() {
        let real = client_hello("crates.io");
        assert_eq!(
            parse_client_hello(&with_extension(&real, 0x1234, b"x")),
            ClientHello::Complete(Some("crates.io".to_owned()))
        );
        for (bytes, why) in [
            (with_extension(&real, ENCRYPTED_HELLO_EXTENSION, b"x"), "encrypted"),
            (with_extension(&real, SERVER_NAME_EXTENSION, b"\x00\x07\x00\x00\x04evil"), "several"),
            (b"GET / HTTP/1.1\r\n".to_vec(), "not TLS"),
            (b"\x16\x02\x00\x00\x10".to_vec(), "not TLS"),
            (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00".to_vec(), "no ClientHello"),
            (b"\x16\x03\x01\x00\x04\x01\x00\x00\x00".to_vec(), "no ClientHello"),
            (b"\x16\x03\x01\x00\x04\x01\xff\x00\x00".to_vec(), "too long"),
        ] {
            let ClientHello::Invalid(said) = parse_client_hello(&bytes) else {
                panic!("{why}: {:?}", parse_client_hello(&bytes))
            };
            assert!(said.contains(why), "{said}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), at in 0usize..300, to: u8) {
            let _ = parse_client_hello(&bytes);
            let mut bent = client_hello("crates.io");
            let at = at.min(bent.len() - 1);
            bent[at] = to;
            let _ = parse_client_hello(&bent);
        }
    }
}
