-- What people set: tenants, their keys and endpoints. Every change of it also raises config_head.

CREATE TABLE tenants (
    id          uuid        NOT NULL,
    name        text        NOT NULL,
    environment text        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    deleted_at  timestamptz,
    CONSTRAINT tenants_pkey PRIMARY KEY (id),
    CONSTRAINT tenant_environment_is_live_or_test CHECK (environment IN ('live', 'test')),
    CONSTRAINT tenant_name_has_1_to_100_characters CHECK (char_length(name) BETWEEN 1 AND 100)
);

CREATE TABLE api_keys (
    tenant_id    uuid        NOT NULL,
    id           uuid        NOT NULL,
    name         text        NOT NULL,
    -- The first characters of the key, to tell keys apart; nothing secret.
    prefix       text        NOT NULL,
    -- SHA-256 of the whole key.
    hash         bytea       NOT NULL,
    scopes       text[]      NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    last_used_at timestamptz,
    revoked_at   timestamptz,
    CONSTRAINT api_keys_pkey PRIMARY KEY (tenant_id, id),
    CONSTRAINT api_key_hash_is_sha256 CHECK (octet_length(hash) = 32)
);
CREATE UNIQUE INDEX api_keys_hash ON api_keys (tenant_id, hash);

CREATE TABLE endpoints (
    tenant_id      uuid        NOT NULL,
    id             uuid        NOT NULL,
    uid            text,
    application_id uuid,
    url            text        NOT NULL,
    description    text        NOT NULL DEFAULT '',
    event_types    text[]      NOT NULL,
    -- The custom headers as a JSON object of strings, sealed: their values are credentials.
    headers_sealed bytea,
    headers_key_id text,
    -- Their names alone, for reads.
    header_names   text[]      NOT NULL DEFAULT '{}',
    -- A RetryPolicy as JSON.
    retry_policy   text        NOT NULL,
    -- Every delivery's end, from accept: as given, or the policy's own default, worked out when it was saved.
    max_age_s      integer     NOT NULL,
    max_age_given  boolean     NOT NULL,
    timeout_ms     integer     NOT NULL,
    fatal_statuses smallint[]  NOT NULL DEFAULT '{}',
    signing_schemes text[]     NOT NULL,
    keep_responses text        NOT NULL,
    -- A JSON object of strings.
    metadata       text        NOT NULL DEFAULT '{}',
    state          text        NOT NULL,
    state_cause    text,
    state_reason   text,
    -- The seq of the change that made this version; the row of endpoint_versions.
    config_seq     bigint      NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    deleted_at     timestamptz,
    CONSTRAINT endpoints_pkey PRIMARY KEY (tenant_id, id),
    CONSTRAINT endpoint_headers_name_their_master_key CHECK ((headers_sealed IS NULL) = (headers_key_id IS NULL)),
    CONSTRAINT endpoint_state_is_known CHECK (state IN ('enabled', 'paused', 'disabled')),
    CONSTRAINT endpoint_state_cause_is_known CHECK (state_cause IN ('gone', 'failing')),
    CONSTRAINT endpoint_timeout_is_1_to_30_seconds CHECK (timeout_ms BETWEEN 1000 AND 30000),
    CONSTRAINT endpoint_max_age_is_1_minute_to_30_days CHECK (max_age_s BETWEEN 60 AND 2592000),
    CONSTRAINT endpoint_keep_responses_is_known CHECK (keep_responses IN ('failures', 'all', 'none'))
);
-- The uid of a deleted endpoint is free again.
CREATE UNIQUE INDEX endpoint_uid_is_unique ON endpoints (tenant_id, uid) WHERE uid IS NOT NULL AND deleted_at IS NULL;

CREATE TABLE endpoint_versions (
    tenant_id    uuid        NOT NULL,
    endpoint_id  uuid        NOT NULL,
    config_seq   bigint      NOT NULL,
    at           timestamptz NOT NULL DEFAULT now(),
    url          text        NOT NULL,
    header_names text[]      NOT NULL,
    retry_policy text        NOT NULL,
    CONSTRAINT endpoint_versions_pkey PRIMARY KEY (tenant_id, endpoint_id, config_seq)
);

CREATE TABLE endpoint_secrets (
    tenant_id   uuid        NOT NULL,
    endpoint_id uuid        NOT NULL,
    id          uuid        NOT NULL,
    kind        text        NOT NULL,
    -- The master key that sealed it.
    key_id      text        NOT NULL,
    sealed      bytea       NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    -- Null: in force. Else signs beside the newer one until then.
    retires_at  timestamptz,
    CONSTRAINT endpoint_secrets_pkey PRIMARY KEY (tenant_id, endpoint_id, id),
    CONSTRAINT endpoint_secret_kind_is_known CHECK (kind IN ('v1', 'v1a'))
);

-- One sealed known text: a wrong ring is found at start, not at the first delivery.
CREATE TABLE master_key_probe (
    key_id text  NOT NULL,
    sealed bytea NOT NULL,
    CONSTRAINT master_key_probe_pkey PRIMARY KEY (key_id)
);
