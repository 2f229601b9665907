-- Several places of one instance may wait for the same message. Reserved names keep other instances out.
DROP INDEX waits_message;
CREATE INDEX waits_message ON waits (name, key) WHERE kind = 'message' AND closed_at IS NULL AND fired_at IS NULL;

-- A wait for a broadcast with a key, its own id, is answered only by what is directed to it, and by one broadcast.
DROP INDEX waits_broadcast;
CREATE INDEX waits_broadcast ON waits (name, instance_id)
    WHERE kind = 'broadcast' AND closed_at IS NULL AND (key IS NULL OR fired_at IS NULL);

ALTER TABLE deliveries ADD COLUMN wait_id text COLLATE "C" NOT NULL DEFAULT ''; -- of such a wait; empty: by name
ALTER TABLE deliveries DROP CONSTRAINT deliveries_pkey;
ALTER TABLE deliveries ADD PRIMARY KEY (broadcast_id, instance_id, wait_id);
