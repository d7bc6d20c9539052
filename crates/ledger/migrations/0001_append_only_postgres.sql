CREATE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$;
CREATE TRIGGER audit_log_no_update BEFORE UPDATE OR DELETE ON audit_log
FOR EACH ROW EXECUTE FUNCTION audit_refuse();
CREATE TRIGGER audit_log_no_truncate BEFORE TRUNCATE ON audit_log
FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse();
CREATE TRIGGER audit_head_forward BEFORE UPDATE ON audit_head
FOR EACH ROW WHEN (NEW.seq <= OLD.seq) EXECUTE FUNCTION audit_refuse();
CREATE TRIGGER audit_head_no_delete BEFORE DELETE ON audit_head
FOR EACH ROW EXECUTE FUNCTION audit_refuse();
CREATE TRIGGER audit_head_no_truncate BEFORE TRUNCATE ON audit_head
FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse();
