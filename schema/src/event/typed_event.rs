//! Encoding and decoding of typed events.

use super::envelope::NewEvent;
use crate::ids::Turn;

/// A payload that this version cannot decode.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// This version does not know the event.
    #[error(
        "this build does not know event `{kind}` version {version}; read the log with the build that wrote it, or a newer one"
    )]
    Unknown {
        /// The event's name.
        kind: String,
        /// The payload's version.
        version: u16,
    },
    /// The payload has an unexpected format.
    #[error("the payload of `{kind}` version {version} has an unexpected format")]
    Shape {
        /// The event's name.
        kind: String,
        /// The payload's version.
        version: u16,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
}

/// Whether a value is the default; used to omit fields from a payload.
pub(crate) fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// A family of typed events: the events of runs, of tasks, of queues, of the system.
pub trait TypedEvent: Sized {
    /// Returns the event's name in the log.
    fn kind(&self) -> &'static str;

    /// Encodes the event as a payload of the current version.
    fn encode(&self, turn: Turn) -> NewEvent;

    /// Decodes a payload of any version that this build knows.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for an unknown name, version or format.
    fn decode(kind: &str, version: u16, payload: &str) -> Result<Self, DecodeError>;
}

/// Declares an enum of events, each variant with a payload struct of the same name, and its [`TypedEvent`].
/// Each event takes one line, the only place where its name and version are given.
///
/// A payload with a changed format gets a new version, and its line says how each older one is decoded:
/// `TaskMoved 2 { 1 => TaskMovedV1 }`, where the old struct is kept unchanged and `TaskMoved:
/// From<TaskMovedV1>`. Stored and hashed bytes never change; only readers see the new format.
macro_rules! typed_events {
    ($(#[$doc:meta])* pub enum $family:ident {
        $($variant:ident $version:literal $({ $($old_version:literal => $old:ident),+ $(,)? })?,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        #[expect(missing_docs, reason = "each variant is documented at its payload of the same name")]
        pub enum $family { $($variant($variant),)* }

        impl $crate::event::TypedEvent for $family {
            fn kind(&self) -> &'static str {
                match self { $(Self::$variant(_) => stringify!($variant),)* }
            }

            fn encode(&self, turn: $crate::ids::Turn) -> $crate::event::NewEvent {
                let (version, payload) = match self {
                    $(Self::$variant(payload) => ($version, $crate::event::Payload::from_value(payload)),)*
                };
                $crate::event::NewEvent {
                    kind: self.kind().to_owned(),
                    version,
                    turn,
                    payload: payload.expect("payload structs have string keys only"),
                }
            }

            fn decode(kind: &str, version: u16, payload: &str) -> Result<Self, $crate::event::DecodeError> {
                let shape = |source| $crate::event::DecodeError::Shape { kind: kind.to_owned(), version, source };
                match (kind, version) {
                    $((stringify!($variant), $version) => {
                        serde_json::from_str(payload).map(Self::$variant).map_err(shape)
                    }
                    $($((stringify!($variant), $old_version) => {
                        serde_json::from_str::<$old>(payload).map(|old| Self::$variant(old.into())).map_err(shape)
                    })+)?)*
                    _ => Err($crate::event::DecodeError::Unknown { kind: kind.to_owned(), version }),
                }
            }
        }

        impl $family {
            /// Name and version of every event of the family that this build can decode, including older
            /// versions.
            pub const READ: &'static [(&'static str, u16)] = &[
                $((stringify!($variant), $version), $($((stringify!($variant), $old_version),)+)?)*
            ];

            /// Returns name, version and JSON Schema of every event of the family, including older versions.
            pub fn schemas(generator: &mut schemars::SchemaGenerator) -> Vec<(&'static str, u16, schemars::Schema)> {
                vec![
                    $((stringify!($variant), $version, generator.subschema_for::<$variant>()),
                    $($((stringify!($variant), $old_version, generator.subschema_for::<$old>()),)+)?)*
                ]
            }
        }

        $(impl From<$variant> for $family {
            fn from(payload: $variant) -> Self { Self::$variant(payload) }
        })*
    };
}
pub(crate) use typed_events;
