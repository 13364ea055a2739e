//! What each metric is, for whoever reads `/metrics` and for what reads it: its `# HELP` and `# TYPE` lines.
//!
//! Every metric of the program has a line here; `docs/watching.md` says more.

use metrics::{describe_counter, describe_gauge, describe_histogram};

/// Name and help of what only grows.
const COUNTERS: [(&str, &str); 8] = [
    (
        "posthorn_events_accepted_total",
        "Events that this node wrote.",
    ),
    (
        "posthorn_events_held_back_total",
        "Events that waited to be accepted, for this node was behind with their endpoints.",
    ),
    (
        "posthorn_attempts_total",
        "Requests to endpoints whose results are on record.",
    ),
    (
        "posthorn_requests_refused_total",
        "Requests that a receiver did nothing with (HTTP/2); each was sent once more at once.",
    ),
    (
        "posthorn_forward_proxy_failures_total",
        "Connections that the forward proxy failed to open for a reason of its own.",
    ),
    (
        "posthorn_dead_letters_total",
        "Deliveries that failed for good.",
    ),
    (
        "posthorn_deliveries_parked_total",
        "Deliveries that were set aside before their first request.",
    ),
    (
        "posthorn_results_refused_total",
        "Results that the database refuses. Each is a fault of Posthorn's.",
    ),
];

/// The same of what goes up and down.
const GAUGES: [(&str, &str); 11] = [
    ("posthorn_build_info", "The version that runs; always 1."),
    (
        "posthorn_requests_in_flight",
        "Requests to endpoints under way.",
    ),
    (
        "posthorn_deliveries_in_memory",
        "Deliveries that this node holds: queued, under way, or not on record yet.",
    ),
    (
        "posthorn_pending_rows",
        "Deliveries that are retried, parked or replayed, as PostgreSQL counts them.",
    ),
    (
        "posthorn_pending_dead_rows",
        "Dead rows of pending that were not cleaned up yet.",
    ),
    (
        "posthorn_leaves_ahead_days",
        "Days after today for which there are partitions.",
    ),
    (
        "posthorn_oldest_snapshot_transactions",
        "Transactions since the oldest one that keeps dead rows from being cleaned up.",
    ),
    (
        "posthorn_oldest_snapshot_seconds",
        "For how long one and the same transaction has kept dead rows from being cleaned up.",
    ),
    (
        "posthorn_housekeeping_age_seconds",
        "Since when no round of housekeeping came to its end.",
    ),
    (
        "posthorn_oldest_due_seconds",
        "For how long the delivery that is most overdue has been due.",
    ),
    (
        "posthorn_oldest_events_seconds",
        "The age of the oldest day in the log.",
    ),
];

/// The same of what is counted by its size.
const HISTOGRAMS: [(&str, &str); 3] = [
    (
        "posthorn_flush_rows",
        "Rows of one statement that accepts events.",
    ),
    (
        "posthorn_record_rows",
        "Rows of one transaction that records results.",
    ),
    (
        "posthorn_load_rows",
        "Rows of one statement that reads deliveries for sending.",
    ),
];

/// Tells the recorder that is in place.
pub(super) fn describe() {
    for (name, help) in COUNTERS {
        describe_counter!(name, help);
    }
    for (name, help) in GAUGES {
        describe_gauge!(name, help);
    }
    for (name, help) in HISTOGRAMS {
        describe_histogram!(name, help);
    }
}
