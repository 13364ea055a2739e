-- An answer may hold what only its caller may see, such as a new secret: it is given again to whoever asked for it, and to nobody else.

ALTER TABLE idempotent_answers
    -- The API key whose request it was. Null in rows older than this column, whose answers are given to nobody any more.
    ADD COLUMN caller uuid;
