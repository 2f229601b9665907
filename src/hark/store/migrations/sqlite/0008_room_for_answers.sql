-- Nothing to do here: SQLite updates in place. The number is PostgreSQL's, and both count alike.
DROP INDEX IF EXISTS answers_in_place;
