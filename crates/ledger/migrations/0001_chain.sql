-- The chain, its head, and what makes both append-only. Words in double braces are the engine's own (schema.rs).

CREATE TABLE audit_log (
    seq         {{serial_key}},
    id          {{bytes}} NOT NULL UNIQUE,
    at          {{int64}} NOT NULL,
    actor       TEXT NOT NULL,
    kind        TEXT NOT NULL,
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    uid         TEXT NOT NULL,
    target      TEXT NOT NULL,
    event       TEXT NOT NULL,
    outcome     TEXT NOT NULL,
    correlation TEXT NOT NULL,
    payload     TEXT NOT NULL,
    previous    {{bytes}} NOT NULL,
    hash        {{bytes}} NOT NULL
);

-- One for each thing that is asked for, each ending in the order in which answers are given.
CREATE INDEX audit_log_at ON audit_log (at, seq);
CREATE INDEX audit_log_target ON audit_log (target, at, seq) WHERE target <> '';
CREATE INDEX audit_log_actor ON audit_log (actor, at, seq);
CREATE INDEX audit_log_kind ON audit_log (kind, at, seq);
CREATE INDEX audit_log_name ON audit_log (name, at, seq);
CREATE INDEX audit_log_correlation ON audit_log (correlation, at, seq);

-- Where the chain ends. It is read and moved in the transaction that appends, so two writers cannot fork the chain;
-- and it stands apart from the rows, so that rows missing at the end are noticed.
CREATE TABLE audit_head (
    one  {{int64}} PRIMARY KEY CHECK (one = 1),
    seq  {{int64}} NOT NULL,
    hash {{bytes}} NOT NULL
);

{{append_only}}
