-- Shards are shared among the nodes that send. One that only accepts, or is about to leave, has none.

ALTER TABLE nodes
    -- Whether it takes its part of the shards. Written with the lease; a program that does not know of it does.
    ADD COLUMN sends boolean NOT NULL DEFAULT true;
