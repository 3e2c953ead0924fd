"""The tables of the database of jobs on a PostgreSQL server.

The same columns as in a file, and those of batches, whose lines are rows here. ``sequence`` numbers the jobs; ids
compare by their bytes.
"""

from __future__ import annotations

from .store_protocol import JOB_COLUMNS, WORKER_COLUMNS

PREPARE = """
CREATE SCHEMA IF NOT EXISTS leap;
SET LOCAL search_path TO leap;
CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL);
INSERT INTO schema_version SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM schema_version);
CREATE OR REPLACE FUNCTION leap_now() RETURNS double precision LANGUAGE SQL VOLATILE
    AS $$ SELECT extract(epoch FROM clock_timestamp())::double precision $$;
"""

VERSION = 4
SCRIPT = f"""
CREATE TABLE jobs (
    id TEXT COLLATE "C" PRIMARY KEY,
    sequence BIGINT GENERATED ALWAYS AS IDENTITY,
    needs TEXT COLLATE "C" NOT NULL
        GENERATED ALWAYS AS (COALESCE(model, '') || '@' || COALESCE(machine, '')) STORED,
    parent TEXT COLLATE "C" REFERENCES jobs (id) ON DELETE CASCADE,
    held INTEGER NOT NULL DEFAULT 0,
    open_shards INTEGER NOT NULL DEFAULT 0,
    done INTEGER NOT NULL DEFAULT 0,
    succeeded INTEGER NOT NULL DEFAULT 0,
    tokens BIGINT NOT NULL DEFAULT 0,
    forgotten INTEGER NOT NULL DEFAULT 0,{JOB_COLUMNS.replace("REAL", "DOUBLE PRECISION")}
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
    autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX jobs_to_claim ON jobs (kind, needs, priority DESC, created, sequence)
    WHERE state = 'queued' AND held = 0;
CREATE INDEX jobs_due ON jobs (run_after) WHERE state = 'queued' AND run_after > 0;
CREATE INDEX jobs_of_owner ON jobs (owner) WHERE state = 'running';
CREATE INDEX jobs_of_worker ON jobs (worker) WHERE state = 'running';
CREATE INDEX jobs_by_age ON jobs (created DESC, sequence DESC) WHERE parent IS NULL;
CREATE INDEX jobs_by_state ON jobs (state, kind) WHERE parent IS NULL;
CREATE INDEX jobs_of_batch ON jobs (parent, state) WHERE parent IS NOT NULL;
CREATE INDEX jobs_held ON jobs (parent, sequence) WHERE held = 1;
CREATE INDEX jobs_by_output ON jobs (output) WHERE output IS NOT NULL;
CREATE UNIQUE INDEX jobs_output_in_use ON jobs (output)
    WHERE output IS NOT NULL AND state IN ('queued', 'running');
CREATE INDEX jobs_ended ON jobs (finished) WHERE finished IS NOT NULL AND forgotten = 0;
CREATE INDEX jobs_repeated ON jobs (attempt) WHERE attempt > 1;
CREATE TABLE events (
    job TEXT COLLATE "C" NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    attempt INTEGER NOT NULL,
    number INTEGER NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (job, attempt, number)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE TABLE workers (
    woken DOUBLE PRECISION NOT NULL DEFAULT 0,{WORKER_COLUMNS.replace("REAL", "DOUBLE PRECISION")}
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE TABLE batch_lines (
    job TEXT COLLATE "C" NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    raw BYTEA NOT NULL,
    PRIMARY KEY (job, number)
);
CREATE TABLE batch_results (
    job TEXT COLLATE "C" NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    key TEXT NOT NULL,
    succeeded INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (job, number)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE INDEX batch_results_by_key ON batch_results USING hash (key);
CREATE TABLE table_id (id TEXT NOT NULL);
INSERT INTO table_id VALUES (substr(md5(random()::text || clock_timestamp()::text), 1, 16));
"""
"""A lease is renewed within its page, as no index holds it; few jobs run, so other indexes lead to one that is over."""
