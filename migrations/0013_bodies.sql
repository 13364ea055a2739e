-- What an endpoint's requests carry: the payload as it is, which is what a program that knows nothing of this sends, or the envelope
-- of Standard Webhooks around it.

ALTER TABLE endpoints
    ADD COLUMN body text NOT NULL DEFAULT 'payload',
    ADD CONSTRAINT endpoint_body_is_known CHECK (body IN ('payload', 'standard'));
