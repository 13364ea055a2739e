//! What is wrong with the shape of a body, found along the schema that describes it.
//!
//! A body that its form does not take is read once more, along its schema in the `OpenAPI` document: all its faults are
//! told at once, each at its place and in the words of JSON. No value of the body is repeated, for it may be a secret in a wrong
//! place (INV-10); the names of its fields are. Nothing is built: a value of which the schema says nothing is skipped by a
//! loop, and what is described nests a few levels (INV-11).
//!
//! It looks at kinds, words, numbers, and at which fields there are. What a text means is the handlers' to check.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::body::escape;
use crate::faults::Faults;
use crate::problem::Problem;

/// Notes what is wrong with `raw`, which `schema` describes. References lead into `document`.
///
/// # Errors
/// When a text in it cannot be read: it is JSON by its form, but half of a surrogate pair stands for no character.
pub(crate) fn check(
    document: &Value,
    schema: &Value,
    raw: &RawValue,
    faults: &mut Faults,
) -> Result<(), serde_json::Error> {
    Walk { document, faults }.value(schema, raw, "")
}

/// A kind of JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Null,
    Boolean,
    Number,
    String,
    Array,
    Object,
}

impl Kind {
    /// The kind of a value, which its first byte tells.
    fn of(raw: &RawValue) -> Self {
        match raw.get().as_bytes().first() {
            Some(b'"') => Self::String,
            Some(b'{') => Self::Object,
            Some(b'[') => Self::Array,
            Some(b'n') => Self::Null,
            Some(b't' | b'f') => Self::Boolean,
            _ => Self::Number,
        }
    }

    /// The kind that a schema's `type` names.
    fn named(name: &Value) -> Option<Self> {
        Some(match name.as_str()? {
            "null" => Self::Null,
            "boolean" => Self::Boolean,
            "number" | "integer" => Self::Number,
            "string" => Self::String,
            "array" => Self::Array,
            "object" => Self::Object,
            _ => return None,
        })
    }

    const fn in_words(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "a boolean",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }
}

struct Walk<'a> {
    document: &'a Value,
    faults: &'a mut Faults,
}

impl<'a> Walk<'a> {
    fn value(
        &mut self,
        schema: &'a Value,
        raw: &RawValue,
        at: &str,
    ) -> Result<(), serde_json::Error> {
        let found = Kind::of(raw);
        let schema = self.resolved(schema);
        let fitting = self
            .alternatives(schema)
            .into_iter()
            .find(|schema| kinds(schema).is_none_or(|kinds| kinds.contains(&found)));
        let Some(schema) = fitting else {
            let wanted = self.expected(schema);
            self.invalid(at, &format!("must be {wanted}, not {}", found.in_words()));
            return Ok(());
        };
        if kinds(schema).is_none() {
            return Ok(());
        }
        match found {
            Kind::Object => self.object(schema, raw, at),
            Kind::Array => self.array(schema, raw, at),
            Kind::String => self.word(schema, raw, at),
            Kind::Number => {
                self.number(schema, raw, at);
                Ok(())
            }
            Kind::Null | Kind::Boolean => Ok(()),
        }
    }

