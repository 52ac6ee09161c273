//! A request as handlers see it: an authorized caller and a body within its limit. Decodes body,
//! query and path, and names the invalid field.

use std::{str::FromStr, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::Query,
    http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header},
};
use bytes::BytesMut;
use docket_schema::{api::ProblemCode, ids::ParseIdError};
use futures_util::StreamExt as _;
use serde::{Serialize, de::DeserializeOwned};

use super::{api_error::ApiError, auth::Caller, strict_json::StrictObjects};

/// Maximum nesting of a JSON body: the reader's limit, minus the structure around a payload.
const JSON_DEPTH_MAX: usize = 100;

/// An authorized request.
#[derive(Debug)]
pub(crate) struct ApiRequest {
    pub(crate) caller: Caller,
    /// The client's address, if known.
    pub(crate) peer: Option<std::net::IpAddr>,
    /// The placeholder of the path, or empty if the route has none.
    pub(crate) path_param: String,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl ApiRequest {
    /// Decodes the JSON body. An empty body reads as `{}`, so that operations without parameters need
    /// no body.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        self.check_content_type()?;
        if self.headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
            let detail = "send the body without a content-encoding";
            return Err(ApiError::new(ProblemCode::UnsupportedMedia, detail).with_field("content-encoding"));
        }
        let body: &[u8] = if self.body.is_empty() { b"{}" } else { &self.body };
        if body.trim_ascii_start().first() == Some(&b'[') {
            // No route takes a list, and serde would not name a field for it.
            let detail = "invalid body: it must be a JSON object";
            return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("body"));
        }
        if is_too_deep(body) {
            let detail = format!("JSON may be nested at most {JSON_DEPTH_MAX} levels deep");
            return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("body"));
        }
        // Invalid bodies are decoded twice, because tracking the path costs more than decoding and nearly
        // all bodies are valid.
        let mut reader = serde_json::Deserializer::from_slice(body);
        let decoded =
            T::deserialize(StrictObjects(&mut reader)).and_then(|decoded| reader.end().map(|()| decoded));
        decoded.map_err(|error| {
            let mut again = serde_json::Deserializer::from_slice(body);
            let path = match serde_path_to_error::deserialize::<_, T>(StrictObjects(&mut again)) {
                Ok(_) => None,
                Err(error) => Some(error.path().to_string()).filter(|path| path != "."),
            };
            let refusal = ApiError::new(ProblemCode::InvalidRequest, format!("invalid body: {error}"));
            match path.or_else(|| field_in_message(&error.to_string())) {
                Some(path) => refusal.with_field(path),
                None => refusal,
            }
        })
    }

    /// Decodes the query.
    pub(crate) fn query<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        Query::<T>::try_from_uri(&self.uri).map(|Query(query)| query).map_err(|rejection| {
            let text = rejection.body_text();
            let said = text.split_once(": ").map_or(text.as_str(), |(_, said)| said);
            let refusal = ApiError::new(ProblemCode::InvalidRequest, format!("invalid query: {said}"));
            // For example `after: invalid digit found in string`, or an unknown field.
            let field = said.split_once(": ").map(|(field, _)| field.to_owned());
            match field.or_else(|| field_in_message(said)) {
                Some(field) => refusal.with_field(field),
                None => refusal,
            }
        })
    }

    /// Parses the path's placeholder as an ID.
    pub(crate) fn id<T: FromStr<Err = ParseIdError>>(&self) -> Result<T, ApiError> {
        self.path_param.parse().map_err(|error: ParseIdError| {
            ApiError::new(
                ProblemCode::InvalidRequest,
                format!("{error}; `/v1/resolve/PREFIX` returns full ids"),
            )
            .with_field("path")
        })
    }

    fn check_content_type(&self) -> Result<(), ApiError> {
        let Some(given) = self.headers.get(header::CONTENT_TYPE) else {
            return if self.body.is_empty() { Ok(()) } else { Err(not_json_error()) };
        };
        let media = given.as_bytes().split(|b| *b == b';').next().unwrap_or_default();
        if media.trim_ascii().eq_ignore_ascii_case(b"application/json") {
            return Ok(());
        }
        Err(not_json_error())
    }
}

