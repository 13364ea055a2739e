//! Who may call the owner's functions, and what a new leaf shows (INV-9).

use posthorn_store::alarm;
use sqlx::Executor as _;

use crate::engine_scene::Scene;

/// Functions of the owner that act with its rights and can be turned against it, or called by who should not.
const OPEN_FUNCTIONS: &str = "SELECT count(*) FROM pg_proc
     WHERE pronamespace = 'public'::regnamespace AND prosecdef
       AND (proconfig IS NULL OR NOT 'search_path=public, pg_temp' = ANY (proconfig)
            OR NOT EXISTS (SELECT 1 FROM unnest(proconfig) AS c WHERE c LIKE 'lock_timeout=%')
            OR has_function_privilege('posthorn_tenant', oid, 'EXECUTE')
            OR has_function_privilege('posthorn_app', oid, 'EXECUTE')
            OR NOT has_function_privilege('posthorn_system', oid, 'EXECUTE')
            OR pg_get_userbyid(proowner) <> 'posthorn_owner')";

const DEFINER_FUNCTIONS: &str =
    "SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosecdef";

/// Leaves whose rows somebody could reach without their parent.
const OPEN_LEAVES: &str =
    "SELECT count(*) FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
     WHERE i.inhparent IN ('events'::regclass, 'attempts'::regclass)
       AND (NOT c.relrowsecurity OR NOT c.relforcerowsecurity OR c.relacl IS NOT NULL
            OR EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = c.oid)
            OR pg_get_userbyid(c.relowner) <> 'posthorn_owner')";

/// INV-9.
#[tokio::test]
async fn engine_housekeeping_functions_act_for_the_engine_alone_and_with_a_pinned_search_path() {
    let scene = Scene::begin().await;
    assert_eq!(scene.rows.number(DEFINER_FUNCTIONS).await, 4);
    assert_eq!(scene.rows.number(OPEN_FUNCTIONS).await, 0);
}

/// INV-9: the same walls as the first ones had, emptied or new.
#[tokio::test]
async fn engine_housekeeping_leaves_the_walls_of_a_leaf_standing() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let key = scene.old(&endpoint, 40).await;
    scene.rows.died(key).await;
    assert_eq!(scene.round().await.emptied, 1);
    assert_eq!(scene.rows.number(OPEN_LEAVES).await, 0);
}

/// G12: a snapshot that somebody holds is told by its age, which nothing else brings down.
#[tokio::test]
async fn engine_housekeeping_tells_how_old_a_snapshot_is_that_pins_dead_rows() {
    let scene = Scene::begin().await;
    let database = scene.database.pools(1, 1);
    let mut pinning = scene.database.superuser().await;
    pinning
        .execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        .await
        .unwrap();
    let pinned = alarm::standing(&database).await.unwrap().pinned;
    for _ in 0..20 {
        scene.rows.run("UPDATE housekeeping SET holder = 1").await;
    }
    let held = alarm::standing(&database).await.unwrap();
    assert_eq!(held.pinned, pinned);
    assert!(held.pinned_age >= 20, "{held:?}");
}

/// G08: how long partitions will last, and when somebody last looked.
#[tokio::test]
async fn engine_housekeeping_tells_how_many_days_have_leaves_and_when_it_was_last_done() {
    let scene = Scene::begin().await;
    scene.round().await;
    let standing = alarm::standing(&scene.database.pools(1, 1)).await.unwrap();
    assert_eq!(standing.leaves_ahead, 7);
    assert!((standing.now - standing.housekept_at).num_seconds() < 60);
}
