-- The inbox: tasks that an application puts here within a transaction of its own, by `docket_enqueue`. A coordinator
-- takes them out again and makes their first event of them, in one transaction. No projection: nothing of the log
-- says what stands here.

CREATE TABLE inbox (
  id           TEXT COLLATE "C" PRIMARY KEY CHECK (length(id) <= 100),
  spec         TEXT   NOT NULL CHECK (octet_length(spec) BETWEEN 1 AND 1048576),
  submitted_by TEXT   NOT NULL CHECK (length(submitted_by) <= 100),
  created_at   BIGINT NOT NULL,
  refused      TEXT,
  refused_at   BIGINT,
  CHECK ((refused IS NULL) = (refused_at IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- What coordinators look for each second: rows that wait, oldest first.
CREATE INDEX inbox_waiting ON inbox (created_at, id) WHERE refused IS NULL;

-- Who may execute it may do nothing else: it writes as its owner, on a search path that nobody can put anything
-- into. Nobody may, until it is granted. It gives no hint to coordinators: a NOTIFY takes a lock over the whole
-- database at its transaction's commit, which would be the application's; they look each second.
DO $do$
BEGIN
  EXECUTE format($make$
CREATE FUNCTION %1$I.docket_enqueue(spec jsonb, task uuid DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
  at_us bigint := floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  made  bytea;
  field text;
BEGIN
  IF spec IS NULL OR jsonb_typeof(spec) <> 'object' THEN
    RAISE EXCEPTION 'docket_enqueue: a task is a JSON object' USING ERRCODE = 'invalid_parameter_value',
      HINT = 'write docket_enqueue(''{"like": "ID of a task", "title": "…", "text": "…"}'')';
  END IF;
  IF spec ? 'like' THEN
    IF jsonb_typeof(spec -> 'like') <> 'string'
       OR spec ->> 'like' !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN
      RAISE EXCEPTION 'docket_enqueue: "like" must be the whole id of a task'
        USING ERRCODE = 'invalid_parameter_value';
    END IF;
  ELSE
    FOREACH field IN ARRAY ARRAY['title', 'text', 'base', 'model'] LOOP
      IF NOT spec ? field THEN
        RAISE EXCEPTION 'docket_enqueue: "%%" is missing', field USING ERRCODE = 'invalid_parameter_value',
          HINT = 'give all of a task''s fields, or "like" with the id of a task that has the others';
      END IF;
    END LOOP;
  END IF;
  FOREACH field IN ARRAY ARRAY['title', 'text'] LOOP
    IF spec ? field AND jsonb_typeof(spec -> field) <> 'string' THEN
      RAISE EXCEPTION 'docket_enqueue: "%%" must be a string', field USING ERRCODE = 'invalid_parameter_value';
    END IF;
  END LOOP;
  IF spec ? 'title' AND (btrim(spec ->> 'title') = '' OR length(spec ->> 'title') > 200) THEN
    RAISE EXCEPTION 'docket_enqueue: "title" must be 1 to 200 characters'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF octet_length(spec ->> 'text') > 131072 THEN
    RAISE EXCEPTION 'docket_enqueue: "text" must be at most 131072 bytes'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF octet_length(spec::text) > 1048576 THEN
    RAISE EXCEPTION 'docket_enqueue: a task must be at most 1048576 bytes'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF task IS NULL THEN
    -- Version 7: milliseconds, then what is random of a version 4.
    made := overlay(uuid_send(gen_random_uuid())
                    PLACING substring(int8send(at_us / 1000) FROM 3) FROM 1 FOR 6);
    made := set_byte(made, 6, (get_byte(made, 6) & 15) | 112);
    task := encode(made, 'hex')::uuid;
  END IF;
  INSERT INTO %1$I.inbox (id, spec, submitted_by, created_at)
  VALUES (task::text, spec::text, session_user, at_us) ON CONFLICT (id) DO NOTHING;
  RETURN task;
END
$body$
$make$, current_schema());
  EXECUTE format('REVOKE ALL ON FUNCTION %I.docket_enqueue(jsonb, uuid) FROM PUBLIC', current_schema());
END
$do$;