/// A page of another site can send a form or plain text behind a person's back, but not JSON.
fn not_json_error() -> ApiError {
    ApiError::new(ProblemCode::UnsupportedMedia, "send the body as `content-type: application/json`")
        .with_field("content-type")
}

/// Whether arrays and objects are nested deeper than [`JSON_DEPTH_MAX`]. Checked here because
/// payloads are stored as text at any depth and read by other readers later.
fn is_too_deep(json: &[u8]) -> bool {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = json.get(at) {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                if depth > JSON_DEPTH_MAX {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => at = end_of_string(json, at + 1),
            _ => {}
        }
        at += 1;
    }
    false
}

/// Returns the end of the string that begins at `at`.
fn end_of_string(json: &[u8], mut at: usize) -> usize {
    while let Some(found) = memchr::memchr2(b'"', b'\\', json.get(at..).unwrap_or_default()) {
        at += found;
        if json.get(at) == Some(&b'"') {
            return at;
        }
        at += 2;
    }
    json.len()
}

/// Returns the field in a serde message, such as "unknown field `colour`, expected …".
fn field_in_message(message: &str) -> Option<String> {
    let rest = ["unknown field `", "missing field `", "duplicate field `"]
        .into_iter()
        .find_map(|start| message.split_once(start))?
        .1;
    rest.split_once('`').map(|(field, _)| field.to_owned())
}

/// Reads a body of at most `limit` bytes. A body that arrives in one piece is not copied.
pub(crate) async fn read_body(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    within: Duration,
) -> Result<Bytes, ApiError> {
    let too_large = || {
        ApiError::new(ProblemCode::TooLarge, format!("the body may have at most {limit} bytes; split it"))
            .with_field("body")
    };
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let announced: usize = announced.unwrap_or(0);
    if announced > limit {
        return Err(too_large());
    }
    let read = async {
        let mut stream = body.into_data_stream();
        let Some(first) = stream.next().await else { return Ok(Bytes::new()) };
        let first = first.map_err(truncated_body_error)?;
        if first.len() >= announced && first.len() <= limit && announced > 0 {
            return Ok(first);
        }
        let mut whole = BytesMut::with_capacity(announced.max(first.len()));
        let mut next = Some(Ok(first));
        while let Some(chunk) = next {
            let chunk = chunk.map_err(truncated_body_error)?;
            if whole.len() + chunk.len() > limit {
                return Err(too_large());
            }
            whole.extend_from_slice(&chunk);
            next = stream.next().await;
        }
        Ok(whole.freeze())
    };
    tokio::time::timeout(within, read).await.unwrap_or_else(|_| {
        let detail = format!("the body did not arrive within {within:?}");
        Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("body"))
    })
}

fn truncated_body_error(_: axum::Error) -> ApiError {
    ApiError::new(ProblemCode::InvalidRequest, "the body ended before its announced length")
        .with_field("body")
}

/// Builds a JSON response.
pub(crate) fn json_response<T: Serialize>(value: &T) -> Result<Response<Body>, ApiError> {
    let body = serde_json::to_vec(value).map_err(|error| {
        tracing::error!("cannot write a response: {error}");
        ApiError::new(ProblemCode::Internal, "cannot write the response; run `docket verify`")
    })?;
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Builds a response without a body.
pub(crate) fn empty_response(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_depth_ignores_brackets_in_strings() {
        let nested = |deep: usize| format!("{}1{}", "[".repeat(deep), "]".repeat(deep));
        assert!(!is_too_deep(nested(JSON_DEPTH_MAX).as_bytes()));
        assert!(is_too_deep(nested(JSON_DEPTH_MAX + 1).as_bytes()));
        assert!(is_too_deep("{\"a\":".repeat(JSON_DEPTH_MAX + 1).as_bytes()));
        let brackets = "[".repeat(1000);
        for flat in [
            format!("\"{brackets}\""),
            format!("[\"\\\"{brackets}\"]"),
            format!("[\"\\\\\",\"{brackets}\"]"),
            "[],".repeat(1000),
            format!("\"{brackets}"),
            format!("\"{brackets}\\"),
        ] {
            assert!(!is_too_deep(flat.as_bytes()), "{flat}");
        }
        let after = format!("[\"\\\\\",{}]", nested(JSON_DEPTH_MAX));
        assert!(is_too_deep(after.as_bytes()), "a string that ends in a backslash has ended");
    }
}
