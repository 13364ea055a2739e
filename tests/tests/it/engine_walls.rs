//! The walls between tenants, in the database itself (INV-9): whatever a statement forgets, the roles do not show.

use posthorn_store::audit;
use posthorn_store::database::TenantTransaction;
use posthorn_store::scope::{Actor, TenantScope};
use posthorn_tests::engine::{Node, Runs};
use posthorn_tests::receiver::Reply;
use sqlx::AssertSqlSafe;

use crate::engine_scene::Scene;

/// Every table with a tenant's rows.
const TABLES: [&str; 11] = [
    "events",
    "attempts",
    "pending",
    "dead_letters",
    "kept_events",
    "idempotency_keys",
    "idempotent_answers",
    "audit_log",
    "endpoints",
    "endpoint_versions",
    "endpoint_secrets",
];

/// Those with nothing of a tenant's to be seen here.
const UNSEEN: [&str; 3] = ["api_keys", "config_log", "endpoint_state"];

/// A tenant with an event, an attempt, a pending row and an endpoint; and a stranger.
async fn two_tenants() -> (Scene, Node, TenantScope, TenantScope) {
    let scene = Scene::begin().await;
    scene.receiver.script("/hook", Reply::status(500));
    scene.endpoint("/hook").await;
    let stranger = scene.tenants.tenant().await;
    let node = scene.node(Runs::All).await;
    node.accept(scene.tenant, "{}").await;
    scene.attempted(&node, "/hook", 1).await;
    scene
        .rows
        .run(
            "INSERT INTO dead_letters (tenant_id, endpoint_id, event_id, type, cause, deaths, died_at)
             SELECT tenant_id, endpoint_id, event_id, 'order.paid', 'exhausted', 1, now() FROM pending",
        )
        .await;
    scene
        .rows
        .run(
            "INSERT INTO idempotency_keys (tenant_id, route, key, event_id, body_hash, expires_at)
             SELECT tenant_id, 'uid', 'u', id, sha256(payload), now() + interval '1 day' FROM events",
        )
        .await;
    scene
        .rows
        .run(
            "INSERT INTO idempotent_answers (tenant_id, route, key, claim, body_hash, running_until, expires_at)
             SELECT tenant_id, route, key, 1, body_hash, now(), expires_at FROM idempotency_keys",
        )
        .await;
    let owner = TenantScope::new_authenticated(scene.tenant, Actor::COMMAND_LINE);
    let stranger = TenantScope::new_authenticated(stranger, Actor::COMMAND_LINE);
    (scene, node, owner, stranger)
}

async fn count(tx: &mut TenantTransaction, table: &str) -> i64 {
    let statement = format!("SELECT count(*) FROM {table}");
    sqlx::query_scalar(AssertSqlSafe(statement))
        .fetch_one(&mut **tx)
        .await
        .unwrap()
}

/// INV-9.
#[tokio::test]
async fn engine_walls_hide_every_row_of_a_tenant_from_another() {
    let (_scene, node, _owner, stranger) = two_tenants().await;
    let mut tx = node.database.tenant_tx(&stranger).await.unwrap();
    let mut seen = Vec::new();
    for table in TABLES {
        let anothers =
            format!("{table} WHERE tenant_id <> current_setting('posthorn.tenant')::uuid");
        if count(&mut tx, &anothers).await > 0 {
            seen.push(table);
        }
    }
    assert_eq!(seen, [""; 0]);
}

/// INV-9: a wall that hides everything from everybody would prove nothing.
#[tokio::test]
async fn engine_walls_show_a_tenant_its_own_rows() {
    let (_scene, node, owner, _stranger) = two_tenants().await;
    let mut tx = node.database.tenant_tx(&owner).await.unwrap();
    let mut seen = Vec::new();
    for table in TABLES {
        if count(&mut tx, table).await > 0 {
            seen.push(table);
        }
    }
    let without_kept: Vec<_> = TABLES
        .into_iter()
        .filter(|table| *table != "kept_events")
        .collect();
    assert_eq!(seen, without_kept);
}

/// The SQLSTATE with which a statement is refused in a tenant's transaction; `None`: how many rows it hit.
async fn refusal(node: &Node, scope: &TenantScope, statement: &'static str) -> Result<u64, String> {
    let mut tx = node.database.tenant_tx(scope).await.unwrap();
    match sqlx::query(statement).execute(&mut *tx).await {
        Ok(done) => Ok(done.rows_affected()),
        Err(error) => Err(error
            .as_database_error()
            .and_then(|refused| refused.code().map(std::borrow::Cow::into_owned))
            .unwrap()),
    }
}

