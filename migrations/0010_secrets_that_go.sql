-- A secret that no longer signs is of use to nobody: whoever rotates removes what is over, so that an endpoint has no more
-- secrets than those that sign, however often they are changed.

GRANT DELETE ON endpoint_secrets TO posthorn_tenant;
