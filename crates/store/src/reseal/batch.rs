//! One batch of rows: read behind a place, opened, sealed, and written where they are still as they were read.

use posthorn_domain::limits;
use posthorn_domain::seal::KeyRing;
use secrecy::ExposeSecret as _;
use uuid::Uuid;

use super::ResealError;
use crate::configuration::{associated_data, compat_data};
use crate::database::{Database, DatabaseError};
use crate::entropy::Entropy;
use crate::idempotent::bound_to;

/// What a batch needs.
pub(super) struct Batch<'a> {
    pub(super) database: &'a Database,
    pub(super) ring: &'a KeyRing,
    pub(super) entropy: Entropy,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) sealed: u64,
    pub(super) broken: u64,
}

/// A sealed text, and where it lies.
pub(super) struct Row<P> {
    place: P,
    key_id: String,
    sealed: Vec<u8>,
}

/// A text that was sealed anew, what lay there, and where.
pub(super) struct Fresh<P> {
    place: P,
    old: Vec<u8>,
    new: Vec<u8>,
}

/// A place in a table: the key of a row.
pub(super) trait Place: Clone {
    /// The rows behind it that another key than `current` has sealed, in the order of their keys.
    async fn rows(
        &self,
        database: &Database,
        current: &str,
    ) -> Result<Vec<Row<Self>>, DatabaseError>;

    /// What a row's text is bound to.
    fn bound(&self) -> Vec<u8>;

    /// Writes the new texts where the old ones still lie. Answers how many did.
    async fn write(
        database: &Database,
        current: &str,
        texts: &[Fresh<Self>],
    ) -> Result<u64, DatabaseError>;
}

impl Batch<'_> {
    /// Seals the rows behind a place anew; answers the place of the last, and nothing where there was none.
    pub(super) async fn run<P: Place>(
        &self,
        after: P,
    ) -> Result<(Option<P>, Counted), ResealError> {
        let current = self.ring.current_id();
        let rows = after.rows(self.database, current).await?;
        let last = rows.last().map(|row| row.place.clone());
        let mut counted = Counted::default();
        let mut texts = Vec::with_capacity(rows.len());
        for Row {
            place,
            key_id,
            sealed: old,
        } in rows
        {
            let bound = place.bound();
            let Ok(plain) = self.ring.open(&key_id, &old, &bound) else {
                counted.broken += 1;
                continue;
            };
            let nonce = self.entropy.bytes();
            let new = self.ring.seal(plain.expose_secret(), &bound, nonce)?.bytes;
            texts.push(Fresh { place, old, new });
        }
        if !texts.is_empty() {
            counted.sealed = P::write(self.database, current, &texts).await?;
        }
        Ok((last, counted))
    }
}

/// The texts apart, as statements take them.
fn apart<P>(texts: &[Fresh<P>]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let old = texts.iter().map(|text| text.old.clone());
    let new = texts.iter().map(|text| text.new.clone());
    (old.collect(), new.collect())
}

/// A signing secret: tenant, endpoint, its own id.
#[derive(Clone, Copy)]
pub(super) struct Secrets(pub(super) Uuid, pub(super) Uuid, pub(super) Uuid);

impl Place for Secrets {
    async fn rows(
        &self,
        database: &Database,
        current: &str,
    ) -> Result<Vec<Row<Self>>, DatabaseError> {
        let rows = sqlx::query!(
            "SELECT tenant_id, endpoint_id, id, key_id, sealed FROM endpoint_secrets
             WHERE (tenant_id, endpoint_id, id) > ($1, $2, $3) AND key_id <> $4
             ORDER BY tenant_id, endpoint_id, id
             LIMIT $5",
            self.0,
            self.1,
            self.2,
            current,
            limits::RESEAL_ROWS,
        )
        .fetch_all(database.system())
        .await?;
        let row = rows.into_iter().map(|row| Row {
            place: Self(row.tenant_id, row.endpoint_id, row.id),
            key_id: row.key_id,
            sealed: row.sealed,
        });
        Ok(row.collect())
    }

    fn bound(&self) -> Vec<u8> {
        associated_data(self.0, self.2).to_vec()
    }

    async fn write(
        database: &Database,
        current: &str,
        texts: &[Fresh<Self>],
    ) -> Result<u64, DatabaseError> {
        let ids = |of: fn(&Self) -> Uuid| -> Vec<Uuid> {
            texts.iter().map(|text| of(&text.place)).collect()
        };
        let (old, new) = apart(texts);
        let hit = sqlx::query!(
            "UPDATE endpoint_secrets AS s SET key_id = $1, sealed = n.new
             FROM unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::bytea[], $6::bytea[]) AS n (tenant_id, endpoint_id, id, old, new)
             WHERE s.tenant_id = n.tenant_id AND s.endpoint_id = n.endpoint_id AND s.id = n.id AND s.sealed = n.old",
            current,
            &ids(|place| place.0),
            &ids(|place| place.1),
            &ids(|place| place.2),
            &old,
            &new,
        )
        .execute(database.system())
        .await?;
        Ok(hit.rows_affected())
    }
}

