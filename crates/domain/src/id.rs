//! Ids: a prefix that says what is meant, and a `UUIDv7` that says when it was made.
//!
//! Text: the prefix, `_`, and the 128 bits as 26 characters of lower-case Crockford base32, most
//! significant first, so that ids sort by time as text, as UUID and as value alike. One value has one
//! text. The bits are those of RFC 9562 version 7: 48 bits of Unix milliseconds, then in `rand_a` the
//! microseconds inside the millisecond, scaled to 12 bits and rounded up (method 3 of section 6.2), so
//! that the whole microsecond is read back exactly; then 62 random bits.
//!
//! A delivery is the pair of event and endpoint and has no id of its own making; an attempt is a
//! delivery, a number and a nonce.

use core::fmt;
use core::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

use crate::crockford::{self, DecodeError};

mod map;
mod prefix;

pub use self::map::{IdMap, IdSet};
pub use self::prefix::Prefix;

/// Why a text is not an id. The text itself is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// It does not begin with the right prefix and `_`.
    #[error("an id that begins with {expected}_ is wanted")]
    Prefix {
        /// The prefix that was wanted.
        expected: &'static str,
    },
    /// It has too few or too many characters after the prefix.
    #[error("the id has the wrong length")]
    Length,
    /// It has a character outside lower-case Crockford base32.
    #[error("the id has a character that no id has")]
    Character,
    /// It stands for more than 128 bits.
    #[error("the id is over 128 bits")]
    Overflow,
    /// The number of an attempt is not 1 to 2147483647 in plain decimal.
    #[error("the number in the attempt's id is not a number of an attempt")]
    Number,
    /// The nonce of an attempt is not 16 lower-case hex digits.
    #[error("the last part of the attempt's id is not 16 hex digits")]
    Nonce,
}

impl From<DecodeError> for IdError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Length => Self::Length,
            DecodeError::Character => Self::Character,
            DecodeError::Overflow => Self::Overflow,
        }
    }
}

macro_rules! ids {
    ($( $(#[$meta:meta])* $name:ident = $prefix:ident; )+) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// What its text begins with.
            pub const PREFIX: Prefix = Prefix::$prefix;

            /// Makes an id of the moment `at` (whole microseconds count) with 62 of the given random bits.
            #[must_use]
            pub fn mint(at: DateTime<Utc>, random: [u8; 8]) -> Self {
                Self(mint(at, random))
            }

            /// Takes the bits as they are.
            #[must_use]
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The 128 bits, as the database keeps them.
            #[must_use]
            pub const fn uuid(self) -> Uuid {
                self.0
            }

            /// The moment that it was minted at, to the microsecond.
            #[must_use]
            pub fn minted_at(self) -> DateTime<Utc> {
                minted_at(self.0)
            }

            /// A bound for time filters: an id is at or above it exactly when it was minted at or after `at`.
            ///
            /// For whole milliseconds it is the same value as SQL's `posthorn_uuid_floor`.
            #[must_use]
            pub fn floor_at(at: DateTime<Utc>) -> Self {
                Self(floor_at(at))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&text(Self::PREFIX, &[self.0]))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Ok(Self(parse_bits(strip(text, Self::PREFIX)?)?))
            }
        }

        serde_as_text!($name);
    )+ };
}

macro_rules! serde_as_text {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    };
}

ids! {
    /// An accepted event; its text is the `webhook-id` of every attempt.
    EventId = Event;
    /// An endpoint.
    EndpointId = Endpoint;
    /// A tenant.
    TenantId = Tenant;
    /// An application.
    ApplicationId = Application;
    /// An API key (its record, not the key).
    KeyId = Key;
    /// A replay.
    ReplayId = Replay;
    /// An entry of the audit log.
    AuditId = Audit;
    /// A signing secret of an endpoint. Internal.
    SecretId = Secret;
    /// A node. Internal.
    NodeId = Node;
}

impl EndpointId {
    /// The shard that the endpoint belongs to: the last byte of its id, the same in SQL.
    #[must_use]
    pub const fn shard(self) -> u8 {
        let [.., last] = *self.0.as_bytes();
        last
    }
}

/// One event for one endpoint. Text: `dlv_`, the event's 26 characters, the endpoint's 26.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId {
    /// The event.
    pub event: EventId,
    /// The endpoint.
    pub endpoint: EndpointId,
}

impl fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(Prefix::Delivery, &[self.event.0, self.endpoint.0]))
    }
}

impl fmt::Debug for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for DeliveryId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        parse_pair(strip(text, Prefix::Delivery)?)
    }
}

serde_as_text!(DeliveryId);

