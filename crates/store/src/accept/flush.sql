WITH r AS MATERIALIZED (
    SELECT *
    FROM unnest($4::uuid[], $5::uuid[], $6::text[], $7::timestamptz[], $8::text[], $9::smallint[], $10::integer[],
                $11::bytea[], $12::text[], $13::text[], $14::integer[], $15::integer[])
        AS r (tenant_id, id, type, occurred_at, content_type, codec, size, payload, metadata, headers, off, len)
),
-- The fence: nothing is written into a stream that somebody has closed, and nobody closes it meanwhile.
fence AS MATERIALIZED (
    SELECT 1 FROM streams WHERE stream = $1 AND lane = $2 AND state = 'open' FOR KEY SHARE
),
-- Tenants whose configuration changed after it was matched against; and whether the log of changes still reaches back.
changed AS MATERIALIZED (SELECT DISTINCT tenant_id FROM config_log WHERE seq > $3),
reaches AS MATERIALIZED (SELECT 1 FROM config_head WHERE log_from <= $3),
ok AS MATERIALIZED (
    SELECT r.*
    FROM r
    WHERE EXISTS (SELECT 1 FROM fence)
      AND EXISTS (SELECT 1 FROM reaches)
      AND NOT EXISTS (SELECT 1 FROM changed WHERE changed.tenant_id = r.tenant_id)
),
written AS (
    INSERT INTO events (tenant_id, id, stream, type, occurred_at, endpoints, content_type, codec, size, payload, metadata, headers)
    SELECT tenant_id, id, $1, type, occurred_at, ($16::uuid[])[off + 1 : off + len], content_type, codec, size, payload,
           metadata, headers
    FROM ok
    RETURNING id
)
SELECT EXISTS (SELECT 1 FROM fence) AS "open!",
       (SELECT seq FROM config_head) AS "seq!",
       ARRAY(SELECT id FROM written) AS "written!"
