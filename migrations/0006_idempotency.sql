-- A caller that does not know what became of its request sends it again, and nothing happens twice. The keys of
-- events are taken by the flush that writes the event; every other POST keeps its whole answer.

CREATE TABLE idempotency_keys (
    tenant_id  uuid             NOT NULL,
    -- The operation that the key was given to, such as `POST /v1/events`; `uid`: the key is an event's uid.
    route      text COLLATE "C" NOT NULL,
    -- Compared as bytes, here and in the program alike: keys are taken in this order, so that nobody waits in a ring.
    key        text COLLATE "C" NOT NULL,
    -- The event that has the key. Without that event in the log the key counts as unused.
    event_id   uuid             NOT NULL,
    -- SHA-256 of the request's body.
    body_hash  bytea            NOT NULL,
    expires_at timestamptz      NOT NULL,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (tenant_id, route, key),
    CONSTRAINT idempotency_key_body_hash_is_sha256 CHECK (octet_length(body_hash) = 32)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);

CREATE TABLE idempotent_answers (
    tenant_id     uuid             NOT NULL,
    -- Method and path, with the ids in it.
    route         text COLLATE "C" NOT NULL,
    key           text COLLATE "C" NOT NULL,
    -- 8 random bytes: which request holds the key. Every change is guarded by it.
    claim         bigint           NOT NULL,
    body_hash     bytea            NOT NULL,
    -- Null: answered. Else the request is under way, and from then on nobody waits for it.
    running_until timestamptz,
    status        smallint,
    -- Headers and body of the answer, sealed: it may hold a secret that is shown once.
    key_id        text,
    sealed        bytea,
    expires_at    timestamptz      NOT NULL,
    CONSTRAINT idempotent_answers_pkey PRIMARY KEY (tenant_id, route, key),
    CONSTRAINT idempotent_answer_body_hash_is_sha256 CHECK (octet_length(body_hash) = 32),
    CONSTRAINT idempotent_answer_is_whole_or_running CHECK
        (num_nulls(status, key_id, sealed) = CASE WHEN running_until IS NULL THEN 0 ELSE 3 END)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE idempotent_answers ALTER COLUMN sealed SET STORAGE EXTERNAL;
CREATE INDEX idempotent_answers_expiry ON idempotent_answers (expires_at);

DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['idempotency_keys', 'idempotent_answers'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY system ON %I TO posthorn_system USING (true)', t);
        EXECUTE format('CREATE POLICY tenant ON %I TO posthorn_tenant '
                       'USING (tenant_id = NULLIF(current_setting(''posthorn.tenant'', true), '''')::uuid)', t);
    END LOOP;
END $$;

-- UPDATE for the locks that a deletion takes in the order of keys.
GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_keys TO posthorn_system;
GRANT SELECT, UPDATE, DELETE ON idempotent_answers TO posthorn_system;
GRANT SELECT ON idempotency_keys TO posthorn_tenant;
GRANT SELECT, INSERT, UPDATE, DELETE ON idempotent_answers TO posthorn_tenant;
