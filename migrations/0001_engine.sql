-- The engine's tables: the log (events, attempts), its exceptions (pending, dead_letters,
-- kept_events) and what nodes coordinate by. Run as posthorn_owner; roles exist already.

-- The smallest UUIDv7 of a moment: 48 bits of milliseconds, then zeros. Partition bounds and
-- time filters on ids are made with it, in Rust (`EventId::floor_at`) and here alike.
CREATE FUNCTION posthorn_uuid_floor(at timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog
AS $$ SELECT (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid $$;

-- The moment inside a UUIDv7, to the millisecond.
CREATE FUNCTION posthorn_uuid_time(id uuid) RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog
AS $$ SELECT to_timestamp(('x' || lpad(replace(left(id::text, 13), '-', ''), 16, '0'))::bit(64)::bigint / 1000.0) $$;

CREATE TABLE events (
    tenant_id      uuid        NOT NULL,
    id             uuid        NOT NULL,
    stream         bigint      NOT NULL,
    application_id uuid,
    type           text        NOT NULL,
    uid            text,
    occurred_at    timestamptz,
    endpoints      uuid[]      NOT NULL,
    content_type   text        NOT NULL,
    -- 0: payload as submitted; 1: zstd.
    codec          smallint    NOT NULL,
    -- Bytes as submitted, before the codec.
    size           integer     NOT NULL,
    payload        bytea       NOT NULL,
    -- A JSON object of strings, shown and searched, never sent.
    metadata       text,
    -- A JSON object of strings, sent with every attempt.
    headers        text,
    CONSTRAINT events_pkey PRIMARY KEY (tenant_id, id),
    CONSTRAINT event_codec_is_known CHECK (codec IN (0, 1))
) PARTITION BY RANGE (id);
ALTER TABLE events ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE INDEX events_id_brin ON events USING brin (id) WITH (pages_per_range = 16, autosummarize = on);
CREATE INDEX events_application ON events (tenant_id, application_id, id) WHERE application_id IS NOT NULL;

-- One row for each HTTP request of a delivery, and one for each verdict that ends a delivery
-- without a request. Nothing here is updated or deleted.
CREATE TABLE attempts (
    tenant_id        uuid        NOT NULL,
    endpoint_id      uuid        NOT NULL,
    event_id         uuid        NOT NULL,
    n                integer     NOT NULL,
    -- 8 random bytes: two requests are two rows, a batch recorded again is the same rows.
    id               bigint      NOT NULL,
    outcome          text        NOT NULL,
    status           smallint,
    at               timestamptz NOT NULL,
    duration_ms      integer     NOT NULL,
    trigger          text        NOT NULL,
    replay_id        uuid,
    remote_address   text,
    error_kind       text,
    error_detail     text,
    -- A JSON array of [name, value] pairs, secrets masked.
    response_headers text,
    response_body    bytea,
    -- Bytes of the body that were read before it ended or was cut.
    response_size    integer,
    response_cut     boolean,
    -- Names the row of endpoint_versions that this attempt was made by.
    config_seq       bigint      NOT NULL,
    CONSTRAINT attempts_pkey PRIMARY KEY (tenant_id, endpoint_id, event_id, n, id),
    CONSTRAINT attempt_outcome_is_known CHECK (outcome IN
        ('success', 'failed', 'cancelled', 'discarded', 'dead_gone', 'dead_expired', 'dead_exhausted',
         'dead_fatal_status', 'dead_refused_target', 'dead_config', 'dead_payload_gone')),
    CONSTRAINT attempt_trigger_is_known CHECK (trigger IN ('schedule', 'replay', 'test', 'probe')),
    CONSTRAINT attempt_error_kind_is_known CHECK (error_kind IN
        ('timeout', 'dns', 'connect', 'tls', 'refused_target', 'status', 'protocol', 'config')),
    CONSTRAINT attempt_number_counts_from_one CHECK (n >= 1)
) PARTITION BY RANGE (event_id);
ALTER TABLE attempts ALTER COLUMN response_body SET STORAGE EXTERNAL;
CREATE INDEX attempts_failed ON attempts (tenant_id, at) WHERE outcome = 'failed';

-- Deliveries that the fast path did not finish. `due` null: parked, no time known.
CREATE TABLE pending (
    tenant_id   uuid        NOT NULL,
    endpoint_id uuid        NOT NULL,
    event_id    uuid        NOT NULL,
    -- The last byte of endpoint_id.
    shard       smallint    NOT NULL,
    due         timestamptz,
    -- The number that the next attempt will have. Every change is guarded by it.
    n           integer     NOT NULL,
    -- Failed attempts that count in the policy; a replay begins at 0.
    step        integer     NOT NULL,
    -- Void as soon as a success numbered at least this is on record.
    since       integer     NOT NULL,
    -- The schedule's own time, kept while a person's extra attempt is under way.
    then_due    timestamptz,
    -- The delivery is expired from here on.
    ends_at     timestamptz NOT NULL,
    why         text        NOT NULL,
    replay_id   uuid,
    CONSTRAINT pending_pkey PRIMARY KEY (tenant_id, endpoint_id, event_id),
    CONSTRAINT pending_reason_is_known CHECK (why IN
        ('handover', 'retry', 'recovered', 'replay', 'rate_limit', 'circuit', 'retry_after', 'paused', 'disabled', 'capacity')),
    CONSTRAINT pending_shard_is_the_last_byte_of_its_endpoint CHECK (shard BETWEEN 0 AND 255),
    CONSTRAINT pending_numbers_count_up CHECK (n >= 1 AND step >= 0 AND since BETWEEN 1 AND n)
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX pending_due ON pending (shard, due) WHERE due IS NOT NULL;
CREATE INDEX pending_parked ON pending (shard, tenant_id, endpoint_id, ends_at) WHERE due IS NULL;

CREATE TABLE dead_letters (
    tenant_id      uuid        NOT NULL,
    endpoint_id    uuid        NOT NULL,
    event_id       uuid        NOT NULL,
    type           text        NOT NULL,
    application_id uuid,
    cause          text        NOT NULL,
    deaths         integer     NOT NULL,
    replay_id      uuid,
    died_at        timestamptz NOT NULL,
    CONSTRAINT dead_letters_pkey PRIMARY KEY (tenant_id, endpoint_id, event_id),
    CONSTRAINT dead_letter_cause_is_known CHECK (cause IN
        ('exhausted', 'fatal_status', 'gone', 'expired', 'refused_target', 'config', 'payload_gone')),
    CONSTRAINT dead_letter_died_at_least_once CHECK (deaths >= 1)
);
CREATE INDEX dead_letters_died ON dead_letters (tenant_id, died_at, event_id, endpoint_id);
CREATE INDEX dead_letters_by_endpoint ON dead_letters (tenant_id, endpoint_id, died_at, event_id);
CREATE INDEX dead_letters_by_application ON dead_letters (tenant_id, application_id, died_at)
    WHERE application_id IS NOT NULL;

-- Events that still live when their partition goes.
CREATE TABLE kept_events (LIKE events INCLUDING STORAGE INCLUDING CONSTRAINTS);
ALTER TABLE kept_events ADD CONSTRAINT kept_events_pkey PRIMARY KEY (tenant_id, id);

-- One row per stream: the run of events that one incarnation of a node accepted.
CREATE TABLE nodes (
    stream      bigint      NOT NULL,
    node        uuid        NOT NULL,
    name        text        NOT NULL,
    state       text        NOT NULL,
    lease_until timestamptz NOT NULL,
    -- Every delivery of an event of this stream with an id at or below it is resolved or pending.
    watermark   uuid        NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT nodes_pkey PRIMARY KEY (stream),
    CONSTRAINT node_state_is_known CHECK (state IN ('open', 'closed', 'recovered'))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- The fence: a flush reads its lane's row FOR KEY SHARE, whoever closes the stream takes it FOR UPDATE.
CREATE TABLE streams (
    stream bigint   NOT NULL,
    lane   smallint NOT NULL,
    state  text     NOT NULL,
    CONSTRAINT streams_pkey PRIMARY KEY (stream, lane),
    CONSTRAINT stream_state_is_known CHECK (state IN ('open', 'closed'))
);

-- Who sends the pending rows of a slot: the stream of the owning node.
CREATE TABLE shards (
    shard smallint NOT NULL,
    owner bigint,
    CONSTRAINT shards_pkey PRIMARY KEY (shard),
    CONSTRAINT there_are_256_shards CHECK (shard BETWEEN 0 AND 255)
) WITH (fillfactor = 50);
INSERT INTO shards (shard) SELECT generate_series(0, 255);

-- The version of the configuration. A change raises seq in its own transaction, so that numbers
-- commit in order; config_log reaches back to log_from.
CREATE TABLE config_head (
    one      boolean NOT NULL DEFAULT true,
    seq      bigint  NOT NULL,
    log_from bigint  NOT NULL,
    CONSTRAINT config_head_pkey PRIMARY KEY (one),
    CONSTRAINT config_head_has_one_row CHECK (one)
) WITH (fillfactor = 50);
INSERT INTO config_head (seq, log_from) VALUES (0, 0);

CREATE TABLE config_log (
    seq       bigint      NOT NULL,
    tenant_id uuid        NOT NULL,
    at        timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT config_log_pkey PRIMARY KEY (seq)
);

-- No event at or below the floor may become pending again unless it is in kept_events.
CREATE TABLE retention (
    one   boolean NOT NULL DEFAULT true,
    floor uuid    NOT NULL,
    CONSTRAINT retention_pkey PRIMARY KEY (one),
    CONSTRAINT retention_has_one_row CHECK (one)
);
INSERT INTO retention (floor) VALUES ('00000000-0000-0000-0000-000000000000');

-- Makes the leaves of events and attempts for one UTC day, if they are not there. The parents are
-- taken under a short lock timeout: a reader in the way makes this fail and be tried again, never queue.
-- (LIKE and ATTACH: CREATE TABLE … PARTITION OF would take a lock that stalls inserts behind a reader.)
CREATE FUNCTION posthorn_make_leaves(day date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp
SET lock_timeout = '200ms'
AS $$
DECLARE
    parent text;
    leaf   text;
    low    uuid := posthorn_uuid_floor(day::timestamp AT TIME ZONE 'UTC');
    high   uuid := posthorn_uuid_floor((day + 1)::timestamp AT TIME ZONE 'UTC');
    made   boolean := false;
BEGIN
    -- Two nodes that make the same day at once: the second waits, then finds it made.
    PERFORM pg_advisory_xact_lock(hashtext('posthorn_make_leaves'));
    FOREACH parent IN ARRAY ARRAY['events', 'attempts'] LOOP
        leaf := parent || '_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(leaf) IS NOT NULL;
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)', leaf, parent);
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', leaf);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', leaf);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, leaf, low, high);
        made := true;
    END LOOP;
    RETURN made;
END $$;
REVOKE ALL ON FUNCTION posthorn_make_leaves(date) FROM PUBLIC;
