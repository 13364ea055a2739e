//! Test sends: what passes between the API, where a person asks for one, and the engine of the same process, which sends it.
//!
//! A test send is one request to an endpoint, now, so that somebody sees what comes of it. It is no delivery: its event is in no
//! log and has an id of its own, nothing follows from its answer, and nothing is sent again. Its attempt alone is on record.
//!
//! Guarantees: so many at a time on a node, and so many of a tenant (INV-11, INV-13); who asks for more is refused at once.
//! A place is taken until the request has ended, whether or not anybody still waits for it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use posthorn_domain::event_type::EventType;
use posthorn_domain::id::{EndpointId, TenantId};
use posthorn_domain::limits;
use tokio::sync::{mpsc, oneshot};

use crate::read::Attempt;
use crate::scope::TenantScope;

/// What is to be sent.
#[derive(Clone, Debug)]
pub struct TestSend {
    /// Who asks.
    pub scope: TenantScope,
    /// To which endpoint.
    pub endpoint: EndpointId,
    /// The type of the event that it pretends to be.
    pub event_type: EventType,
    /// The payload, which is JSON.
    pub payload: Bytes,
}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TestSendError {
    /// As many of this tenant are under way as may be.
    #[error("too many test sends of the tenant are under way")]
    TooMany,
    /// As many are under way on this node as may be.
    #[error("too many test sends are under way")]
    Busy,
    /// The tenant has no such endpoint.
    #[error("there is no such endpoint")]
    NoEndpoint,
    /// This node sends no more. Where one was under way, nobody knows what came of it.
    #[error("the server is shutting down")]
    ShuttingDown,
}

/// A test send on its way to whoever sends it.
#[derive(Debug)]
pub struct Asked {
    /// What is to be sent.
    pub test: TestSend,
    /// Where whoever asked waits for the attempt.
    pub answer: oneshot::Sender<Result<Attempt, TestSendError>>,
    /// Its place among those under way. Kept until the request has ended.
    pub place: Place,
}

/// The asking side. Cheap to clone.
#[derive(Clone)]
pub struct TestSends {
    asked: mpsc::Sender<Asked>,
    room: Room,
}

impl TestSends {
    /// The asking side, and where what is asked for comes out.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Asked>) {
        let (asked, queue) = mpsc::channel(limits::TEST_SENDS);
        let room = Room::default();
        (Self { asked, room }, queue)
    }

    /// Has one request sent, and answers its attempt when it has ended. Dropping the future does not undo it.
    ///
    /// # Errors
    /// [`TestSendError`]: nothing was sent, but for a node that is shutting down.
    pub async fn send(&self, test: TestSend) -> Result<Attempt, TestSendError> {
        let place = self.room.take(test.scope.tenant())?;
        let (answer, answered) = oneshot::channel();
        let asked = Asked {
            test,
            answer,
            place,
        };
        // There are as many places in the queue as there are to be taken.
        self.asked
            .try_send(asked)
            .map_err(|_| TestSendError::ShuttingDown)?;
        answered.await.unwrap_or(Err(TestSendError::ShuttingDown))
    }
}

/// How many are under way, by tenant.
#[derive(Clone, Debug, Default)]
struct Room {
    taken: Arc<Mutex<HashMap<TenantId, usize>>>,
}

impl Room {
    fn take(&self, tenant: TenantId) -> Result<Place, TestSendError> {
        let mut taken = self.lock();
        let under_way: usize = taken.values().sum();
        let own = taken.get(&tenant).copied().unwrap_or(0);
        if own >= limits::TEST_SENDS_PER_TENANT {
            return Err(TestSendError::TooMany);
        }
        if under_way >= limits::TEST_SENDS {
            return Err(TestSendError::Busy);
        }
        taken.insert(tenant, own + 1);
        Ok(Place {
            room: self.clone(),
            tenant,
        })
    }

    fn leave(&self, tenant: TenantId) {
        if let Entry::Occupied(mut own) = self.lock().entry(tenant) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the test sends under way; dropping it makes room for the next.
#[derive(Debug)]
pub struct Place {
    room: Room,
    tenant: TenantId,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.leave(self.tenant);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn tenant(n: usize) -> TenantId {
        TenantId::from_uuid(Uuid::from_u128(n as u128))
    }

    #[test]
    fn a_tenant_has_so_many_places_and_no_more_until_one_is_free() {
        let room = Room::default();
        let mut places: Vec<_> = (0..limits::TEST_SENDS_PER_TENANT)
            .map(|_| room.take(tenant(1)).unwrap())
            .collect();
        assert_eq!(room.take(tenant(1)).unwrap_err(), TestSendError::TooMany);
        let of_another = room.take(tenant(2)).unwrap();
        places.pop();
        places.push(room.take(tenant(1)).unwrap());
        assert_eq!(room.take(tenant(1)).unwrap_err(), TestSendError::TooMany);
        drop((places, of_another));
        assert!(room.lock().is_empty());
    }

    #[test]
    fn a_node_has_so_many_places_for_all_tenants() {
        let room = Room::default();
        let places: Vec<_> = (0..limits::TEST_SENDS)
            .map(|n| {
                room.take(tenant(n / limits::TEST_SENDS_PER_TENANT))
                    .unwrap()
            })
            .collect();
        assert_eq!(
            room.take(tenant(limits::TEST_SENDS)).unwrap_err(),
            TestSendError::Busy
        );
        drop(places);
        assert!(room.take(tenant(limits::TEST_SENDS)).is_ok());
    }
}
