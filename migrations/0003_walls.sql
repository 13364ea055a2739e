-- Who may see what. posthorn_tenant sees one tenant's rows, named by the setting posthorn.tenant of its
-- transaction; posthorn_system, the engine's role, sees all. Neither owns a table or may bypass this.
-- posthorn_app is only a login: what it may do it does as one of the two.

DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['events', 'attempts', 'pending', 'dead_letters', 'kept_events', 'api_keys',
                             'endpoints', 'endpoint_versions', 'endpoint_secrets', 'config_log'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY system ON %I TO posthorn_system USING (true)', t);
        EXECUTE format('CREATE POLICY tenant ON %I TO posthorn_tenant '
                       'USING (tenant_id = NULLIF(current_setting(''posthorn.tenant'', true), '''')::uuid)', t);
    END LOOP;
    ALTER TABLE tenants ENABLE ROW LEVEL SECURITY;
    ALTER TABLE tenants FORCE ROW LEVEL SECURITY;
    CREATE POLICY system ON tenants TO posthorn_system USING (true);
    CREATE POLICY tenant ON tenants TO posthorn_tenant
        USING (id = NULLIF(current_setting('posthorn.tenant', true), '')::uuid);
END $$;

GRANT SELECT, INSERT ON events, attempts, kept_events TO posthorn_system;
GRANT SELECT, INSERT, UPDATE, DELETE ON pending, dead_letters TO posthorn_system;
GRANT SELECT, INSERT, UPDATE, DELETE ON nodes, streams, config_log TO posthorn_system;
GRANT SELECT, UPDATE ON shards, config_head, retention TO posthorn_system;
GRANT SELECT, INSERT, UPDATE ON tenants, api_keys, endpoints, endpoint_secrets TO posthorn_system;
GRANT SELECT, INSERT ON endpoint_versions, master_key_probe TO posthorn_system;
GRANT EXECUTE ON FUNCTION posthorn_make_leaves(date) TO posthorn_system;

-- Verdicts are rows of attempts; a replay is a row of pending.
GRANT SELECT, INSERT ON attempts TO posthorn_tenant;
GRANT SELECT ON events, kept_events, tenants TO posthorn_tenant;
GRANT SELECT, INSERT, UPDATE, DELETE ON pending, dead_letters TO posthorn_tenant;
GRANT SELECT, INSERT, UPDATE ON endpoints, endpoint_secrets, api_keys TO posthorn_tenant;
GRANT SELECT, INSERT ON endpoint_versions TO posthorn_tenant;
GRANT SELECT, INSERT ON config_log TO posthorn_tenant;
GRANT SELECT ON config_head TO posthorn_tenant;
GRANT UPDATE (seq) ON config_head TO posthorn_tenant;
