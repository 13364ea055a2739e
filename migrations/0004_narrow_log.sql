-- The rows that every event costs, narrower: each byte here is written to the WAL for every event.
--
-- * Nearly all payloads are application/json and nearly all attempts come from the schedule: NULL stands for both.
-- * Columns of attempts stand by their alignment, widest first, so that nothing is lost to padding.
-- * The number of an attempt stands in its id, which is in the key, and no longer beside it there: a key is
--   written twice, once when it is inserted and once more when its page is split.
--
-- The order of columns cannot be changed in place, so attempts are copied: this takes as long as that, and the old
-- program must not run meanwhile.

ALTER TABLE events ALTER COLUMN content_type DROP NOT NULL;
ALTER TABLE kept_events ALTER COLUMN content_type DROP NOT NULL;

ALTER TABLE attempts RENAME TO attempts_wide;
ALTER INDEX attempts_pkey RENAME TO attempts_wide_pkey;
ALTER INDEX attempts_failed RENAME TO attempts_wide_failed;

-- One row for each HTTP request of a delivery, and one for each verdict that ends a delivery
-- without a request. Nothing here is updated or deleted.
CREATE TABLE attempts (
    tenant_id        uuid        NOT NULL,
    endpoint_id      uuid        NOT NULL,
    event_id         uuid        NOT NULL,
    -- The number n, then 4 random bytes: in the order of numbers; two requests of one number are two rows, a batch
    -- recorded again is the same rows.
    id               bigint      NOT NULL,
    at               timestamptz NOT NULL,
    -- Names the row of endpoint_versions that this attempt was made by.
    config_seq       bigint      NOT NULL,
    n                integer     NOT NULL,
    duration_ms      integer     NOT NULL,
    status           smallint,
    outcome          text        NOT NULL,
    -- NULL: the schedule.
    trigger          text,
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
    CONSTRAINT attempts_pkey PRIMARY KEY (tenant_id, endpoint_id, event_id, id),
    CONSTRAINT attempt_outcome_is_known CHECK (outcome IN
        ('success', 'failed', 'cancelled', 'discarded', 'dead_gone', 'dead_expired', 'dead_exhausted',
         'dead_fatal_status', 'dead_refused_target', 'dead_config', 'dead_payload_gone')),
    CONSTRAINT attempt_trigger_is_known CHECK (trigger IN ('replay', 'test', 'probe')),
    CONSTRAINT attempt_error_kind_is_known CHECK (error_kind IN
        ('timeout', 'dns', 'connect', 'tls', 'refused_target', 'status', 'protocol', 'config')),
    CONSTRAINT attempt_number_counts_from_one CHECK (n >= 1),
    CONSTRAINT attempt_id_begins_with_its_number CHECK (id >> 32 = n)
) PARTITION BY RANGE (event_id);
ALTER TABLE attempts ALTER COLUMN response_body SET STORAGE EXTERNAL;
CREATE INDEX attempts_failed ON attempts (tenant_id, at) WHERE outcome = 'failed';

DO $$
DECLARE
    leaf   text;
    bounds text;
BEGIN
    FOR leaf, bounds IN
        SELECT c.relname, pg_get_expr(c.relpartbound, c.oid)
        FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'attempts_wide'::regclass
    LOOP
        EXECUTE format('ALTER TABLE %I RENAME TO %I', leaf, leaf || '_wide');
        EXECUTE format('CREATE TABLE %I (LIKE attempts INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)', leaf);
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', leaf);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', leaf);
        EXECUTE format('ALTER TABLE attempts ATTACH PARTITION %I %s', leaf, bounds);
    END LOOP;
END $$;

-- Under FORCE the owner reads nothing, not even to copy.
ALTER TABLE attempts_wide NO FORCE ROW LEVEL SECURITY;
INSERT INTO attempts (tenant_id, endpoint_id, event_id, id, at, config_seq, n, duration_ms, status, outcome, trigger, replay_id,
                      remote_address, error_kind, error_detail, response_headers, response_body, response_size, response_cut)
SELECT tenant_id, endpoint_id, event_id, (n::bigint << 32) | (id & 4294967295), at, config_seq, n, duration_ms, status, outcome, NULLIF(trigger, 'schedule'),
       replay_id, remote_address, error_kind, error_detail, response_headers, response_body, response_size, response_cut
FROM attempts_wide;
DROP TABLE attempts_wide;

ALTER TABLE attempts ENABLE ROW LEVEL SECURITY;
ALTER TABLE attempts FORCE ROW LEVEL SECURITY;
CREATE POLICY system ON attempts TO posthorn_system USING (true);
CREATE POLICY tenant ON attempts TO posthorn_tenant
    USING (tenant_id = NULLIF(current_setting('posthorn.tenant', true), '')::uuid);
GRANT SELECT, INSERT ON attempts TO posthorn_system;
GRANT SELECT, INSERT ON attempts TO posthorn_tenant;
