use posthorn_domain::id::EndpointId;
use uuid::Uuid;

use super::*;

#[test]
fn a_tenant_with_one_endpoint_is_parked_among_the_first_however_many_another_has() {
    let of = |tenant, endpoint| ParkedEndpoint {
        tenant: TenantId::from_uuid(Uuid::from_u128(tenant)),
        endpoint: EndpointId::from_uuid(Uuid::from_u128(endpoint)),
    };
    let crowd = (0..1000).map(|endpoint| of(1, endpoint));
    let few = [of(2, 5000), of(3, 5001)];
    let overfull = crowd.chain(few).map(|of| (of, Why::Capacity)).collect();
    let turns = by_turns(overfull);
    assert_eq!(turns.len(), 1002);
    for one in few {
        assert!(turns[..3].contains(&(one, Why::Capacity)), "{one:?}");
    }
}
