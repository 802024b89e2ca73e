//! Tables of the database.

/// Version of the layout, in SQLite's `user_version`. Files with another version are rejected.
pub const LAYOUT: i64 = 4;

/// SQLite's `application_id`: "Trce".
pub(crate) const APPLICATION: i64 = 0x5472_6365;

/// Size of a page: a row of a part has about 2 KiB, and several should fit in a page.
pub(crate) const PAGE_BYTES: u32 = 16 * 1024;

pub(crate) const TABLES: &str = "
CREATE TABLE named (key TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL);

CREATE TABLE hosts (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE names (id INTEGER PRIMARY KEY, host INTEGER NOT NULL, name TEXT NOT NULL);

CREATE TABLE raw_windows (id INTEGER PRIMARY KEY, host INTEGER NOT NULL, at_ns INTEGER NOT NULL, head BLOB NOT NULL);
CREATE UNIQUE INDEX raw_windows_at ON raw_windows (host, at_ns);
CREATE TABLE raw_parts (id INTEGER PRIMARY KEY, volumes BLOB NOT NULL);

CREATE TABLE rolled_windows (id INTEGER PRIMARY KEY, host INTEGER NOT NULL, at_ns INTEGER NOT NULL, head BLOB NOT NULL);
CREATE UNIQUE INDEX rolled_windows_at ON rolled_windows (host, at_ns);
CREATE TABLE rolled_parts (id INTEGER PRIMARY KEY, volumes BLOB NOT NULL);

CREATE TABLE decisions (
    id INTEGER PRIMARY KEY, host TEXT NOT NULL, generation INTEGER NOT NULL, at_ns INTEGER NOT NULL, outputs BLOB NOT NULL
);
CREATE UNIQUE INDEX decisions_generation ON decisions (host, generation);
CREATE INDEX decisions_at ON decisions (at_ns);
CREATE TABLE decision_inputs (id INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, inputs BLOB NOT NULL);
CREATE INDEX decision_inputs_at ON decision_inputs (at_ns);

CREATE TABLE events (id INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, share TEXT NOT NULL, event TEXT NOT NULL);
CREATE INDEX events_share ON events (share, id);
CREATE TABLE event_shares (share TEXT PRIMARY KEY NOT NULL, events INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER events_more AFTER INSERT ON events BEGIN
    INSERT INTO event_shares (share, events) VALUES (new.share, 1)
    ON CONFLICT (share) DO UPDATE SET events = events + 1;
END;
CREATE TRIGGER events_less AFTER DELETE ON events BEGIN
    UPDATE event_shares SET events = events - 1 WHERE share = old.share;
    DELETE FROM event_shares WHERE share = old.share AND events = 0;
END;

CREATE TABLE jobs (
    id INTEGER PRIMARY KEY, host TEXT NOT NULL, job INTEGER NOT NULL, planned_ns INTEGER NOT NULL, ended_ns INTEGER,
    view TEXT NOT NULL
);
CREATE UNIQUE INDEX jobs_job ON jobs (host, job);
CREATE INDEX jobs_planned ON jobs (planned_ns, job, host);
CREATE INDEX jobs_ended ON jobs (ended_ns) WHERE ended_ns IS NOT NULL;

CREATE TABLE outcomes (
    id INTEGER PRIMARY KEY, host TEXT NOT NULL, job INTEGER NOT NULL, ended_ns INTEGER NOT NULL, view TEXT NOT NULL
);
CREATE UNIQUE INDEX outcomes_job ON outcomes (host, job);
CREATE INDEX outcomes_ended ON outcomes (ended_ns, job, host);
";
