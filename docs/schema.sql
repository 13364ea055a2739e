-- What the migrations add up to. Written by `cargo xtask schema`; not applied by anything.
CREATE FUNCTION public.posthorn_drop_leaves(day date) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    SET lock_timeout TO '50ms'
    AS $$
DECLARE
    stamp text := to_char(day, 'YYYYMMDD');
    high  uuid := posthorn_uuid_floor((day + 1)::timestamp AT TIME ZONE 'UTC');
BEGIN
    IF NOT (posthorn_is_leaf('events', 'events_' || stamp, day) AND posthorn_is_leaf('attempts', 'attempts_' || stamp, day)) THEN
        RETURN false;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM retention WHERE kept_to >= high) OR pg_relation_size(to_regclass('events_' || stamp)) > 0 THEN
        RAISE EXCEPTION 'the leaves of % have not been emptied', day USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    EXECUTE format('DROP TABLE %I, %I', 'events_' || stamp, 'attempts_' || stamp);
    RETURN true;
END $$;
ALTER FUNCTION public.posthorn_drop_leaves(day date) OWNER TO posthorn_owner;
CREATE FUNCTION public.posthorn_empty_leaves(day date) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS $$
DECLARE
    stamp text := to_char(day, 'YYYYMMDD');
    high  uuid := posthorn_uuid_floor((day + 1)::timestamp AT TIME ZONE 'UTC');
BEGIN
    IF NOT (posthorn_is_leaf('events', 'events_' || stamp, day) AND posthorn_is_leaf('attempts', 'attempts_' || stamp, day)) THEN
        RETURN false;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM retention WHERE kept_to >= high) THEN
        RAISE EXCEPTION 'the leaves of % hold what has not been kept yet', day USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    EXECUTE format('TRUNCATE %I, %I', 'events_' || stamp, 'attempts_' || stamp);
    RETURN true;
END $$;
ALTER FUNCTION public.posthorn_empty_leaves(day date) OWNER TO posthorn_owner;
CREATE FUNCTION public.posthorn_freeze_leaves(day date) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS $$
DECLARE
    parent text;
    leaf   text;
    frozen boolean := false;
BEGIN
    IF day >= (now() AT TIME ZONE 'UTC')::date - 1 THEN
        RAISE EXCEPTION 'the leaves of % are not cold yet', day USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    FOREACH parent IN ARRAY ARRAY['events', 'attempts'] LOOP
        leaf := parent || '_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN NOT posthorn_is_leaf(parent, leaf, day);
        CONTINUE WHEN EXISTS (SELECT 1 FROM pg_catalog.pg_class WHERE oid = to_regclass(leaf) AND reloptions IS NOT NULL);
        EXECUTE format('ALTER TABLE %I SET (autovacuum_freeze_min_age = 0, autovacuum_freeze_table_age = 0, '
                       'autovacuum_vacuum_insert_threshold = 1000, autovacuum_vacuum_insert_scale_factor = 0, '
                       'toast.autovacuum_freeze_min_age = 0, toast.autovacuum_freeze_table_age = 0, '
                       'toast.autovacuum_vacuum_insert_threshold = 1000, toast.autovacuum_vacuum_insert_scale_factor = 0)', leaf);
        frozen := true;
    END LOOP;
    RETURN frozen;
END $$;
ALTER FUNCTION public.posthorn_freeze_leaves(day date) OWNER TO posthorn_owner;
CREATE FUNCTION public.posthorn_is_leaf(parent text, leaf text, day date) RETURNS boolean
    LANGUAGE sql STABLE STRICT
    SET search_path TO 'public', 'pg_temp'
    AS $$ SELECT EXISTS (
          SELECT 1
          FROM pg_catalog.pg_inherits AS i
          JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
          WHERE i.inhparent = to_regclass(parent) AND c.oid = to_regclass(leaf)
            AND pg_get_expr(c.relpartbound, c.oid) = format('FOR VALUES FROM (%L) TO (%L)',
                    posthorn_uuid_floor(day::timestamp AT TIME ZONE 'UTC'),
                    posthorn_uuid_floor((day + 1)::timestamp AT TIME ZONE 'UTC'))) $$;
ALTER FUNCTION public.posthorn_is_leaf(parent text, leaf text, day date) OWNER TO posthorn_owner;
CREATE FUNCTION public.posthorn_make_leaves(day date) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    SET lock_timeout TO '200ms'
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
        CONTINUE WHEN posthorn_is_leaf(parent, leaf, day);
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)', leaf, parent);
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', leaf);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', leaf);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, leaf, low, high);
        made := true;
    END LOOP;
    RETURN made;