/// Long enough for a statement, and shorter than a connection is waited for.
const SOON: std::time::Duration = std::time::Duration::from_secs(2);

const NOT_ALLOWED: &str = "42501";

/// INV-9.
#[tokio::test]
async fn engine_walls_keep_a_tenant_from_changing_anothers_endpoint() {
    let (_scene, node, _owner, stranger) = two_tenants().await;
    let hit = refusal(&node, &stranger, "UPDATE endpoints SET url = 'http://x/'").await;
    assert_eq!(hit, Ok(0));
}

/// INV-9.
#[tokio::test]
async fn engine_walls_keep_a_tenant_from_deleting_anothers_pending_row() {
    let (_scene, node, _owner, stranger) = two_tenants().await;
    let hit = refusal(&node, &stranger, "DELETE FROM pending").await;
    assert_eq!(hit, Ok(0));
}

/// INV-9.
#[tokio::test]
async fn engine_walls_keep_a_tenant_from_writing_a_row_in_anothers_name() {
    let (_scene, node, _owner, stranger) = two_tenants().await;
    let refused = refusal(
        &node,
        &stranger,
        "INSERT INTO pending (tenant_id, endpoint_id, event_id, shard, n, step, since, ends_at, why)
         VALUES ('01890000-0000-7000-8000-000000000001', '01890000-0000-7000-8000-000000000002',
                 '01890000-0000-7000-8000-000000000003', 3, 1, 0, 1, now(), 'replay')",
    )
    .await;
    assert_eq!(refused, Err(NOT_ALLOWED.to_owned()));
}

/// INV-9: the log is append-only for a tenant, too.
#[tokio::test]
async fn engine_walls_keep_a_tenant_from_rewriting_its_own_attempts() {
    let (_scene, node, owner, _stranger) = two_tenants().await;
    let refused = refusal(&node, &owner, "UPDATE attempts SET outcome = 'success'").await;
    assert_eq!(refused, Err(NOT_ALLOWED.to_owned()));
}

/// INV-9: not even its own, since a leaf has no policy of the parent's.
#[tokio::test]
async fn engine_walls_keep_a_tenant_from_reading_a_leaf_directly() {
    let (scene, node, owner, _stranger) = two_tenants().await;
    let leaf = leaf(&scene).await;
    let mut tx = node.database.tenant_tx(&owner).await.unwrap();
    let statement = format!("SELECT count(*) FROM {leaf}");
    let refused = sqlx::query(AssertSqlSafe(statement))
        .execute(&mut *tx)
        .await
        .unwrap_err();
    assert_eq!(
        refused.as_database_error().unwrap().code().as_deref(),
        Some(NOT_ALLOWED)
    );
}

/// The leaf that holds the event.
async fn leaf(scene: &Scene) -> String {
    let mut connection = scene.database.superuser().await;
    sqlx::query_scalar("SELECT tableoid::regclass::text FROM events LIMIT 1")
        .fetch_one(&mut connection)
        .await
        .unwrap()
}

/// INV-9: what a forgotten role would see.
#[tokio::test]
async fn engine_walls_show_a_transaction_without_a_tenant_nothing() {
    let (_scene, node, owner, _stranger) = two_tenants().await;
    let mut tx = node.database.tenant_tx(&owner).await.unwrap();
    sqlx::query("SELECT set_config('posthorn.tenant', '', true)")
        .execute(&mut *tx)
        .await
        .unwrap();
    assert_eq!(count(&mut tx, "events").await, 0);
}

/// INV-9: the login itself may do nothing.
#[tokio::test]
async fn engine_walls_show_the_login_without_a_role_nothing() {
    let (_scene, node, owner, _stranger) = two_tenants().await;
    let refused = refusal(&node, &owner, "RESET ROLE").await;
    assert_eq!(refused, Ok(0));
    let mut tx = node.database.tenant_tx(&owner).await.unwrap();
    sqlx::query("RESET ROLE").execute(&mut *tx).await.unwrap();
    let refused = sqlx::query("SELECT count(*) FROM events")
        .execute(&mut *tx)
        .await
        .unwrap_err();
    assert_eq!(
        refused.as_database_error().unwrap().code().as_deref(),
        Some(NOT_ALLOWED)
    );
}

