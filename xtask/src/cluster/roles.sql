-- The roles that migrations grant to. The program makes the same ones when it migrates.
DO $$
DECLARE
    wanted text[];
BEGIN
    FOREACH wanted SLICE 1 IN ARRAY ARRAY[
        ['posthorn_owner', 'NOLOGIN'],
        ['posthorn_app', 'LOGIN NOINHERIT'],
        ['posthorn_tenant', 'NOLOGIN'],
        ['posthorn_system', 'NOLOGIN']
    ] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted[1]) THEN
            EXECUTE format('CREATE ROLE %I %s', wanted[1], wanted[2]);
        END IF;
    END LOOP;
    GRANT posthorn_tenant, posthorn_system TO posthorn_app;
END $$;
