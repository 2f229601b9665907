-- SQLite has no round trips to save, and so no turns in one call; both databases have the same columns.
ALTER TABLE events ADD COLUMN call integer;