/// INV-9: whoever adds a table is told of the walls, whatever this file knows.
#[tokio::test]
async fn engine_walls_stand_around_every_table_with_a_tenants_rows() {
    let scene = Scene::begin().await;
    let open = "SELECT c.relname::text FROM pg_class AS c
                JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
                WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace
                  AND NOT (c.relrowsecurity AND c.relforcerowsecurity
                           AND pg_get_userbyid(c.relowner) NOT IN ('posthorn_app', 'posthorn_tenant', 'posthorn_system'))";
    assert_eq!(scene.rows.texts(open).await, [""; 0]);
    // What a tenant may touch at all it touches through a policy that names the tenant.
    let bare = "SELECT c.relname::text FROM pg_class AS c
                JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
                WHERE c.relkind IN ('r', 'p') AND has_any_column_privilege('posthorn_tenant', c.oid, 'SELECT, INSERT, UPDATE')
                  AND NOT EXISTS (SELECT 1 FROM pg_policies AS p
                                  WHERE p.tablename = c.relname AND p.roles = '{posthorn_tenant}'
                                    AND p.qual LIKE '%tenant_id = (NULLIF(current_setting(''posthorn.tenant''%')";
    assert_eq!(scene.rows.texts(bare).await, [""; 0]);
    let known = "SELECT c.relname::text FROM pg_class AS c
                 JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
                 WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
                   AND has_table_privilege('posthorn_tenant', c.oid, 'SELECT')";
    for table in scene.rows.texts(known).await {
        let listed = TABLES.contains(&table.as_str()) || UNSEEN.contains(&table.as_str());
        assert!(listed, "{table}: have its walls tried here");
    }
}

/// INV-9; INV-10: nobody rewrites what is on record, and nobody takes back what is young.
#[tokio::test]
async fn engine_walls_keep_the_audit_log_as_it_was_written() {
    let (scene, node, owner, _stranger) = two_tenants().await;
    for statement in ["UPDATE audit_log SET action = 'x'", "DELETE FROM audit_log"] {
        let refused = refusal(&node, &owner, statement).await;
        assert_eq!(refused, Err(NOT_ALLOWED.to_owned()), "{statement}");
    }
    let entries = "SELECT count(*) FROM audit_log";
    let before = scene.rows.number(entries).await;
    for statement in [
        "SET ROLE posthorn_system",
        "DELETE FROM audit_log",
        "RESET ROLE",
    ] {
        scene.rows.run(statement).await;
    }
    assert_eq!(scene.rows.number(entries).await, before);
    // 401 days ago it was somebody else's.
    scene
        .rows
        .run(
            "INSERT INTO audit_log (tenant_id, id, actor_kind, action, target)
             SELECT tenant_id, posthorn_uuid_at(now() - interval '401 days'), 'posthorn', action, target FROM audit_log LIMIT 1",
        )
        .await;
    assert_eq!(audit::expire(&node.database).await.unwrap(), 1);
    assert_eq!(scene.rows.number(entries).await, before);
}

/// INV-9: a pooled connection does not carry one tenant's role into the next transaction.
#[tokio::test]
async fn engine_walls_stand_again_when_a_connection_is_used_by_the_next_tenant() {
    let (scene, _node, owner, stranger) = two_tenants().await;
    let database = scene.database.pools(1, 1);
    let mut first = database.tenant_tx(&owner).await.unwrap();
    assert_eq!(count(&mut first, "events").await, 1);
    first.commit().await.unwrap();
    let mut second = database.tenant_tx(&stranger).await.unwrap();
    assert_eq!(count(&mut second, "events").await, 0);
}

/// What a statement sees is decided here, and not by how somebody set up the database.
#[tokio::test]
async fn engine_walls_pin_the_isolation_that_statements_rely_on() {
    let scene = Scene::begin().await;
    let strict =
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = %L',
                                            current_database(), 'serializable'); END $$";
    scene.rows.run(strict).await;
    let database = scene.database.pools(1, 1);
    let scope = TenantScope::new_authenticated(scene.tenant, Actor::COMMAND_LINE);
    let mut tx = database.tenant_tx(&scope).await.unwrap();
    let level: String = sqlx::query_scalar("SHOW transaction_isolation")
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    assert_eq!(level, "read committed");
}

/// INV-13: the pool alone would serve whoever came first.
#[tokio::test]
async fn a_tenant_with_many_changes_under_way_keeps_no_other_waiting() {
    let (scene, _node, owner, stranger) = two_tenants().await;
    let database = scene.database.pools(1, 4);
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(database.tenant_tx(&owner).await.unwrap());
    }
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let database = database.clone();
            tokio::spawn(async move { database.tenant_tx(&owner).await.map(drop) })
        })
        .collect();
    for _ in 0..20 {
        let turn = tokio::time::timeout(SOON, database.tenant_tx(&stranger)).await;
        turn.expect("the stranger waits").unwrap();
    }
    assert!(waiting.iter().all(|waits| !waits.is_finished()));
    drop(held);
    for waits in waiting {
        waits.await.unwrap().unwrap();
    }
}
