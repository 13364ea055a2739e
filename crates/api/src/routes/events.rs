//! Events: what a tenant submitted.

mod create;
mod create_raw;
mod get;
mod list;
mod payload;

use std::collections::BTreeMap;

use posthorn_store::read;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) use self::create::{Submitted, submit};
use super::deliveries::Delivery;
use crate::state::ApiState;
use crate::wire::Time;

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::default()
        .routes(routes!(create::create_event, list::list_events))
        .routes(routes!(create_raw::create_raw_event))
        .routes(routes!(get::get_event))
        .routes(routes!(payload::get_event_payload))
}

/// An accepted event.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Event {
    /// Its id, also the `webhook-id` of every request.
    #[schema(example = "evt_01kb6x8v2rhd7t4q9m3n5p6s7v")]
    id: String,
    /// The sender's own name for it.
    uid: Option<String>,
    /// Its type.
    #[serde(rename = "type")]
    #[schema(example = "invoice.paid")]
    type_: String,
    /// The application that it is for.
    application_id: Option<String>,
    /// When it happened, if the sender said so.
    occurred_at: Option<Time>,
    /// When it became durable.
    accepted_at: Time,
    /// Bytes of its payload.
    #[schema(example = 26)]
    size: u32,
    /// What its payload says that it is, as it was submitted and is sent.
    content_type: String,
    /// The version of its type's schema.
    schema_version: Option<u32>,
    /// Pairs that are shown and never sent.
    metadata: BTreeMap<String, String>,
    /// Whether any endpoint wanted it.
    matched: bool,
    /// How many endpoints wanted it.
    #[schema(example = 1)]
    deliveries_count: u32,
    /// Its deliveries, at most 100; null in lists.
    deliveries: Option<Vec<Delivery>>,
}

impl Event {
    fn new(event: read::Event, deliveries: Option<Vec<read::Delivery>>) -> Self {
        let metadata = event
            .metadata
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        Self {
            id: event.id.to_string(),
            uid: event.uid,
            type_: event.event_type,
            application_id: None,
            occurred_at: event.occurred_at.map(Time),
            accepted_at: Time(event.id.minted_at()),
            size: event.size,
            content_type: event.content_type,
            schema_version: None,
            metadata,
            matched: event.deliveries_count > 0,
            deliveries_count: event.deliveries_count,
            deliveries: deliveries
                .map(|deliveries| deliveries.into_iter().map(Delivery::from).collect()),
        }
    }
}
