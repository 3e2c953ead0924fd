"""The tables of the database of jobs on a PostgreSQL server, and the way there from any older version.

The same columns as in ``schema``. ``sequence`` numbers the jobs; ids compare by their bytes.
"""

from __future__ import annotations

PREPARE = """
CREATE SCHEMA IF NOT EXISTS leap;
SET LOCAL search_path TO leap;
CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL);
INSERT INTO schema_version SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM schema_version);
CREATE OR REPLACE FUNCTION leap_now() RETURNS double precision LANGUAGE SQL VOLATILE
    AS $$ SELECT extract(epoch FROM clock_timestamp())::double precision $$;
"""

MIGRATIONS = (
    """
    CREATE TABLE jobs (
        id TEXT COLLATE "C" PRIMARY KEY,
        sequence BIGINT GENERATED ALWAYS AS IDENTITY,
        kind TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
        parameters TEXT NOT NULL,
        attempt INTEGER NOT NULL DEFAULT 1,
        failures INTEGER NOT NULL DEFAULT 0,
        interruptions INTEGER NOT NULL DEFAULT 0,
        deaths INTEGER NOT NULL DEFAULT 0,
        retries INTEGER NOT NULL DEFAULT 0,
        priority INTEGER NOT NULL DEFAULT 0,
        run_after DOUBLE PRECISION NOT NULL DEFAULT 0,
        owner TEXT,
        worker TEXT,
        heartbeat DOUBLE PRECISION,
        lease_until DOUBLE PRECISION,
        cancel_requested INTEGER NOT NULL DEFAULT 0,
        progress TEXT,
        error TEXT,
        result TEXT,
        model TEXT,
        machine TEXT,
        parent TEXT COLLATE "C" REFERENCES jobs (id) ON DELETE CASCADE,
        max_workers INTEGER,
        output TEXT,
        version INTEGER NOT NULL DEFAULT 1,
        created DOUBLE PRECISION NOT NULL,
        started DOUBLE PRECISION,
        finished DOUBLE PRECISION
    );
    CREATE INDEX jobs_to_claim ON jobs (kind, priority DESC, created, sequence) WHERE state = 'queued';
    CREATE INDEX jobs_running ON jobs (lease_until) WHERE state = 'running';
    CREATE INDEX jobs_of_owner ON jobs (owner) WHERE state = 'running';
    CREATE INDEX jobs_by_age ON jobs (created DESC, sequence DESC) WHERE parent IS NULL;
    CREATE INDEX jobs_by_parent ON jobs (parent) WHERE parent IS NOT NULL;
    CREATE INDEX jobs_by_output ON jobs (output) WHERE output IS NOT NULL;
    CREATE TABLE events (
        job TEXT COLLATE "C" NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        attempt INTEGER NOT NULL,
        number INTEGER NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (job, attempt, number)
    );
    CREATE TABLE workers (
        id TEXT PRIMARY KEY,
        machine TEXT NOT NULL,
        name TEXT NOT NULL,
        pid INTEGER NOT NULL,
        version TEXT NOT NULL,
        started DOUBLE PRECISION NOT NULL,
        seen DOUBLE PRECISION NOT NULL,
        capacity TEXT NOT NULL,
        models TEXT NOT NULL,
        draining INTEGER NOT NULL DEFAULT 0
    );
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
    );
    CREATE TABLE table_id (id TEXT NOT NULL);
    INSERT INTO table_id VALUES (substr(md5(random()::text || clock_timestamp()::text), 1, 16));
    """,
    """
    ALTER TABLE jobs ADD COLUMN origin TEXT;
    ALTER TABLE workers ADD COLUMN origins TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE workers ADD COLUMN fetches INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX jobs_ended ON jobs (finished) WHERE finished IS NOT NULL;
    """,
    """
    ALTER TABLE jobs ADD COLUMN needs TEXT COLLATE "C" NOT NULL
        GENERATED ALWAYS AS (COALESCE(model, '') || '@' || COALESCE(machine, '')) STORED;
    ALTER TABLE jobs ADD COLUMN held INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN open_shards INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN done INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN succeeded INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN tokens BIGINT NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN forgotten INTEGER NOT NULL DEFAULT 0;
    DROP INDEX jobs_to_claim, jobs_by_parent, jobs_ended;
    CREATE INDEX jobs_to_claim ON jobs (kind, needs, priority DESC, created, sequence)
        WHERE state = 'queued' AND held = 0;
    CREATE INDEX jobs_due ON jobs (run_after) WHERE state = 'queued' AND run_after > 0;
    CREATE INDEX jobs_of_batch ON jobs (parent, state) WHERE parent IS NOT NULL;
    CREATE INDEX jobs_held ON jobs (parent, sequence) WHERE held = 1;
    CREATE INDEX jobs_of_worker ON jobs (worker) WHERE state = 'running';
    CREATE INDEX jobs_by_state ON jobs (state, kind) WHERE parent IS NULL;
    CREATE INDEX jobs_ended ON jobs (finished) WHERE finished IS NOT NULL AND forgotten = 0;
    CREATE INDEX jobs_repeated ON jobs (attempt) WHERE attempt > 1;
    UPDATE jobs SET output = NULL WHERE state IN ('queued', 'running') AND EXISTS (SELECT 1 FROM jobs other
        WHERE other.output = jobs.output AND other.state IN ('queued', 'running') AND other.sequence > jobs.sequence);
    CREATE UNIQUE INDEX jobs_output_in_use ON jobs (output)
        WHERE output IS NOT NULL AND state IN ('queued', 'running');
    CREATE INDEX batch_results_by_key ON batch_results USING hash (key);
    UPDATE jobs SET open_shards = (SELECT COUNT(*) FROM jobs s WHERE s.parent = jobs.id
        AND s.state IN ('queued', 'running')) WHERE kind = 'batch' AND state IN ('queued', 'running');
    UPDATE jobs SET done = r.done, succeeded = r.succeeded, tokens = r.tokens FROM (SELECT job, COUNT(*) AS done,
        SUM(succeeded) AS succeeded, SUM(tokens) AS tokens FROM batch_results GROUP BY job) r WHERE r.job = jobs.id;
    """,
    # A lease is renewed within its page, as no index holds it; few jobs run, so others lead to one that is over.
    """
    ALTER TABLE workers ADD COLUMN woken DOUBLE PRECISION NOT NULL DEFAULT 0;
    DROP INDEX jobs_running;
    ALTER TABLE jobs SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
        autovacuum_analyze_scale_factor = 0.02);
    ALTER TABLE workers SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
    ALTER TABLE events SET (autovacuum_vacuum_scale_factor = 0.02);
    ALTER TABLE batch_results SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);
    """,
)
