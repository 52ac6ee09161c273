//! A deserializer that accepts only objects for structs.
//!
//! serde also reads a struct from a list of its fields in order, so `{"budget": [null, 5]}` would
//! set a budget. That is never intended, and the OpenAPI document does not allow it. Used for every
//! body by `request.rs`.

use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Unexpected, VariantAccess,
    Visitor,
};

/// A wrapper that reads its content strictly.
pub(in crate::http) struct StrictObjects<T>(pub(in crate::http) T);

/// A visitor, and whether it visits a struct.
struct StrictVisitor<V> {
    visitor: V,
    is_struct: bool,
}

const fn any_visitor<V>(visitor: V) -> StrictVisitor<V> {
    StrictVisitor { visitor, is_struct: false }
}

const fn struct_visitor<V>(visitor: V) -> StrictVisitor<V> {
    StrictVisitor { visitor, is_struct: true }
}

macro_rules! forwards {
    ($($name:ident ( $($arg:ident : $type:ty),* );)*) => {$(
        fn $name<V: Visitor<'de>>(self, $($arg: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.0.$name($($arg,)* any_visitor(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for StrictObjects<D> {
    type Error = D::Error;

    forwards! {
        deserialize_any();
        deserialize_bool();
        deserialize_i8();
        deserialize_i16();
        deserialize_i32();
        deserialize_i64();
        deserialize_i128();
        deserialize_u8();
        deserialize_u16();
        deserialize_u32();
        deserialize_u64();
        deserialize_u128();
        deserialize_f32();
        deserialize_f64();
        deserialize_char();
        deserialize_str();
        deserialize_string();
        deserialize_bytes();
        deserialize_byte_buf();
        deserialize_option();
        deserialize_unit();
        deserialize_unit_struct(name: &'static str);
        deserialize_newtype_struct(name: &'static str);
        deserialize_seq();
        deserialize_tuple(len: usize);
        deserialize_tuple_struct(name: &'static str, len: usize);
        deserialize_map();
        deserialize_enum(name: &'static str, variants: &'static [&'static str]);
        deserialize_identifier();
        deserialize_ignored_any();
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, struct_visitor(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! visits {
    ($($name:ident ( $type:ty );)*) => {$(
        fn $name<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.visitor.$name(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for StrictVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    visits! {
        visit_bool(bool);
        visit_i8(i8);
        visit_i16(i16);
        visit_i32(i32);
        visit_i64(i64);
        visit_i128(i128);
        visit_u8(u8);
        visit_u16(u16);
        visit_u32(u32);
        visit_u64(u64);
        visit_u128(u128);
        visit_f32(f32);
        visit_f64(f64);
        visit_char(char);
        visit_str(&str);
        visit_borrowed_str(&'de str);
        visit_string(String);
        visit_bytes(&[u8]);
        visit_borrowed_bytes(&'de [u8]);
        visit_byte_buf(Vec<u8>);
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(StrictObjects(value))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_newtype_struct(StrictObjects(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<V::Value, A::Error> {
        if self.is_struct {
            return Err(A::Error::invalid_type(Unexpected::Seq, &"an object"));
        }
        self.visitor.visit_seq(StrictObjects(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(StrictObjects(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(StrictObjects(data))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for StrictObjects<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(StrictObjects(value))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for StrictObjects<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(StrictObjects(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for StrictObjects<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(StrictObjects(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for StrictObjects<A> {
    type Error = A::Error;
    type Variant = StrictObjects<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        self.0.variant_seed(seed).map(|(name, variant)| (name, StrictObjects(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for StrictObjects<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(StrictObjects(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(len, any_visitor(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, struct_visitor(visitor))
    }
}

#[cfg(test)]
mod tests {
    use docket_schema::api::{AppendRequest, SetBudgetRequest};
    use serde::Deserialize as _;

    use super::*;

    fn parse_budget(text: &str) -> Result<SetBudgetRequest, serde_json::Error> {
        SetBudgetRequest::deserialize(StrictObjects(&mut serde_json::Deserializer::from_str(text)))
    }

    #[test]
    fn structs_are_read_from_objects_only_at_any_depth() {
        assert!(parse_budget(r#"{"budget": {"tokens": 5}}"#).is_ok());
        for list in [r#"{"budget": [5, null]}"#, r#"{"budget": []}"#, r#"[{"tokens": 5}, "all"]"#] {
            let error = parse_budget(list).expect_err(list).to_string();
            assert!(error.contains("sequence") && error.contains("object"), "{error}");
        }
    }

    /// Payloads keep their exact text, which takes a separate path in serde.
    #[test]
    fn raw_payload_text_is_preserved() {
        let text = r#"{"epoch": 1, "expected_seq": 3, "events": [{"kind": "Told", "version": 1, "turn": 0, "payload": {"b": [1,  2], "a": 1.0}}]}"#;
        let plain: Result<AppendRequest, _> = serde_json::from_str(text);
        let strict = AppendRequest::deserialize(StrictObjects(&mut serde_json::Deserializer::from_str(text)));
        match (plain, strict) {
            (Ok(plain), Ok(strict)) => {
                let strict = serde_json::to_string(&strict).expect("json");
                assert_eq!(strict, serde_json::to_string(&plain).expect("json"));
                assert!(strict.contains(r#"{"b": [1,  2], "a": 1.0}"#), "{strict}");
            }
            (plain, strict) => panic!("{plain:?} and {strict:?}"),
        }
    }
}
