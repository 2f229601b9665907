-- A line of the journal says which operation of the function it answers: `seq` is the order in which the code received
-- the answers, `entry` the order in which it asked.
ALTER TABLE journal ADD COLUMN entry integer NOT NULL DEFAULT 0;
