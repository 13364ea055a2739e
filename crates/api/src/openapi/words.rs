//! Closed lists of words as the document describes them: each word with what it means.
//!
//! The generator keeps the words of an enum and drops what their comments say. `x-enum-descriptions` is where
//! `OpenAPI` Generator looks for it: one text for each word, in their order.

use serde_json::json;
use utoipa::openapi::RefOr;
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};

/// The schema of a string that is one of `words`, each given with its meaning.
pub(crate) fn schema(about: &[&str], words: &[(&str, &[&str])]) -> RefOr<Schema> {
    let joined = |lines: &[&str]| {
        lines
            .iter()
            .map(|line| line.trim())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let meanings: Vec<_> = words.iter().map(|(_, lines)| joined(lines)).collect();
    ObjectBuilder::new()
        .schema_type(SchemaType::new(Type::String))
        .description(Some(joined(about)))
        .enum_values(Some(words.iter().map(|(word, _)| *word)))
        .extensions(Some(
            ExtensionsBuilder::new()
                .add("x-enum-descriptions", json!(meanings))
                .build(),
        ))
        .into()
}

/// Declares a type that stands in the document for a list of words, under the name that is given as a text.
macro_rules! described_words {
    (
        $(#[doc = $about:literal])+
        $visibility:vis $name:ident as $shown:literal {
            $( $(#[doc = $meaning:literal])+ $word:literal, )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug)]
        $visibility enum $name {}

        impl ::utoipa::PartialSchema for $name {
            fn schema() -> ::utoipa::openapi::RefOr<::utoipa::openapi::Schema> {
                $crate::openapi::words::schema(&[$($about),+], &[$(($word, &[$($meaning),+])),+])
            }
        }

        impl ::utoipa::ToSchema for $name {
            fn name() -> ::std::borrow::Cow<'static, str> {
                ::std::borrow::Cow::Borrowed($shown)
            }
        }
    };
}

pub(crate) use described_words;
