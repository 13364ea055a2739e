//! Forms that several objects share: times, ids in paths, pairs of strings, null kept apart from absent.

use std::collections::BTreeMap;
use std::str::FromStr;

use axum::extract::{FromRequestParts, RawPathParams};
use chrono::{DateTime, Datelike as _, SecondsFormat, Utc};
use http::request::Parts;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::problem::{Failure, Problem};

/// A moment in an answer: RFC 3339, UTC, always six digits of the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time(pub DateTime<Utc>);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_rfc3339_opts(SecondsFormat::Micros, true))
    }
}

impl PartialSchema for Time {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::new(Type::String))
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .description(Some(
                "A moment: RFC 3339 in UTC with six digits of the second.",
            ))
            .examples([serde_json::json!("2026-01-31T09:30:00.000000Z")])
            .into()
    }
}

impl ToSchema for Time {}

/// Bytes of any kind, as the document describes them. Client generators know no other word for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binary;

impl PartialSchema for Binary {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::new(Type::String))
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)))
            .into()
    }
}

impl ToSchema for Binary {}

/// Reads a moment as RFC 3339 writes it, to the microsecond.
///
/// Nothing where it is none, and where it could not be given back: an offset may push it out of the years 0 to 9999 of
/// UTC, which RFC 3339 cannot write. A leap second is the second after it, as PostgreSQL has it.
pub(crate) fn moment(text: &str) -> Option<DateTime<Utc>> {
    let read = DateTime::parse_from_rfc3339(text).ok()?;
    let time = DateTime::from_timestamp_micros(read.timestamp_micros())?;
    (0..=9999).contains(&time.year()).then_some(time)
}

/// The one id in a path. A text that is no id of the right kind names nothing, so it is answered as an unknown
/// id is.
#[derive(Debug)]
pub(crate) struct Id<T>(pub T);

impl<S: Send + Sync, T: FromStr> FromRequestParts<S> for Id<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let unknown = || Failure::new(Problem::NotFound);
        let params = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|_| unknown())?;
        let (_, text) = params.iter().next().ok_or_else(unknown)?;
        text.parse().map(Self).map_err(|_| unknown())
    }
}

/// A field that may be absent but not null: for `#[serde(default, deserialize_with = "present")]`.
pub(crate) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A field of a merge patch that may be null: for `#[serde(default)]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Change<T> {
    /// It is not there, and nothing changes.
    #[default]
    Absent,
    /// It is null: the value is cleared.
    Null,
    /// It is this.
    Value(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Change<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<T>::deserialize(deserializer).map(|value| value.map_or(Self::Null, Self::Value))
    }
}

impl<T> Change<T> {
    /// The new value where there is a change; null is `default`'s.
    pub(crate) fn or(self, default: impl FnOnce() -> T) -> Option<T> {
        match self {
            Self::Absent => None,
            Self::Null => Some(default()),
            Self::Value(value) => Some(value),
        }
    }
}

/// A `T` that is written as a JSON object: an array would be taken for its fields in their order, which nobody may
/// rely on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(std::marker::PhantomData))
    }
}

struct ObjectVisitor<T>(std::marker::PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// A JSON object of `T`, each name once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pairs<T>(pub BTreeMap<String, T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pairs<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor(std::marker::PhantomData))
    }
}

struct PairsVisitor<T>(std::marker::PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for PairsVisitor<T> {
    type Value = Pairs<T>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<T>, A::Error> {
        let mut pairs = BTreeMap::new();
        while let Some((name, value)) = map.next_entry::<String, T>()? {
            let shown = format!("duplicate field `{name}`");
            if pairs.insert(name, value).is_some() {
                return Err(A::Error::custom(shown));
            }
        }
        Ok(Pairs(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Patch {
        a: Change<u8>,
        #[serde(deserialize_with = "present")]
        b: Option<u8>,
    }

    #[test]
    fn null_is_kept_apart_from_absent() {
        let read = |text| serde_json::from_str::<Patch>(text);
        assert_eq!(read("{}").unwrap().a, Change::Absent);
        assert_eq!(read(r#"{"a":null}"#).unwrap().a, Change::Null);
        assert_eq!(read(r#"{"a":1}"#).unwrap().a, Change::Value(1));
        assert!(read(r#"{"b":null}"#).is_err());
    }

    #[test]
    fn an_object_is_not_read_from_an_array() {
        let read = |text| serde_json::from_str::<Object<Patch>>(text);
        assert_eq!(read(r#"{"b":1}"#).unwrap().0.b, Some(1));
        assert!(read("[1,1]").is_err());
        assert!(read("null").is_err());
    }

    #[test]
    fn a_time_has_six_digits_always() {
        let time = Time(DateTime::UNIX_EPOCH);
        assert_eq!(
            serde_json::to_string(&time).unwrap(),
            r#""1970-01-01T00:00:00.000000Z""#
        );
    }

    #[test]
    fn a_pair_that_stands_twice_is_refused() {
        assert!(serde_json::from_str::<Pairs<String>>(r#"{"a":"1","a":"2"}"#).is_err());
        assert!(serde_json::from_str::<Pairs<String>>(r#"{"a":1}"#).is_err());
    }
}
