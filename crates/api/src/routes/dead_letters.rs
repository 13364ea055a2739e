//! Dead letters: deliveries that failed for good.

mod get;
mod list;
mod replay;

use chrono::TimeDelta;
use posthorn_domain::retention::Days;
use posthorn_store::read;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::attempts::AttemptSummary;
use crate::state::ApiState;
use crate::wire::Time;

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::default()
        .routes(routes!(list::list_dead_letters))
        .routes(routes!(get::get_dead_letter))
        .routes(routes!(replay::replay_dead_letter))
}

/// A delivery that failed for good.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DeadLetter {
    /// The delivery's id.
    #[schema(example = "dlv_01kb6x8v2rhd7t4q9m3n5p6s7v01kb6wq3c5e8h2k4n7r9t1v3x5")]
    id: String,
    /// The event.
    event_id: String,
    /// The endpoint.
    endpoint_id: String,
    /// The application that the event is for.
    application_id: Option<String>,
    /// The event's type.
    #[serde(rename = "type")]
    type_: String,
    /// Why it died.
    #[schema(extensions(("x-known-values" = json!(
        ["exhausted", "fatal_status", "gone", "expired", "refused_target", "config", "payload_gone"]
    ))))]
    cause: String,
    /// How many times it died: replays may fail, too.
    deaths: u32,
    /// When it died, the last time.
    died_at: Time,
    /// When retention removes it, at the earliest, unless it dies again.
    expires_at: Time,
    /// Requests that were made.
    attempt_count: u32,
    /// The latest request.
    last_attempt: Option<AttemptSummary>,
    /// The replay that it is part of.
    replay_id: Option<String>,
}

impl DeadLetter {
    /// As it lies there, kept for so many days.
    fn kept(letter: read::DeadLetter, days: Days) -> Self {
        Self {
            id: letter.id.to_string(),
            event_id: letter.id.event.to_string(),
            endpoint_id: letter.id.endpoint.to_string(),
            application_id: None,
            type_: letter.event_type,
            cause: letter.cause,
            deaths: letter.deaths,
            died_at: Time(letter.died_at),
            expires_at: Time(letter.died_at + TimeDelta::days(i64::from(days.get()))),
            attempt_count: letter.attempt_count,
            last_attempt: letter.last_attempt.map(AttemptSummary::from),
            replay_id: None,
        }
    }
}
