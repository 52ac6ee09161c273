//! [`Route`]: a line of the table of routes.

use std::{future::Future, pin::Pin, sync::Arc};

use axum::{body::Body, http::Response, routing::MethodFilter};
use docket_schema::wire::BODY_BYTES_MAX;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{api::Api, auth::Access, call::Call, errors::Refusal, meters::RouteName};

/// Bodies of routes that carry no events, blobs or tasks.
const SMALL_BODY_BYTES_MAX: usize = 1024 * 1024;

type Answered = Result<Response<Body>, Refusal>;
type Handler = fn(Arc<Api>, Call) -> Pin<Box<dyn Future<Output = Answered> + Send>>;
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Methods of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    Get,
    Head,
    Post,
    Put,
}

impl Verb {
    /// As it stands in a request.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
        }
    }

    pub(super) const fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Head => MethodFilter::HEAD,
            Self::Post => MethodFilter::POST,
            Self::Put => MethodFilter::PUT,
        }
    }
}

/// What a body is.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// There is none.
    None,
    /// JSON of this schema.
    Json(SchemaOf),
    /// Bytes as they are.
    Bytes,
    /// A file of one of these media types.
    Files(&'static [&'static str]),
    /// Server-sent events.
    Events,
    /// Lines for people or programs.
    Text,
}

/// A line of the table.
pub(crate) struct Route {
    pub(crate) verb: Verb,
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    pub(crate) summary: &'static str,
    pub(crate) query: Option<SchemaOf>,
    pub(crate) request: Shape,
    pub(crate) response: Shape,
    pub(super) body_bytes_max: usize,
    pub(super) handler: Handler,
}

impl Route {
    /// As its meters name it.
    pub(super) const fn name(&self) -> RouteName {
        RouteName { verb: self.verb.as_str(), path: self.path }
    }

    pub(super) const fn new(
        (verb, path): (Verb, &'static str),
        access: Access,
        summary: &'static str,
        handler: Handler,
    ) -> Self {
        Self {
            verb,
            path,
            access,
            summary,
            query: None,
            request: Shape::None,
            response: Shape::None,
            body_bytes_max: 0,
            handler,
        }
    }

    pub(super) const fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(SchemaGenerator::subschema_for::<T>);
        self
    }

    pub(super) const fn takes<T: JsonSchema>(mut self) -> Self {
        self.request = Shape::Json(SchemaGenerator::subschema_for::<T>);
        self.body_bytes_max = SMALL_BODY_BYTES_MAX;
        self
    }

    /// Takes a small body that is described elsewhere.
    pub(super) const fn small(mut self) -> Self {
        self.body_bytes_max = SMALL_BODY_BYTES_MAX;
        self
    }

    pub(super) const fn takes_bytes(mut self) -> Self {
        self.request = Shape::Bytes;
        self.large()
    }

    pub(super) const fn large(mut self) -> Self {
        self.body_bytes_max = BODY_BYTES_MAX;
        self
    }

    pub(super) const fn gives<T: JsonSchema>(mut self) -> Self {
        self.response = Shape::Json(SchemaGenerator::subschema_for::<T>);
        self
    }

    pub(super) const fn gives_shape(mut self, shape: Shape) -> Self {
        self.response = shape;
        self
    }
}
