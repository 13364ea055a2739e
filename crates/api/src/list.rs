//! What all lists share: `limit`, `cursor`, `order`, and the page that answers them.

use posthorn_domain::id::{AuditId, EndpointId, EventId, KeyId};
use posthorn_domain::limits;
use posthorn_store::read::{AttemptKey, DeadLetterKey, Edge, Order, Page, Slice};
use posthorn_store::scope::TenantScope;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::cursor::{self, CursorKey, Side};
use crate::openapi::words::described_words;
use crate::problem::Problem;
use crate::query::Parameters;

/// The parameters of every list, for the document alone: [`ListQuery::take`] reads them.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the query; Parameters reads it")]
pub(crate) struct ListParameters {
    /// Rows of a page.
    #[param(minimum = 1, maximum = 250, default = 50)]
    limit: Option<u32>,
    /// `next_cursor` or `prev_cursor` of a page of the same list, filter and order.
    cursor: Option<String>,
    /// `desc` (default): the newest first; `asc`: the oldest first.
    #[param(inline)]
    order: Option<OrderWord>,
}

described_words! {
    /// The words of `order`.
    pub(crate) OrderWord as "Order" {
        /// The oldest first.
        "asc",
        /// The newest first. The default.
        "desc",
    }
}

/// Which part of a list was asked for, and what its cursors are bound to.
#[derive(Debug)]
pub(crate) struct ListQuery<K> {
    /// The part.
    pub slice: Slice<K>,
    binding: String,
}

impl<K: CursorKey + Copy> ListQuery<K> {
    /// Takes the three parameters out of a query. `list` names the list, `filter` all that narrows it; cursors of
    /// another list, filter, order or tenant are refused.
    pub(crate) fn take(
        query: &mut Parameters,
        tenant: TenantScope,
        list: &str,
        filter: &str,
    ) -> Self {
        let order = take_order(query);
        let binding = format!("{}\n{list}\n{filter}\n{order:?}", tenant.tenant());
        let limit = take_limit(query);
        let edge = match query.text("cursor") {
            None => Edge::Start,
            Some(text) => match cursor::decode(&text, &binding) {
                Some((Side::After, key)) => Edge::After(key),
                Some((Side::Before, key)) => Edge::Before(key),
                None => {
                    let detail = "not a cursor of this list with this filter and order";
                    query.fault("cursor", Problem::CursorInvalid, detail);
                    Edge::Start
                }
            },
        };
        Self {
            slice: Slice { order, edge, limit },
            binding,
        }
    }

    /// The cursors of a page: to the rows after it and before it, where there are any.
    pub(crate) fn cursors<T>(&self, page: &Page<T>, key: impl Fn(&T) -> K) -> Cursors {
        let to =
            |side, row: Option<&T>| row.map(|row| cursor::encode(side, &key(row), &self.binding));
        Cursors {
            next_cursor: page
                .after
                .then(|| to(Side::After, page.rows.last()))
                .flatten(),
            prev_cursor: page
                .before
                .then(|| to(Side::Before, page.rows.first()))
                .flatten(),
        }
    }
}

/// Where the pages around one begin.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Cursors {
    /// The page after this one; null on the last.
    pub next_cursor: Option<String>,
    /// The page before this one; null on the first.
    pub prev_cursor: Option<String>,
}

fn take_order(query: &mut Parameters) -> Order {
    match query.text("order").as_deref() {
        None | Some("desc") => Order::NewestFirst,
        Some("asc") => Order::OldestFirst,
        Some(_) => {
            query.fault(
                "order",
                Problem::ParameterInvalid,
                "order must be asc or desc",
            );
            Order::NewestFirst
        }
    }
}

fn take_limit(query: &mut Parameters) -> u32 {
    let limit = query
        .parsed::<u32>("limit", "a whole number from 1 to 250")
        .unwrap_or(limits::LIST_DEFAULT);
    if (1..=limits::LIST_MAX).contains(&limit) {
        return limit;
    }
    query.fault(
        "limit",
        Problem::ParameterInvalid,
        format!("limit must be from 1 to {}", limits::LIST_MAX),
    );
    limits::LIST_DEFAULT
}

fn uuid_at(bytes: &[u8], at: usize) -> Option<Uuid> {
    Uuid::from_slice(bytes.get(at..at.checked_add(16)?)?).ok()
}

macro_rules! id_keys {
    ($($id:ty),+) => {
        $(impl CursorKey for $id {
            fn to_bytes(&self) -> Vec<u8> {
                self.uuid().as_bytes().to_vec()
            }

            fn from_bytes(bytes: &[u8]) -> Option<Self> {
                Uuid::from_slice(bytes).ok().map(Self::from_uuid)
            }
        })+
    };
}

id_keys!(AuditId, EndpointId, EventId, KeyId);

impl CursorKey for AttemptKey {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.event.uuid().as_bytes().to_vec();
        bytes.extend(self.endpoint.uuid().as_bytes());
        bytes.extend(self.id.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            event: EventId::from_uuid(uuid_at(bytes, 0)?),
            endpoint: EndpointId::from_uuid(uuid_at(bytes, 16)?),
            id: i64::from_be_bytes(bytes.get(32..)?.try_into().ok()?),
        })
    }
}

impl CursorKey for DeadLetterKey {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.event.uuid().as_bytes().to_vec();
        bytes.extend(self.endpoint.uuid().as_bytes());
        bytes.extend(self.died_at.timestamp_micros().to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let micros = i64::from_be_bytes(bytes.get(32..)?.try_into().ok()?);
        Some(Self {
            died_at: chrono::DateTime::from_timestamp_micros(micros)?,
            event: EventId::from_uuid(uuid_at(bytes, 0)?),
            endpoint: EndpointId::from_uuid(uuid_at(bytes, 16)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_survives_its_cursor() {
        let (event, endpoint) = (
            EventId::from_uuid(Uuid::from_u128(1)),
            EndpointId::from_uuid(Uuid::from_u128(2)),
        );
        let attempt = AttemptKey {
            event,
            endpoint,
            id: (3 << 32) | 4,
        };
        assert_eq!(AttemptKey::from_bytes(&attempt.to_bytes()), Some(attempt));
        let died_at = chrono::DateTime::from_timestamp_micros(1_234_567_890_123_456).unwrap();
        let letter = DeadLetterKey {
            died_at,
            event,
            endpoint,
        };
        assert_eq!(DeadLetterKey::from_bytes(&letter.to_bytes()), Some(letter));
        assert_eq!(EventId::from_bytes(&event.to_bytes()), Some(event));
        assert_eq!(EndpointId::from_bytes(&endpoint.to_bytes()), Some(endpoint));
    }

    #[test]
    fn a_key_cut_short_is_none() {
        assert_eq!(AttemptKey::from_bytes(&[0; 39]), None);
        assert_eq!(DeadLetterKey::from_bytes(&[0; 41]), None);
        assert_eq!(EventId::from_bytes(&[0; 15]), None);
    }
}