    fn object(
        &mut self,
        schema: &'a Value,
        raw: &RawValue,
        at: &str,
    ) -> Result<(), serde_json::Error> {
        let members = members(raw)?;
        let Some(schema) = self.of_its_kind(schema, &members, at)? else {
            return Ok(());
        };
        let properties = schema.get("properties").and_then(Value::as_object);
        let others = schema
            .get("additionalProperties")
            .filter(|others| others.is_object());
        let mut seen = BTreeSet::new();
        for (name, value) in &members {
            let place = format!("{at}/{}", escape(name));
            let described = properties.and_then(|properties| properties.get(name.as_ref()));
            if !seen.insert(name.as_ref()) {
                let detail = format!("{place} stands twice");
                self.faults.add(place, Problem::FieldDuplicate, detail);
            } else if let Some(described) = described.or(others) {
                self.value(described, value, &place)?;
            } else {
                let detail = format!("{place} is not a field that is known here");
                self.faults.add(place, Problem::FieldUnknown, detail);
            }
        }
        let required = schema.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !seen.contains(name) {
                let place = format!("{at}/{}", escape(name));
                let wanted = properties.and_then(|properties| properties.get(name));
                let wanted = wanted.map_or_else(String::new, |schema| self.expected(schema));
                let detail = format!("{place} is missing: it must be {wanted}");
                self.faults.add(place, Problem::FieldMissing, detail);
            }
        }
        Ok(())
    }

    /// The schema of an object that may be one of several, told apart by a field. Nothing, and a fault, where it is none of them.
    fn of_its_kind(
        &mut self,
        schema: &'a Value,
        members: &[(Cow<'_, str>, &RawValue)],
        at: &str,
    ) -> Result<Option<&'a Value>, serde_json::Error> {
        let Some(field) = schema
            .pointer("/discriminator/propertyName")
            .and_then(Value::as_str)
        else {
            return Ok(Some(schema));
        };
        let mapping = schema
            .pointer("/discriminator/mapping")
            .and_then(Value::as_object);
        let words: Vec<_> = mapping
            .into_iter()
            .flatten()
            .map(|(word, _)| word.as_str())
            .collect();
        let place = format!("{at}/{}", escape(field));
        let Some((_, raw)) = members.iter().find(|(name, _)| name == field) else {
            let detail = format!("{place} is missing: it must be {}", one_of(&words));
            self.faults.add(place, Problem::FieldMissing, detail);
            return Ok(None);
        };
        if Kind::of(raw) == Kind::String {
            let word: Cow<'_, str> = serde_json::from_str(raw.get())?;
            let path = mapping
                .and_then(|mapping| mapping.get(word.as_ref()))
                .and_then(Value::as_str);
            if let Some(path) = path {
                return Ok(self.document.pointer(path.trim_start_matches('#')));
            }
        }
        self.invalid(&place, &format!("must be {}", one_of(&words)));
        Ok(None)
    }

    fn array(
        &mut self,
        schema: &'a Value,
        raw: &RawValue,
        at: &str,
    ) -> Result<(), serde_json::Error> {
        let Some(items) = schema.get("items") else {
            return Ok(());
        };
        let Elements(elements) =
            serde_json::Deserializer::from_str(raw.get()).deserialize_seq(ElementsVisitor)?;
        for (index, element) in elements.into_iter().enumerate() {
            self.value(items, element, &format!("{at}/{index}"))?;
        }
        Ok(())
    }

    fn word(
        &mut self,
        schema: &'a Value,
        raw: &RawValue,
        at: &str,
    ) -> Result<(), serde_json::Error> {
        let Some(words) = words(schema) else {
            return Ok(());
        };
        let text: Cow<'_, str> = serde_json::from_str(raw.get())?;
        if !words.contains(&text.as_ref()) {
            self.invalid(at, &format!("must be {}", one_of(&words)));
        }
        Ok(())
    }

    fn number(&mut self, schema: &'a Value, raw: &RawValue, at: &str) {
        let text = raw.get();
        let whole = !text.contains(['.', 'e', 'E']) && text != "-0";
        let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
        // A number that no machine has is beyond every bound.
        let number: f64 = text.parse().unwrap_or(f64::INFINITY);
        let within = number.is_finite()
            && bound("minimum").is_none_or(|least| number >= least)
            && bound("maximum").is_none_or(|most| number <= most);
        if !within || (is_integer(schema) && !whole) {
            let wanted = self.expected(schema);
            self.invalid(at, &format!("must be {wanted}"));
        }
    }

    fn invalid(&mut self, at: &str, words: &str) {
        let named = if at.is_empty() { "the body" } else { at };
        self.faults
            .add(at, Problem::FieldInvalid, format!("{named} {words}"));
    }

    /// The schema that a reference leads to.
    fn resolved(&self, schema: &'a Value) -> &'a Value {
        let path = schema.get("$ref").and_then(Value::as_str);
        path.and_then(|path| self.document.pointer(path.trim_start_matches('#')))
            .unwrap_or(schema)
    }

    /// The schemas of which a value fits one. Where a field tells them apart they are one here.
    fn alternatives(&self, schema: &'a Value) -> Vec<&'a Value> {
        let members = schema.get("anyOf").or_else(|| schema.get("oneOf"));
        match members.and_then(Value::as_array) {
            Some(members) if schema.get("discriminator").is_none() => members
                .iter()
                .flat_map(|member| self.alternatives(self.resolved(member)))
                .collect(),
            _ => vec![schema],
        }
    }

    /// What a schema takes, in words.
    fn expected(&self, schema: &'a Value) -> String {
        let alternatives = self.alternatives(self.resolved(schema));
        let words: Vec<_> = alternatives.into_iter().map(expected).collect();
        words.join(" or ")
    }
}

/// The kinds that a schema takes; nothing where it takes all.
fn kinds(schema: &Value) -> Option<Vec<Kind>> {
    if schema.get("discriminator").is_some() {
        return Some(vec![Kind::Object]);
    }
    match schema.get("type")? {
        Value::Array(names) => Some(names.iter().filter_map(Kind::named).collect()),
        name => Some(vec![Kind::named(name)?]),
    }
}

fn is_integer(schema: &Value) -> bool {
    let named = |name: &Value| name == "integer";
    match schema.get("type") {
        Some(Value::Array(names)) => names.iter().any(named),
        Some(name) => named(name),
        None => false,
    }
}

fn words(schema: &Value) -> Option<Vec<&str>> {
    let words = schema.get("enum")?.as_array()?;
    Some(words.iter().filter_map(Value::as_str).collect())
}

fn expected(schema: &Value) -> String {
    let Some(kinds) = kinds(schema) else {
        return "a JSON value".to_owned();
    };
    let describe = |kind: Kind| match kind {
        Kind::String if words(schema).is_some() => one_of(&words(schema).unwrap_or_default()),
        Kind::Number => number_words(schema),
        _ => kind.in_words().to_owned(),
    };
    let all: Vec<_> = kinds.into_iter().map(describe).collect();
    all.join(" or ")
}

fn number_words(schema: &Value) -> String {
    let whole = if is_integer(schema) {
        "a whole number"
    } else {
        "a number"
    };
    match (schema.get("minimum"), schema.get("maximum")) {
        (Some(least), Some(most)) => format!("{whole} from {least} to {most}"),
        (Some(least), None) => format!("{whole} of at least {least}"),
        (None, Some(most)) => format!("{whole} of at most {most}"),
        (None, None) => whole.to_owned(),
    }
}

fn one_of(words: &[&str]) -> String {
    match words {
        [one] => format!("`{one}`"),
        words => format!("one of `{}`", words.join("`, `")),
    }
}

/// A name and its value, as it is written.
pub(crate) type Member<'a> = (Cow<'a, str>, &'a RawValue);

/// The members of a value that is an object, in their order, as they are written.
pub(crate) fn members(raw: &RawValue) -> Result<Vec<Member<'_>>, serde_json::Error> {
    let read = serde_json::Deserializer::from_str(raw.get()).deserialize_map(MembersVisitor);
    read.map(|Members(members)| members)
}

struct Members<'a>(Vec<Member<'a>>);

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some(Name(name)) = map.next_key()? {
            members.push((name, map.next_value()?));
        }
        Ok(Members(members))
    }
}

/// A name, borrowed where it is written without escapes.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

struct Elements<'a>(Vec<&'a RawValue>);

struct ElementsVisitor;

impl<'de> Visitor<'de> for ElementsVisitor {
    type Value = Elements<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Elements<'de>, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element()? {
            elements.push(element);
        }
        Ok(Elements(elements))
    }
}

#[cfg(test)]
mod tests;
