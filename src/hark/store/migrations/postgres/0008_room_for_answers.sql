-- One turn may answer many awakeables on one page, and no old row version is removed before it ends: with room for all
-- new versions no update touches an index (HOT). With 60, half of such a burst went to other pages.
ALTER TABLE awakeables SET (fillfactor = 45);
