-- Who changed what: one row for each change, written in the change's own transaction. Nobody may rewrite or take back a row; what is
-- older than 400 days housekeeping deletes.

CREATE TABLE audit_log (
    tenant_id  uuid NOT NULL,
    -- UUIDv7, and so the moment of the change.
    id         uuid NOT NULL,
    actor_kind text NOT NULL,
    -- The API key that it came with. Null: a caller without an id.
    actor_id   uuid,
    ip         inet,
    action     text NOT NULL,
    -- The id of what was changed, as the API writes it.
    target     text NOT NULL COLLATE "C",
    -- What it was and what it is: fields as the API names them, in place of each secret the master key that seals it.
    before     json,
    after      json,
    CONSTRAINT audit_log_pkey PRIMARY KEY (tenant_id, id)
);
CREATE INDEX audit_log_target ON audit_log (tenant_id, target, id);
-- Expiry goes by time over all tenants.
CREATE INDEX audit_log_time ON audit_log (id);

-- An id of the moment `at`, as the program makes them: whole microseconds of it, then 62 random bits.
CREATE FUNCTION posthorn_uuid_at(at timestamptz) RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT (lpad(to_hex(micros / 1000), 12, '0') || '7' || lpad(to_hex((micros % 1000 * 4096 + 999) / 1000), 3, '0')
            || right(replace(gen_random_uuid()::text, '-', ''), 16))::uuid
    FROM (SELECT (extract(epoch FROM at) * 1000000)::bigint AS micros) AS whole
$$;

ALTER TABLE audit_log ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit_log FORCE ROW LEVEL SECURITY;
CREATE POLICY system ON audit_log FOR SELECT TO posthorn_system USING (true);
CREATE POLICY system_writes ON audit_log FOR INSERT TO posthorn_system WITH CHECK (true);
CREATE POLICY system_expires ON audit_log FOR DELETE TO posthorn_system
    USING (id < posthorn_uuid_floor(now() - interval '400 days'));
CREATE POLICY tenant ON audit_log TO posthorn_tenant
    USING (tenant_id = NULLIF(current_setting('posthorn.tenant', true), '')::uuid);

GRANT SELECT, INSERT, DELETE ON audit_log TO posthorn_system;
GRANT SELECT, INSERT ON audit_log TO posthorn_tenant;