/// A place for a text in two columns of an endpoint's row, and what that text is bound to. The statements are checked as they stand
/// here, for each pair of columns.
macro_rules! beside_an_endpoint {
    ($(#[$doc:meta])* $name:ident, $key_id:literal, $sealed:literal, $bound:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $name(pub(super) Uuid, pub(super) Uuid);

        impl Place for $name {
            async fn rows(
                &self,
                database: &Database,
                current: &str,
            ) -> Result<Vec<Row<Self>>, DatabaseError> {
                let rows = sqlx::query!(
                    "SELECT tenant_id, id, " + $key_id + " AS \"key_id!\", " + $sealed + " AS \"sealed!\" FROM endpoints
                     WHERE (tenant_id, id) > ($1, $2) AND " + $key_id + " <> $3
                     ORDER BY tenant_id, id
                     LIMIT $4",
                    self.0,
                    self.1,
                    current,
                    limits::RESEAL_ROWS,
                )
                .fetch_all(database.system())
                .await?;
                let row = rows.into_iter().map(|row| Row {
                    place: Self(row.tenant_id, row.id),
                    key_id: row.key_id,
                    sealed: row.sealed,
                });
                Ok(row.collect())
            }

            fn bound(&self) -> Vec<u8> {
                $bound(self.0, self.1).into()
            }

            async fn write(
                database: &Database,
                current: &str,
                texts: &[Fresh<Self>],
            ) -> Result<u64, DatabaseError> {
                let tenants: Vec<_> = texts.iter().map(|text| text.place.0).collect();
                let ids: Vec<_> = texts.iter().map(|text| text.place.1).collect();
                let (old, new) = apart(texts);
                let hit = sqlx::query!(
                    "UPDATE endpoints AS e SET " + $key_id + " = $1, " + $sealed + " = n.new
                     FROM unnest($2::uuid[], $3::uuid[], $4::bytea[], $5::bytea[]) AS n (tenant_id, id, old, new)
                     WHERE e.tenant_id = n.tenant_id AND e.id = n.id AND e." + $sealed + " = n.old",
                    current,
                    &tenants,
                    &ids,
                    &old,
                    &new,
                )
                .execute(database.system())
                .await?;
                Ok(hit.rows_affected())
            }
        }
    };
}

beside_an_endpoint!(
    /// An endpoint's headers: tenant, endpoint.
    Headers,
    "headers_key_id",
    "headers_sealed",
    associated_data
);

beside_an_endpoint!(
    /// The secret of an endpoint's signature in the form of others: tenant, endpoint.
    Compats,
    "compat_key_id",
    "compat_sealed",
    compat_data
);

/// An answer that is kept for its idempotency key: tenant, route, key.
#[derive(Clone)]
pub(super) struct Answers(pub(super) Uuid, pub(super) String, pub(super) String);

impl Place for Answers {
    async fn rows(
        &self,
        database: &Database,
        current: &str,
    ) -> Result<Vec<Row<Self>>, DatabaseError> {
        let rows = sqlx::query!(
            r#"SELECT tenant_id, route, key, key_id AS "key_id!", sealed AS "sealed!" FROM idempotent_answers
               WHERE (tenant_id, route, key) > ($1, $2, $3) AND key_id <> $4
               ORDER BY tenant_id, route, key
               LIMIT $5"#,
            self.0,
            self.1,
            self.2,
            current,
            limits::RESEAL_ANSWERS,
        )
        .fetch_all(database.system())
        .await?;
        let row = rows.into_iter().map(|row| Row {
            place: Self(row.tenant_id, row.route, row.key),
            key_id: row.key_id,
            sealed: row.sealed,
        });
        Ok(row.collect())
    }

    fn bound(&self) -> Vec<u8> {
        bound_to(self.0, &self.1, &self.2)
    }

    async fn write(
        database: &Database,
        current: &str,
        texts: &[Fresh<Self>],
    ) -> Result<u64, DatabaseError> {
        let tenants: Vec<_> = texts.iter().map(|text| text.place.0).collect();
        let routes: Vec<_> = texts.iter().map(|text| text.place.1.clone()).collect();
        let keys: Vec<_> = texts.iter().map(|text| text.place.2.clone()).collect();
        let (old, new) = apart(texts);
        let hit = sqlx::query!(
            "UPDATE idempotent_answers AS a SET key_id = $1, sealed = n.new
             FROM unnest($2::uuid[], $3::text[], $4::text[], $5::bytea[], $6::bytea[]) AS n (tenant_id, route, key, old, new)
             WHERE a.tenant_id = n.tenant_id AND a.route = n.route AND a.key = n.key AND a.sealed = n.old",
            current,
            &tenants,
            &routes,
            &keys,
            &old,
            &new,
        )
        .execute(database.system())
        .await?;
        Ok(hit.rows_affected())
    }
}
