-- The key of attempts without the tenant. An endpoint is one tenant's, and its id is random: the tenant told nothing that the
-- endpoint does not, and was written for every attempt, once with its row and once more when its page of the index was
-- split. Each reader asks by endpoint; what a tenant may read is held by its policy and its condition, as before.
--
-- The index is built anew over all that is kept, and nothing is recorded meanwhile: this takes as long as that.

ALTER TABLE attempts DROP CONSTRAINT attempts_pkey;
ALTER TABLE attempts ADD CONSTRAINT attempts_pkey PRIMARY KEY (endpoint_id, event_id, id);
