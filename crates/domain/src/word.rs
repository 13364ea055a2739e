//! Closed lists of words: enums whose variants have one spelling in the API, in SQL and in metrics.
//!
//! The macro keeps the enum, its spelling and the list of all its members in one place, so that they
//! cannot drift apart.

/// A text that is none of the words of its list. The text is not kept: it came from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a known {kind}")]
pub struct WordError {
    /// What was looked for, in plain words.
    pub kind: &'static str,
}

/// Declares an enum of words with `ALL`, `as_str`, `Display`, `FromStr` and serde as the word.
macro_rules! words {
    (
        $(#[$meta:meta])*
        $kind:literal $name:ident {
            $( $(#[doc = $meaning:literal])+ $variant:ident = $word:literal, )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $( $(#[doc = $meaning])+ $variant, )+
        }

        impl $name {
            /// Every member, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word, as in the API and in SQL.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $word, )+ }
            }

            /// What the word means: the text that documents it.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $( Self::$variant => concat!($($meaning),+).trim_ascii(), )+ }
            }
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl ::core::str::FromStr for $name {
            type Err = $crate::word::WordError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $( $word => Ok(Self::$variant), )+
                    _ => Err($crate::word::WordError { kind: $kind }),
                }
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = <::std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                word.parse().map_err(|_| {
                    ::serde::de::Error::custom(concat!("expected one of:" $(, " ", $word)+))
                })
            }
        }
    };
}

pub(crate) use words;

#[cfg(test)]
mod tests {
    use crate::endpoint::KeepResponses;
    use crate::scope::Scope;

    #[test]
    fn every_word_reads_back_as_its_member() {
        for scope in Scope::ALL {
            assert_eq!(scope.as_str().parse(), Ok(*scope));
            assert_eq!(
                serde_json::from_str::<Scope>(&format!("\"{scope}\"")).unwrap(),
                *scope
            );
        }
    }

    #[test]
    fn a_foreign_word_is_refused_and_the_known_ones_are_listed() {
        let refusal = "All".parse::<KeepResponses>().unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "not a known choice of responses to keep"
        );
        let refusal = serde_json::from_str::<KeepResponses>("\"some\"")
            .unwrap_err()
            .to_string();
        assert!(
            refusal.starts_with("expected one of: failures all none"),
            "{refusal}"
        );
    }
}
