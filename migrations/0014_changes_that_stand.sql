-- A request with an idempotency key marks its key in the transaction of its change: whoever sends it again, after a crash between the
-- change and the keeping of its answer, learns that it was done instead of doing it again.

ALTER TABLE idempotent_answers
    ADD COLUMN changed boolean NOT NULL DEFAULT false;
