-- The history of messages, in the same columns. The queue sets the time of expiry of each.
CREATE TABLE history (
    row TEXT NOT NULL, name BLOB NOT NULL, stamp INTEGER NOT NULL, expires INTEGER, value BLOB NOT NULL,
    PRIMARY KEY (row, name)
) WITHOUT ROWID;

CREATE INDEX history_expiring ON history (expires) WHERE expires IS NOT NULL;
