-- A drain reads an endpoint's parked rows in the order of their ends and goes on behind the last one it read. Many
-- rows may have one and the same end (a bulk replay gives all of them the same), so the event's id completes the place.
DROP INDEX pending_parked;
CREATE INDEX pending_parked ON pending (shard, tenant_id, endpoint_id, ends_at, event_id) WHERE due IS NULL;
