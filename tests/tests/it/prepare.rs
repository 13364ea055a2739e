//! Preparing databases: what a cluster's databases share, and who may be doing the same.

use futures_util::future::join_all;
use posthorn_store::migrate::{self, Login, MigrateError, Prepared};
use posthorn_tests::cluster::Cluster;
use posthorn_tests::wait::until;
use secrecy::SecretString;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use super::stage::AMPLE;

/// A cluster without roles of Posthorn, and these databases in it.
async fn cluster(databases: &[&str]) -> (Cluster, PgConnection) {
    let cluster = Cluster::start().await;
    let mut connection = PgConnection::connect(&cluster.url("postgres"))
        .await
        .unwrap();
    for name in databases {
        let made = AssertSqlSafe(format!("CREATE DATABASE {name} TEMPLATE template0"));
        connection.execute(made).await.unwrap();
    }
    (cluster, connection)
}

async fn prepare(url: String) -> Result<Prepared, MigrateError> {
    let login = Login::from_url(&SecretString::from(url)).unwrap();
    migrate::prepare(&login).await
}

#[tokio::test]
async fn a_role_that_somebody_makes_at_the_same_moment_is_not_in_the_way() {
    let (cluster, mut other) = cluster(&["one"]).await;
    // In a transaction pg_stat_activity stays as it was first seen.
    let mut watching = PgConnection::connect(&cluster.url("postgres"))
        .await
        .unwrap();
    other.execute("BEGIN").await.unwrap();
    other
        .execute("CREATE ROLE posthorn_owner NOLOGIN; CREATE ROLE posthorn_app LOGIN NOINHERIT")
        .await
        .unwrap();
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = 'one' AND wait_event_type = 'Lock'";
    let commits = async {
        until("the preparation to wait for the role", AMPLE, async || {
            let found: i64 = sqlx::query_scalar(waiting)
                .fetch_one(&mut watching)
                .await
                .unwrap();
            (found == 1).then_some(())
        })
        .await;
        other.execute("COMMIT").await.unwrap();
    };
    let (prepared, ()) = tokio::join!(prepare(cluster.url("one")), commits);
    let prepared = prepared.unwrap();
    assert_eq!(prepared.ran, prepared.known);
}

#[tokio::test]
async fn databases_of_one_cluster_may_be_prepared_at_the_same_moment() {
    let names = ["one", "two", "three", "four"];
    let (cluster, _connection) = cluster(&names).await;
    for prepared in join_all(names.map(|name| prepare(cluster.url(name)))).await {
        let prepared = prepared.unwrap();
        assert_eq!(prepared.ran, prepared.known);
    }
}
