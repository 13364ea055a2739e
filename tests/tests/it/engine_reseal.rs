//! Sealing anew, batch by batch: stopped half-way, and beside changes.

use std::sync::Arc;

use futures_util::future::join_all;
use posthorn_domain::limits;
use posthorn_domain::seal::KeyRing;
use posthorn_store::configuration::ConfigCache;
use posthorn_store::configure::{EndpointPatch, HeaderChanges};
use posthorn_store::database::Database;
use posthorn_store::entropy::Entropy;
use posthorn_store::reseal::{Resealer, Step, begin, free};
use posthorn_tests::tenants::Tenants;

use crate::engine_scene::Scene;

/// The key that all tests seal with, behind a new one.
fn both() -> KeyRing {
    let text = format!("new:{}=,test:{}=", "E".repeat(43), "A".repeat(43));
    KeyRing::parse(&text).unwrap()
}

/// The same keys, as a node has them that does not seal with the new one yet.
fn old_first() -> KeyRing {
    let text = format!("test:{}=,new:{}=", "A".repeat(43), "E".repeat(43));
    KeyRing::parse(&text).unwrap()
}

fn new_alone() -> KeyRing {
    KeyRing::parse(&format!("new:{}=", "E".repeat(43))).unwrap()
}

const LEFT: &str = "SELECT (SELECT count(*) FROM endpoint_secrets WHERE key_id <> 'new')
                         + (SELECT count(*) FROM endpoints WHERE headers_key_id <> 'new')";

async fn to_the_end(database: &Database, ring: &KeyRing) {
    let mut resealer = Resealer::new(database, ring, Entropy);
    while resealer.run_once().await.unwrap() == Step::More {}
    assert_eq!(resealer.done().broken, 0);
}

/// INV-10, INV-11: a batch is a bounded statement, and whoever begins again takes what is left.
#[tokio::test]
async fn engine_reseal_goes_on_after_it_was_stopped_half_way() {
    let scene = Scene::begin().await;
    let database = scene.database.pools(2, 1);
    let endpoint = scene.endpoint("/hook").await;
    let more = usize::try_from(limits::RESEAL_ROWS).unwrap() + 20;
    scene.tenants.crowd(&scene.rows, &endpoint, more).await;
    begin(&database, &both(), Entropy).await.unwrap();
    let ring = both();
    let mut stopped = Resealer::new(&database, &ring, Entropy);
    assert_eq!(stopped.run_once().await.unwrap(), Step::More);
    drop(stopped);
    assert_eq!(scene.rows.number(LEFT).await, 21);
    assert_eq!(free(&database, &ring).await.unwrap(), [""; 0]);

    to_the_end(&database, &ring).await;
    assert_eq!(scene.rows.number(LEFT).await, 0);
    let cache = ConfigCache::new(database, Arc::new(new_alone()));
    cache.reload().await.unwrap();
    let snapshot = cache.snapshot();
    let entry = snapshot.endpoint(scene.tenant, endpoint.id).unwrap();
    assert!(entry.config.is_ok());
}

/// INV-10: what is changed meanwhile is what counts.
#[tokio::test]
async fn engine_reseal_undoes_no_change_that_is_made_beside_it() {
    let scene = Scene::begin().await;
    let database = scene.database.pools(4, 1);
    let mut endpoints = Vec::new();
    for _ in 0..8 {
        endpoints.push(scene.endpoint("/hook").await);
    }
    let tenants = Tenants::under(scene.database.pools(2, 2), Arc::new(old_first()));
    let changed = join_all(endpoints.iter().map(|endpoint| {
        let tenants = &tenants;
        async move {
            for value in ["1", "2", "3"] {
                let change = ("x-own".to_owned(), Some(value.to_owned()));
                let patch = EndpointPatch {
                    headers: Some(HeaderChanges::Merge([change].into())),
                    ..EndpointPatch::default()
                };
                tenants.patch(endpoint, patch).await;
            }
        }
    }));
    let ring = both();
    let resealed = async {
        for _ in 0..5 {
            to_the_end(&database, &ring).await;
        }
    };
    futures_util::join!(changed, resealed);
    to_the_end(&database, &ring).await;
    let cache = ConfigCache::new(database.clone(), Arc::new(new_alone()));
    cache.reload().await.unwrap();
    let snapshot = cache.snapshot();
    for endpoint in endpoints {
        let entry = snapshot.endpoint(scene.tenant, endpoint.id).unwrap();
        let config = entry.config.as_ref().unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(config.headers.get("x-own"), Some("3"));
    }
}
