-- Housekeeping: whose turn it is, how far retention has come, and what the owner does for it on a leaf.

-- `floor` may rise before what lives below it has been copied: leaves are emptied up to `kept_to`, never up to `floor`.
ALTER TABLE retention ADD COLUMN kept_to uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000';
ALTER TABLE retention ADD CONSTRAINT retention_keeps_before_it_empties CHECK (kept_to <= floor);

-- Whoever makes a delivery pending locks the one row FOR KEY SHARE, which asks for UPDATE on some column. On `one` it
-- gives nothing away: only true may stand there.
GRANT SELECT, UPDATE (one) ON retention TO posthorn_tenant;

GRANT UPDATE (endpoints), DELETE ON kept_events TO posthorn_system;

-- One node at a time, by compare-and-set. A node that hangs holds nothing but a time that passes.
CREATE TABLE housekeeping (
    one         boolean     NOT NULL DEFAULT true,
    -- Random, of the node that has it.
    holder      bigint,
    -- From then on anybody may take it.
    held_until  timestamptz NOT NULL,
    -- When a whole round was last finished.
    finished_at timestamptz NOT NULL,
    CONSTRAINT housekeeping_pkey PRIMARY KEY (one),
    CONSTRAINT housekeeping_has_one_row CHECK (one)
);
INSERT INTO housekeeping (held_until, finished_at) VALUES (now(), now());
GRANT SELECT, UPDATE ON housekeeping TO posthorn_system;

-- Whether `leaf` is the partition of `parent` for the UTC day: by the catalogue, whatever it is called.
CREATE FUNCTION posthorn_is_leaf(parent text, leaf text, day date) RETURNS boolean
LANGUAGE sql STABLE STRICT
SET search_path = public, pg_temp
AS $$ SELECT EXISTS (
          SELECT 1
          FROM pg_catalog.pg_inherits AS i
          JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
          WHERE i.inhparent = to_regclass(parent) AND c.oid = to_regclass(leaf)
            AND pg_get_expr(c.relpartbound, c.oid) = format('FOR VALUES FROM (%L) TO (%L)',
                    posthorn_uuid_floor(day::timestamp AT TIME ZONE 'UTC'),
                    posthorn_uuid_floor((day + 1)::timestamp AT TIME ZONE 'UTC'))) $$;
REVOKE ALL ON FUNCTION posthorn_is_leaf(text, text, date) FROM PUBLIC;

-- As before, but a table that only has a leaf's name is not taken for one: making the leaf fails, and says so.
CREATE OR REPLACE FUNCTION posthorn_make_leaves(day date) RETURNS boolean
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
        CONTINUE WHEN posthorn_is_leaf(parent, leaf, day);
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)', leaf, parent);
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', leaf);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', leaf);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, leaf, low, high);
        made := true;
    END LOOP;
    RETURN made;
END $$;

-- Empties the leaves of a day that retention has passed: what lives of it has been copied. The lock is on the leaves
-- alone, for which nobody waits longer than this does. Answers false where there is no such day.
CREATE FUNCTION posthorn_empty_leaves(day date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp
SET lock_timeout = '100ms'
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
REVOKE ALL ON FUNCTION posthorn_empty_leaves(date) FROM PUBLIC;

-- Drops the leaves of a day that was emptied. Dropping locks the parents, too, so that everything waits while this
-- waits: hence not for long. Whether anything still refers to the day is for the caller to know; the owner reads no row.
CREATE FUNCTION posthorn_drop_leaves(day date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp
SET lock_timeout = '50ms'
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
REVOKE ALL ON FUNCTION posthorn_drop_leaves(date) FROM PUBLIC;

-- Has autovacuum freeze the leaves of a day that is over, whole and once: a thousand inserts that no vacuum has seen are
-- reason enough for one, and that one reads every page that is not frozen. (Not every single insert: attempts of late
-- retries come one by one.) The lock hinders neither reading nor writing.
CREATE FUNCTION posthorn_freeze_leaves(day date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp
SET lock_timeout = '100ms'
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
REVOKE ALL ON FUNCTION posthorn_freeze_leaves(date) FROM PUBLIC;

GRANT EXECUTE ON FUNCTION posthorn_is_leaf(text, text, date), posthorn_empty_leaves(date), posthorn_drop_leaves(date),
                          posthorn_freeze_leaves(date) TO posthorn_system;
