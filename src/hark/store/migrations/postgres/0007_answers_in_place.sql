-- An answer is written into the row of its question: with room on the page no index is touched (HOT).
ALTER TABLE awakeables SET (fillfactor = 60);
