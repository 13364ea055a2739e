WITH r AS MATERIALIZED (
    SELECT *
    FROM unnest($4::uuid[], $5::uuid[], $6::text[], $7::timestamptz[], $8::text[], $9::smallint[], $10::integer[],
                $11::bytea[], $12::text[], $13::text[], $14::integer[], $15::integer[],
                $17::text[], $18::text[], $19::text[], $20::bytea[])
        AS r (tenant_id, id, type, occurred_at, content_type, codec, size, payload, metadata, headers, off, len,
              uid, route, key, body_hash)
),
-- The fence: nothing is written into a stream that somebody has closed, and nobody closes it meanwhile.
fence AS MATERIALIZED (
    SELECT 1 FROM streams WHERE stream = $1 AND lane = $2 AND state = 'open' FOR KEY SHARE
),
-- From here on locks are waited for only so long. In force until this statement, a transaction of its own, ends.
patience AS MATERIALIZED (SELECT set_config('lock_timeout', $21, true) FROM fence),
-- Tenants whose configuration changed after it was matched against; and whether the log of changes still reaches back.
changed AS MATERIALIZED (SELECT DISTINCT tenant_id FROM config_log WHERE seq > $3),
reaches AS MATERIALIZED (SELECT 1 FROM config_head WHERE log_from <= $3),
ok AS MATERIALIZED (
    SELECT r.*
    FROM r
    WHERE EXISTS (SELECT 1 FROM patience)
      AND EXISTS (SELECT 1 FROM reaches)
      AND NOT EXISTS (SELECT 1 FROM changed WHERE changed.tenant_id = r.tenant_id)
),
-- Keys as in flush_with_keys.sql; most batches with hand-over have none.
wanted AS MATERIALIZED (
    SELECT tenant_id, route, key, id AS event_id, body_hash FROM ok WHERE key IS NOT NULL
    UNION ALL
    SELECT tenant_id, 'uid', uid, id, body_hash FROM ok WHERE uid IS NOT NULL
),
won AS (
    INSERT INTO idempotency_keys (tenant_id, route, key, event_id, body_hash, expires_at)
    SELECT tenant_id, route, key, event_id, body_hash, now() + make_interval(secs => $22)
    FROM wanted
    ORDER BY tenant_id, route COLLATE "C", key COLLATE "C", event_id
    ON CONFLICT DO NOTHING
    RETURNING event_id, route
),
written AS (
    INSERT INTO events (tenant_id, id, stream, type, uid, occurred_at, endpoints, content_type, codec, size, payload,
                        metadata, headers)
    SELECT tenant_id, id, $1, type, uid, occurred_at, ($16::uuid[])[off + 1 : off + len], content_type, codec, size,
           payload, metadata, headers
    FROM ok
    WHERE (key IS NULL OR id IN (SELECT event_id FROM won WHERE route <> 'uid'))
      AND (uid IS NULL OR id IN (SELECT event_id FROM won WHERE route = 'uid'))
    -- Sent again after an unknown outcome: what is in the log stays as it is.
    ON CONFLICT DO NOTHING
    RETURNING tenant_id, id
),
-- Deliveries that another node sends, due at once for the owner of the shard. Only of events that this statement wrote: what
-- is in the log already brought its own with it, and they may be resolved by now.
handed AS (
    INSERT INTO pending (tenant_id, endpoint_id, event_id, shard, due, n, step, since, ends_at, why)
    SELECT written.tenant_id, h.endpoint_id, written.id, get_byte(uuid_send(h.endpoint_id), 15), now(), 1, 0, 1,
           posthorn_uuid_time(written.id) + make_interval(secs => h.max_age_s), 'handover'
    FROM written
    JOIN unnest($23::uuid[], $24::uuid[], $25::double precision[]) AS h (event_id, endpoint_id, max_age_s)
      ON h.event_id = written.id
    ON CONFLICT DO NOTHING
)
SELECT EXISTS (SELECT 1 FROM fence) AS "open!",
       (SELECT seq FROM config_head) AS "seq!",
       ARRAY(SELECT id FROM written) AS "written!"