END $$;
ALTER FUNCTION public.posthorn_make_leaves(day date) OWNER TO posthorn_owner;
CREATE FUNCTION public.posthorn_uuid_at(at timestamp with time zone) RETURNS uuid
    LANGUAGE sql PARALLEL SAFE
    AS $$
    SELECT (lpad(to_hex(micros / 1000), 12, '0') || '7' || lpad(to_hex((micros % 1000 * 4096 + 999) / 1000), 3, '0')
            || right(replace(gen_random_uuid()::text, '-', ''), 16))::uuid
    FROM (SELECT (extract(epoch FROM at) * 1000000)::bigint AS micros) AS whole
$$;
ALTER FUNCTION public.posthorn_uuid_at(at timestamp with time zone) OWNER TO posthorn_owner;
CREATE FUNCTION public.posthorn_uuid_floor(at timestamp with time zone) RETURNS uuid
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path TO 'pg_catalog'
    AS $$ SELECT (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid $$;
ALTER FUNCTION public.posthorn_uuid_floor(at timestamp with time zone) OWNER TO posthorn_owner;
CREATE FUNCTION public.posthorn_uuid_time(id uuid) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path TO 'pg_catalog'
    AS $$ SELECT to_timestamp(('x' || lpad(replace(left(id::text, 13), '-', ''), 16, '0'))::bit(64)::bigint / 1000.0) $$;
ALTER FUNCTION public.posthorn_uuid_time(id uuid) OWNER TO posthorn_owner;
CREATE TABLE public.api_keys (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    prefix text NOT NULL,
    hash bytea NOT NULL,
    scopes text[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    last_used_at timestamp with time zone,
    revoked_at timestamp with time zone,
    created_by_kind text,
    created_by_id uuid,
    CONSTRAINT api_key_hash_is_sha256 CHECK ((octet_length(hash) = 32))
);
ALTER TABLE ONLY public.api_keys FORCE ROW LEVEL SECURITY;
ALTER TABLE public.api_keys OWNER TO posthorn_owner;
CREATE TABLE public.attempts (
    tenant_id uuid CONSTRAINT attempts_tenant_id_not_null1 NOT NULL,
    endpoint_id uuid CONSTRAINT attempts_endpoint_id_not_null1 NOT NULL,
    event_id uuid CONSTRAINT attempts_event_id_not_null1 NOT NULL,
    id bigint CONSTRAINT attempts_id_not_null1 NOT NULL,
    at timestamp with time zone CONSTRAINT attempts_at_not_null1 NOT NULL,
    config_seq bigint CONSTRAINT attempts_config_seq_not_null1 NOT NULL,
    n integer CONSTRAINT attempts_n_not_null1 NOT NULL,
    duration_ms integer CONSTRAINT attempts_duration_ms_not_null1 NOT NULL,
    status smallint,
    outcome text CONSTRAINT attempts_outcome_not_null1 NOT NULL,
    trigger text,
    replay_id uuid,
    remote_address text,
    error_kind text,
    error_detail text,
    response_headers text,
    response_body bytea,
    response_size integer,
    response_cut boolean,
    CONSTRAINT attempt_error_kind_is_known CHECK ((error_kind = ANY (ARRAY['timeout'::text, 'dns'::text, 'connect'::text, 'tls'::text, 'refused_target'::text, 'status'::text, 'protocol'::text, 'config'::text]))),
    CONSTRAINT attempt_id_begins_with_its_number CHECK (((id >> 32) = n)),
    CONSTRAINT attempt_number_counts_from_one CHECK ((n >= 1)),
    CONSTRAINT attempt_outcome_is_known CHECK ((outcome = ANY (ARRAY['success'::text, 'failed'::text, 'cancelled'::text, 'discarded'::text, 'dead_gone'::text, 'dead_expired'::text, 'dead_exhausted'::text, 'dead_fatal_status'::text, 'dead_refused_target'::text, 'dead_config'::text, 'dead_payload_gone'::text]))),
    CONSTRAINT attempt_trigger_is_known CHECK ((trigger = ANY (ARRAY['replay'::text, 'test'::text, 'probe'::text])))
)
PARTITION BY RANGE (event_id);
ALTER TABLE ONLY public.attempts ALTER COLUMN response_body SET STORAGE EXTERNAL;
ALTER TABLE ONLY public.attempts FORCE ROW LEVEL SECURITY;
ALTER TABLE public.attempts OWNER TO posthorn_owner;
CREATE TABLE public.audit_log (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    actor_kind text NOT NULL,
    actor_id uuid,
    ip inet,
    action text NOT NULL,
    target text NOT NULL COLLATE pg_catalog."C",
    before json,
    after json
);
ALTER TABLE ONLY public.audit_log FORCE ROW LEVEL SECURITY;
ALTER TABLE public.audit_log OWNER TO posthorn_owner;
CREATE TABLE public.config_head (
    one boolean DEFAULT true NOT NULL,
    seq bigint NOT NULL,
    log_from bigint NOT NULL,
    CONSTRAINT config_head_has_one_row CHECK (one)
)
WITH (fillfactor='50');
ALTER TABLE public.config_head OWNER TO posthorn_owner;
CREATE TABLE public.config_log (
    seq bigint NOT NULL,
    tenant_id uuid NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL
);
ALTER TABLE ONLY public.config_log FORCE ROW LEVEL SECURITY;
ALTER TABLE public.config_log OWNER TO posthorn_owner;
CREATE TABLE public.dead_letters (
    tenant_id uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    event_id uuid NOT NULL,
    type text NOT NULL,
    application_id uuid,
    cause text NOT NULL,
    deaths integer NOT NULL,
    replay_id uuid,
    died_at timestamp with time zone NOT NULL,
    CONSTRAINT dead_letter_cause_is_known CHECK ((cause = ANY (ARRAY['exhausted'::text, 'fatal_status'::text, 'gone'::text, 'expired'::text, 'refused_target'::text, 'config'::text, 'payload_gone'::text]))),
    CONSTRAINT dead_letter_died_at_least_once CHECK ((deaths >= 1))
);
ALTER TABLE ONLY public.dead_letters FORCE ROW LEVEL SECURITY;
ALTER TABLE public.dead_letters OWNER TO posthorn_owner;
CREATE TABLE public.endpoint_secrets (
    tenant_id uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    id uuid NOT NULL,
    kind text NOT NULL,
    key_id text NOT NULL,
    sealed bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    retires_at timestamp with time zone,
    CONSTRAINT endpoint_secret_kind_is_known CHECK ((kind = ANY (ARRAY['v1'::text, 'v1a'::text])))
);
ALTER TABLE ONLY public.endpoint_secrets FORCE ROW LEVEL SECURITY;
ALTER TABLE public.endpoint_secrets OWNER TO posthorn_owner;
CREATE TABLE public.endpoint_state (
    tenant_id uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    revision bigint NOT NULL,
    changed_at timestamp with time zone DEFAULT now() NOT NULL,
    retry_after timestamp with time zone,
    circuit text NOT NULL,
    opened_at timestamp with time zone,
    failures integer NOT NULL,
    first_failed_at timestamp with time zone,
    cause text,
    last_success_at timestamp with time zone,
    probes integer NOT NULL,
    next_probe_at timestamp with time zone,
    CONSTRAINT circuit_is_known CHECK ((circuit = ANY (ARRAY['closed'::text, 'open'::text, 'ramping'::text]))),
    CONSTRAINT circuit_that_is_not_closed_says_since_when CHECK (((circuit = 'closed'::text) = (opened_at IS NULL))),
    CONSTRAINT circuit_that_is_open_has_a_next_probe CHECK (((circuit = 'open'::text) = (next_probe_at IS NOT NULL))),
    CONSTRAINT endpoint_state_cause_is_known CHECK ((cause = ANY (ARRAY['timeout'::text, 'dns'::text, 'connect'::text, 'tls'::text, 'refused_target'::text, 'status'::text, 'protocol'::text, 'config'::text]))),
    CONSTRAINT endpoint_state_counts_up CHECK (((failures >= 0) AND (probes >= 0) AND (revision >= 1)))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='200');
ALTER TABLE ONLY public.endpoint_state FORCE ROW LEVEL SECURITY;
ALTER TABLE public.endpoint_state OWNER TO posthorn_owner;
CREATE TABLE public.endpoint_versions (
    tenant_id uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    config_seq bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    url text NOT NULL,
    header_names text[] NOT NULL,
    retry_policy text NOT NULL
);
ALTER TABLE ONLY public.endpoint_versions FORCE ROW LEVEL SECURITY;
ALTER TABLE public.endpoint_versions OWNER TO posthorn_owner;
CREATE TABLE public.endpoints (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    uid text,
    application_id uuid,
    url text NOT NULL,
    description text DEFAULT ''::text NOT NULL,
    event_types text[] NOT NULL,
    headers_sealed bytea,
    headers_key_id text,
    header_names text[] DEFAULT '{}'::text[] NOT NULL,
    retry_policy text NOT NULL,
    max_age_s integer NOT NULL,
    max_age_given boolean NOT NULL,
    timeout_ms integer NOT NULL,
    fatal_statuses smallint[] DEFAULT '{}'::smallint[] NOT NULL,
    signing_schemes text[] NOT NULL,
    keep_responses text NOT NULL,
    metadata text DEFAULT '{}'::text NOT NULL,
    state text NOT NULL,
    state_cause text,
    state_reason text,
    config_seq bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    rate_per_second double precision,
    rate_burst integer,
    max_in_flight integer,
    header_prefix text DEFAULT 'webhook'::text NOT NULL,
    compat_kind text,
    compat_header text,
    compat_sealed bytea,
    compat_key_id text,
    body text DEFAULT 'payload'::text NOT NULL,
    CONSTRAINT endpoint_body_is_known CHECK ((body = ANY (ARRAY['payload'::text, 'standard'::text]))),
    CONSTRAINT endpoint_burst_is_1_to_10000 CHECK (((rate_burst >= 1) AND (rate_burst <= 10000))),
    CONSTRAINT endpoint_compat_is_whole CHECK (((num_nulls(compat_kind, compat_sealed, compat_key_id) = ANY (ARRAY[0, 3])) AND ((compat_header IS NULL) OR (compat_kind IS NOT NULL)))),
    CONSTRAINT endpoint_compat_kind_is_known CHECK ((compat_kind = ANY (ARRAY['github'::text, 'stripe'::text, 'hmac_sha256'::text]))),
    CONSTRAINT endpoint_headers_name_their_master_key CHECK (((headers_sealed IS NULL) = (headers_key_id IS NULL))),
    CONSTRAINT endpoint_keep_responses_is_known CHECK ((keep_responses = ANY (ARRAY['failures'::text, 'all'::text, 'none'::text]))),
    CONSTRAINT endpoint_max_age_is_1_minute_to_30_days CHECK (((max_age_s >= 60) AND (max_age_s <= 2592000))),
    CONSTRAINT endpoint_max_in_flight_is_1_to_1000 CHECK (((max_in_flight >= 1) AND (max_in_flight <= 1000))),
    CONSTRAINT endpoint_rate_is_a_hundredth_to_10000_a_second CHECK (((rate_per_second >= (0.01)::double precision) AND (rate_per_second <= (10000)::double precision))),
    CONSTRAINT endpoint_rate_limit_is_whole CHECK (((rate_per_second IS NULL) = (rate_burst IS NULL))),
    CONSTRAINT endpoint_state_cause_is_known CHECK ((state_cause = ANY (ARRAY['gone'::text, 'failing'::text]))),
    CONSTRAINT endpoint_state_is_known CHECK ((state = ANY (ARRAY['enabled'::text, 'paused'::text, 'disabled'::text]))),
    CONSTRAINT endpoint_timeout_is_1_to_30_seconds CHECK (((timeout_ms >= 1000) AND (timeout_ms <= 30000)))
);
ALTER TABLE ONLY public.endpoints FORCE ROW LEVEL SECURITY;
ALTER TABLE public.endpoints OWNER TO posthorn_owner;
CREATE TABLE public.events (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    stream bigint NOT NULL,
    application_id uuid,
    type text NOT NULL,
    uid text,
    occurred_at timestamp with time zone,
    endpoints uuid[] NOT NULL,
    content_type text,
    codec smallint NOT NULL,
    size integer NOT NULL,
    payload bytea NOT NULL,
    metadata text,
    headers text,
    CONSTRAINT event_codec_is_known CHECK ((codec = ANY (ARRAY[0, 1])))
)
PARTITION BY RANGE (id);
ALTER TABLE ONLY public.events ALTER COLUMN payload SET STORAGE EXTERNAL;
ALTER TABLE ONLY public.events FORCE ROW LEVEL SECURITY;
ALTER TABLE public.events OWNER TO posthorn_owner;
CREATE TABLE public.housekeeping (
    one boolean DEFAULT true NOT NULL,
    holder bigint,
    held_until timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    CONSTRAINT housekeeping_has_one_row CHECK (one)
);
ALTER TABLE public.housekeeping OWNER TO posthorn_owner;
CREATE TABLE public.idempotency_keys (
    tenant_id uuid NOT NULL,
    route text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    event_id uuid NOT NULL,
    body_hash bytea NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT idempotency_key_body_hash_is_sha256 CHECK ((octet_length(body_hash) = 32))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');
ALTER TABLE ONLY public.idempotency_keys FORCE ROW LEVEL SECURITY;
ALTER TABLE public.idempotency_keys OWNER TO posthorn_owner;
CREATE TABLE public.idempotent_answers (
    tenant_id uuid NOT NULL,
    route text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    claim bigint NOT NULL,
    body_hash bytea NOT NULL,
    running_until timestamp with time zone,
    status smallint,
    key_id text,
    sealed bytea,
    expires_at timestamp with time zone NOT NULL,
    changed boolean DEFAULT false NOT NULL,
    caller uuid,
    CONSTRAINT idempotent_answer_body_hash_is_sha256 CHECK ((octet_length(body_hash) = 32)),
    CONSTRAINT idempotent_answer_is_whole_or_running CHECK ((num_nulls(status, key_id, sealed) =
CASE
    WHEN (running_until IS NULL) THEN 0
    ELSE 3
END))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');
ALTER TABLE ONLY public.idempotent_answers ALTER COLUMN sealed SET STORAGE EXTERNAL;
ALTER TABLE ONLY public.idempotent_answers FORCE ROW LEVEL SECURITY;
ALTER TABLE public.idempotent_answers OWNER TO posthorn_owner;
CREATE TABLE public.kept_events (
    tenant_id uuid CONSTRAINT events_tenant_id_not_null NOT NULL,
    id uuid CONSTRAINT events_id_not_null NOT NULL,
    stream bigint CONSTRAINT events_stream_not_null NOT NULL,
    application_id uuid,
    type text CONSTRAINT events_type_not_null NOT NULL,
    uid text,
    occurred_at timestamp with time zone,
    endpoints uuid[] CONSTRAINT events_endpoints_not_null NOT NULL,
    content_type text,
    codec smallint CONSTRAINT events_codec_not_null NOT NULL,
    size integer CONSTRAINT events_size_not_null NOT NULL,
    payload bytea CONSTRAINT events_payload_not_null NOT NULL,
    metadata text,
    headers text,
    CONSTRAINT event_codec_is_known CHECK ((codec = ANY (ARRAY[0, 1])))
);
ALTER TABLE ONLY public.kept_events ALTER COLUMN payload SET STORAGE EXTERNAL;
ALTER TABLE ONLY public.kept_events FORCE ROW LEVEL SECURITY;
ALTER TABLE public.kept_events OWNER TO posthorn_owner;
CREATE TABLE public.master_key_probe (
    key_id text NOT NULL,
    sealed bytea NOT NULL
);
ALTER TABLE public.master_key_probe OWNER TO posthorn_owner;
CREATE TABLE public.nodes (
    stream bigint NOT NULL,
    node uuid NOT NULL,
    name text NOT NULL,
    state text NOT NULL,
    lease_until timestamp with time zone NOT NULL,
    watermark uuid NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    sends boolean DEFAULT true NOT NULL,
    master_keys text[] DEFAULT '{}'::text[] NOT NULL,
    CONSTRAINT node_state_is_known CHECK ((state = ANY (ARRAY['open'::text, 'closed'::text, 'recovered'::text])))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='200');
ALTER TABLE public.nodes OWNER TO posthorn_owner;
CREATE TABLE public.pending (
    tenant_id uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    event_id uuid NOT NULL,
    shard smallint NOT NULL,
    due timestamp with time zone,
    n integer NOT NULL,
    step integer NOT NULL,
    since integer NOT NULL,
    then_due timestamp with time zone,
    ends_at timestamp with time zone NOT NULL,
    why text NOT NULL,
    replay_id uuid,
    CONSTRAINT pending_numbers_count_up CHECK (((n >= 1) AND (step >= 0) AND ((since >= 1) AND (since <= n)))),
    CONSTRAINT pending_reason_is_known CHECK ((why = ANY (ARRAY['handover'::text, 'retry'::text, 'recovered'::text, 'replay'::text, 'rate_limit'::text, 'circuit'::text, 'retry_after'::text, 'paused'::text, 'disabled'::text, 'capacity'::text]))),
    CONSTRAINT pending_shard_is_the_last_byte_of_its_endpoint CHECK (((shard >= 0) AND (shard <= 255)))
)
WITH (fillfactor='85', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='500', autovacuum_vacuum_cost_delay='0');
ALTER TABLE ONLY public.pending FORCE ROW LEVEL SECURITY;
ALTER TABLE public.pending OWNER TO posthorn_owner;
CREATE TABLE public.retention (
    one boolean DEFAULT true NOT NULL,
    floor uuid NOT NULL,
    kept_to uuid DEFAULT '00000000-0000-0000-0000-000000000000'::uuid NOT NULL,
    CONSTRAINT retention_has_one_row CHECK (one),
    CONSTRAINT retention_keeps_before_it_empties CHECK ((kept_to <= floor))
);
ALTER TABLE public.retention OWNER TO posthorn_owner;
CREATE TABLE public.shards (
    shard smallint NOT NULL,
    owner bigint,
    CONSTRAINT there_are_256_shards CHECK (((shard >= 0) AND (shard <= 255)))
)
WITH (fillfactor='50');
ALTER TABLE public.shards OWNER TO posthorn_owner;
CREATE TABLE public.streams (
    stream bigint NOT NULL,
    lane smallint NOT NULL,
    state text NOT NULL,
    CONSTRAINT stream_state_is_known CHECK ((state = ANY (ARRAY['open'::text, 'closed'::text])))
);
ALTER TABLE public.streams OWNER TO posthorn_owner;
CREATE TABLE public.tenants (
    id uuid NOT NULL,
    name text NOT NULL,
    environment text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    CONSTRAINT tenant_environment_is_live_or_test CHECK ((environment = ANY (ARRAY['live'::text, 'test'::text]))),
    CONSTRAINT tenant_name_has_1_to_100_characters CHECK (((char_length(name) >= 1) AND (char_length(name) <= 100)))
);
ALTER TABLE ONLY public.tenants FORCE ROW LEVEL SECURITY;
ALTER TABLE public.tenants OWNER TO posthorn_owner;
ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (tenant_id, id);
ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT attempts_pkey PRIMARY KEY (endpoint_id, event_id, id);
ALTER TABLE ONLY public.audit_log
    ADD CONSTRAINT audit_log_pkey PRIMARY KEY (tenant_id, id);
ALTER TABLE ONLY public.config_head
    ADD CONSTRAINT config_head_pkey PRIMARY KEY (one);
ALTER TABLE ONLY public.config_log
    ADD CONSTRAINT config_log_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.dead_letters
    ADD CONSTRAINT dead_letters_pkey PRIMARY KEY (tenant_id, endpoint_id, event_id);
ALTER TABLE ONLY public.endpoint_secrets
    ADD CONSTRAINT endpoint_secrets_pkey PRIMARY KEY (tenant_id, endpoint_id, id);
ALTER TABLE ONLY public.endpoint_state
    ADD CONSTRAINT endpoint_state_pkey PRIMARY KEY (tenant_id, endpoint_id);
ALTER TABLE ONLY public.endpoint_versions
    ADD CONSTRAINT endpoint_versions_pkey PRIMARY KEY (tenant_id, endpoint_id, config_seq);
ALTER TABLE ONLY public.endpoints
    ADD CONSTRAINT endpoints_pkey PRIMARY KEY (tenant_id, id);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (tenant_id, id);
ALTER TABLE ONLY public.housekeeping
    ADD CONSTRAINT housekeeping_pkey PRIMARY KEY (one);
ALTER TABLE ONLY public.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (tenant_id, route, key);
ALTER TABLE ONLY public.idempotent_answers
    ADD CONSTRAINT idempotent_answers_pkey PRIMARY KEY (tenant_id, route, key);
ALTER TABLE ONLY public.kept_events
    ADD CONSTRAINT kept_events_pkey PRIMARY KEY (tenant_id, id);
ALTER TABLE ONLY public.master_key_probe
    ADD CONSTRAINT master_key_probe_pkey PRIMARY KEY (key_id);
ALTER TABLE ONLY public.nodes
    ADD CONSTRAINT nodes_pkey PRIMARY KEY (stream);
ALTER TABLE ONLY public.pending
    ADD CONSTRAINT pending_pkey PRIMARY KEY (tenant_id, endpoint_id, event_id);
ALTER TABLE ONLY public.retention
    ADD CONSTRAINT retention_pkey PRIMARY KEY (one);
ALTER TABLE ONLY public.shards
    ADD CONSTRAINT shards_pkey PRIMARY KEY (shard);
ALTER TABLE ONLY public.streams
    ADD CONSTRAINT streams_pkey PRIMARY KEY (stream, lane);
ALTER TABLE ONLY public.tenants
    ADD CONSTRAINT tenants_pkey PRIMARY KEY (id);
CREATE UNIQUE INDEX api_keys_hash ON public.api_keys USING btree (tenant_id, hash);
CREATE INDEX attempts_failed ON ONLY public.attempts USING btree (tenant_id, at) WHERE (outcome = 'failed'::text);
CREATE INDEX audit_log_target ON public.audit_log USING btree (tenant_id, target, id);
CREATE INDEX audit_log_time ON public.audit_log USING btree (id);
CREATE INDEX dead_letters_by_application ON public.dead_letters USING btree (tenant_id, application_id, died_at) WHERE (application_id IS NOT NULL);
CREATE INDEX dead_letters_by_endpoint ON public.dead_letters USING btree (tenant_id, endpoint_id, died_at, event_id);
CREATE INDEX dead_letters_died ON public.dead_letters USING btree (tenant_id, died_at, event_id, endpoint_id);
CREATE INDEX endpoint_state_changed ON public.endpoint_state USING btree (changed_at);
CREATE UNIQUE INDEX endpoint_uid_is_unique ON public.endpoints USING btree (tenant_id, uid) WHERE ((uid IS NOT NULL) AND (deleted_at IS NULL));
CREATE INDEX events_application ON ONLY public.events USING btree (tenant_id, application_id, id) WHERE (application_id IS NOT NULL);
CREATE INDEX events_id_brin ON ONLY public.events USING brin (id) WITH (pages_per_range='16', autosummarize='on');
CREATE INDEX idempotency_keys_expiry ON public.idempotency_keys USING btree (expires_at);
CREATE INDEX idempotent_answers_expiry ON public.idempotent_answers USING btree (expires_at);
CREATE INDEX pending_due ON public.pending USING btree (shard, due) WHERE (due IS NOT NULL);
CREATE INDEX pending_parked ON public.pending USING btree (shard, tenant_id, endpoint_id, ends_at, event_id) WHERE (due IS NULL);
ALTER TABLE public.api_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.attempts ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.audit_log ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.config_log ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.dead_letters ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.endpoint_secrets ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.endpoint_state ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.endpoint_versions ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.endpoints ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.events ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.idempotency_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.idempotent_answers ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.kept_events ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.pending ENABLE ROW LEVEL SECURITY;
CREATE POLICY system ON public.api_keys TO posthorn_system USING (true);
CREATE POLICY system ON public.attempts TO posthorn_system USING (true);
CREATE POLICY system ON public.audit_log FOR SELECT TO posthorn_system USING (true);
CREATE POLICY system ON public.config_log TO posthorn_system USING (true);
CREATE POLICY system ON public.dead_letters TO posthorn_system USING (true);
CREATE POLICY system ON public.endpoint_secrets TO posthorn_system USING (true);
CREATE POLICY system ON public.endpoint_state TO posthorn_system USING (true);
CREATE POLICY system ON public.endpoint_versions TO posthorn_system USING (true);
CREATE POLICY system ON public.endpoints TO posthorn_system USING (true);
CREATE POLICY system ON public.events TO posthorn_system USING (true);
CREATE POLICY system ON public.idempotency_keys TO posthorn_system USING (true);
CREATE POLICY system ON public.idempotent_answers TO posthorn_system USING (true);
CREATE POLICY system ON public.kept_events TO posthorn_system USING (true);
CREATE POLICY system ON public.pending TO posthorn_system USING (true);
CREATE POLICY system ON public.tenants TO posthorn_system USING (true);
CREATE POLICY system_expires ON public.audit_log FOR DELETE TO posthorn_system USING ((id < public.posthorn_uuid_floor((now() - '400 days'::interval))));
CREATE POLICY system_writes ON public.audit_log FOR INSERT TO posthorn_system WITH CHECK (true);
CREATE POLICY tenant ON public.api_keys TO posthorn_tenant USING ((tenant_id = (NULLIF(current_setting('posthorn.tenant'::text, true), ''::text))::uuid));
CREATE POLICY tenant ON public.attempts TO posthorn_tenant USING ((tenant_id = (NULLIF(current_setting('posthorn.tenant'::text, true), ''::text))::uuid));
CREATE POLICY tenant ON public.audit_log TO posthorn_tenant USING ((tenant_id = (NULLIF(current_setting('posthorn.tenant'::text, true), ''::text))::uuid));
CREATE POLICY tenant ON public.config_log TO posthorn_tenant USING ((tenant_id = (NULLIF(current_setting('posthorn.tenant'::text, true), ''::text))::uuid));
CREATE POLICY tenant ON public.dead_letters TO posthorn_tenant USING ((tenant_id = (NULLIF(current_setting('posthorn.tenant'::text, true), ''::text))::uuid));
CREATE POLICY tenant ON public.endpoint_secrets TO posthorn_tenant USING ((tenant_id = (NULLIF(current_setting('posthorn.tenant'::text, true), ''::text))::uuid));
CREATE POLICY tenant ON public.endpoint_state TO posthorn_tenant USING ((tenant_id = (NULLIF(current_setting('posthorn.tenant'::text, true), ''::text))::uuid));
CREATE POLICY tenant ON public.endpoint_versions TO posthorn_tenant USING ((tenant_id = (NULLIF(current_setting('posthorn.tenant'::text, true), ''::text))::uuid));
CREATE POLICY tenant ON public.endpoints TO posthorn_tenant USING ((tenant_id = (NULLIF(current_setting('posthorn.tenant'::text, true), ''::text))::uuid));
CREATE POLICY tenant ON public.events TO posthorn_tenant USING ((tenant_id = (NULLIF(current_setting('posthorn.tenant'::text, true), ''::text))::uuid));
CREATE POLICY tenant ON public.idempotency_keys TO posthorn_tenant USING ((tenant_id = (NULLIF(current_setting('posthorn.tenant'::text, true), ''::text))::uuid));
CREATE POLICY tenant ON public.idempotent_answers TO posthorn_tenant USING ((tenant_id = (NULLIF(current_setting('posthorn.tenant'::text, true), ''::text))::uuid));
CREATE POLICY tenant ON public.kept_events TO posthorn_tenant USING ((tenant_id = (NULLIF(current_setting('posthorn.tenant'::text, true), ''::text))::uuid));
CREATE POLICY tenant ON public.pending TO posthorn_tenant USING ((tenant_id = (NULLIF(current_setting('posthorn.tenant'::text, true), ''::text))::uuid));
CREATE POLICY tenant ON public.tenants TO posthorn_tenant USING ((id = (NULLIF(current_setting('posthorn.tenant'::text, true), ''::text))::uuid));
ALTER TABLE public.tenants ENABLE ROW LEVEL SECURITY;
REVOKE ALL ON FUNCTION public.posthorn_drop_leaves(day date) FROM PUBLIC;
GRANT ALL ON FUNCTION public.posthorn_drop_leaves(day date) TO posthorn_system;
REVOKE ALL ON FUNCTION public.posthorn_empty_leaves(day date) FROM PUBLIC;
GRANT ALL ON FUNCTION public.posthorn_empty_leaves(day date) TO posthorn_system;
REVOKE ALL ON FUNCTION public.posthorn_freeze_leaves(day date) FROM PUBLIC;
GRANT ALL ON FUNCTION public.posthorn_freeze_leaves(day date) TO posthorn_system;
REVOKE ALL ON FUNCTION public.posthorn_is_leaf(parent text, leaf text, day date) FROM PUBLIC;
GRANT ALL ON FUNCTION public.posthorn_is_leaf(parent text, leaf text, day date) TO posthorn_system;
REVOKE ALL ON FUNCTION public.posthorn_make_leaves(day date) FROM PUBLIC;
GRANT ALL ON FUNCTION public.posthorn_make_leaves(day date) TO posthorn_system;
GRANT SELECT,INSERT,UPDATE ON TABLE public.api_keys TO posthorn_system;
GRANT SELECT,INSERT,UPDATE ON TABLE public.api_keys TO posthorn_tenant;
GRANT SELECT,INSERT ON TABLE public.attempts TO posthorn_system;
GRANT SELECT,INSERT ON TABLE public.attempts TO posthorn_tenant;
GRANT SELECT,INSERT,DELETE ON TABLE public.audit_log TO posthorn_system;
GRANT SELECT,INSERT ON TABLE public.audit_log TO posthorn_tenant;
GRANT SELECT,UPDATE ON TABLE public.config_head TO posthorn_system;
GRANT SELECT ON TABLE public.config_head TO posthorn_tenant;
GRANT UPDATE(seq) ON TABLE public.config_head TO posthorn_tenant;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.config_log TO posthorn_system;
GRANT SELECT,INSERT ON TABLE public.config_log TO posthorn_tenant;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.dead_letters TO posthorn_system;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.dead_letters TO posthorn_tenant;
GRANT SELECT,INSERT,UPDATE ON TABLE public.endpoint_secrets TO posthorn_system;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.endpoint_secrets TO posthorn_tenant;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.endpoint_state TO posthorn_system;
GRANT SELECT,UPDATE ON TABLE public.endpoint_state TO posthorn_tenant;
GRANT SELECT,INSERT ON TABLE public.endpoint_versions TO posthorn_system;
GRANT SELECT,INSERT ON TABLE public.endpoint_versions TO posthorn_tenant;
GRANT SELECT,INSERT,UPDATE ON TABLE public.endpoints TO posthorn_system;
GRANT SELECT,INSERT,UPDATE ON TABLE public.endpoints TO posthorn_tenant;
GRANT SELECT,INSERT ON TABLE public.events TO posthorn_system;
GRANT SELECT ON TABLE public.events TO posthorn_tenant;
GRANT SELECT,UPDATE ON TABLE public.housekeeping TO posthorn_system;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.idempotency_keys TO posthorn_system;
GRANT SELECT ON TABLE public.idempotency_keys TO posthorn_tenant;
GRANT SELECT,DELETE,UPDATE ON TABLE public.idempotent_answers TO posthorn_system;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.idempotent_answers TO posthorn_tenant;
GRANT SELECT,INSERT,DELETE ON TABLE public.kept_events TO posthorn_system;
GRANT SELECT ON TABLE public.kept_events TO posthorn_tenant;
GRANT UPDATE(endpoints) ON TABLE public.kept_events TO posthorn_system;
GRANT SELECT,INSERT,DELETE ON TABLE public.master_key_probe TO posthorn_system;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.nodes TO posthorn_system;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.pending TO posthorn_system;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.pending TO posthorn_tenant;
GRANT SELECT,UPDATE ON TABLE public.retention TO posthorn_system;
GRANT SELECT ON TABLE public.retention TO posthorn_tenant;
GRANT UPDATE(one) ON TABLE public.retention TO posthorn_tenant;
GRANT SELECT,UPDATE ON TABLE public.shards TO posthorn_system;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.streams TO posthorn_system;
GRANT SELECT,INSERT,UPDATE ON TABLE public.tenants TO posthorn_system;
GRANT SELECT ON TABLE public.tenants TO posthorn_tenant;
