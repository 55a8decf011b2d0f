-- The columns of every row: its key, the name (19 bytes that sort as names do), the write time and the time of expiry in
-- microseconds, the value. Clustered by the primary key, so a slice of a row is one run of pages. Times come before the
-- value, so that reading them reads no page of a long value.
-- A process compares these definitions with those of a file, word by word. So comments stand before statements only:
-- SQLite would keep one inside a statement as a part of the definition.
CREATE TABLE entries (
    row TEXT NOT NULL, name BLOB NOT NULL, stamp INTEGER NOT NULL, expires INTEGER, value BLOB NOT NULL,
    PRIMARY KEY (row, name)
) WITHOUT ROWID;

-- Costs nothing for columns that stay for good, which are nearly all.
CREATE INDEX entries_expiring ON entries (expires) WHERE expires IS NOT NULL;

-- For human readers: a name split into type, priority, id and state. The id is shown as a UUID: a name has the parts of
-- its time in reverse order, and its second half with the top bit of each byte inverted. No process reads this view.
CREATE VIEW readable AS SELECT
    row,
    (16 * (instr('0123456789ABCDEF', substr(hex(name), 1, 1)) - 1) + (instr('0123456789ABCDEF', substr(hex(name), 2, 1)) - 1)) AS type,
    255 - (16 * (instr('0123456789ABCDEF', substr(hex(name), 3, 1)) - 1) + (instr('0123456789ABCDEF', substr(hex(name), 4, 1)) - 1)) AS priority,
    lower(
        substr(hex(name), 13, 8)
        || '-' || substr(hex(name), 9, 4)
        || '-' || '1' || substr(hex(name), 6, 3)
        || '-' || substr('89ABCDEF01234567', instr('0123456789ABCDEF', substr(hex(name), 21, 1)), 1) || substr(hex(name), 22, 1)
        || substr('89ABCDEF01234567', instr('0123456789ABCDEF', substr(hex(name), 23, 1)), 1) || substr(hex(name), 24, 1)
        || '-' || substr('89ABCDEF01234567', instr('0123456789ABCDEF', substr(hex(name), 25, 1)), 1) || substr(hex(name), 26, 1)
        || substr('89ABCDEF01234567', instr('0123456789ABCDEF', substr(hex(name), 27, 1)), 1) || substr(hex(name), 28, 1)
        || substr('89ABCDEF01234567', instr('0123456789ABCDEF', substr(hex(name), 29, 1)), 1) || substr(hex(name), 30, 1)
        || substr('89ABCDEF01234567', instr('0123456789ABCDEF', substr(hex(name), 31, 1)), 1) || substr(hex(name), 32, 1)
        || substr('89ABCDEF01234567', instr('0123456789ABCDEF', substr(hex(name), 33, 1)), 1) || substr(hex(name), 34, 1)
        || substr('89ABCDEF01234567', instr('0123456789ABCDEF', substr(hex(name), 35, 1)), 1) || substr(hex(name), 36, 1)
    ) AS id,
    (16 * (instr('0123456789ABCDEF', substr(hex(name), 37, 1)) - 1) + (instr('0123456789ABCDEF', substr(hex(name), 38, 1)) - 1)) AS state,
    length(value) AS bytes,
    strftime('%Y-%m-%dT%H:%M:%fZ', stamp / 1000000.0, 'unixepoch') AS written,
    strftime('%Y-%m-%dT%H:%M:%fZ', expires / 1000000.0, 'unixepoch') AS expires
FROM entries;
