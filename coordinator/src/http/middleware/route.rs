//! [`ApiRoute`]: an entry of the route table.

use std::{future::Future, pin::Pin, sync::Arc};

use axum::{body::Body, http::Response, routing::MethodFilter};
use docket_schema::api::BODY_BYTES_MAX;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{
    api_error::ApiError, api_state::ApiState, auth::RouteAccess, meters::RouteName, request::ApiRequest,
};

/// Body limit of routes without events, blobs or tasks.
const SMALL_BODY_BYTES_MAX: usize = 1024 * 1024;

type HandlerResult = Result<Response<Body>, ApiError>;
type RouteHandler = fn(Arc<ApiState>, ApiRequest) -> Pin<Box<dyn Future<Output = HandlerResult> + Send>>;
type SchemaFn = fn(&mut SchemaGenerator) -> Schema;

/// HTTP methods of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HttpMethod {
    Get,
    Head,
    Post,
    Put,
}

impl HttpMethod {
    /// Returns the method's name in a request.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
        }
    }

    pub(in crate::http) const fn method_filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Head => MethodFilter::HEAD,
            Self::Post => MethodFilter::POST,
            Self::Put => MethodFilter::PUT,
        }
    }
}

/// The type of a body.
#[derive(Clone, Copy)]
pub(crate) enum BodyShape {
    /// No body.
    None,
    /// JSON with this schema.
    Json(SchemaFn),
    /// Raw bytes.
    Bytes,
    /// A file with one of these media types.
    Files(&'static [&'static str]),
    /// Server-sent events.
    Events,
    /// Plain text.
    Text,
}

/// An entry of the route table.
pub(crate) struct ApiRoute {
    pub(crate) method: HttpMethod,
    pub(crate) path: &'static str,
    pub(crate) access: RouteAccess,
    pub(crate) summary: &'static str,
    pub(crate) query: Option<SchemaFn>,
    pub(crate) request: BodyShape,
    pub(crate) response: BodyShape,
    pub(in crate::http) body_bytes_max: usize,
    pub(in crate::http) handler: RouteHandler,
}

impl ApiRoute {
    /// Returns the route's name in metrics.
    pub(in crate::http) const fn name(&self) -> RouteName {
        RouteName { method: self.method.as_str(), path: self.path }
    }

    pub(in crate::http) const fn new(
        (verb, path): (HttpMethod, &'static str),
        access: RouteAccess,
        summary: &'static str,
        handler: RouteHandler,
    ) -> Self {
        Self {
            method: verb,
            path,
            access,
            summary,
            query: None,
            request: BodyShape::None,
            response: BodyShape::None,
            body_bytes_max: 0,
            handler,
        }
    }

    pub(in crate::http) const fn with_query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(SchemaGenerator::subschema_for::<T>);
        self
    }

    pub(in crate::http) const fn with_json_request<T: JsonSchema>(mut self) -> Self {
        self.request = BodyShape::Json(SchemaGenerator::subschema_for::<T>);
        self.body_bytes_max = SMALL_BODY_BYTES_MAX;
        self
    }

    /// Allows a small body that is documented elsewhere.
    pub(in crate::http) const fn with_small_body(mut self) -> Self {
        self.body_bytes_max = SMALL_BODY_BYTES_MAX;
        self
    }

    pub(in crate::http) const fn with_bytes_request(mut self) -> Self {
        self.request = BodyShape::Bytes;
        self.with_large_body()
    }

    pub(in crate::http) const fn with_large_body(mut self) -> Self {
        self.body_bytes_max = BODY_BYTES_MAX;
        self
    }

    pub(in crate::http) const fn with_json_response<T: JsonSchema>(mut self) -> Self {
        self.response = BodyShape::Json(SchemaGenerator::subschema_for::<T>);
        self
    }

    pub(in crate::http) const fn with_response(mut self, shape: BodyShape) -> Self {
        self.response = shape;
        self
    }
}
