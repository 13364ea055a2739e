//! Metadata: a few pairs of strings that are kept, shown and searched, and never sent.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::limits;

/// Which rule a pair breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// Over 20 pairs.
    #[error("metadata has at most 20 pairs")]
    TooMany,
    /// A key that is empty or too long.
    #[error("a key of metadata has 1 to 64 characters")]
    Key,
    /// A value that is too long.
    #[error("a value of metadata has at most 500 characters")]
    Value,
    /// A NUL in a key or value: PostgreSQL keeps none.
    #[error("metadata has no NUL character")]
    Nul,
}

/// Pairs of strings, in the order of their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Metadata(BTreeMap<String, String>);

impl Metadata {
    /// Takes the pairs, or says why not.
    ///
    /// # Errors
    ///
    /// [`MetadataError`] names the rule that a pair breaks.
    pub fn parse(pairs: BTreeMap<String, String>) -> Result<Self, MetadataError> {
        if pairs.len() > limits::METADATA_PAIRS {
            return Err(MetadataError::TooMany);
        }
        for (key, value) in &pairs {
            if key.is_empty() || key.chars().count() > limits::METADATA_KEY_CHARS {
                return Err(MetadataError::Key);
            }
            if value.chars().count() > limits::METADATA_VALUE_CHARS {
                return Err(MetadataError::Value);
            }
            if key.contains('\0') || value.contains('\0') {
                return Err(MetadataError::Nul);
            }
        }
        Ok(Self(pairs))
    }

    /// The pairs, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pairs, to be merged with others and parsed again.
    #[must_use]
    pub fn into_pairs(self) -> BTreeMap<String, String> {
        self.0
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(BTreeMap::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
