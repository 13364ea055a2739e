-- The deliveries of one event, for its endpoints from $3 (inclusive) to $4 (exclusive), upward.
-- Every part of a delivery is probed by key: LIMIT and the aggregate keep the planner from joining whole tables.
WITH
-- The event, wherever it is kept.
event AS MATERIALIZED (
    SELECT type, endpoints FROM events WHERE tenant_id = $1 AND id = $2
    UNION ALL
    SELECT type, endpoints FROM kept_events WHERE tenant_id = $1 AND id = $2
    LIMIT 1
),
page AS MATERIALIZED (
    SELECT event.type, x.endpoint_id
    FROM event, unnest(event.endpoints) AS x (endpoint_id)
    WHERE x.endpoint_id >= $3 AND x.endpoint_id < $4
    ORDER BY x.endpoint_id ASC
    LIMIT $5
)
SELECT page.endpoint_id AS "endpoint_id!",
       page.type AS "event_type!",
       endpoint.max_age_s AS "max_age_s?",
       coalesce(endpoint.deleted, true) AS "deleted!",
       endpoint.state AS "endpoint_state?",
       waits.tenant_id IS NOT NULL AS "pending!",
       waits.due AS "due?",
       waits.why AS "why?",
       waits.ends_at AS "ends_at?",
       letter.tenant_id IS NOT NULL AS "dead_letter!",
       made.attempts AS "attempts!",
       made.delivered_at AS "delivered_at?",
       coalesce(made.dead, false) AS "dead_verdict!",
       coalesce(made.cancelled, false) AS "cancelled!",
       coalesce(made.discarded, false) AS "discarded!",
       latest.n AS "last_n?",
       latest.id AS "last_id?",
       latest.at AS "last_at?",
       latest.trigger AS "last_trigger?",
       latest.outcome AS "last_outcome?",
       latest.status AS "last_status?",
       latest.error_kind AS "last_error_kind?",
       latest.error_detail AS "last_error_detail?",
       latest.duration_ms AS "last_duration_ms?"
FROM page
LEFT JOIN LATERAL (
    SELECT e.max_age_s, e.state, e.deleted_at IS NOT NULL AS deleted
    FROM endpoints e
    WHERE e.tenant_id = $1 AND e.id = page.endpoint_id
    LIMIT 1
) AS endpoint ON true
LEFT JOIN LATERAL (
    SELECT p.tenant_id, p.due, p.why, p.ends_at
    FROM pending p
    WHERE p.tenant_id = $1 AND p.endpoint_id = page.endpoint_id AND p.event_id = $2
    LIMIT 1
) AS waits ON true
LEFT JOIN LATERAL (
    SELECT d.tenant_id
    FROM dead_letters d
    WHERE d.tenant_id = $1 AND d.endpoint_id = page.endpoint_id AND d.event_id = $2
    LIMIT 1
) AS letter ON true
-- Attempts are counted without the verdicts among them.
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE a.outcome IN ('success', 'failed')) AS attempts,
           min(a.at + a.duration_ms * interval '1 millisecond') FILTER (WHERE a.outcome = 'success') AS delivered_at,
           bool_or(starts_with(a.outcome, 'dead_')) AS dead,
           bool_or(a.outcome = 'cancelled') AS cancelled,
           bool_or(a.outcome = 'discarded') AS discarded
    FROM attempts a
    WHERE a.tenant_id = $1 AND a.endpoint_id = page.endpoint_id AND a.event_id = $2
) AS made
LEFT JOIN LATERAL (
    SELECT a.n, a.id, a.at, coalesce(a.trigger, 'schedule') AS trigger, a.outcome, a.status, a.error_kind, a.error_detail, a.duration_ms
    FROM attempts a
    WHERE a.tenant_id = $1 AND a.endpoint_id = page.endpoint_id AND a.event_id = $2
      AND a.outcome IN ('success', 'failed')
    ORDER BY a.id DESC
    LIMIT 1
) AS latest ON true
ORDER BY page.endpoint_id ASC
