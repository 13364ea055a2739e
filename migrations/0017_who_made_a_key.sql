-- A key says who made it: what kind of caller, and the API key that it came with.

ALTER TABLE api_keys
    -- Null in keys older than these columns.
    ADD COLUMN created_by_kind text,
    ADD COLUMN created_by_id uuid;
