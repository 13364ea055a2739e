-- The attempts of one event, endpoint by endpoint, downward: rows from ($3, $4) to below ($5, $6),
-- which are endpoint and id. One probe by key for each endpoint of the event.
WITH event AS MATERIALIZED (
    SELECT endpoints FROM events WHERE tenant_id = $1 AND id = $2
    UNION ALL
    SELECT endpoints FROM kept_events WHERE tenant_id = $1 AND id = $2
    LIMIT 1
),
-- A page ends within as many endpoints as it has rows. Probed in their order, by joins that nothing can turn into a scan:
-- PostgreSQL takes every probe for a row and would sort all before it cuts.
page AS MATERIALIZED (
    SELECT ordered.endpoint_id
    FROM (
        SELECT listed.endpoint_id
        FROM event
        CROSS JOIN unnest(event.endpoints) AS listed (endpoint_id)
        WHERE listed.endpoint_id >= $3 AND listed.endpoint_id <= $5
        ORDER BY listed.endpoint_id DESC
        OFFSET 0
    ) AS ordered
    CROSS JOIN LATERAL (
        SELECT 1
        FROM attempts s
        WHERE s.tenant_id = $1 AND s.endpoint_id = ordered.endpoint_id AND s.event_id = $2
          AND s.outcome IN ('success', 'failed')
          AND (s.endpoint_id, s.id) >= ($3, $4)
          AND (s.endpoint_id, s.id) < ($5, $6)
        LIMIT 1
    ) AS made
    ORDER BY ordered.endpoint_id DESC
    LIMIT $7
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
FROM page AS x
CROSS JOIN LATERAL (
    SELECT s.*
    FROM attempts s
    WHERE s.tenant_id = $1 AND s.endpoint_id = x.endpoint_id AND s.event_id = $2
      AND s.outcome IN ('success', 'failed')
      AND (s.endpoint_id, s.id) >= ($3, $4)
      AND (s.endpoint_id, s.id) < ($5, $6)
    ORDER BY s.id DESC
    LIMIT $7
) AS a
LEFT JOIN LATERAL (
    SELECT v.url, v.header_names
    FROM endpoint_versions v
    WHERE v.tenant_id = $1 AND v.endpoint_id = a.endpoint_id AND v.config_seq = a.config_seq
    LIMIT 1
) AS version ON true
ORDER BY x.endpoint_id DESC, a.id DESC
LIMIT $7
