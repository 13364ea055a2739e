-- What signs and what seals changes while nodes run and receivers stay as they are: the signature's headers may be named as a
-- receiver knows them, a signature in another's form may stand beside, and a master key may be let go of once nothing lies sealed
-- under it and no node seals with it.

ALTER TABLE endpoints
    -- What the names of the signature's headers begin with.
    ADD COLUMN header_prefix text NOT NULL DEFAULT 'webhook',
    -- The other's form; null: none.
    ADD COLUMN compat_kind   text,
    -- The header that it stands in; null: the one that the other uses.
    ADD COLUMN compat_header text,
    -- Its secret, sealed, and the master key that sealed it.
    ADD COLUMN compat_sealed bytea,
    ADD COLUMN compat_key_id text,
    ADD CONSTRAINT endpoint_compat_kind_is_known CHECK (compat_kind IN ('github', 'stripe', 'hmac_sha256')),
    ADD CONSTRAINT endpoint_compat_is_whole CHECK
        (num_nulls(compat_kind, compat_sealed, compat_key_id) IN (0, 3) AND (compat_header IS NULL OR compat_kind IS NOT NULL));

ALTER TABLE nodes
    -- The ids of the master keys that the node has, the one that seals first. Empty: a program that does not say so.
    ADD COLUMN master_keys text[] NOT NULL DEFAULT '{}';

GRANT DELETE ON master_key_probe TO posthorn_system;