/// One HTTP request of a delivery. Text: `att_`, the delivery's 52 characters, `-`, n, `-`, the nonce as 16 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// The delivery that it is of.
    pub delivery: DeliveryId,
    /// Its number in the delivery's whole life, from 1. Two requests can carry the same number.
    pub n: u32,
    /// Random: tells two requests of one number apart.
    pub nonce: u64,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let delivery = text(
            Prefix::Attempt,
            &[self.delivery.event.0, self.delivery.endpoint.0],
        );
        write!(f, "{delivery}-{}-{:016x}", self.n, self.nonce)
    }
}

impl fmt::Debug for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for AttemptId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let mut parts = strip(text, Prefix::Attempt)?.splitn(3, '-');
        let delivery = parse_pair(parts.next().unwrap_or_default())?;
        let n = parse_number(parts.next().ok_or(IdError::Length)?)?;
        let nonce = parse_nonce(parts.next().ok_or(IdError::Length)?)?;
        Ok(Self { delivery, n, nonce })
    }
}

serde_as_text!(AttemptId);

/// Highest millisecond that 48 bits hold: the year 10889.
const MAX_MILLIS: u64 = (1 << 48) - 1;

/// Milliseconds since 1970 and the microseconds inside the last, kept within what an id can hold.
fn split(at: DateTime<Utc>) -> (u64, u64) {
    let micros = u64::try_from(at.timestamp_micros()).unwrap_or(0);
    (micros / 1000, micros % 1000)
}

/// The microseconds inside a millisecond as 12 bits, rounded up: `micros_of` gives them back exactly.
const fn scaled(micros: u64) -> u64 {
    (micros * 4096).div_ceil(1000)
}

fn mint(at: DateTime<Utc>, random: [u8; 8]) -> Uuid {
    let (millis, micros) = split(at);
    let low = (u64::from_be_bytes(random) >> 2) | (0b10 << 62);
    bits(millis, 0x7000 | scaled(micros), low)
}

fn floor_at(at: DateTime<Utc>) -> Uuid {
    // An id holds whole microseconds: the first that is not before `at` is the next one when `at` has a rest.
    let rest = at.timestamp_subsec_nanos() % 1000;
    let up = chrono::TimeDelta::nanoseconds(if rest == 0 { 0 } else { i64::from(1000 - rest) });
    let at = at.checked_add_signed(up).unwrap_or(at);
    let (millis, micros) = split(at);
    bits(
        millis,
        if micros == 0 {
            0
        } else {
            0x7000 | scaled(micros)
        },
        0,
    )
}

fn bits(millis: u64, middle: u64, low: u64) -> Uuid {
    let high = (millis.min(MAX_MILLIS) << 16) | middle;
    Uuid::from_u64_pair(high, low)
}

fn minted_at(uuid: Uuid) -> DateTime<Utc> {
    let (high, _) = uuid.as_u64_pair();
    let micros = ((high & 0xfff) * 1000) / 4096;
    let total = (high >> 16) * 1000 + micros;
    i64::try_from(total)
        .ok()
        .and_then(DateTime::from_timestamp_micros)
        .unwrap_or_default()
}

fn text(prefix: Prefix, parts: &[Uuid]) -> String {
    let mut out = String::with_capacity(4 + parts.len() * crockford::U128_LEN);
    out.push_str(prefix.as_str());
    out.push('_');
    for part in parts {
        crockford::push_u128(&mut out, part.as_u128());
    }
    out
}

fn strip(text: &str, prefix: Prefix) -> Result<&str, IdError> {
    text.strip_prefix(prefix.as_str())
        .and_then(|rest| rest.strip_prefix('_'))
        .ok_or(IdError::Prefix {
            expected: prefix.as_str(),
        })
}

fn parse_bits(text: &str) -> Result<Uuid, IdError> {
    Ok(Uuid::from_u128(crockford::parse_u128(text)?))
}

fn parse_pair(text: &str) -> Result<DeliveryId, IdError> {
    if text.len() != 2 * crockford::U128_LEN {
        return Err(IdError::Length);
    }
    let (event, endpoint) = text
        .split_at_checked(crockford::U128_LEN)
        .ok_or(IdError::Character)?;
    Ok(DeliveryId {
        event: EventId(parse_bits(event)?),
        endpoint: EndpointId(parse_bits(endpoint)?),
    })
}

fn parse_number(text: &str) -> Result<u32, IdError> {
    // The database's integer is the bound, and one number has one text.
    let plain =
        text.len() <= 10 && !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
    let number: i32 = if plain {
        text.parse().map_err(|_| IdError::Number)?
    } else {
        0
    };
    u32::try_from(number)
        .ok()
        .filter(|&n| n >= 1)
        .ok_or(IdError::Number)
}

fn parse_nonce(text: &str) -> Result<u64, IdError> {
    let hex = text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !hex {
        return Err(IdError::Nonce);
    }
    u64::from_str_radix(text, 16).map_err(|_| IdError::Nonce)
}

#[cfg(test)]
mod tests;
