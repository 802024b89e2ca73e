//! The tables.

/// Version of the layout, in SQLite's `user_version`. All have the same tables, and values that programs of the ones before do not
/// understand: those of 2 speak of some extents of a volume, which a program that knows only 1 would take for all of it; in those of 3
/// plans are lists of actions, and jobs are active without a word on the step of their copy.
pub const LAYOUT: i64 = 3;

/// The oldest layout that is read; a file of it becomes one of [`LAYOUT`] when it is opened.
pub const LAYOUT_OLDEST: i64 = 1;

/// SQLite's `application_id`: "Trce".
pub(crate) const APPLICATION: i64 = 0x5472_6365;

/// A row of a part is about 2 KiB: several have to fit in a page.
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

CREATE TABLE events (id INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, event TEXT NOT NULL);

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
