//! What every test of the engine begins with: a database, a tenant, a receiver, and eyes in the tables.

use posthorn_domain::id::TenantId;
use posthorn_store::accept::Acceptor;
use posthorn_tests::database::TestDatabase;
use posthorn_tests::engine::{Node, Parts, Runs};
use posthorn_tests::receiver::Receiver;
use posthorn_tests::rows::Rows;
use posthorn_tests::tenants::{Tenants, TestEndpoint};
use posthorn_worker::Worker;

/// One test's surroundings.
pub(crate) struct Scene {
    pub(crate) rows: Rows,
    pub(crate) tenants: Tenants,
    pub(crate) tenant: TenantId,
    pub(crate) receiver: Receiver,
    pub(crate) database: TestDatabase,
}

impl Scene {
    pub(crate) async fn begin() -> Self {
        let database = TestDatabase::create().await;
        let tenants = Tenants::new(database.pools(1, 1));
        Self {
            rows: Rows::of(&database).await,
            tenant: tenants.tenant().await,
            tenants,
            receiver: Receiver::start().await.unwrap(),
            database,
        }
    }

    /// A node with connections of its own; it knows what was configured until now.
    pub(crate) async fn node(&self, runs: Runs) -> Node {
        Node::start(self.database.pools(4, 2), runs).await
    }

    /// A whole node, as the program runs it, and its caller's side.
    pub(crate) async fn whole(&self) -> (Acceptor, Worker) {
        let parts = Parts::open(self.database.pools(4, 2)).await;
        (parts.acceptor.clone(), Worker::start(parts.whole()))
    }

    /// An endpoint of the tenant at a path of the receiver.
    pub(crate) async fn endpoint(&self, path: &str) -> TestEndpoint {
        self.tenants
            .endpoint(self.tenant, &self.receiver.url(path))
            .await
    }
}
