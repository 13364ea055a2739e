//! Migrations on a database in use.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use posthorn_store::clock::Clock;
use posthorn_store::migrate::{self, Login};
use posthorn_tests::database::TestDatabase;
use posthorn_tests::environment;
use posthorn_tests::wait::{pause, until};
use secrecy::SecretString;
use sqlx::migrate::Migrator;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use crate::stage::AMPLE;

/// The last migration before one that takes the table of attempts for itself.
const BEFORE: &str = "0003";

/// How long a statement of the traffic may take while a migration waits.
const BRIEF: Duration = Duration::from_millis(1500);

/// A database that an older program has made; dropped with the test's cluster, or by its own end.
struct Older {
    name: String,
    folder: PathBuf,
}

impl Older {
    async fn make() -> Self {
        // Whoever makes the template makes the roles, which belong to the whole cluster.
        let _roles = TestDatabase::create().await;
        let older = Self {
            name: format!("posthorn_older_{}", environment::unique()),
            folder: environment::scratch("migrations"),
        };
        std::fs::create_dir(&older.folder).unwrap();
        let all = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../migrations");
        for entry in std::fs::read_dir(all).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if &name[..4] <= BEFORE {
                std::fs::copy(&path, older.folder.join(name)).unwrap();
            }
        }
        let mut admin = PgConnection::connect(&environment::database())
            .await
            .unwrap();
        let made = format!(
            "CREATE DATABASE {} TEMPLATE template0 OWNER posthorn_owner ENCODING 'UTF8'",
            older.name
        );
        admin.execute(AssertSqlSafe(made)).await.unwrap();
        let mut connection = older.connect().await;
        connection.execute("SET ROLE posthorn_owner").await.unwrap();
        let migrator = Migrator::new(older.folder.as_path()).await.unwrap();
        migrator.run(&mut connection).await.unwrap();
        older
    }

    fn url(&self) -> String {
        let url = environment::database();
        let (server, _) = url.rsplit_once('/').unwrap();
        format!("{server}/{}", self.name)
    }

    async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url()).await.unwrap()
    }

    async fn gone(self) {
        std::fs::remove_dir_all(&self.folder).unwrap();
        let mut admin = PgConnection::connect(&environment::database())
            .await
            .unwrap();
        let dropped = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        admin.execute(AssertSqlSafe(dropped)).await.unwrap();
    }
}

/// G09: it waits for a table that an idle transaction holds, without holding up everybody else, and is done when it is free.
#[tokio::test]
async fn a_migration_of_a_table_in_use_holds_no_traffic_up() {
    let older = Older::make().await;
    let mut idle = older.connect().await;
    idle.execute("BEGIN; SELECT count(*) FROM attempts")
        .await
        .unwrap();
    let login = Login::from_url(&SecretString::from(older.url())).unwrap();
    let done = Cell::new(false);
    let migrating = async {
        migrate::prepare(&login).await.unwrap();
        done.set(true);
    };
    let traffic = async {
        go_on_beside(&older).await;
        assert!(!done.get(), "it did not need the table");
        idle.execute("COMMIT").await.unwrap();
    };
    tokio::join!(migrating, traffic);
    let standing = migrate::inspect(&login).await.unwrap();
    assert_eq!(standing.pending.names, [] as [String; 0]);
    let invalid = "SELECT 1 FROM pg_index WHERE NOT indisvalid";
    assert_eq!(has_row(&older, invalid).await, None);
    older.gone().await;
}

/// What nodes of the older program do meanwhile, from when the migration waits: none of it takes long.
async fn go_on_beside(older: &Older) {
    until("the migration to wait for the table", AMPLE, async || {
        let waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'attempts'::regclass";
        has_row(older, waits).await
    })
    .await;
    let mut traffic = older.connect().await;
    let clock = Clock::start();
    for _ in 0..20 {
        let began = clock.monotonic();
        traffic
            .execute("SELECT count(*) FROM attempts")
            .await
            .unwrap();
        let took = clock.monotonic() - began;
        assert!(took < BRIEF, "{took:?}");
        pause(Duration::from_millis(100)).await;
    }
}

/// Whether a query has a row, asked over a connection of its own.
async fn has_row(older: &Older, query: &'static str) -> Option<()> {
    let mut connection = older.connect().await;
    let row = connection.fetch_optional(query).await.unwrap();
    row.map(drop)
}
