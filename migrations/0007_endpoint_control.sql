-- What people limit of an endpoint, and what Posthorn sees of one that is not well.

ALTER TABLE endpoints
    -- Requests a second, and how many of them may come at once. Null: no limit.
    ADD COLUMN rate_per_second double precision,
    ADD COLUMN rate_burst      integer,
    -- Requests under way, exactly, over all nodes. Null: the default of each node.
    ADD COLUMN max_in_flight   integer,
    ADD CONSTRAINT endpoint_rate_limit_is_whole CHECK ((rate_per_second IS NULL) = (rate_burst IS NULL)),
    ADD CONSTRAINT endpoint_rate_is_a_hundredth_to_10000_a_second CHECK (rate_per_second BETWEEN 0.01 AND 10000),
    ADD CONSTRAINT endpoint_burst_is_1_to_10000 CHECK (rate_burst BETWEEN 1 AND 10000),
    ADD CONSTRAINT endpoint_max_in_flight_is_1_to_1000 CHECK (max_in_flight BETWEEN 1 AND 1000);

-- One row for each endpoint that is not well, or was not until lately; most endpoints have none. Nodes poll for what
-- changed, and a change of it is none of the configuration: nothing is matched again for it.
CREATE TABLE endpoint_state (
    tenant_id       uuid        NOT NULL,
    endpoint_id     uuid        NOT NULL,
    -- Counts the changes. Every change is guarded by it.
    revision        bigint      NOT NULL,
    changed_at      timestamptz NOT NULL DEFAULT now(),
    -- Until then nothing is sent: the receiver said so.
    retry_after     timestamptz,
    -- open: nothing is sent but probes. ramping: a probe succeeded, and concurrency grows again. Both by the owner of
    -- the shard alone.
    circuit         text        NOT NULL,
    -- When the circuit opened.
    opened_at       timestamptz,
    -- Failed attempts without a success between them, and when the first of them was.
    failures        integer     NOT NULL,
    first_failed_at timestamptz,
    -- What the last of them failed by: the kind of its error.
    cause           text,
    last_success_at timestamptz,
    -- Probes that failed since the circuit opened, and when the next is due.
    probes          integer     NOT NULL,
    next_probe_at   timestamptz,
    CONSTRAINT endpoint_state_pkey PRIMARY KEY (tenant_id, endpoint_id),
    CONSTRAINT circuit_is_known CHECK (circuit IN ('closed', 'open', 'ramping')),
    CONSTRAINT circuit_that_is_not_closed_says_since_when CHECK ((circuit = 'closed') = (opened_at IS NULL)),
    CONSTRAINT circuit_that_is_open_has_a_next_probe CHECK ((circuit = 'open') = (next_probe_at IS NOT NULL)),
    CONSTRAINT endpoint_state_counts_up CHECK (failures >= 0 AND probes >= 0 AND revision >= 1),
    CONSTRAINT endpoint_state_cause_is_known CHECK (cause IN
        ('timeout', 'dns', 'connect', 'tls', 'refused_target', 'status', 'protocol', 'config'))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);
CREATE INDEX endpoint_state_changed ON endpoint_state (changed_at);

ALTER TABLE endpoint_state ENABLE ROW LEVEL SECURITY;
ALTER TABLE endpoint_state FORCE ROW LEVEL SECURITY;
CREATE POLICY system ON endpoint_state TO posthorn_system USING (true);
CREATE POLICY tenant ON endpoint_state TO posthorn_tenant
    USING (tenant_id = NULLIF(current_setting('posthorn.tenant', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON endpoint_state TO posthorn_system;
-- It is read with the endpoint, and begins afresh when a person enables that again.
GRANT SELECT, UPDATE ON endpoint_state TO posthorn_tenant;
