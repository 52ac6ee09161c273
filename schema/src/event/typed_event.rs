//! How typed events become payload bytes, and are read back.

use super::envelope::NewEvent;
use crate::ids::Turn;

/// A payload that this version cannot read.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// No such event in this version.
    #[error(
        "this build knows no event `{kind}` version {version}; read the log with the build that wrote it, or a newer one"
    )]
    Unknown {
        /// The event's name.
        kind: String,
        /// Its version.
        version: u16,
    },
    /// The payload has another shape.
    #[error("the payload of `{kind}` version {version} does not have its shape")]
    Shape {
        /// The event's name.
        kind: String,
        /// Its version.
        version: u16,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

/// Whether a number is 0: fields that a payload leaves out then.
pub(crate) fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// A family of typed events: the events of runs, of tasks, of queues, of the system.
pub trait TypedEvent: Sized {
    /// The event's name in the log.
    fn kind(&self) -> &'static str;

    /// Payload and version, as this build writes them.
    fn encode(&self, turn: Turn) -> NewEvent;

    /// Reads a payload of any version this build knows.
    ///
    /// # Errors
    /// [`DecodeError`] for a name, version or shape it does not know.
    fn decode(kind: &str, version: u16, payload: &str) -> Result<Self, DecodeError>;
}

/// Declares an enum of events, each variant with a payload struct of the same name, and its
/// [`TypedEvent`]. One line per event: the only place where name and version are said.
///
/// A payload that got another shape is a new version, and its line says how each older one is read:
/// `TaskMoved 2 { 1 => TaskMovedV1 }`, where the old struct stays as it was and `TaskMoved: From<TaskMovedV1>`.
/// What is stored and hashed stays as it is; only what a reader gets is of the new shape.
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
                    $(Self::$variant(payload) => ($version, $crate::event::Payload::of(payload)),)*
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
            /// Name and version of every event of the family that this build reads, the older ones too.
            pub const READ: &'static [(&'static str, u16)] = &[
                $((stringify!($variant), $version), $($((stringify!($variant), $old_version),)+)?)*
            ];

            /// Name, version and JSON Schema of every event of the family, the older ones too.
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
