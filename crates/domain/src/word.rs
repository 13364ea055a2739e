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
            $( $(#[$variant_meta:meta])* $variant:ident = $word:literal, )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $( $(#[$variant_meta])* $variant, )+
        }

        impl $name {
            /// Every member, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word, as in the API and in SQL.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $word, )+ }
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
    words! {
        /// Two words, for the tests.
        "colour" Colour {
            Red = "red",
            DeepBlue = "deep_blue",
        }
    }

    #[test]
    fn every_word_reads_back_as_its_member() {
        for colour in Colour::ALL {
            assert_eq!(colour.as_str().parse(), Ok(*colour));
        }
    }

    #[test]
    fn a_foreign_word_is_refused_and_the_known_ones_are_listed() {
        assert_eq!(
            "Red".parse::<Colour>().map_err(|e| e.to_string()),
            Err("not a known colour".into())
        );
        let refusal = serde_json::from_str::<Colour>("\"green\"").map_err(|e| e.to_string());
        assert!(matches!(refusal, Err(text) if text.starts_with("expected one of: red deep_blue")));
    }
}
