-- The attempts of one event, endpoint by endpoint, upward: rows from ($3, $4, $5) to below ($6, $7, $8),
-- which are endpoint, number and id. One probe by key for each endpoint of the event.
WITH event AS MATERIALIZED (
    SELECT endpoints FROM events WHERE tenant_id = $1 AND id = $2
    UNION ALL
    SELECT endpoints FROM kept_events WHERE tenant_id = $1 AND id = $2
    LIMIT 1
)
SELECT $2::uuid AS "event_id!",
       a.endpoint_id AS "endpoint_id!",
       a.n AS "n!",
       a.id AS "id!",
       a.outcome AS "outcome!",
       a.status AS "status?",
       a.at AS "at!",
       a.duration_ms AS "duration_ms!",
       coalesce(a.trigger, 'schedule') AS "trigger!",
       a.remote_address AS "remote_address?",
       a.error_kind AS "error_kind?",
       a.error_detail AS "error_detail?",
       a.response_headers AS "response_headers?",
       a.response_body AS "response_body?",
       a.response_size AS "response_size?",
       a.response_cut AS "response_cut?",
       version.url AS "url?",
       version.header_names AS "header_names?"
FROM event
CROSS JOIN unnest(event.endpoints) AS x (endpoint_id)
CROSS JOIN LATERAL (
    SELECT s.*
    FROM attempts s
    WHERE s.tenant_id = $1 AND s.endpoint_id = x.endpoint_id AND s.event_id = $2
      AND s.outcome IN ('success', 'failed')
      AND (s.endpoint_id, s.n, s.id) >= ($3, $4, $5)
      AND (s.endpoint_id, s.n, s.id) < ($6, $7, $8)
    ORDER BY s.n, s.id
    LIMIT $9
) AS a
LEFT JOIN LATERAL (
    SELECT v.url, v.header_names
    FROM endpoint_versions v
    WHERE v.tenant_id = $1 AND v.endpoint_id = a.endpoint_id AND v.config_seq = a.config_seq
    LIMIT 1
) AS version ON true
WHERE x.endpoint_id >= $3 AND x.endpoint_id <= $6
ORDER BY a.endpoint_id, a.n, a.id
LIMIT $9
